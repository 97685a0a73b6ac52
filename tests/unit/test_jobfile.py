"""Job files: what they may hold, and what each mistake is told with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bareboat import config
from bareboat.jobfile import job_of_command, parse_mount, read_job
from bareboat.model import CaptureRequest, Job, Mount, ProveRequest, Topology
from bareboat_base.errors import UsageError


def settings(
    folder: Path, flags: Mapping[str, Any] | None = None, environment: Mapping[str, str] | None = None
) -> config.Settings:
    """Settings that only the test decides: HOME holds no site file."""
    return config.resolve(
        flags or {}, folder=folder, environment={"HOME": str(folder / "nobody"), **(environment or {})}
    )


def read(folder: Path, text: str, **how: Any) -> Job:
    path = folder / "job.toml"
    path.write_text(text, encoding="utf-8")
    return read_job(path, settings(folder, **how))


def refused(folder: Path, text: str, message: str, *, line: int | None, remedy: str = "") -> UsageError:
    """The file is refused with this message, at this line, and with something to do about it."""
    with pytest.raises(UsageError) as caught:
        read(folder, text)
    error = caught.value
    assert message in error.message
    place = str(folder / "job.toml")
    assert error.context == (place if line is None else f"{place}, line {line}")
    assert error.remedy
    assert remedy in error.remedy
    return error


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a script and some data."""
    (tmp_path / "train.py").write_text("print()\n")
    (tmp_path / "data").mkdir()
    return tmp_path


# --------------------------------------------------------------------------------------------------
# what a file may hold


def test_the_smallest_file_has_the_documented_defaults(folder: Path) -> None:
    assert read(folder, 'command = ["true"]\n') == Job(
        name="job",
        command=("true",),
        workdir=str(folder),
        image="capture",
        topology=Topology(nodes=1, ranks_per_node=1, cpus_per_rank=None, gpus_per_rank=0),
        prove=ProveRequest(repeats=10, margin=0.02, confidence=0.95, window_s=0.2, goals={}),
    )


def test_every_key_reaches_the_job(folder: Path) -> None:
    (folder / "deep").mkdir()
    job = read(
        folder,
        """
name = "all of it"
command = ["python", "../train.py", "--epochs", "3"]
workdir = "deep"
image = "digits"
mounts = ["data", "data:/elsewhere:rw"]
walltime_s = 600
engine = "native"
launcher = "torchrun"
scheduler = "local"
writable = true
form = "tree"
[topology]
nodes = 2
ranks_per_node = 3
cpus_per_rank = 4
gpus_per_rank = 1
[environment]
A = "1"
[capture]
python = "deep/python"
include = ["data", "/opt/x"]
[prove]
repeats = 5
margin = 0.1
confidence = 0.9
seed = 3
window_s = 1
goals = { accuracy = 1 }
""",
    )
    data = str(folder / "data")
    assert job == Job(
        name="all of it",
        command=("python", "../train.py", "--epochs", "3"),
        workdir=str(folder / "deep"),
        image="digits",
        topology=Topology(nodes=2, ranks_per_node=3, cpus_per_rank=4, gpus_per_rank=1),
        mounts=(Mount(source=data, target=data), Mount(source=data, target="/elsewhere", writable=True)),
        environment={"A": "1"},
        walltime_s=600,
        engine="native",
        launcher="torchrun",
        scheduler="local",
        writable=True,
        form="tree",
        capture=CaptureRequest(python=str(folder / "deep/python"), include=(data, "/opt/x")),
        prove=ProveRequest(
            repeats=5, margin=0.1, confidence=0.9, seed=3, window_s=1.0, goals={"accuracy": 1.0}
        ),
    )


def test_a_python_without_a_slash_is_left_to_PATH(folder: Path) -> None:
    job = read(folder, 'command = ["true"]\ncapture.python = "python3.12"\n')
    assert job.capture.python == "python3.12"


def test_paths_are_relative_to_the_file_wherever_one_stands(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "job.toml").write_text('command = ["python", "train.py"]\nmounts = ["./data"]\n')
    monkeypatch.chdir(folder.parent)
    job = read_job(Path(folder.name) / "job.toml", settings(folder))
    assert job.workdir == str(folder)
    assert job.mounts[0].source == str(folder / "data")


def test_a_tilde_is_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    job = read(folder, 'command = ["true"]\nworkdir = "~/data"\nmounts = ["~/data:/d"]\n')
    assert job.workdir == str(folder / "data")
    assert job.mounts == (Mount(source=str(folder / "data"), target="/d"),)


