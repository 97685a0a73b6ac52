"""Points, placeholders, and the table that the job script reads: whatever a value holds, it comes through."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from builders import environment_of, make_job, make_site
from hypothesis import given, settings
from hypothesis import strategies as st
from tools import tool

from bareboat import config, jobfile, render
from bareboat.model import CodeFacts, SchedulerFacts, Topology, sweep
from bareboat.model.sweep import Field, Sweep
from bareboat.plan import plan
from bareboat_base.errors import PlanError, UsageError

#: What TOML can hold and an environment can carry.
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)


def test_lists_make_a_grid_and_the_last_changes_first() -> None:
    found = sweep.read({"lr": [0.1, 1e-05], "seed": [1, 2, 3]})
    assert found.names == ("lr", "seed")
    assert found.points == (
        ("0.1", "1"), ("0.1", "2"), ("0.1", "3"), ("1e-05", "1"), ("1e-05", "2"), ("1e-05", "3"),
    )  # fmt: skip
    assert found.values(4) == {"lr": "1e-05", "seed": "2"}


def test_placeholders_and_braces() -> None:
    names = ("lr", "seed")
    assert sweep.parse("--lr={lr}", names) == ("--lr=", Field("lr"))
    assert sweep.parse("{lr}-{seed}.{index}", names)[::2] == (Field("lr"), Field("seed"), Field("index"))
    assert "".join(map(str, sweep.parse('{{"a": {{}}}}', names))) == '{"a": {}}'
    assert sweep.parse("", names) == ()
    for text, message in (
        ("{lrr}", "no {lrr} under \\[sweep\\] for '{lrr}'; did you mean {lr}\\?"),
        ("${HOME}", "no {HOME} under"),
        ("{}", "no {} under"),
        ("a{", "single brace"),
        ("}", "single brace"),
        ("{lr", "single brace"),
    ):
        with pytest.raises(UsageError, match=message) as caught:
            sweep.parse(text, names)
        assert "{{" in (caught.value.remedy or "") or "}}" in (caught.value.remedy or "")


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 3), st.data())
def test_any_values_come_out_of_the_table_as_they_went_in(count: int, data: st.DataObject) -> None:
    points = data.draw(st.lists(st.tuples(*[VALUES] * count), min_size=1, max_size=6))
    found = Sweep(names=tuple("abc"[:count]), points=tuple(points))
    names = [sweep.variable(name) for name in found.names]
    lines = f"sweep_names=({' '.join(names)})\n{render.subject('sweep')}\nset_sweep_values"
    script = f"""
        set -u
        need() {{ :; }}
        for ((point = 0; point < {len(points)}; point++)); do
          BAREBOAT_RUN=s.$point BAREBOAT_CONTROL=$1/points/$point/control
          {lines}
          printf '%s\\0' {" ".join(f'"${name}"' for name in names)}
        done
    """
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "table").write_bytes(sweep.table(found))
        done = subprocess.run([tool("bash"), "-c", script, "bash", folder], capture_output=True, check=False)
    assert done.stderr == b""
    assert done.stdout.split(b"\0")[:-1] == [value.encode() for point in points for value in point]


# in a job file


def job_of(folder: Path, text: str) -> Any:
    (folder / "job.toml").write_text(text)
    found = config.resolve({}, folder=folder, environment={"HOME": str(folder)})
    return jobfile.read_job(folder / "job.toml", found)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ('command = ["true", "{rl}"]\n[sweep]\nlr = [1]', "no {rl} under", None),
        ('command = ["true"]\n[environment]\nA = "{x}"\n[sweep]\nlr = [1]', "no {x} under", 3),
        ('command = ["true"]\n\n[sweep]\nlr = 1', "sweep.lr is 1; it must be a list", 3),
        ('sweep = 3\ncommand = ["true"]', "sweep is 3; it must be a table", 1),
        ('command = ["python", "{what}.py"]\n[sweep]\nwhat = ["here", "gone"]', "gone.py not found", None),
    ],
)
def test_a_mistake_in_a_sweep_is_told_with_its_line(
    tmp_path: Path, text: str, message: str, line: int | None
) -> None:
    (tmp_path / "here.py").touch()
    with pytest.raises(UsageError, match=message.replace("{", "\\{")) as caught:
        job_of(tmp_path, text)
    assert line is None or f"line {line}" in caught.value.context


def test_without_a_sweep_braces_mean_nothing(tmp_path: Path) -> None:
    job = job_of(tmp_path, 'command = ["bash", "-c", "echo ${A} {b}"]\n[environment]\nA = "{c}"\n')
    made = plan(make_job(command=job.command, environment=job.environment, engine="native",
                         topology=Topology()), None, None, make_site())  # fmt: skip
    assert made.command.argv[-1] == "echo ${A} {b}"
    assert environment_of(made.command)["A"] == "{c}"
    assert made.job.sweep is None


# in a plan

GRID = Sweep(names=("lr", "seed"), points=tuple((str(k), "1") for k in range(6)))


def planned(scheduler: str = "local", **changes: Any) -> Any:
    facts: dict[str, Any] = changes.pop("facts", {})
    code: CodeFacts = changes.pop("code", CodeFacts())
    site = make_site(schedulers=(SchedulerFacts(name=scheduler, version="1", **facts),))
    job = make_job(
        **{"engine": "native", "topology": Topology(), "scheduler": scheduler, "sweep": GRID,
           "command": ("true", "{lr}", "--seed={seed}", "{{}}", "plain"), **changes}
    )  # fmt: skip
    return plan(job, None, None, site, code=code)


def test_a_value_that_nothing_uses_is_named() -> None:
    assert planned().warnings == ()
    assert planned(command=("true", "{index}")).warnings == ()
    assert planned(command=("true", "{lr}"), environment={"SEED": "{seed}"}).warnings == ()
    (warning,) = planned(command=("true", "{lr}")).warnings
    assert warning.startswith("the command has no {seed}: the program gets its values as BAREBOAT_SWEEP_SEED")
    code = CodeFacts(job_variables=(("SLURM_ARRAY_TASK_ID", "a.py"), ("SLURM_JOB_ID", "a.py")))
    (warning,) = planned(command=("true", "{index}"), code=code).warnings
    assert warning.endswith('set it under [environment], as SLURM_ARRAY_TASK_ID = "{lr}"')
    assert planned(environment={"SLURM_ARRAY_TASK_ID": "{index}"}, code=code).warnings == ()


@pytest.mark.parametrize(
    ("scheduler", "facts", "line"),
    [
        ("slurm", {}, "#SBATCH --array=0-5%2"),
        ("gridengine", {}, "#$ -tc 2"),
        ("pbs", {"settings": {"flavour": "pro"}}, "#PBS -J 0-5%2"),
        ("pbs", {"settings": {"flavour": "torque"}}, "#PBS -t 0-5%2"),
    ],
)
def test_as_many_at_once_as_asked_for(scheduler: str, facts: dict[str, Any], line: str) -> None:
    sweep_of_two = Sweep(names=GRID.names, points=GRID.points, at_once=2)
    made = planned(scheduler, facts=facts, sweep=sweep_of_two, name="digits")
    assert line in made.directives
    if scheduler == "gridengine":
        assert "#$ -t 1-6" in made.directives


@pytest.mark.parametrize("facts", [{"settings": {"flavour": "front"}}, {}])
def test_no_limit_where_there_are_no_arrays(facts: dict[str, Any]) -> None:
    name = "pbs" if facts else "flux"
    with pytest.raises(PlanError, match=r"a job of its own|does not support array jobs"):
        planned(name, facts=facts, sweep=Sweep(names=GRID.names, points=GRID.points, at_once=2))
    assert not any("0-5" in line for line in planned(name, facts=facts).directives)
    with pytest.raises(UsageError, match="--at-once is 0"):
        Sweep(names=GRID.names, points=GRID.points, at_once=0)


def test_more_points_than_an_array_may_have_are_refused_beforehand() -> None:
    facts = {"settings": {"max_array": "5"}}
    for name in ("slurm", "gridengine"):
        with pytest.raises(PlanError, match="6 points; an array job on this cluster has at most 5"):
            planned(name, facts=facts)
