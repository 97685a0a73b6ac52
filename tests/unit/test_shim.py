"""Shims: command lines by their table, refusals, the variables and mounts of a container, the files."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tools import completed, executable

from bareboat.cli.main import main as bareboat
from bareboat_base.errors import UsageError
from bareboat_shim import apptainer, apptainer_environment, apptainer_mounts, images, shims, udocker_table
from bareboat_shim.apptainer_table import TABLE
from bareboat_shim.main import main
from bareboat_shim.table import Line, Malformed, Mistake, parse


def line(*words: str, environment: Mapping[str, str] | None = None) -> Line:
    return parse(TABLE, words, environment or {})


def test_a_verb_s_flag_hides_that_of_all_verbs() -> None:
    assert line("shell", "-s", "/bin/zsh", "box").value("shell") == "/bin/zsh"
    assert line("-s", "shell", "box").has("silent")


@pytest.mark.parametrize(
    "words",
    [
        (), ("no-verb",), ("exec", "--no-flag", "box", "true"), ("exec", "-y", "box", "true"),
        ("exec", "box"), ("exec", "--bind"), ("exec", "--cleanenv=yes", "box", "true"), ("pull",),
    ],
)  # fmt: skip
def test_what_has_not_the_tool_s_form_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(Malformed):
        line(*words)


@pytest.mark.parametrize(
    ("table", "verb", "flag"),
    [
        (table, verb, flag)
        for table in (TABLE, udocker_table.TABLE)
        for verb in table.verbs
        for flag in verb.flags
        if flag.refused
    ],
)
def test_every_refused_flag_and_its_variables_are_refused_by_name(table, verb, flag) -> None:
    value = ["x"] if flag.value else []
    for name in flag.names:
        with pytest.raises(Mistake, match=f"{flag.names[0]} is not supported: "):
            parse(table, [verb.name, name, *value, "box", "true"], {})
    for name in flag.variables:
        for prefix in table.prefixes:
            with pytest.raises(Mistake, match=f"APPTAINER_{name} is not supported: "):
                parse(table, [verb.name, "box", "true"], {prefix + name: "1"})


@pytest.mark.parametrize("verb", [*TABLE.verbs, *udocker_table.TABLE.verbs])
def test_no_name_stands_for_two_flags(verb) -> None:
    names = [name for flag in verb.flags for name in (*flag.names, *flag.variables)]
    assert len(names) == len(set(names))
    assert all(flag.meaning or flag.refused for flag in verb.flags)


def values(read: Line, outside: Mapping[str, str], image: Mapping[str, str] | None = None) -> dict[str, str]:
    found = apptainer_environment.environment(
        read, outside, image or {}, home="/home/eve", name="box", path="/box"
    )
    start = apptainer_environment.started(["true"], found, scripts=False, has_shell=False, evaluates=False)
    return dict(start.environment)


@pytest.mark.parametrize("text", ["no assignment", "A='open", "A=$(id)", "1A=x"])
def test_a_damaged_environment_file_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "variables").write_text(f"\n{text}\n")
    with pytest.raises(Mistake, match="line 2"):
        values(line("exec", "--env-file", str(tmp_path / "variables"), "box", "true"), {})


def test_scripts_of_the_image_run_before_values_that_override_them() -> None:
    found = apptainer_environment.Variables({"A": "1"}, {"C": "of the shell"}, {"B": "$(id)"})
    start = apptainer_environment.started(["ls"], found, scripts=True, has_shell=True, evaluates=True)
    assert start.command[:2] == ("/bin/sh", "-c")
    assert start.command[3:] == ("sh", "ls")
    assert "(id)" not in start.command[2], "the argv shows no value"
    assert "C" not in start.environment
    assert set(start.environment.values()) == {"1", "of the shell", '"$(id)"'}


@pytest.mark.parametrize("text", ["$HOME", "`id`", "a\\b"])
def test_values_that_a_shell_evaluates_require_one_in_the_image(text: str) -> None:
    found = apptainer_environment.Variables({"PATH": "/bin"}, {}, {"B": text})
    with pytest.raises(Mistake, match="/bin/sh"):
        apptainer_environment.started(["ls"], found, scripts=False, has_shell=False, evaluates=True)


@pytest.mark.parametrize("kind", ["fifo", "zero", "large"])
def test_a_file_of_variables_is_a_regular_one_of_limited_size(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "variables"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    else:
        with path.open("wb") as stream:
            stream.truncate(1 << 40)
    with pytest.raises(Mistake, match="cannot read") as caught:
        values(line("exec", "--env-file", str(path), "box", "true"), {})
    assert "regular file" in caught.value.remedy


def test_shims_are_not_written_where_others_could_replace_them(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(UsageError, match="others could replace"):
        shims.write(tmp_path / "shared", ["udocker"], force=True, dry_run=True)


def shown(*words: str, home: str = "/root") -> apptainer_mounts.Shown:
    return apptainer_mounts.shown(line("exec", *words, "box", "true"), user_home=home)


@pytest.mark.parametrize(
    "words",
    [
        ("--bind", "/no-such-source"), ("--bind", "/usr:/x:exec"), ("--mount", "type=tmpfs,dst=/x"),
        ("--mount", "type=bind,src=/usr"), ("--home", "/no-such-home"), ("--home", "/usr:relative"),
        ("--workdir", "/no-such-directory"), ("--no-mount", "proc"), ("--no-mount", "nonsense"),
        ("--bind", "/usr:/tmp/no-such-directory/x"),
    ],
)  # fmt: skip
def test_impossible_mounts_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(Mistake):
        shown(*words)


@pytest.mark.parametrize(
    "text", ["library://x", "oras://x/y:1", "shub://x", "instance://x", "https://x/y.sif"]
)
def test_images_from_elsewhere_are_refused_by_name(text: str) -> None:
    with pytest.raises(Mistake, match=text.partition(":")[0]):
        images.reference(text)


def test_a_pulled_image_has_the_tool_s_file_name() -> None:
    assert images.default_file("docker://debian") == "debian_latest.sif"
    assert images.default_file("docker://quay.io/a/b:1.0") == "b_1.0.sif"


def test_errors_have_the_tool_s_form(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("apptainer", "/shim", ["exec", "--nope", "box", "true"], {"PATH": "/bin"}) == TABLE.code
    assert capsys.readouterr().err.startswith("FATAL:   unknown flag of exec: --nope\n  try: ")
    assert main("apptainer", "/shim", ["exec", "/no/such/image", "true"], {"PATH": "/bin"}) == TABLE.fatal
    assert main("singularity", "/shim", ["--version"], {"PATH": "/bin"}) == 0
    assert capsys.readouterr().out == f"apptainer version {TABLE.version}\n"
    assert main("singularity", "/shim", ["--help"], {"PATH": "/bin"}) == 0
    assert "--bind, -B SRC" in capsys.readouterr().out


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without the tools."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path


def test_an_installed_tool_has_priority(alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    executable(alone / "bin/apptainer", "#!/bin/sh\necho real $*\n")
    into = str(alone / "shims")
    shim = ["shim", "--into", into, "--tools", "apptainer,singularity"]
    for more, written in (([], 1), (["--force", "--dry-run"], 1), (["--force"], 2)):
        assert bareboat([*shim, *more]) == 0
        assert sorted(os.listdir(into)) == ["apptainer", "singularity"][-written:]
    assert f"{alone}/bin/apptainer" in capsys.readouterr().err


def run(shim: Path, *words: str, **environment: str) -> tuple[int, str, str]:
    done = completed([shim, *words], env=environment, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_a_shim_starts_the_tool_that_it_finds_later(alone: Path) -> None:
    shims.write(alone / "shims", ["apptainer"], force=False, dry_run=False)
    shim = alone / "shims/apptainer"
    assert run(shim, "--version", PATH="/usr/bin")[:2] == (0, f"apptainer version {TABLE.version}\n")
    executable(alone / "bin/apptainer", "#!/bin/sh\necho real $*\n")
    assert run(shim, "exec", "x", PATH=f"{shim.parent}:{alone}/bin:/usr/bin")[:2] == (0, "real exec x\n")
    shims.write(alone / "shims", ["apptainer"], force=True, dry_run=False)
    assert run(shim, "version", PATH=f"{alone}/bin:/usr/bin")[:2] == (0, f"{TABLE.version}\n")


def test_a_shim_needs_no_path_and_says_where_it_cannot_run(alone: Path) -> None:
    shims.write(alone / "shims", ["apptainer"], force=True, dry_run=False)
    shim = alone / "shims/apptainer"
    assert run(shim, "version")[:2] == (0, f"{TABLE.version}\n")
    for inside in ({"BAREBOAT_SHIM": "apptainer"}, {"BAREBOAT_IMAGE": "sha256:1"}):  # of a shim, of a job
        code, _, said = run(shim, "exec", "box", "true", **inside)
        assert (code, "is called in a container" in said) == (255, True)
    executable(shim, shim.read_text().replace(f"python={sys.executable}", "python=/no/python"))
    code, _, said = run(shim, "version")
    assert (code, "/no/python" in said, "bareboat shim --into" in said) == (255, True, True)


def test_other_files_are_not_replaced(alone: Path) -> None:
    (alone / "shims").mkdir()
    (alone / "shims/apptainer").write_text("mine")
    for folder in ("shims", "shims/apptainer"):
        with pytest.raises(UsageError):
            shims.write(alone / folder, ["apptainer"], force=True, dry_run=False)
    assert (alone / "shims/apptainer").read_text() == "mine"


@pytest.mark.parametrize("text", ["no", "[1]", "[" * 100_000])
def test_damaged_labels_of_an_image_are_named(text: str) -> None:
    with pytest.raises(Mistake, match=r"labels\.json is damaged"):
        apptainer._read_labels(text)


@pytest.mark.parametrize("tool", ["podman", "aptainer"])
def test_a_tool_without_a_shim_is_named_with_what_takes_its_place(
    alone: Path, capsys: pytest.CaptureFixture[str], tool: str
) -> None:
    assert bareboat(["shim", "--into", str(alone / "new"), "--tools", tool]) == 2
    assert {"podman": "bareboat run --image", "aptainer": "'apptainer'"}[tool] in capsys.readouterr().err


def test_the_start_of_a_container_loads_few_modules() -> None:
    unneeded = ("logging", "tomllib", "hashlib", "json", "typing_extensions", "inspect", "subprocess")
    program = (
        "import sys; from bareboat_shim import main; main._load_msgspec(); "
        "import bareboat_shim.apptainer, bareboat_shim.udocker, bareboat.api.container, bareboat.api.images; "
        f"print([name for name in {unneeded} if name in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-I", "-c", program], text=True) == "[]\n"