def test_a_tilde_is_the_home_folder_on_both_sides_of_a_mount(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    job = read(folder, 'command = ["true"]\nmounts = ["~:~:rw", "data:~/d"]\n')
    assert job.mounts == (
        Mount(source=str(folder), target=str(folder), writable=True),
        Mount(source=str(folder / "data"), target=str(folder / "d")),
    )


# --------------------------------------------------------------------------------------------------
# the image's own process


def test_without_a_command_the_image_s_process_runs_in_the_image_s_folder(folder: Path) -> None:
    job = read(folder, 'image = "debian:12"\n')
    assert (job.command, job.entrypoint, job.workdir) == ((), None, None)
    assert read(folder, 'image = "debian:12"\nworkdir = "."\n').workdir == str(folder)


def test_a_working_folder_can_be_the_image_s(folder: Path) -> None:
    (folder / "image").mkdir()
    assert read(folder, 'command = ["true"]\nimage = "x"\nworkdir = "image"\n').workdir is None
    assert read(folder, 'command = ["true"]\nworkdir = "./image"\n').workdir == str(folder / "image")


@pytest.mark.parametrize(
    ("text", "entrypoint"),
    [
        ("true", True),
        ("false", False),
        ('["/entry", "a b"]', ("/entry", "a b")),
        ("\"/entry 'a b'\"", ("/entry", "a b")),
    ],
)
def test_an_entrypoint_is_asked_for_left_out_or_given(folder: Path, text: str, entrypoint: Any) -> None:
    assert read(folder, f'command = ["x"]\nimage = "y"\nentrypoint = {text}\n').entrypoint == entrypoint


@pytest.mark.parametrize("text", ["1", "[]", '[""]', '""', "[1]", '"it\'s"'])
def test_an_entrypoint_of_another_kind_is_refused(folder: Path, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(folder, f'image = "y"\nentrypoint = {text}\n')
    assert caught.value.remedy


def test_the_flag_for_an_image_goes_over_the_file_s(folder: Path) -> None:
    (folder / "job.toml").write_text('name = "n"\n')
    job = read_job(folder / "job.toml", settings(folder), image="debian:12")
    assert (job.image, job.command, job.workdir) == ("debian:12", (), None)


def test_a_script_of_the_image_is_not_looked_for_on_this_machine(folder: Path) -> None:
    read(folder, 'command = ["/no/such/run.sh"]\nimage = "debian:12"\n')
    read(folder, 'command = ["./run.sh"]\nimage = "debian:12"\nworkdir = "image"\n')
    read(folder, 'command = ["./arguments"]\nimage = "debian:12"\nentrypoint = true\n')
    refused(folder, 'command = ["/no/such/run.sh"]\n', "/no/such/run.sh not found", line=1)
    refused(folder, 'command = ["./run.sh"]\nimage = "debian:12"\n', "./run.sh not found", line=1)


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("ghcr.io/a/server:1.2", "server-1.2"),
        ("x@sha256:00", "x"),
        ("./a b.sif", "a-b.sif"),
    ],
)
def test_an_image_alone_makes_a_job(folder: Path, image: str, name: str) -> None:
    job = job_of_command((), settings(folder), workdir=str(folder), image=image)
    assert (job.name, job.command, job.image, job.workdir) == (name, (), image, None)
    job = job_of_command(("ls",), settings(folder), workdir=str(folder), image=image)
    assert (job.name, job.command, job.image, job.workdir) == ("ls", ("ls",), image, str(folder))


# --------------------------------------------------------------------------------------------------
# the command


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ('["a", "b c", ""]', ("a", "b c", "")),
        ("\"a 'b c' d\\\\ e\"", ("a", "b c", "d e")),
        ('"a $HOME *"', ("a", "$HOME", "*")),
        ('["-x"]', ("-x",)),
    ],
)
def test_a_command_is_a_list_or_a_string_split_as_a_shell_would(
    folder: Path, text: str, command: tuple[str, ...]
) -> None:
    assert read(folder, f"command = {text}\n").command == command


@pytest.mark.parametrize("value", ["[]", '""', '[""]', '"  "', '["", "train.py"]'])
def test_a_command_without_words_is_refused(folder: Path, value: str) -> None:
    refused(folder, f"name = 'x'\ncommand = {value}\n", "the job has no command", line=2, remedy="command =")


