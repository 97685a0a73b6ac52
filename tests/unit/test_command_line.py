"""Mistakes on the command line: what is wrong, what is allowed, a command that would do. Nothing is done."""

import json
import shlex
from pathlib import Path

import pytest

from bareboat import config
from bareboat.cli import console
from bareboat.cli.common import Context
from bareboat.cli.job import read_job, words_of_run
from bareboat.cli.main import _parse, main
from bareboat.model import Job, Topology
from bareboat.session import preparation
from bareboat.session.sites import NoSchedulerError
from bareboat_base.errors import ToolError, UsageError
from bareboat_base.printable import excerpt
from bareboat_images.store import Store


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> list[str]:
    """The lines of the error; nothing on stdout, also with --json, and nothing made."""
    assert main([*words]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert not list(Path.cwd().glob("*.json"))
    lines = err.splitlines()
    assert lines[-1].startswith("  try: ")
    return lines


@pytest.mark.parametrize(
    ("words", "message", "remedy"),
    [
        ("run train.py", "train.py not found in ", "ls "),
        ("run python train.py", "python is a program, not a job file", "bareboat run -- python train.py"),
        ("prove --repeats 3 python train.py --epochs 3", "python is a program, not a job file",
         "bareboat prove --repeats 3 -- python train.py --epochs 3"),
        ("submit ./train.sh -x", "./train.sh is a program, not a job file",
         "bareboat submit -- ./train.sh -x"),
        ("run -N 1 my fit.py", "my not found; did you mean 'my fit.py'?", "bareboat run -N 1 'my fit.py'"),
        ("run fit -x", "fit not found; did you mean 'fit.py'?", "bareboat run fit.py -x"),
        ("run a.toml b.toml", "too many arguments: 'b.toml'", "bareboat run --help"),
        ("prove --reapeats 3 a.toml", "has no flag --reapeats; did you mean --repeats?",
         "bareboat prove --help"),
        ("submit --time 30 a.toml", "--time is '30', without a unit; it must be a time such as 2h30m",
         "--time 30m"),
        ("plan --mem 64000 a.toml", "--mem is '64000', without a unit", "--mem 64000M"),
        ("image ls --nodes 2", "bareboat image ls has no flag --nodes", "bareboat image ls --help"),
        ("--engine podman run a.toml", "bareboat has no flag --engine",
         "bareboat --help   # flags come after the verb"),
        ("image pul x", "has no action 'pul'; did you mean 'pull'?", "bareboat image --help"),
        ("run --json=1", "bareboat run: ", "bareboat run --help"),
        ("image push", "bareboat image push: ", "bareboat image push --help"),
        ("run --epochs=3 train.py", "has no flag --epochs", "bareboat run train.py --epochs=3 "),
        ("submit --gres gpu:1 train.py", "bareboat submit has no flag --gres", "--gpus-per-rank N"),
        ("submit --array=1-3 train.py", "has no flag --array", "write the values of an array under [sweep]"),
        ("run --cpus-per-task 2 -- a", "has no flag --cpus-per-task", "--cpus-per-rank N"),
        ("submit -J x a.toml", "has no flag -J", "--set name=x"),
        ("submit --mail-type=END a.toml", "no flag --mail-type", "--set scheduling.options=--mail-type=END"),
        ("run -e FOO=1 train.py", "has no flag -e", "--set environment.FOO=1"),
        ("run --env FOO=1 -- env", "has no flag --env", "--set environment.FOO=1"),
        ("run -v /a:/b -- env", "bareboat run -v is --verbose, not a mount", "--set mounts=/a:/b:rw   # r"),
        ("run --rm -- env", "has no flag --rm", "remove --rm: a container leaves nothing behind"),
        ("image capture --without-study", "--without-study no longer exists", "capture an environment"),
        ("config site --partition x", "bareboat config site no longer exists", "write ~/.config/bareboat/"),
        ("prove --margin nan -- true", "--margin is 'nan'; it must be a number above 0 and below 1",
         "--margin 0.02"),
    ],
)  # fmt: skip
def test_mistake(capsys: pytest.CaptureFixture[str], words: str, message: str, remedy: str) -> None:
    for name in ("fit.py", "my fit.py"):
        Path(name).touch()
    lines = refused(capsys, *words.split())
    assert message in lines[0]
    assert lines[-1].startswith(f"  try: {remedy}")


def test_a_program_without_a_suffix_is_no_job_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("http").write_text("#!/bin/sh\n")
    Path("http").chmod(0o755)
    lines = refused(capsys, "run", "--engine", "native", "./http", "-x")
    assert lines[-1] == "  try: bareboat run --engine native -- ./http -x"


def test_a_script_of_another_language_is_no_job_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("old.slurm").write_text("#SBATCH -N 1\n./a\n")
    Path("fit.R").write_text("x(1)\n")
    assert refused(capsys, "submit", "old.slurm")[-1] == "  try: bareboat init --from old.slurm"
    assert refused(capsys, "run", "-N1", "fit.R", "3")[-1] == "  try: bareboat run -N1 -- Rscript fit.R 3"
    assert "  try: bareboat init -- PROGRAM fit.R" in refused(capsys, "init", "fit.R")[-1]


def test_a_job_file_may_start_itself(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job").write_text("#!/usr/bin/env -S bareboat plan\nnodes = 2\n")
    assert "unknown key 'nodes'" in refused(capsys, "plan", "job")[0]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ENGINE", "apptaner", "{}: unknown engine 'apptaner'; did you mean 'apptainer'?"),
        ("ENGINE", "docker", "{}: unknown engine 'docker', which needs root: others run its images"),
        ("LAUNCHER", "torchrnu", "{}: unknown launcher 'torchrnu'; did you mean 'torchrun'?"),
        ("DELIVERY", "both", '{} is \'both\'; it must be "auto", "shared" or "node"'),
        ("NODE_SCRATCH", "tmp", "{} is 'tmp'; it must be the absolute path"),
        ("STORE", "https://x/y", "{} is 'https://x/y'; it must be a directory"),
        ("PARTITION", "g\x07pu", "{} is 'g\\x07pu', with a control character"),
        ("ACCOUNT", "\udcff", "{} is '\\xff', with a control character or bytes that are not UTF-8"),
    ],
)
def test_the_source_of_a_setting_is_blamed(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    home: Path,
    name: str,
    value: str,
    message: str,
) -> None:
    Path("job.toml").write_text('command = ["true"]\n[prove]\nrepeats = 3\n')
    code = 3 if "unknown " in message else 2
    monkeypatch.setenv(f"BAREBOAT_{name}", value)
    lines = refused(capsys, "plan", "job.toml", code=code)
    assert lines[0].startswith(f"bareboat: {message.format(f'BAREBOAT_{name}')}")
    assert lines[-1].endswith(f"unset BAREBOAT_{name}")
    monkeypatch.delenv(f"BAREBOAT_{name}")
    flag = f"--{name.lower().replace('_', '-')}"
    if name != "DELIVERY":  # a flag with a few values is read before
        lines = refused(capsys, "plan", "job.toml", flag, value, code=code)
        assert lines[0].startswith(f"bareboat: {message.format(flag)}")
        assert "{}" in message or lines[1] == f"  flag {flag}"
    if name not in ("ACCOUNT", "PARTITION"):  # which TOML cannot hold
        site = home / ".config/bareboat/site.toml"
        site.parent.mkdir(parents=True)
        site.write_text(f"\n{name.lower()} = {json.dumps(value)}\n")
        place = refused(capsys, "plan", "job.toml", code=code)[1]
        assert place.removeprefix("  site file ").strip() == f"{site}, line 2"
        site.unlink()
        if name != "STORE":
            Path("job.toml").write_text(f'command = ["true"]\n{name.lower()} = {json.dumps(value)}\n')
            assert refused(capsys, "plan", "job.toml", code=code)[1] == "  job.toml, line 2"


