"""The command line: help, mistakes, exit codes and JSON. No traceback, and nothing imported for nothing."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import make_site
from building import Said
from stored import image_of

from bareboat.cli import console, doctor, plan
from bareboat.cli import job as job_flags
from bareboat.cli.config import ACTIONS as CONFIG_ACTIONS
from bareboat.cli.image import ACTIONS
from bareboat.cli.main import VERBS, main
from bareboat.cli.main import _parse as parse
from bareboat.config import KNOWN
from bareboat.model import EngineFacts, Image, Job, Topology
from bareboat.model.keys import replaced
from bareboat.session import sites
from bareboat_base import __version__
from bareboat_images.store import Store

#: Every command, as its words: the verbs, and the actions of `image` and `config`.
COMMANDS = [
    *((verb,) for verb in VERBS if verb != "image"),
    *(("image", action) for action in ACTIONS),
    *(("config", action) for action in CONFIG_ACTIONS),
]
HEAVY = {"numpy", "torch", "scipy", "matplotlib"}


class Bareboat:
    """`bareboat …` in this process."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured = captured

    def __call__(self, *arguments: str | Path) -> Said:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as end:  # argparse, after --help and --version
            code = int(end.code or 0)
        out, err = self._captured.readouterr()
        assert "Traceback" not in out + err
        assert code != 70, err
        return Said(code, out, err)