def test_a_file_without_a_command_is_refused(folder: Path) -> None:
    refused(folder, "name = 'x'\n", "the job has no command", line=None, remedy="command =")


def test_an_empty_file_is_a_job_without_a_command(folder: Path) -> None:
    refused(folder, "", "the job has no command", line=None)


def test_a_string_that_does_not_split_says_so(folder: Path) -> None:
    refused(folder, '\ncommand = "a \'b"\n', "a quotation mark is not closed", line=2, remedy="a list")


@pytest.mark.parametrize("value", ["1", "true", "{ a = 'b' }", "['a', 1]", "[['a']]"])
def test_a_command_of_another_type_is_refused(folder: Path, value: str) -> None:
    refused(folder, f"name = 'x'\ncommand = {value}\n", "command", line=2)


def test_a_nul_byte_in_the_command_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="NUL byte"):
        read(folder, 'command = ["a", "b\\u0000c"]\n')


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ('["python", "gone.py"]', "gone.py"),
        ('["python3.12", "-u", "gone.py", "train.py"]', "gone.py"),
        ('"torchrun --nproc-per-node=2 gone.py"', "gone.py"),
        ('["./gone"]', "./gone"),
        ('["sub/gone.sh"]', "sub/gone.sh"),
        ('["/no/such/program"]', "/no/such/program"),
    ],
)
def test_a_missing_script_is_told_before_anything_is_done(folder: Path, command: str, script: str) -> None:
    refused(
        folder,
        f"name = 'x'\ncommand = {command}\n",
        f"{script} not found in {folder}",
        line=2,
        remedy="ls ",
    )


@pytest.mark.parametrize(
    "command",
    [
        '["python", "train.py", "gone.py"]',
        '["python", "-m", "package.gone"]',
        '["python", "-m", "tool", "gone.py"]',
        '["python", "-c", "import gone.py"]',
        '["bash", "gone.py"]',
        '["python"]',
    ],
)
def test_only_what_is_surely_a_script_must_be_there(folder: Path, command: str) -> None:
    read(folder, f"command = {command}\n")


def test_the_script_is_sought_in_the_working_folder(folder: Path) -> None:
    text = 'command = ["python", "{}"]\nworkdir = "data"\n'
    refused(folder, text.format("train.py"), f"train.py not found in {folder}/data", line=1)
    assert read(folder, text.format("../train.py")).workdir == str(folder / "data")


# --------------------------------------------------------------------------------------------------
# unknown keys and wrong types


@pytest.mark.parametrize(
    ("text", "key", "meant", "line"),
    [
        ("comand = ['true']\n", "comand", "command", 1),
        ("command = ['true']\n# c\nmount = []\n", "mount", "mounts", 3),
        ("command = ['true']\n[topolgy]\nnodes = 1\n", "topolgy", "topology", 2),
        ("command = ['true']\n[topology]\n\nrank_per_node = 1\n", "rank_per_node", "ranks_per_node", 4),
        ("command = ['true']\ntopology = { node = 1 }\n", "node", "nodes", 2),
        ("command = ['true']\ntopology.nodes = 1\ntopology.cpu_per_rank = 1\n", "cpu_per_rank",
         "cpus_per_rank", 3),
        ("command = ['true']\n[capture]\n\npyton = 'x'\n", "pyton", "python", 4),
        ("command = ['true']\n[prove]\nrepeat = 3\n", "repeat", "repeats", 3),
    ],
)  # fmt: skip
def test_an_unknown_key_is_refused_with_what_was_meant(
    folder: Path, text: str, key: str, meant: str, line: int
) -> None:
    error = refused(folder, text, f"unknown key {key!r}", line=line, remedy=meant)
    assert error.message.endswith(f"; did you mean {meant!r}?")


