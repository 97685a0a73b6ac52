"""The job file of a project, with a comment for each key. Pure."""

from __future__ import annotations

import json
import re
import shlex
import textwrap

from bareboat import registry
from bareboat.project.findings import Draft, Findings
from bareboat.project.surroundings import Place, is_data, is_output
from bareboat_base.errors import UsageError
from bareboat_base.printable import one_line, printable

#: Packages that print or send results with a key of the user's.
_TOKENS = {"wandb": "WANDB_API_KEY", "huggingface_hub": "HF_TOKEN", "transformers": "HF_TOKEN",
           "comet_ml": "COMET_API_KEY", "neptune": "NEPTUNE_API_TOKEN"}  # fmt: skip
_SECRET = ("_TOKEN", "_KEY", "_PASSWORD", "_SECRET")
#: Set by launchers, or by the system.
_GIVEN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "HOME",
          "USER", "PATH", "TMPDIR", "HOSTNAME", "TF_CONFIG", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS",
          "PYTHONPATH", "LOGNAME", "SHELL", "TERM", "DISPLAY", "PWD")  # fmt: skip
_PREFIXES = ("OMPI_", "PMI", "BAREBOAT_", "TORCHELASTIC_", "HOROVOD_", "JAX_", "XLA_")
_MOST_LISTED = 12
_COMPILES = (r"torch\.compile", r"triton\..*", r"deepspeed\..*", r"torch\.utils\.cpp_extension\..*")


def toml(value: object) -> str:
    """A value in TOML. Raises UsageError for text that is not UTF-8, which a job file cannot have."""
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"{one_line(str(value))} is not UTF-8, and a job file is",
            remedy="rename the file, or run it without a job file:  bareboat run -- COMMAND",
        ) from None
    return text


def write(found: Findings, draft: Draft, *, name: str, plans: str = "") -> str:
    """The job file. `name`: of the file; `plans`: why the site cannot run it now."""
    lines = _head(found, name)
    if plans:
        lines += _comment(f"This machine cannot run it yet: {plans}")
    lines += ["", *_command(found), *_workdir(found), "", *_image(found), *_launcher(found, draft)]
    lines += ["", *_mounts(found.around.places), *_tokens(found), *_time(found), ""]
    lines += [*_topology(found, draft), *_environment(found), *_scheduling(found), *_capture(found)]
    return "\n".join(map(_safe, _squeezed(lines))) + "\n"


def summary(found: Findings, draft: Draft) -> str:
    """One line for the user."""
    how = "one process" if draft.ranks == 1 else f"{draft.ranks} ranks"
    gpus = f", {draft.gpus} GPU{'s' if draft.gpus > 1 else ''} each" if draft.gpus else ""
    return f"{found.world.framework}, {how}{gpus}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        one_line(text, limit=1000),
        width=80,
        initial_indent="# ",
        subsequent_indent="# ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _safe(line: str) -> str:
    """A comment cannot have control characters. Values have them escaped."""
    return re.sub(r"[\t\n\r]", " ", printable(line)) if line.lstrip().startswith("#") else line


def _squeezed(lines: list[str]) -> list[str]:
    """Without two empty lines in succession, and none at the end."""
    kept: list[str] = []
    for line in lines:
        if line or (kept and kept[-1]):
            kept.append(line)
    return kept[:-1] if kept and not kept[-1] else kept


def _head(found: Findings, name: str) -> list[str]:
    file = one_line(shlex.quote(name))
    lines = [
        "# Job file, written by `bareboat init`. Change what you like, then:",
        f"#   bareboat plan {file}     # every decision, and its reason",
        f"#   bareboat run {file}      # on this machine",
    ]
    if found.scheduler is not None:
        lines.append(f"#   bareboat submit {file}   # by {_called(found)}")
    return lines


def _called(found: Findings) -> str:
    assert found.scheduler is not None
    return registry.scheduler(found.scheduler.name).TITLE


