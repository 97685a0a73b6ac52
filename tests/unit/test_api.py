"""The Python API: its keys, errors and displays. Jobs of a real cluster are in tests/cluster."""

import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest
from builders import fake_digest

import bareboat
from bareboat.api.job import nested
from bareboat.model import Submission
from bareboat.runs import interaction
from bareboat_base import codec
from bareboat_base.errors import UsageError
from bareboat_images.store import Store


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BAREBOAT_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def test_keys_of_tables_are_put_into_them_in_toml_s_types(tmp_path: Path) -> None:
    assert nested({"nodes": 2, "after": ("a",), "workdir": tmp_path, "environment": {"A": "1"}}) == {
        "topology": {"nodes": 2}, "scheduling": {"after": ["a"]}, "workdir": str(tmp_path),
        "environment": {"A": "1"},
    }  # fmt: skip


def test_the_package_imports_nothing_before_it_is_used() -> None:
    words = "import sys, bareboat; print([n for n in sys.modules if n.startswith('bareboat.')])"
    said = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"
    assert [name for name in bareboat.__all__ if getattr(bareboat, name, None) is None] == []
    with pytest.raises(AttributeError, match="no attribute 'Jobs'"):
        getattr(bareboat, "Jobs")  # noqa: B009


@pytest.mark.usefixtures("folder")
@pytest.mark.usefixtures("folder")
def test_errors_show_their_remedy_below_the_message() -> None:
    with pytest.raises(bareboat.BareboatError, match=r"topology\.nodes is 0") as caught:
        bareboat.Job(["true"], nodes=0).plan()
    shown = "".join(traceback.format_exception_only(caught.value))
    assert "bareboat.Job" in shown
    assert "try: set nodes = " in shown
    with pytest.raises(bareboat.BareboatError, match="unknown key 'node'; did you mean 'nodes'"):
        bareboat.Job(["true"], node=1)  # type: ignore[call-arg]


def test_a_job_file_s_paths_are_relative_to_it_and_keys_override_it(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "train.toml").write_text('command = "true"\nengine = "native"\n[topology]\nnodes = 1\n')
    job = bareboat.Job.read("sub/train.toml")
    for plan in (job.plan(), job.plan(ranks_per_node=1)):
        assert (plan._plan.job.name, plan._plan.job.workdir) == ("train", str(folder / "sub"))
    (folder / "sub" / "train.toml").write_text('command = "true"\nnodes = 1\n')
    with pytest.raises(bareboat.BareboatError) as caught:
        bareboat.Job.read("sub/train.toml").plan()
    assert caught.value.context == f"{folder}/sub/train.toml, line 2"


@pytest.mark.usefixtures("folder")
def test_settings_apply_as_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAREBOAT_ENGINE", "native")
    assert bareboat.Job(["true"]).plan().engine == "native"


@pytest.mark.usefixtures("folder")
def test_a_sweep_is_not_a_single_job() -> None:
    job = bareboat.Job(["echo", "{lr}"], engine="native")
    with pytest.raises(bareboat.BareboatError, match="the sweep has no values"):
        bareboat.sweep(job)
    assert (
        repr(bareboat.sweep(job, lr=[1]))
        == "Sweep(Job(engine='native', command=['echo', '{lr}'], sweep={'lr': [1]}))"
    )
    with pytest.raises(bareboat.BareboatError, match="not both"):
        bareboat.sweep(job, points=[{"lr": 1}], lr=[1])
    with pytest.raises(bareboat.BareboatError, match="the job is a sweep"):
        job.replace(sweep={"lr": [1]}).run()


@pytest.mark.usefixtures("folder")
def test_a_sweep_is_found_as_a_sweep_and_its_points_with_their_values() -> None:
    made = bareboat.sweep(bareboat.Job(["true", "{lr}"], engine="native", name="tune"), lr=[1, 2]).run()
    found = bareboat.Run.find("tune")
    assert isinstance(found, bareboat.SweepRun)
    assert (found.id, len(found), repr(found)) == (made.id, 2, f"SweepRun({made.id!r})")
    assert [point.values for point in found] == [{"lr": "1"}, {"lr": "2"}]
    point = bareboat.Run.find("tune.1")
    assert (point, point.values, type(point)) == (made[1], {"lr": "2"}, bareboat.Run)