@pytest.mark.parametrize("table", ["topology", "capture", "prove"])
def test_the_keys_of_a_table_are_listed(folder: Path, table: str) -> None:
    text = f"command = ['true']\n[{table}]\nzzzzzz = 1\n"
    with pytest.raises(UsageError, match=rf"unknown key 'zzzzzz' under \[{table}\]") as caught:
        read(folder, text)
    error = caught.value
    assert error.context.startswith(f"{folder}/job.toml, line 3\n")
    assert f"\nknown keys under [{table}]: " in error.context
    assert "did you mean" not in error.message


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("nodes = 2", "unknown key 'nodes': it belongs under [topology]",
         "write [topology] and below it nodes = 2"),
        ("ranks_per_node = 2", "unknown key 'ranks_per_node': it belongs under [topology]",
         "write [topology] and below it ranks_per_node = 2"),
        ("gpus = 1", "unknown key 'gpus': the key is 'gpus_per_rank' under [topology]",
         "write [topology] and below it gpus_per_rank = 1"),
        ("partition = 'gpu'", "unknown key 'partition': it belongs under [scheduling]",
         'write [scheduling] and below it partition = "gpu"'),
        ("mem = '16 GiB'", "unknown key 'mem': the key is 'mem_per_node_bytes' under [scheduling]",
         'write [scheduling] and below it mem_per_node_bytes = "16 GiB"'),
        ("nodse = 2", "unknown key 'nodse': the key is 'nodes' under [topology]",
         "write [topology] and below it nodes = 2"),
        ("time = '2h'", "unknown key 'time'; did you mean 'walltime_s'?", "rename it to walltime_s"),
        ("env = { A = '1' }", "unknown key 'env'; did you mean 'environment'?", "rename it to environment"),
        ("args = ['a']", "unknown key 'args'; did you mean 'command'?",
         "add the value of args to command, which is set, too, and remove args"),
        ("[topology]\nwalltime_s = 3",
         "unknown key 'walltime_s' under [topology]: it belongs above the first table",
         "write walltime_s = 3 above the first table"),
        ("[topology]\ngpus = 1", "unknown key 'gpus' under [topology]; did you mean 'gpus_per_rank'?",
         "rename it to gpus_per_rank"),
    ],
)  # fmt: skip
def test_a_key_of_another_table_is_named_with_its_table(
    folder: Path, text: str, message: str, remedy: str
) -> None:
    error = refused(folder, f"command = ['true']\n{text}\n", "unknown key", line=2 + text.count("\n"))
    assert (error.message, error.remedy) == (message, remedy)


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("name = 1", "name"),
        ("workdir = ['x']", "workdir"),
        ("image = 1", "image"),
        ("mounts = 'data'", "mounts"),
        ("mounts = ['data', 1]", "mounts[1]"),
        ("walltime_s = '10 parsecs'", "walltime_s"),
        ("walltime_s = 1.5", "walltime_s"),
        ("engine = true", "engine"),
        ('writable = "yes"', "writable"),
        ("form = 1", "form"),
        ("launcher = 1", "launcher"),
        ("scheduler = []", "scheduler"),
        ("environment = 'A=1'", "environment"),
        ("environment.OMP_NUM_THREADS = 1", "environment.OMP_NUM_THREADS"),
        ("topology.nodes = '2'", "topology.nodes"),
        ("topology.ranks_per_node = 2.5", "topology.ranks_per_node"),
        ("topology.cpus_per_rank = true", "topology.cpus_per_rank"),
        ("topology.gpus_per_rank = []", "topology.gpus_per_rank"),
        ("capture.python = 3.12", "capture.python"),
        ("capture.include = 'data'", "capture.include"),
        ("prove.repeats = '10'", "prove.repeats"),
        ("prove.margin = '2 %'", "prove.margin"),
        ("prove.goals = 0.9", "prove.goals"),
        ("prove.goals = { accuracy = 'high' }", "prove.goals.accuracy"),
    ],
)
def test_a_wrong_type_is_refused_with_the_key_and_its_line(folder: Path, statement: str, name: str) -> None:
    text = f"command = ['true']\n# c\n{statement}\n"
    error = refused(folder, text, f"{name} is ", line=3, remedy=name.partition("[")[0].rpartition(".")[2])
    assert "; it must be " in error.message
    assert "expected" not in error.message


