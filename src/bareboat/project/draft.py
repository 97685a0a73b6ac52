"""The job file of a project: what its script's imports and the machine say, with comments. Pure."""

from __future__ import annotations

import re
import shlex
import textwrap
from typing import Any

from msgspec import Struct

from bareboat import registry
from bareboat.model import Partition, SchedulerFacts, Site
from bareboat.project.world import World
from bareboat_base.printable import counted, one_line, printable
from bareboat_base.toml_values import written as toml

#: A first run on CPUs has at most so many ranks.
_FIRST_RANKS = 4
#: A script that few launchers fit is made for one framework, of which an environment may have several.
_FEW = 2


class Drafted(Struct, frozen=True, kw_only=True):
    """A job file or a recipe, with a line and warnings for the user, and facts for programs."""

    text: str
    summary: str
    warnings: tuple[str, ...]
    facts: dict[str, Any]


class Sizes(Struct, frozen=True, kw_only=True):
    """What the ranks of a node get. `where`: the node; `scheduler`: the one that has GPUs, where this machine
    has none."""

    ranks: int
    cpus: int
    gpus: int
    where: str
    scheduler: str | None = None


def scheduler_of(site: Site) -> SchedulerFacts | None:
    return next((facts for facts in site.schedulers if facts.works), None)


def _partition(site: Site) -> Partition | None:
    """The default partition of the site's scheduler, or its first."""
    facts = scheduler_of(site)
    return None if facts is None else facts.partition(None) or next(iter(facts.partitions), None)


def sized(world: World, site: Site) -> Sizes:
    """With GPUs where the script can use them, else on CPUs."""
    facts, partition = scheduler_of(site), _partition(site)
    gpus, cpus, where, scheduler = len(site.gpus) if world.uses_gpus else 0, site.cpus, "this machine", None
    elsewhere = partition.gpus_per_node if partition is not None and world.uses_gpus and not gpus else 0
    if elsewhere and facts is not None and partition is not None:
        gpus, scheduler = elsewhere, facts.name
        where, cpus = f"a node of partition {partition.name}", partition.cpus_per_node or cpus
    if partition is not None and partition.cpus_per_node:
        cpus = min(cpus, partition.cpus_per_node)
    if not world.launchers or (world.per_node and gpus):
        ranks = 1
    elif gpus:
        ranks = gpus
    else:
        ranks = min(cpus, _FIRST_RANKS if world.per_core else 2)
    each = 0 if not gpus else gpus if world.per_node else max(1, gpus // ranks) if world.launchers else 1
    return Sizes(
        ranks=ranks, cpus=max(1, cpus // ranks), gpus=each, where=f"{where} has {cpus} CPUs"
        + (f" and {counted(gpus, 'GPU')}" if gpus else ""), scheduler=scheduler,
    )  # fmt: skip


def write(command: tuple[str, ...], world: World, site: Site, *, name: str, workdir: str | None) -> str:
    """The job file. `name`: of the file; `workdir`: the project's directory, where it is another one."""
    file, facts, sizes = one_line(shlex.quote(name)), scheduler_of(site), sized(world, site)
    lines = [
        "# Job file, written by `bareboat init`. Change what you like, then:",
        f"#   bareboat plan {file}     # every decision, and its reason",
        f"#   bareboat run {file}      # on this machine",
    ]
    if facts is not None:
        lines.append(f"#   bareboat submit {file}   # by {registry.scheduler(facts.name).TITLE}")
    lines += [
        "",
        *_comment(f"It uses {world.framework}; {world.reason}."),
        f"command = {toml(list(command))}",
    ]
    if workdir is not None:
        lines += [*_comment("The container sees this directory, and can write to it."),
                  f"workdir = {toml(workdir)}"]  # fmt: skip
    lines += [
        "# The active Python environment, captured; or an image: bareboat image pull REF",
        'image = "capture"',
        "",
        "# Directories elsewhere must be mounted; read-only without :rw.",
        '# mounts = ["/data/set", "/scratch/results:rw"]',
        "# Secrets, passed on from your shell by name; their values are stored nowhere.",
        '# environment_from = ["WANDB_API_KEY"]',
        "",
    ]
    if 0 < len(world.launchers) <= _FEW:
        lines.append(f"launcher = {toml(world.launchers[0])}")
    if sizes.scheduler is not None:
        lines += [
            *_comment(f"{site.hostname} has no GPU: {sizes.where}."),
            f"scheduler = {toml(sizes.scheduler)}",
        ]
    lines += [*_time(site), "", "[topology]", "nodes = 1"]
    why = "one rank per GPU" if sizes.gpus and sizes.ranks > 1 else "a first number to try it"
    lines += _comment(f"{sizes.where}: {why}." if world.launchers else f"{world.reason}.")
    lines += [f"ranks_per_node = {sizes.ranks}", f"cpus_per_rank = {sizes.cpus}"]
    if sizes.gpus:
        lines.append(f"gpus_per_rank = {sizes.gpus}")
    elif world.uses_gpus:
        lines.append("# gpus_per_rank = 1            # on nodes with GPUs")
    lines += _scheduling(site)
    return "\n".join(map(_safe, lines)) + "\n"


def summary(world: World, site: Site) -> str:
    """One line for the user."""
    sizes = sized(world, site)
    how = "one process" if sizes.ranks == 1 else f"{sizes.ranks} ranks"
    return f"{world.framework}, {how}" + (f", {counted(sizes.gpus, 'GPU')} each" if sizes.gpus else "")


def _comment(text: str) -> list[str]:
    return textwrap.wrap(
        one_line(text[:1].upper() + text[1:], limit=1000), width=80, initial_indent="# ",
        subsequent_indent="# ", break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _safe(line: str) -> str:
    """A comment cannot have control characters. Values have them escaped."""
    return re.sub(r"[\t\n\r]", " ", printable(line)) if line.lstrip().startswith("#") else line


def _time(site: Site) -> list[str]:
    facts, partition = scheduler_of(site), _partition(site)
    limit_s = partition.max_time_s if partition is not None else None
    time = "1h" if limit_s is None or limit_s >= 3600 else f"{max(1, limit_s // 60)}m"
    if facts is None:
        return ["# The time limit, for a scheduler.", f'# walltime_s = "{time}"']
    return [
        f"# {registry.scheduler(facts.name).TITLE} ends the job after this time.",
        f'walltime_s = "{time}"',
    ]


def _scheduling(site: Site) -> list[str]:
    facts, partition = scheduler_of(site), _partition(site)
    if facts is None:
        return []
    lines = ["", "[scheduling]"]
    if partition is not None:
        names = ", ".join(each.name for each in facts.partitions[:8] if each.up)
        lines += [*_comment(f"Partitions here: {names}. Without it, your site's default."),
                  f"# partition = {toml(partition.name)}"]  # fmt: skip
    if facts.accounts:
        lines += [*_comment(f"Accounts that you can charge: {', '.join(facts.accounts[:8])}."),
                  f"# account = {toml(facts.accounts[0])}"]  # fmt: skip
    return [*lines, '# mem_per_node_bytes = "16 GiB"']