def test_output_of_a_tool_is_shown_in_part_and_without_escape_codes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = "\x1b[31mred\x1b[0m\x1b]0;title\x07\x1b(B " + "x" * 5000
    console.show_error(ToolError("it failed", context=f"{line}\n" * 30_000, remedy="ls"))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1 + 20 + 1
    assert max(map(len, lines)) <= 202
    assert lines[1].startswith("  red xxx")
    assert "lines omitted)" in lines[6]
    assert "\\x1b" not in "".join(lines)


def test_short_output_is_shown_as_it_is() -> None:
    assert excerpt("a\nb  c\n\nd") == ["a", "b  c", "", "d"]
    assert excerpt("") == []
    assert excerpt("a" * 200) == ["a" * 200]
    assert excerpt("a" * 150 + "b" * 150) == ["a" * 100 + "…" + "b" * 99]
    assert len(excerpt("x\n" * 21)) == 20


# a script in the place of a job file, and flags over the job


def parsed(*words: str) -> tuple[str | None, list[str]]:
    """The job file and the command that the words mean."""
    options = _parse([*words])
    return options.file, options.command


@pytest.mark.parametrize("verb", ["run", "submit", "plan", "prove"])
@pytest.mark.parametrize(
    ("words", "file", "command"),
    [
        ("job.toml", "job.toml", []),
        ("train.py", None, ["python3", "train.py"]),
        ("-N 2 --engine=native train.py --epochs 3", None, ["python3", "train.py", "--epochs", "3"]),
        ("--json train.py --json -q --help", None, ["python3", "train.py", "--json", "-q", "--help"]),
        ("./a/train.py job.toml --bogus", None, ["python3", "./a/train.py", "job.toml", "--bogus"]),
        ("train.py -- -x", None, ["python3", "train.py", "--", "-x"]),
        ("train.py --", None, ["python3", "train.py", "--"]),
        ("-t 2h -- python train.py", None, ["python", "train.py"]),
        ("--image train.py job.toml", "job.toml", []),
        ("-- sh -c -- x.py", None, ["sh", "-c", "--", "x.py"]),
    ],
)
def test_what_follows_a_script_is_the_scripts(
    verb: str, words: str, file: str | None, command: list[str]
) -> None:
    assert parsed(verb, *words.split()) == (file, command)