@pytest.mark.parametrize(
    ("statement", "message", "remedy"),
    [
        ("engine = 3", "engine is 3; it must be text in quotes", 'set engine = "bubblewrap"'),
        ("launcher = true", "launcher is true; it must be text in quotes", 'set launcher = "mpirun"'),
        ("form = 1", 'form is 1; it must be "tree" or "file"', 'set form = "tree"'),
        ("form = ['a']", 'form is ["a"]; it must be "tree" or "file"', 'set form = "tree"'),
        ("form = ['file']", 'form is ["file"]; it must be "tree" or "file"', 'set form = "file"'),
        ("health = 1979-05-27", 'health is 1979-05-27; it must be "report", "measure", "require" or false',
         'set health = "report"'),
        ("mounts = { a = [true] }", 'mounts is { a = [true] }; it must be a list of "SOURCE[:TARGET][:rw]"',
         'set mounts = ["/tmp:/data"]'),
        ("environment_from = 'HF_TOKEN'", "environment_from is 'HF_TOKEN'; it must be a list of names",
         'set environment_from = ["HF_TOKEN"]'),
        ("site_layer = [3]", "site_layer[0] is 3; it must be text in quotes", 'set site_layer = ["openmpi"]'),
        ("entrypoint = ['run', 1]", "entrypoint[1] is 1; it must be text in quotes",
         'set entrypoint = ["run", "1"]'),
        ("scheduling.account = 3", "scheduling.account is 3; it must be text in quotes",
         'set account = "3" under [scheduling]'),
        ("scheduling.partition = ['gpu']", 'scheduling.partition is ["gpu"]; it must be text in quotes',
         'set partition = "gpu" under [scheduling]'),
        ("environment.N = 1", "environment.N is 1; it must be text in quotes",
         'set N = "1" under [environment]'),
        ("scheduling.mem_per_node_bytes = 1.5",
         "scheduling.mem_per_node_bytes is 1.5; it must be a size from 1MiB to 1PiB",
         'set mem_per_node_bytes = "8GiB" under [scheduling]'),
        ("launcher = nan", "launcher is nan; a number has at most 64 bits, and is not nan or inf",
         'set launcher = "mpirun"'),
        ("environment_from = ['A=B']", "environment_from has 'A=B'; it must be the name of an environment",
         'set environment_from = ["A"]'),
        ("capture.programs = ['', 'git']", "capture.programs has an empty name",
         'set programs = ["git"] under [capture]'),
    ],
)  # fmt: skip
def test_a_wrong_type_is_told_with_a_value_that_the_key_takes(
    folder: Path, statement: str, message: str, remedy: str
) -> None:
    error = refused(folder, f"command = ['true']\n{statement}\n", message, line=2)
    assert error.remedy == remedy
    if "nan" not in statement:
        line = remedy.removeprefix("set ").partition(" under [")
        table = f"{line[2].rstrip(']')}." if line[1] else ""
        read(folder, f"command = ['true']\n{table}{line[0]}\n")


def test_an_empty_interpreter_is_refused(folder: Path) -> None:
    text = "command = ['true']\n[capture]\npython = ''\n"
    refused(folder, text, "capture.python is empty", line=3, remedy='set python = "python3" under [capture]')


def test_a_path_to_capture_that_does_not_exist_is_told_with_the_one_that_is_meant(folder: Path) -> None:
    text = "command = ['true']\n[capture]\ninclude = ['train.p', 'data']\n"
    refused(folder, text, "capture.include has 'train.p', to be added to the capture", line=3,
            remedy='set include = ["data"] under [capture]')  # fmt: skip
    text = "command = ['true']\ncapture.include = ['trian.py']\n"
    refused(folder, text, "did you mean 'train.py'?", line=2, remedy='set include = ["train.py"] under')
    assert read(folder, "image = 'x'\ncapture.include = ['gone']\n").capture.include  # which reads none


@pytest.mark.parametrize("table", ["topology", "capture", "prove"])
def test_a_table_must_be_a_table(folder: Path, table: str) -> None:
    text = f"command = ['true']\n{table} = 4\n"
    refused(folder, text, f"{table} is 4; it must be a table of keys", line=2, remedy=f"[{table}]")


# --------------------------------------------------------------------------------------------------
# impossible values


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("nodes", 0, "1 to 1,000,000"),
        ("nodes", -1, "1 to 1,000,000"),
        ("ranks_per_node", 0, "1 to 10,000"),
        ("ranks_per_node", -2, "1 to 10,000"),
        ("cpus_per_rank", 0, "1 to 10,000"),
        ("gpus_per_rank", -1, "0 to 1,000"),
    ],
)
def test_an_impossible_topology_is_refused(folder: Path, key: str, value: int, allowed: str) -> None:
    text = f"command = ['true']\n\n[topology]\n{key} = {value}\n"
    with pytest.raises(UsageError) as caught:
        read(folder, text)
    assert caught.value.message == f"topology.{key} is {value}; it must be a whole number from {allowed}"
    assert caught.value.context == f"{folder}/job.toml, line 4"
    assert caught.value.remedy == f"set {key} = 1 under [topology]"