def test_a_study_of_several_arms_is_not_measured_as_one_comparison(folder: Path) -> None:
    (folder / "study.toml").write_text("command = 'true'\n[arms]\na = {}\nb = {engine = 'native'}\n")
    for job in (
        bareboat.Job.read("study.toml"),
        bareboat.Job(["true"], prove={"attribution": True}),
        bareboat.Job(["echo", "{lr}"], sweep={"lr": [1]}),
    ):
        with pytest.raises(bareboat.BareboatError, match="a study of several arms, points or metrics"):
            job.prove()


def test_a_wait_can_have_an_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scheduler is a program that always says that the job runs."""
    programs = folder.parent / "bin"
    programs.mkdir()
    (programs / "squeue").write_text("#!/bin/sh\nexit 1\n")
    (programs / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setattr(interaction, "POLL_S", 0.05)
    store = Store(folder.parent / "store")
    run_id = store.new_run("train")
    (store.run(run_id) / "control").mkdir()
    made = Submission(
        run_id=run_id, scheduler="slurm", job_id="17", name="train", nodes=1, world_size=1, engine="native",
        submitted_at="2026-11-22T03:00:00Z", plan_digest=fake_digest("1"), image_digest=None,
        site_digest=fake_digest("2"),
    )  # fmt: skip
    store.write(store.run(run_id) / "submission.json", codec.to_json(made))
    run = bareboat.Run.find("train")
    assert run.id == run_id
    with pytest.raises(bareboat.TimedOut, match="continues") as late:
        run.wait(timeout_s=0.2)
    assert late.value.remedy == f"bareboat.Run.find({run_id!r}).wait()"
    with pytest.raises(bareboat.TimedOut, match="continues"):
        run.wait(timeout_s=0.2)
    (store.run(run_id) / "control" / "exit_code").write_text("0 160\n")
    assert run.wait(timeout_s=20).exit_code == 0
    assert run.wait(timeout_s=0).exit_code == 0
    with pytest.raises(bareboat.BareboatError, match="no output"):
        run.log()
    (store.run(run_id) / "output.log").write_text("hello\n")
    assert run.log() == "hello\n"


class _Sized:
    """Neither text nor a list."""


ARGUMENTS = {
    "a number as command": lambda: bareboat.Job(5),  # type: ignore[arg-type]
    "a path as command": lambda: bareboat.Job(Path("a.py")),  # type: ignore[arg-type]
    "bytes as command": lambda: bareboat.Job(b"a.py"),  # type: ignore[arg-type]
    "a set as command": lambda: bareboat.Job({"a", "b"}),  # type: ignore[arg-type]
    "a number as element": lambda: bareboat.Job(["python", 5], engine="native").plan(),  # type: ignore[list-item]
    "a set as mounts": lambda: bareboat.Job(["true"], mounts={"/tmp"}),  # type: ignore[arg-type]
    "a number as key": lambda: bareboat.Job(["true"], prove={5: 5}),  # type: ignore[dict-item]
    "a number as file": lambda: bareboat.Job.read(5),  # type: ignore[arg-type]
    "nothing as file": lambda: bareboat.Job.read(None),  # type: ignore[arg-type]
    "bytes as file": lambda: bareboat.Job.read(b"job.toml"),  # type: ignore[arg-type]
    "NUL in a file": lambda: bareboat.Job.read("a\0b"),
    "a loop of links": lambda: (Path("loop").symlink_to("loop"), bareboat.Job.read("loop").plan()),
    "a file that is missing": lambda: bareboat.Job.read("missing.toml").plan(),
    "a number as interpreter": lambda: bareboat.capture(python=5),  # type: ignore[arg-type]
    "a number as include": lambda: bareboat.capture(include=5),  # type: ignore[arg-type]
    "numbers as include": lambda: bareboat.capture(include=[5]),  # type: ignore[list-item]
    "text as include": lambda: bareboat.capture(include="abc"),
    "a number as programs": lambda: bareboat.capture(programs=5),  # type: ignore[arg-type]
    "text as programs": lambda: bareboat.capture(programs="git"),
    "numbers as programs": lambda: bareboat.capture(programs=[5]),  # type: ignore[list-item]
    "a number as name": lambda: bareboat.capture(name=5),  # type: ignore[arg-type]
    "a number as reference": lambda: bareboat.pull(5),  # type: ignore[arg-type]
    "nothing as reference": lambda: bareboat.pull(None),  # type: ignore[arg-type]
    "a number as run": lambda: bareboat.Run.find(5),  # type: ignore[arg-type]
    "nothing as run": lambda: bareboat.Run.find(None),  # type: ignore[arg-type]
    "a number as study": lambda: bareboat.Study.find(5),  # type: ignore[arg-type]
    "a number as job": lambda: bareboat.sweep(5, lr=[1]),  # type: ignore[arg-type]
    "nothing as job": lambda: bareboat.sweep(None),  # type: ignore[arg-type]
    "a number as points": lambda: bareboat.sweep(bareboat.Job(["true"]), points=5),  # type: ignore[arg-type]
    "an object as key": lambda: bareboat.Job(["true"], image=_Sized()).plan(),  # type: ignore[arg-type]
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_of_a_wrong_type_is_a_bareboat_error(name: str) -> None:
    with pytest.raises(bareboat.BareboatError) as raised:
        ARGUMENTS[name]()
    assert raised.value.remedy


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("table", ["topology = 5", "scheduling = [1]"])
def test_a_table_of_a_file_that_is_none_is_a_bareboat_error(table: str) -> None:
    Path("job.toml").write_text(f'command = ["true"]\n{table}\n')
    with pytest.raises(bareboat.BareboatError, match=table.partition(" ")[0]):
        bareboat.Job.read("job.toml").replace(nodes=1, partition="x").plan()


@pytest.mark.usefixtures("folder")
def test_half_a_surrogate_pair_is_a_bareboat_error() -> None:
    for call in (
        lambda: bareboat.Job(["\ud800"], engine="native").plan(),
        lambda: bareboat.Job.read("\ud800"),
        lambda: bareboat.Job(["true"], engine="native", environment={"A": "\ud800"}).run(),
        lambda: bareboat.capture(python="/\ud800"),
    ):
        with pytest.raises(bareboat.BareboatError) as raised:
            call()
        assert raised.value.remedy


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("wrong", [0, 1.5, b"x", "", [None], {"a": None}, object()])
def test_a_wrong_type_is_a_bareboat_error(wrong: Any) -> None:
    cycle: Any = [wrong]
    cycle.append(cycle)
    for call in (
        lambda: bareboat.Container("x", mounts=wrong),
        lambda: bareboat.Container("x", empty=wrong),
        lambda: bareboat.Container("x", namespaces=wrong),
        lambda: bareboat.pull("oci:x", plain_http=wrong),
        lambda: bareboat.capture(compiler=wrong),
        lambda: bareboat.Job(["true"], engine="native", environment={"A": cycle}).plan(),
        lambda: bareboat.sweep(bareboat.Job(["true"]), a=cycle).plan(),
    ):
        with pytest.raises(bareboat.BareboatError):
            call()
    assert bareboat.Job(["true"], engine="native", node_scratch=None).plan()


def test_a_working_directory_that_is_gone_is_a_bareboat_error(folder: Path) -> None:
    folder.rmdir()
    for call in (
        lambda: bareboat.Job(["true"], engine="native").plan(),
        lambda: bareboat.Job.read("job.toml"),
        lambda: bareboat.pull("oci-archive:x"),
        lambda: bareboat.capture(include=["x"]),
    ):
        with pytest.raises(bareboat.BareboatError, match="working directory no longer exists"):
            call()


@pytest.mark.usefixtures("folder")
def test_an_image_without_a_digest_is_not_pulled_where_digests_are_required(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BAREBOAT_REQUIRE_DIGEST", "true")
    with pytest.raises(bareboat.BareboatError, match="digests are required here"):
        bareboat.pull("oci-archive:image.tar")


@pytest.mark.usefixtures("folder")
def test_what_is_not_found_is_said() -> None:
    with pytest.raises(bareboat.BareboatError, match="nothing") as run:
        bareboat.Run.find("nothing")
    assert run.value.remedy.startswith("bareboat status --all")
    with pytest.raises(bareboat.BareboatError, match="study nothing not found"):
        bareboat.Study.find("nothing")
    assert bareboat.Run.all() == bareboat.Study.all() == []
    made = bareboat.Job(["true"], engine="native").run()
    with pytest.raises(bareboat.BareboatError, match="has no rank 7"):
        made.log(rank=7)
    with pytest.raises(bareboat.BareboatError, match="not found"):
        bareboat.Study.find(made.id)
    assert bareboat.Run.all() == [made]


def test_an_error_in_a_notebook_is_its_message_context_and_remedy() -> None:
    error = UsageError("a mistake", context="job.toml, line 3", remedy="remove it")
    assert error._render_traceback_() == ["UsageError: a mistake", "job.toml, line 3", "try: remove it"]