@pytest.fixture
def bareboat(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bareboat:
    """Run in a folder of the test's own, on no terminal."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("HOME", str(tmp_path))
    return Bareboat(capsys)


def subprocess_bareboat(*arguments: str | bytes, **environment: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "bareboat", *arguments],
        capture_output=True,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


def refused(said: Said, message: str, *, code: int = 2) -> None:
    """A clear error: nothing on stdout; the message, then what to try."""
    assert said.code == code
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[0].startswith("bareboat: ")
    assert message in lines[0]
    assert lines[-1].startswith("  try: ")
    assert lines[-1] != "  try: "


# help


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_verb_has_help_with_an_example_that_bareboat_understands(
    bareboat: Bareboat, words: tuple[str, ...]
) -> None:
    verb = " ".join(words)
    said = bareboat(*words, "--help")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"usage: bareboat {verb} ")
    flags = ["--json", "--store", "--quiet", "--no-progress", "--verbose"]
    for flag in flags:
        assert flag in said.out
    example = said.out.partition("example:\n")[2]
    assert f"bareboat {verb}" in example
    # Every flag of the example is one of the verb.
    for line in example.splitlines():
        own = line.split(" && ")[0].split(" -- ")[0].split(" > ")[0]
        for word in own.split():
            if word.startswith("-"):
                assert word in said.out.partition("example:\n")[0]


def test_the_version_is_told(bareboat: Bareboat) -> None:
    assert bareboat("--version") == Said(0, f"bareboat {__version__}\n", "")


def imported(output: bytes) -> set[str]:
    lines = output.decode().splitlines()
    return {line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:")}


SETTINGS_AND_PROCESSES = {"subprocess", "msgspec", "bareboat.config", "bareboat_images.store"}


@pytest.mark.parametrize(
    ("words", "read", "left_out"),
    [
        ("--help", "argparse", SETTINGS_AND_PROCESSES),
        ("--version", "argparse", SETTINGS_AND_PROCESSES),
        ("config", "argparse", set()),
        ("config --json", "argparse", set()),
        ("prove --help", "argparse", set()),
        ("image capture --help", "argparse", set()),
        ("report", "argparse", set()),
        ("plan gone.toml", "argparse", set()),
        ("status", "bareboat.runs.state",
         {"bareboat.render", "bareboat.runs.creation", "bareboat.mpi.checks"}),
        ("image rm --unused", "bareboat_images.upkeep.removal",
         {"bareboat.runs.sweeps", "bareboat.runs.state", "bareboat.schedulers"}),
    ],
)  # fmt: skip
def test_a_verb_imports_what_it_needs(words: str, read: str, left_out: set[str]) -> None:
    names = imported(subprocess_bareboat(*words.split()).stderr)
    assert read in names, "the list of imports was read"
    assert {name.partition(".")[0] for name in names} & HEAVY == set()
    assert left_out & names == set()


# mistakes


@pytest.mark.parametrize(
    ("flags", "topology"),
    [
        (("-n", "4"), (1, 4, 0)),
        (("-N", "2", "-n", "6"), (2, 3, 0)),
        (("--nproc-per-node", "4"), (1, 4, 0)),
        (("-N", "2", "--ranks-per-node", "2", "--gpus", "8"), (2, 2, 2)),
        (("--gpus", "0"), (1, 1, 0)),
    ],
)
def test_the_flags_of_other_launchers_mean_the_same(
    flags: tuple[str, ...], topology: tuple[int, int, int]
) -> None:
    options = parse(["run", *flags, "--", "true"])
    job = Job(name="x", workdir=None)
    job = replaced(job, dict(job_flags._of_flags(options, job)))
    given = job_flags._shared(job.topology, options)
    assert (given.nodes, given.ranks_per_node, given.gpus_per_rank) == topology


def test_a_flag_with_the_value_0_is_given() -> None:
    options = parse(["run", "--gpus-per-rank", "0", "--", "true"])
    job = Job(name="x", workdir=None, topology=Topology(gpus_per_rank=2))
    assert replaced(job, dict(job_flags._of_flags(options, job))).topology.gpus_per_rank == 0
    assert job_flags.words_of_run(options)[:2] == ["--gpus-per-rank", "0"]


@pytest.mark.parametrize(
    ("flags", "message", "remedy"),
    [
        (("-N", "2", "-n", "3"), "--ntasks is 3, which cannot be divided evenly over 2 nodes", "--ntasks 4"),
        (("-n", "4", "--gpus", "2"), "--gpus is 2, which cannot be divided evenly over 4", "--gpus 4"),
        (("-n", "4", "--nproc-per-node", "2"), "not allowed with", "bareboat plan --help"),
        (("--gpus", "all"), "--gpus is 'all'; it must be a whole number", "--gpus 1"),
    ],
)
def test_ranks_and_gpus_that_cannot_be_shared_are_refused(
    bareboat: Bareboat, flags: tuple[str, ...], message: str, remedy: str
) -> None:
    said = bareboat("plan", "--engine", "native", *flags, "--", "true")
    refused(said, message)
    assert said.err.splitlines()[-1].startswith(f"  try: {remedy}")


def test_flags_of_every_command_may_stand_before_the_action_of_config(bareboat: Bareboat) -> None:
    assert bareboat("config", "--json", "trust").out == "[]\n"
    assert bareboat("config", "trust", "--json").out == "[]\n"
    for action in ("trust", "store"):
        said = bareboat("config", "--store", "store", action)
        assert said.code == 0, said.err


def test_no_verb_is_refused(bareboat: Bareboat) -> None:
    said = bareboat()
    assert (said.code, said.out) == (2, "")
    lines = said.err.splitlines()
    first = [line.split("  ")[1].split() for line in lines if line.startswith("  bareboat ")]
    assert len(first) == 4
    assert {words[1] for words in first} < {*VERBS}
    assert lines[-1].startswith("  try: bareboat --help")
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("verb", ["doctor", "status", "report", "config"])
def test_a_command_for_a_verb_that_runs_none_is_refused(bareboat: Bareboat, verb: str) -> None:
    refused(bareboat(verb, "--", "true"), f"{verb} does not take a command after --")


def test_a_store_that_cannot_be_made_is_refused(bareboat: Bareboat) -> None:
    Path("file").write_text("")
    refused(bareboat("doctor", "--store", "file"), "is not a directory", code=4)
    Path("closed").mkdir(mode=0)
    refused(bareboat("image", "ls", "--store", "closed/x"), "you may not use the store", code=4)
    for name in ("x" * 5000, "x" * 300, f"gone/{'x' * 300}"):
        refused(bareboat("image", "ls", "--store", name), "is too long", code=4)
    Path("mine").mkdir()
    Path("mine/Containerfile").touch()
    for words in (("image", "ls"), ("doctor",)):
        refused(bareboat(*words, "--store", "mine"), "is not a store, and is not empty", code=4)
    assert os.listdir("mine") == ["Containerfile"]
    for words in (("image", "ls"), ("image", "du"), ("status",)):
        refused(bareboat(*words, "--store", "typo"), "typo does not exist", code=4)


@pytest.mark.parametrize(
    ("words", "level"),
    [
        ("plan", "WARNING"),
        ("plan -v", "INFO"),
        ("plan -vv", "DEBUG"),
        ("doctor -v", "INFO"),
        ("doctor -vv", "DEBUG"),
    ],
)
def test_plan_shows_its_commands_with_vv_only(
    words: str, level: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "bareboat")  # and as it was afterwards
    caplog.handler.setLevel(logging.NOTSET)

    def fail(_context: object) -> int:
        assert logging.getLogger("bareboat").level == getattr(logging, level)
        raise RuntimeError("boom")

    for verb in (doctor, plan):
        monkeypatch.setattr(verb, "run", fail)
    assert main(words.split()) == 70
    assert ("Traceback" in caplog.text) is (level != "WARNING")


# what verbs say


def object_of(said: Said) -> Any:
    return json.loads(said.out)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_doctor_runs_without_a_store_that_can_be_written(
    bareboat: Bareboat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A home that is read-only, and one that does not exist."""
    (tmp_path / "closed").mkdir(mode=0o555)
    for home in (tmp_path / "closed", tmp_path / "closed" / "missing"):
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.delenv("BAREBOAT_STORE", raising=False)
        said = bareboat("doctor")
        assert said.out.startswith("ready: ")
        assert said.code in (3, 4)
        assert len(said.out.splitlines()) + len(said.err.splitlines()) <= 24
        assert bareboat("run", "--engine", "native", "--", "true").code == 4


@pytest.mark.parametrize(("works", "code"), [(True, 0), (False, 3)])
def test_doctors_exit_code_says_whether_a_container_can_be_run(
    bareboat: Bareboat, monkeypatch: pytest.MonkeyPatch, works: bool, code: int
) -> None:
    engines = tuple(
        EngineFacts(
            name=name, path="/x", version="", origin="", works=name == "native" or works,
            detail="it is off", remedy="turn it on",
        )
        for name in ("bubblewrap", "native")
    )  # fmt: skip
    monkeypatch.setattr(sites, "probe", lambda _session, **_: make_site(engines=engines))
    for form in ((), ("--json",)):
        assert bareboat("doctor", *form).code == code
    assert ("try: turn it on" in bareboat("doctor").out) is not works


@pytest.mark.parametrize("flag", [["--partition", "gpu"], ["--node-scratch", "/scratch"]])
def test_doctor_without_compute_submits_nothing_and_says_so(bareboat: Bareboat, flag: list[str]) -> None:
    refused(bareboat("doctor", *flag), f"{flag[0]} requires --compute: without it, no job is submitted")


def test_a_page_of_no_study_is_refused(bareboat: Bareboat) -> None:
    refused(bareboat("report", "-o", "report.html"), "--html: no study is in the store yet")


def kept(store: Store) -> Image:
    image = image_of(store, {"file": "text"})
    store.put_image(image, manifest=b"{}", config=b"{}")
    return image


@pytest.mark.parametrize("words", [("save", "small.tar"), ("save", "rootfs:made")])
def test_certificates_are_read_although_no_registry_is_asked(
    bareboat: Bareboat, tmp_path: Path, words: tuple[str, str]
) -> None:
    image = kept(Store(tmp_path / "store"))
    said = bareboat("image", words[0], image.digest, words[1], "--ca-file", "gone.pem")
    refused(said, "file gone.pem not found")


def test_one_misspelled_image_keeps_the_others(bareboat: Bareboat, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    image = kept(store)
    store.name_image("mine", image.digest)
    refused(bareboat("image", "rm", "mine", "mien"), "image 'mien' not found in the store", code=4)
    assert store.names() == {"mine": image.digest}


def test_a_dry_run_of_a_removal_removes_nothing(bareboat: Bareboat, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    image = kept(store)
    store.name_image("mine", image.digest)
    store.name_image("too", image.digest)
    bareboat("image", "rm", "--dry-run", "mine")
    found = object_of(bareboat("image", "rm", "--dry-run", "--json", image.digest))["removed"]
    assert [(each["image_gone"], sorted(each["references"])) for each in found] == [(True, ["mine", "too"])]
    assert store.names() == {"mine": image.digest, "too": image.digest}
    assert store.has_image(image.digest)


def test_the_commands_of_remedies_are_of_the_same_store(bareboat: Bareboat, tmp_path: Path) -> None:
    store = tmp_path / "a b"
    kept(Store(store))
    there = f"--store '{store}'"
    assert f"  try: bareboat status {there} --all   # lists" in bareboat("logs", "none", "--store", store).err
    found = bareboat("image", "show", "none", "--store", store).err
    assert f"bareboat image pull {there} none   # or: " in found
    assert f"bareboat image ls {there}\n" in bareboat("image", "rm", "none", f"--store={store}").err


def test_a_remedy_is_as_short_as_the_message(bareboat: Bareboat) -> None:
    assert len(bareboat("image", "show", "a" * 50_000).err) < 8000


def test_no_progress_leaves_notes(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet, steps, shown in (
        (False, True, ["[0:00] copying", "a note"]), (False, False, ["a note"]), (True, True, []),
    ):  # fmt: skip
        progress = console.Progress(quiet=quiet, steps=steps)
        progress.say("copying: 1 of 2")
        progress.note("a note")
        progress.end()
        assert capsys.readouterr().err.splitlines() == shown


def test_a_scheduler_s_reason_is_shown_whole_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    progress = console.Progress(quiet=False)
    for text in (
        "a pending (Not Running: resources: ncpus)", "a pending (Not Running: resources: ncpus)",
        "a running (Job run at Fri Nov 27 at 01:06 on (c1:ncpus=1))", "a pending (start in 12 s)",
        "a pending (start in 7 s)",
    ):  # fmt: skip
        progress.say_state(text)
    assert capsys.readouterr().err.splitlines() == [
        "[0:00] a pending (Not Running: resources: ncpus)",
        "[0:00] a running (Job run at Fri Nov 27 at 01:06 on (c1:ncpus=1))",
        "[0:00] a pending (start in 12 s)",
    ]


def test_config_tells_every_setting_and_where_it_came_from(bareboat: Bareboat, tmp_path: Path) -> None:
    Path("bareboat.toml").write_text("\nseed = 7\n")
    said = bareboat("config", "--json", "--store", "here")
    assert said.code == 0
    found = object_of(said)
    assert set(found) == set(KNOWN)
    assert found["store"] == {"value": str(tmp_path / "cwd/here"), "source": "flag --store"}
    assert found["seed"] == {"value": 7, "source": f"project file {tmp_path}/cwd/bareboat.toml, line 2"}
    assert found["repeats"] == {"value": 10, "source": "default"}
    assert found["engine"] == {"value": None, "source": "default"}


def test_the_list_of_no_runs_says_how_to_make_one(bareboat: Bareboat, tmp_path: Path) -> None:
    said = bareboat("report")
    assert (said.code, said.out) == (0, "")
    assert bareboat("report", "--json") == Said(0, "[]\n", "")
    assert not (tmp_path / "store").exists()


WITHOUT_LIBRARIES = """\
import sys
sys.modules |= dict.fromkeys(("numpy", "scipy", "matplotlib"))
from bareboat.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def _without_libraries(place: Path, *words: str) -> Said:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LIBRARIES, *words],
        cwd=place, capture_output=True, text=True, timeout=60, check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(place)},
    )  # fmt: skip
    return Said(done.returncode, done.stdout, done.stderr)


def test_studies_without_what_they_need_say_how_to_get_it(tmp_path: Path) -> None:
    said = _without_libraries(tmp_path, "prove", "--", "true")
    refused(said, "required for a study: numpy, scipy, matplotlib")
    assert "  try: pip install 'bareboat[study]'" in said.err


def test_runs_are_locked_compared_and_replayed_without_what_studies_need(tmp_path: Path) -> None:
    for name in "ab":
        made = _without_libraries(
            tmp_path, "run", "--engine", "native", "--set", f"name={name}", "--", "sh", "-c", f"echo {name}"
        )
        assert made.code == 0, made.err
    assert _without_libraries(tmp_path, "lock", "a", "-o", "a.lock").code == 0
    assert "command" in _without_libraries(tmp_path, "diff", "a.lock", "b").out
    assert _without_libraries(tmp_path, "replay", "a.lock", "--yes").code == 13  # no metric
    assert _without_libraries(tmp_path, "report", "a", "--csv").out == "run,series,rank,step,at_s,value\n"


# bare metal, from the command line to the exit code


def test_a_run_told_as_json_keeps_stdout_for_that(tmp_path: Path) -> None:
    done = subprocess_bareboat(
        "run", "--engine", "native", "--json", "--", "echo", "hello", HOME=str(tmp_path)
    )
    assert json.loads(done.stdout)["exit_code"] == 0
    assert b"hello\n" in done.stderr


def test_the_end_of_all_processes_is_reported_after_a_look() -> None:
    """In a process of its own: this one may have started others."""
    script = (
        "import subprocess\nfrom bareboat.cli.main import _note_stop\n"
        "left = subprocess.Popen(['sleep', '60'])\n_note_stop('stopped', KeyboardInterrupt())\n"
        "left.kill()\nsubprocess.Popen(['sleep', '1'])\nprint(left.pid)\n"
        "_note_stop('stopped', KeyboardInterrupt())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    first, second = done.stderr.strip().split("\n\n")
    assert first.endswith(f"; processes that it started go on; to see them: ps -fp {done.stdout.strip()}")
    assert second == "bareboat: stopped; all its processes have ended"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_plan_is_told_whatever_bytes_the_command_holds(form: list[str]) -> None:
    done = subprocess_bareboat("plan", "--engine", "native", *form, "--", b"printf", b"\xff")
    assert done.returncode == 0, done.stderr
    assert b"printf" in done.stdout


def test_the_job_file_of_the_working_directory_is_taken(bareboat: Bareboat) -> None:
    job = Path("job.toml")
    job.write_text('command = ["true"]\nengine = "native"\n')
    said = bareboat("plan", "--json")
    assert said.code == 0
    assert json.loads(said.out)["job"]["name"] == "job"
    job.chmod(0o666)
    said = bareboat("plan")
    refused(said, "is not taken unless it is named")
    assert "try: bareboat plan job.toml" in said.err


def test_no_engine_is_blamed_for_the_umask_or_an_empty_path(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mask = os.umask(0o777)
    try:
        assert main(["doctor"]) == 2
    finally:
        os.umask(mask)
    assert "the umask 0777 takes new files away from you" in capsys.readouterr().err
    monkeypatch.setenv("PATH", "")
    assert main(["plan", "--", "/bin/true"]) == 2
    assert "PATH is empty" in capsys.readouterr().err


def test_an_interrupt_while_a_class_is_defined_is_an_exit_code_too(tmp_path: Path) -> None:
    """Python would end `python -m` by SIGINT: a dataclass is defined by a text that it executes."""
    (tmp_path / "interrupted.py").write_text(
        "from bareboat.cli import main\n"
        "from bareboat_base import execute  # as when a run is interrupted\n"
        "main._parse = lambda argv: exec('raise KeyboardInterrupt')\n"
        "main.entry()\n"
    )
    done = subprocess.run([sys.executable, "-m", "interrupted", "status"], cwd=tmp_path, capture_output=True)
    assert done.returncode == 130
    assert done.stderr == b"\nbareboat: stopped; all its processes have ended\n"


@pytest.mark.parametrize("kind", ["containers-storage", "docker-daemon"])
def test_the_store_of_another_tool_is_no_file(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["image", "save", "app", f"{kind}:app"]) == 2
    assert not list(tmp_path.iterdir())
    assert "docker-archive:FILE" in capsys.readouterr().err