@pytest.mark.parametrize(
    "statement",
    ["repeats = 1", "margin = 0", "margin = 1", "margin = nan", "confidence = 0.5", "confidence = 1",
     "window_s = 0"],
)  # fmt: skip
def test_an_impossible_proof_is_refused(folder: Path, statement: str) -> None:
    with pytest.raises(UsageError, match=f"prove.{statement.split()[0]} is ") as caught:
        read(folder, f"command = ['true']\n[prove]\n{statement}\n")
    assert caught.value.context in {f"{folder}/job.toml, line {line}" for line in (2, 3)}
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workdir = ''", "workdir is empty"),
        ("[capture]\ninclude = ['']", "capture.include has an empty path"),
    ],
)
def test_an_empty_path_is_refused(folder: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        read(folder, f"command = ['true']\n{text}\n")
    assert caught.value.remedy


@pytest.mark.parametrize("table", ["environment_from = ['{}']", "environment = {{ {} = 'x' }}"])
@pytest.mark.parametrize("name", ["BAREBOAT_RUN", "BAREBOAT_NODE", "BAREBOAT_PORT"])
def test_what_the_job_script_sets_is_not_the_jobs(folder: Path, name: str, table: str) -> None:
    text = f"command = ['true']\n{table.format(name)}\n"
    refused(folder, text, f"{name}, which Bareboat sets for each run", line=2)


@pytest.mark.parametrize("name", ["MY-VAR", "1ST", "", "A B", "A=B"])
def test_a_name_that_no_shell_could_set_is_refused(folder: Path, name: str) -> None:
    text = f"command = ['true']\n[environment]\nFINE = '1'\n\"{name}\" = '1'\n"
    refused(folder, text, "is not a valid name of an environment variable", line=4)


@pytest.mark.parametrize("statement", ['form = "sif"', 'writable = true\nform = "file"'])
def test_a_form_that_cannot_be_is_refused(folder: Path, statement: str) -> None:
    with pytest.raises(UsageError, match="form") as caught:
        read(folder, f'command = ["true"]\n{statement}\n')
    assert caught.value.remedy


def test_a_nul_byte_in_a_variable_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="the value of A contains a NUL byte") as caught:
        read(folder, 'command = ["true"]\nenvironment.A = "\\u0000"\n')
    assert caught.value.context == f"{folder}/job.toml, line 2"


def test_a_missing_working_folder_is_refused(folder: Path) -> None:
    text = "command = ['true']\nworkdir = 'not here'\n"
    refused(
        folder, text, f"the working directory {folder}/not here does not exist", line=2,
        remedy=f"mkdir -p '{folder}/not here'",
    )  # fmt: skip


def test_a_working_folder_that_is_a_file_is_refused(folder: Path) -> None:
    refused(folder, "command = ['true']\nworkdir = 'train.py'\n", "the working directory", line=2)


# --------------------------------------------------------------------------------------------------
# mounts


def test_a_missing_mount_source_is_refused(folder: Path) -> None:
    text = "command = ['true']\nmounts = [\n  'data',\n  'gone:/x',\n]\n"
    refused(folder, text, f"the mount source {folder}/gone does not exist", line=2, remedy="mkdir -p")


@pytest.mark.parametrize("mount", ["", ":", "data:", ":/x", "data:/x:/y", "data:/x:rw:ro", "data:/x:rx"])
def test_what_is_not_a_mount_is_refused(folder: Path, mount: str) -> None:
    refused(folder, f"command = ['true']\nmounts = ['{mount}']\n", "is not a mount", line=2, remedy="SOURCE")


def test_a_mount_target_must_be_absolute(folder: Path) -> None:
    refused(folder, "command = ['true']\nmounts = ['data:x']\n", "'x' is not absolute", line=2)


@pytest.mark.parametrize(
    ("text", "target", "writable"),
    [
        ("data", "{}/data", False),
        ("data:ro", "{}/data", False),
        ("data:rw", "{}/data", True),
        ("data:/x", "/x", False),
        ("./data/../data:/x:ro", "/x", False),
        ("data:/x:rw", "/x", True),
        ("data:/x/../y/", "/y", False),
    ],
)
def test_a_mount_is_read_only_unless_asked_otherwise(
    folder: Path, text: str, target: str, writable: bool
) -> None:
    source = str(folder / "data")
    expected = Mount(source=source, target=target.format(folder), writable=writable)
    assert parse_mount(text, folder) == expected