@pytest.mark.parametrize("verb", ["run", "submit", "plan", "prove"])
@pytest.mark.parametrize(
    ("text", "words", "meant"),
    [
        ("", "-N 2 --epochs 3", "-q -N 2 train.py --epochs 3"),
        ("", "a --mem=1GiB", "-q --mem=1GiB train.py a"),
        ("", "-x --json -N 2", "-q --json -N 2 train.py -x"),
        ("", "--help -h -- --json", None),
        ('add_argument("--ranks-per-node")', "--ranks-per-node 2", None),
        ("def main(ranks_per_node): ...", "--ranks-per-node=2", None),
        ('add_argument("-N")', "-N 2", None),
        ("unknown_json = 1", "--json", "-q --json train.py"),
    ],
)
def test_a_flag_that_follows_a_script_which_does_not_name_it_is_asked_about(
    verb: str, text: str, words: str, meant: str | None
) -> None:
    Path("train.py").write_text(text)
    if meant is None:
        assert job_of(verb, "-q", "train.py", *words.split()).command[2:] == tuple(words.split())
        return
    with pytest.raises(UsageError, match=r"train.py, which does not name") as raised:
        job_of(verb, "-q", "train.py", *words.split())
    assert str(raised.value.remedy).startswith(f"bareboat {verb} {meant}   #")
    assert f"bareboat {verb} -q -- python3 train.py {words}" in raised.value.context
    kept = job_of(verb, "-q", "--", "python3", "train.py", *words.split())
    assert kept.command[2:] == tuple(words.split())


def test_a_script_may_get_empty_arguments() -> None:
    assert parsed("run", "train.py", "--name", "") == (None, ["python3", "train.py", "--name", ""])


@pytest.mark.parametrize("verb", ["run", "submit", "plan", "prove"])
def test_flags_go_over_the_job_file(verb: str) -> None:
    Path("job.toml").write_text(
        'command = ["true"]\nwalltime_s = 60\n[topology]\nnodes = 3\nranks_per_node = 2\n'
        '[scheduling]\nmem_per_node_bytes = "1 GiB"\npartition = "cpu"\n'
    )
    words = [verb, "-N", "4", "--gpus-per-rank", "1", "-t", "1-12:00:00", "-p", "gpu", "-A", "physics"]
    job = job_of(*words, "job.toml")
    assert job.topology == Topology(nodes=4, ranks_per_node=2, gpus_per_rank=1)
    assert (job.walltime_s, job.scheduling.mem_per_node_bytes) == (129_600, 2**30)
    assert (job.scheduling.partition, job.scheduling.account) == ("gpu", "physics")
    Path("train.py").write_text("--mem")
    job = job_of(verb, "--ranks-per-node=2", "--cpus-per-rank", "8", "--mem", "16GiB", "train.py", "--mem=1")
    assert job.topology == Topology(ranks_per_node=2, cpus_per_rank=8)
    assert job.scheduling.mem_per_node_bytes == 2**34
    assert (job.name, job.command) == ("train", ("python3", "train.py", "--mem=1"))


def job_of(*words: str) -> Job:
    options = _parse([*words])
    environment = {"HOME": "/nowhere", "BAREBOAT_STORE": "/nowhere"}
    settings = config.resolve(vars(options), folder=None, environment=environment)
    return read_job(Context(options, settings, Store(settings.store), console.Progress(quiet=True)))


def test_the_remedy_of_a_failed_study_has_the_flags_of_its_job() -> None:
    Path("job.toml").touch()
    words = (
        "prove -n 2 --time 2h --set environment.A=1 --env-from HF_TOKEN --env-from KEY --repeats 3 "
        "--set margin=0.1 -p gpu --engine podman job.toml"
    )
    options = _parse(shlex.split(words))
    assert words_of_run(options) == [
        "--env-from", "HF_TOKEN", "--env-from", "KEY", "--time", "2h", "--engine", "podman", "--ntasks", "2",
        "--set", "environment.A=1", "job.toml",
    ]  # fmt: skip
    options = _parse(["prove", "--image", "x", "--writable", "--", "python", "train.py"])
    assert words_of_run(options) == ["--image", "x", "--writable", "--", "python", "train.py"]


def test_a_job_that_no_scheduler_takes_can_run_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise NoSchedulerError("no scheduler found on this machine", remedy="bareboat run")

    monkeypatch.setattr(preparation, "prepare", none)
    Path("job.toml").write_text('command = ["true"]\n')
    lines = refused(capsys, "submit", "-n", "2", "--set", "name=x", "job.toml")
    assert lines[-1] == "  try: bareboat run --ntasks 2 --set name=x job.toml   # on this machine"
    assert refused(capsys, "submit", "-N", "2", "job.toml")[-1] == "  try: bareboat run"
