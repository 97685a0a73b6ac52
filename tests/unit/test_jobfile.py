"""Job files: what they may hold, and what each mistake is told with."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bareboat import config
from bareboat.jobfile import job_of_command, parse_mount, read_job
from bareboat.model import Job, Mount, ProveRequest, Topology
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


def test_a_python_without_a_slash_is_left_to_PATH(folder: Path) -> None:
    job = read(folder, 'command = ["true"]\ncapture.python = "python3.12"\n')
    assert job.capture.python == "python3.12"


def test_a_tilde_is_the_home_folder_on_both_sides_of_a_mount(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    job = read(folder, 'command = ["true"]\nmounts = ["~:~:rw", "data:~/d"]\n')
    assert job.mounts == (
        Mount(source=str(folder), target=str(folder), writable=True),
        Mount(source=str(folder / "data"), target=str(folder / "d")),
    )


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


# unknown keys and wrong types


@pytest.mark.parametrize(
    ("statement", "name"),
    [
        ("name = 1", "name"),
        ("mounts = ['data', 1]", "mounts[1]"),
        ("environment.OMP_NUM_THREADS = 1", "environment.OMP_NUM_THREADS"),
        ("topology.nodes = '2'", "topology.nodes"),
        ("capture.include = 'data'", "capture.include"),
        ("prove.goals = { accuracy = 'high' }", "prove.goals.accuracy"),
    ],
)
def test_a_wrong_type_is_refused_with_the_key_and_its_line(folder: Path, statement: str, name: str) -> None:
    text = f"command = ['true']\n# c\n{statement}\n"
    error = refused(folder, text, f"{name} is ", line=3, remedy="")
    assert error.problem.key == name.partition("[")[0]


def test_a_path_to_capture_that_does_not_exist_is_told_with_its_line(folder: Path) -> None:
    text = "command = ['true']\n[capture]\ninclude = ['train.p', 'data']\n"
    refused(folder, text, "capture.include has 'train.p', to be added to the capture", line=3,
            remedy='set include = ["data"] under [capture]')  # fmt: skip
    assert read(folder, "image = 'x'\ncapture.include = ['gone']\n").capture.include  # which reads none


# impossible values


@pytest.mark.parametrize("table", ["environment_from = ['{}']", "environment = {{ {} = 'x' }}"])
@pytest.mark.parametrize("name", ["BAREBOAT_RUN", "BAREBOAT_NODE", "BAREBOAT_PORT"])
def test_what_the_job_script_sets_is_not_the_jobs(folder: Path, name: str, table: str) -> None:
    text = f"command = ['true']\n{table.format(name)}\n"
    refused(folder, text, f"{name}, which Bareboat sets for each run", line=2)


@pytest.mark.parametrize("name", ["MY-VAR", "1ST", "", "A B", "A=B"])
def test_a_name_that_no_shell_could_set_is_refused(folder: Path, name: str) -> None:
    text = f"command = ['true']\n[environment]\nFINE = '1'\n\"{name}\" = '1'\n"
    refused(folder, text, "is not a valid name of an environment variable", line=4)


def test_a_nul_byte_in_a_variable_is_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match="the value of A contains a NUL byte") as caught:
        read(folder, 'command = ["true"]\nenvironment.A = "\\u0000"\n')
    assert caught.value.context == f"{folder}/job.toml, line 2"


# mounts


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


# no file


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