def _command(found: Findings) -> list[str]:
    lines = []
    subject = one_line(found.script or found.command[0])
    if found.code.fault:
        lines += _comment(
            f"{subject} was not read ({found.code.fault}): its framework and arguments are unknown."
        )
    elif found.script is not None:
        lines += _comment(f"{subject} uses {found.world.framework}.")
    arguments = found.code.arguments
    required = [argument.name for argument in arguments if argument.required]
    given = set(found.command)
    if missing := [name for name in required if name not in given and len(found.command) <= 2]:
        lines += _comment(f"Required arguments, to be added to the command: {', '.join(missing)}")
    if arguments:
        lines += ["# Arguments, with their defaults:"]
        for argument in arguments[:_MOST_LISTED]:
            default = (
                "" if argument.default in (None, "None") else f" {one_line(argument.default or '', limit=40)}"
            )
            note = argument.help
            if argument.text and not argument.text.startswith(("/", "~")):
                kind = "read" if is_data(argument) else "written" if is_output(argument) else ""
                note = note or (f"{kind} in the working directory" if kind else "")
            lines.append(f"#   {argument.name + default:<28} {note}".rstrip()[:100])
        if len(arguments) > _MOST_LISTED:
            lines.append(f"#   and {len(arguments) - _MOST_LISTED} more")
    lines.append(f"command = {toml(list(found.command))}")
    if found.code.downloads:
        lines += _comment(
            "The script downloads data: run it once where there is a network, because compute nodes often "
            "have none."
        )
    return lines


def _workdir(found: Findings) -> list[str]:
    if found.workdir is None:
        return []
    return [*_comment("The project. The container sees this directory, and can write to it."),
            f"workdir = {toml(found.workdir)}"]  # fmt: skip


def _image(found: Findings) -> list[str]:
    around = found.around
    lines = _comment(f"The environment at {around.environment}, captured as an image.")
    if around.lists:
        lines += _comment(f"Its packages: {', '.join(around.lists[:3])} ({around.install}).")
    if around.missing:
        lines += _comment(f"NOT INSTALLED THERE: {', '.join(around.missing)}. Try: {around.install}")
    return [
        *lines,
        'image = "capture"',
        '# image = "pytorch"          # or an image: bareboat image pull REF',
    ]


def _launcher(found: Findings, draft: Draft) -> list[str]:
    lines: list[str] = []
    planned = draft.why.get("planned")
    if draft.launcher is None and planned and found.program is None:  # of which more is known once captured
        name, _, reason = planned.partition(";")[0].partition(": ")
        lines += ["", *_comment(f"The planner chooses {name} to start the ranks: {reason}."),
                  f"# launcher = {toml(name)}"]  # fmt: skip
    if draft.launcher is not None:
        lines += ["", *_comment(f"{_sentence(draft.why['launcher'])}."), f"launcher = {toml(draft.launcher)}"]
    if draft.scheduler is not None:
        lines += [
            "",
            *_comment(f"{_sentence(draft.why['scheduler'])}."),
            f"scheduler = {toml(draft.scheduler)}",
        ]
    return lines


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _mounts(places: tuple[Place, ...]) -> list[str]:
    if not places:
        return [
            "# Directories elsewhere must be mounted; read-only without :rw.",
            '# mounts = ["/data/set", "/scratch/results:rw"]',
        ]
    lines = ["# Directories elsewhere must be mounted; read-only without :rw."]
    lines.append("mounts = [")
    for place in places:
        mount = place.path + (":rw" if place.writable else "")
        off = "" if place.exists else "# "
        gone = "" if place.exists else "; it does not exist here"
        lines.append(f"  {off}{toml(mount)},  # {one_line(place.why, limit=60)}{gone}")
    return [*lines, "]"]


def _tokens(found: Findings) -> list[str]:
    names = [name for package, name in _TOKENS.items() if package in found.code.packages]
    names += [name for name in sorted(found.code.environment) if name.endswith(_SECRET) and name.isupper()]
    names = [name for name in dict.fromkeys(names) if name.isascii() and name.replace("_", "").isalnum()]
    if not names:
        return []
    return ["", *_comment("Secrets, passed on from your shell by name; their values are stored nowhere."),
            f"# environment_from = {toml(names[:8])}"]  # fmt: skip


def _time(found: Findings) -> list[str]:
    if found.scheduler is None:
        return ["", "# The time limit, for a scheduler.", '# walltime_s = "1h"']
    limit = found.partition.max_time_s if found.partition is not None else None
    hours = "1h" if limit is None or limit >= 3600 else f"{max(1, limit // 60)}m"
    assert found.scheduler is not None
    longest = ""
    if limit is not None and found.partition is not None:
        longest = f"; partition {found.partition.name} allows {limit // 3600}h{limit % 3600 // 60:02}m"
    return ["", *_comment(f"{_called(found)} ends the job after this time{longest}."),
            f"walltime_s = {toml(hours)}"]  # fmt: skip