# --------------------------------------------------------------------------------------------------
# precedence


def test_each_source_of_a_proofs_design_goes_over_the_one_below(folder: Path) -> None:
    site = folder / "nobody/.config/bareboat"
    site.mkdir(parents=True)
    bare, proved = "command = ['true']\n", "command = ['true']\nprove.repeats = 5\n"
    assert read(folder, bare).prove.repeats == 10
    (site / "site.toml").write_text("repeats = 3\n")
    assert read(folder, bare).prove.repeats == 3
    (folder / "bareboat.toml").write_text("repeats = 4\n")
    assert read(folder, bare).prove.repeats == 4
    assert read(folder, proved).prove.repeats == 5
    variable = {"BAREBOAT_REPEATS": "6"}
    assert read(folder, proved, environment=variable).prove.repeats == 6
    assert read(folder, proved, environment=variable, flags={"repeats": 7}).prove.repeats == 7


@pytest.mark.parametrize("name", ["repeats", "margin", "confidence", "seed"])
def test_every_setting_of_a_proof_can_be_a_flag(folder: Path, name: str) -> None:
    value = {"repeats": 17, "margin": 0.3, "confidence": 0.8, "seed": 99}[name]
    job = read(folder, "command = ['true']\nprove.window_s = 2\n", flags={name: value})
    assert getattr(job.prove, name) == value
    assert job.prove.window_s == 2.0


def test_a_mistake_in_a_variable_is_not_blamed_on_a_line_of_the_file(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"BAREBOAT_REPEATS is '1'") as caught:
        read(folder, "command = ['true']\n[prove]\nrepeats = 9\n", environment={"BAREBOAT_REPEATS": "1"})
    assert "line" not in caught.value.context


# --------------------------------------------------------------------------------------------------
# no file


def test_a_file_that_is_not_there(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"file .*gone.toml not found") as caught:
        read_job(folder / "gone.toml", settings(folder))
    assert caught.value.remedy


def test_a_folder_instead_of_a_file(folder: Path) -> None:
    with pytest.raises(UsageError, match="data is a directory, not a regular file") as caught:
        read_job(folder / "data", settings(folder))
    assert caught.value.remedy


def test_a_file_below_a_file(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"file .* not found"):
        read_job(folder / "train.py" / "job.toml", settings(folder))


@pytest.mark.parametrize("content", [b"command = ['\xff']\n", b"\x7fELF\x02\xff\xfe", b"\xff\xfec\x00"])
def test_a_file_that_is_not_text(folder: Path, content: bytes) -> None:
    path = folder / "job.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"job.toml is not a text file in UTF-8"):
        read_job(path, settings(folder))


# --------------------------------------------------------------------------------------------------
# -- COMMAND


def test_a_command_becomes_a_job_of_one_process(folder: Path) -> None:
    job = job_of_command(["python", "train.py"], settings(folder, {"seed": 5}), workdir=str(folder))
    assert job == Job(
        name="train", command=("python", "train.py"), workdir=str(folder), prove=ProveRequest(seed=5)
    )


@pytest.mark.parametrize(
    ("program", "name"), [("/usr/bin/env", "env"), ("a b$c", "a-b-c"), ("\n", "-"), ("é", "-")]
)
def test_the_job_of_a_command_has_a_plain_name(folder: Path, program: str, name: str) -> None:
    assert job_of_command([program], settings(folder), workdir=str(folder)).name == name


@pytest.mark.parametrize("command", [[], [""]])
def test_no_command_after_the_dashes_is_refused(folder: Path, command: list[str]) -> None:
    with pytest.raises(UsageError, match="no command"):
        job_of_command(command, settings(folder), workdir=str(folder))


def test_a_command_whose_script_is_missing_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"gone.py not found"):
        job_of_command(["python", "gone.py"], settings(folder), workdir=str(folder))


def test_a_working_directory_that_is_none_is_called_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "shut").mkdir()
    real = os.access
    # Root may enter every directory.
    monkeypatch.setattr(os, "access", lambda path, mode: "shut" not in str(path) and real(path, mode))
    for name, fault in (("file", "is a file"), ("shut", "cannot be entered"), ("none", "does not exist")):
        with pytest.raises(UsageError, match=f"the working directory {tmp_path}/{name} {fault}"):
            read(tmp_path, f'command = ["true"]\nworkdir = "{tmp_path}/{name}"\n')
