"""The generated reference: every verb, flag, key, setting and exit code; man pages that groff reads."""

import re
import shutil
import sys
from pathlib import Path

import pytest
from tools import completed

from bareboat import config
from bareboat.cli import main
from bareboat.model import Job
from bareboat.model.job import KEYS
from bareboat.model.keys import replaced
from bareboat_base import errors, ranges
from bareboat_base.errors import BareboatError

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "tools"))

import manual  # noqa: E402
import reference  # noqa: E402

COMMANDS = reference.commands()
LEAVES = [leaf for command in COMMANDS for leaf in (command.actions or (command,))]


def test_every_verb_is_described() -> None:
    assert [command.name for command in COMMANDS] == list(main.VERBS)
    for leaf in LEAVES:
        assert leaf.meaning, leaf.name
        assert leaf.example.startswith("bareboat"), leaf.name
        for argument in leaf.arguments:
            assert argument.meaning, (leaf.name, argument)
            assert argument.names or argument.value, (leaf.name, argument)


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: leaf.name)
def test_flags_are_those_of_the_help(leaf: reference.Command, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main._parser(list(leaf.words)).parse_args([*leaf.words, "--help"])
    shown = set(re.findall(r"^  (?:-\w(?: \S+)?, )?(--[\w-]+)", capsys.readouterr().out, re.MULTILINE))
    assert {set(argument.names) & shown != set() for argument in leaf.arguments if argument.names} <= {True}
    assert shown <= {name for argument in leaf.arguments for name in argument.names}


def test_keys_have_the_types_ranges_and_defaults_of_the_models() -> None:
    keys = {key.name: key for key in reference.job_keys()}
    assert all(key.kind for key in keys.values())
    assert set(ranges.RANGES) & set(keys) >= {"walltime_s", "topology.nodes", "prove.margin"}
    assert keys["topology.nodes"].default == "1"
    assert "1,000,000" in keys["topology.nodes"].allowed
    assert keys["scheduling.mem_per_node_bytes"].kind == "size"
    assert keys["engine"].flag == "--engine"
    assert keys["modules"].setting == "modules"
    assert keys["modules"].kind == "list of strings"


def test_the_values_of_limited_strings_are_those_that_the_types_accept() -> None:
    job = Job(name="x", workdir="/", command=("true",))
    limited = {name: key.values for name, key in KEYS.items() if key.values}
    assert set(limited) == {"form", "delivery", "fabric", "prove.layout"}
    for name, values in limited.items():
        for value in values:
            replaced(job, {name: value})
        with pytest.raises(BareboatError):
            replaced(job, {name: "other"})


def test_settings_are_those_that_bareboat_reads(tmp_path: Path) -> None:
    for setting in reference.settings():
        value = {"true or false": "true", "integer": "5", "number": "0.6"}.get(setting.kind)
        value = value or setting.allowed.partition(",")[0] or "/x"
        found = config.resolve({}, folder=None, environment={"HOME": str(tmp_path), setting.variable: value})
        assert found.settings[setting.name].source == f"environment {setting.variable}"


def test_exit_codes_are_those_of_the_errors() -> None:
    codes = reference.exit_codes()
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, BareboatError):
            assert error.code in codes, error
    assert {0, 70, 75, 126, 127, 130, 141} <= set(codes)
    assert all(meaning and not meaning.endswith(".") for meaning in codes.values())


def test_environment_variables_that_the_program_reads_are_listed() -> None:
    """Only names that the code reads from the user's own environment by a literal name."""
    listed = {name for names in reference.ENVIRONMENT for name in names.split(", ")}
    # Every program's, and what a shell tells a program whose line it completes.
    own = {"HOME", "PATH", "USER", "LOGNAME", "XDG_RUNTIME_DIR", "PYTHONPATH", "COMP_LINE", "COMP_POINT"}
    read = set()
    for path in (ROOT / "src").rglob("*.py"):
        if {"runtime", "engines", "inside", "mpi", "gallery", "studies"} & set(path.parts):  # inside a job
            continue
        read |= set(re.findall(r'os\.environ(?:\.get\(|\[)"([A-Z]\w+)"', path.read_text()))
    assert {name for name in read - own if not name.startswith("BAREBOAT_")} <= listed


# -- the man pages ---------------------------------------------------------------------------------------


PAGES = manual.pages()


@pytest.mark.parametrize("name", PAGES)
def test_groff_shows_the_page_without_a_warning_at_80_columns(name: str) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed: apt-get install groff")
    command = ["groff", "-man", "-Tutf8", "-ww", "-K", "utf8", "-rLL=80n"]
    done = completed(command, input=PAGES[name])
    assert (done.returncode, done.stderr) == (0, "")
    shown = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
    assert max(map(len, shown.splitlines())) <= 100  # a long example is not folded
    verb = name.removeprefix("bareboat-").removesuffix(".1")
    for leaf in LEAVES:
        if leaf.words[0] == verb:
            flat = " ".join(shown.split()).replace("\u2010", "-").replace("\u2212", "-")
            for argument in leaf.arguments:
                assert argument.written in flat, argument.written