def _topology(found: Findings, draft: Draft) -> list[str]:
    lines = ["[topology]"]
    lines.append("nodes = 1")
    if found.scheduler is not None and found.world.launchers:
        lines[-1] += "                      # more: bareboat submit -N 2"
    lines += _comment(f"{_sentence(draft.why['ranks'])}.")
    lines.append(f"ranks_per_node = {draft.ranks}")
    if draft.cpus is not None:
        lines.append(f"cpus_per_rank = {draft.cpus}".ljust(31) + f"# {draft.why['cpus']}")
    else:
        lines.append("# cpus_per_rank = 2")
    if draft.gpus:
        lines.append(f"gpus_per_rank = {draft.gpus}".ljust(31) + f"# {draft.why['gpus']}")
    elif found.world.uses_gpus:
        lines.append("# gpus_per_rank = 1            # on nodes with GPUs")
    return [*lines, ""]


def _environment(found: Findings) -> list[str]:
    of_jobs = [each for name in registry.names("schedulers") for each in registry.scheduler(name).VARIABLES]
    names = [
        name
        for name in sorted(found.code.environment)
        if name not in _GIVEN and not name.startswith((*_PREFIXES, *of_jobs)) and not name.endswith(_SECRET)
        and name.replace("_", "").isalnum() and name.isascii()
    ]  # fmt: skip
    if not names and not found.extra_path:
        return []
    lines = ["[environment]"]
    if found.extra_path:
        where = ", ".join(found.extra_path)
        lines += _comment(f"The script imports modules in {where}, which are not installed.")
        lines.append(f"PYTHONPATH = {toml(':'.join(found.extra_path))}")
    if names:
        lines.append("# The code reads these; the job gets no other variables of your shell.")
        lines += [f'# {name} = "…"' for name in names[:_MOST_LISTED]]
    return [*lines, ""]


def _scheduling(found: Findings) -> list[str]:
    lines: list[str] = []
    catches = "signal.SIGUSR1" in found.code.names
    again = 75 in found.code.exit_codes
    saves = found.code.uses(
        r"torch\.save", r".*\.ModelCheckpoint", r"torch\.distributed\.checkpoint\..*", r"orbax\..*",
        r".*\.save_checkpoint", r".*\.CheckpointManager", r"tensorflow\.train\.Checkpoint",
    )  # fmt: skip
    if catches and found.scheduler is not None:
        lines += [*_comment("The code handles SIGUSR1: it comes this long before the time limit."),
                  'warning_s = "2 min"']  # fmt: skip
    elif catches:
        lines += [*_comment("The code handles SIGUSR1: it comes this long before walltime_s is over."),
                  '# warning_s = "2 min"']  # fmt: skip
    if again:
        lines += _comment("Exit code 75, which the code uses, starts the job again; so does a lost node.")
        lines.append("requeue = true")
    elif saves:
        seen = f" ({', '.join(found.around.checkpoints)} exists)" if found.around.checkpoints else ""
        lines += _comment(
            f"The code uses {saves}{seen}. After a lost node the job starts again: let the script continue "
            "from its last checkpoint, or set this to false."
        )
        lines.append("# requeue = false")
    partitions = [p.name for p in found.scheduler.partitions if p.up] if found.scheduler is not None else []
    if partitions:
        chosen = found.partition.name if found.partition is not None else partitions[0]
        lines += _comment(f"Partitions here: {', '.join(partitions[:8])}. Without it, your site's default.")
        lines.append(f"# partition = {toml(chosen)}")
    if found.scheduler is not None:
        accounts = found.scheduler.accounts or ()
        if accounts:
            lines += [*_comment(f"Accounts that you can charge: {', '.join(accounts[:8])}."),
                      f"# account = {toml(accounts[0])}"]  # fmt: skip
        lines.append('# mem_per_node_bytes = "16 GiB"')
    return ["[scheduling]", *lines, ""] if lines else []


def _capture(found: Findings) -> list[str]:
    lines: list[str] = []
    if found.around.python is not None:
        lines += [*_comment("The project's own environment, which is not the active one."),
                  f"python = {toml(found.around.python)}"]  # fmt: skip
    if found.program is not None:
        lines += [*_comment("Puts the shared libraries of the program into the image."),
                  f"programs = {toml([found.program])}"]  # fmt: skip
    if (name := found.code.uses(*_COMPILES)) is not None:
        lines += _comment(
            f"{name} compiles while it runs: true puts this machine's C compiler into the image."
        )
        lines.append("# compiler = true")
    return ["[capture]", *lines] if lines else []
