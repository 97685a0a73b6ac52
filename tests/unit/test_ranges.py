"""Every number that a user can set: any value makes a valid object, or an error that names the key."""

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bareboat import config
from bareboat.jobfile import read_job
from bareboat.model import Job, ProveRequest, Scheduling, Topology
from bareboat.model.sweep import Sweep
from bareboat_base import ranges
from bareboat_base.errors import UsageError
from bareboat_base.ranges import RANGES

TABLES: dict[str, type[msgspec.Struct]] = {
    "topology": Topology, "scheduling": Scheduling, "prove": ProveRequest, "": Job,
}  # fmt: skip


def is_number(kind: Any) -> bool:
    kind = getattr(kind, "__origin__", kind) if hasattr(kind, "__metadata__") else kind
    if get_origin(kind) in (Union, UnionType):
        return any(map(is_number, get_args(kind)))
    return kind in (int, float)


#: (table, key) of every number of a job file.
KEYS = [
    (table, field.name)
    for table, kind in TABLES.items()
    for field in msgspec.structs.fields(kind)
    if is_number(field.type)
]
NUMBERS = st.one_of(
    st.integers(),
    st.integers(-10, 200_000),
    st.sampled_from([0, -1, 2**31, 2**63 - 1, 2**63, 10**12, 10**30, -(10**30), 16**5000]),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e308, 5e-324, 0.5, 1.0]),
    st.booleans(),
)


def test_every_number_has_a_range() -> None:
    assert len(KEYS) >= 13
    for table, key in KEYS:
        assert f"{table}.{key}".lstrip(".") in RANGES
    for name, allowed in RANGES.items():
        assert allowed.holds(ranges.parse(name, allowed.example, name=name)), "the example would do"


T = TypeVar("T")


def attempt(action: Callable[[], T]) -> T | UsageError:
    try:
        return action()
    except UsageError as error:
        return error


def written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return hex(value) if isinstance(value, int) and value >= 0 else repr(value)


@pytest.mark.parametrize(
    ("table", "key"), [*KEYS, ("prove.goals", "accuracy"), ("sweep", "x"), ("environment", "X")]
)
@settings(max_examples=12, deadline=None)
@given(value=NUMBERS)
def test_any_number_of_a_job_file_is_in_range_or_refused_with_its_line(
    table: str, key: str, value: Any
) -> None:
    """Also numbers of thousands of digits, and those under keys that take none."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.toml"
        path.write_text(
            'command = ["true"]\n' + (f"\n[{table}]\n" if table else "\n\n") + f"{key} = {written(value)}\n"
        )
        if table == "sweep":
            path.write_text(f'command = ["true"]\n\n[sweep]\n{key} = [{written(value)}]\n')
        own = config.resolve({}, folder=Path(folder), environment={"HOME": folder, "BAREBOAT_STORE": folder})
        job = attempt(lambda: read_job(path, own))
        if isinstance(job, UsageError):
            assert job.context == f"{path}, line 4"
            assert f"{table}.{key}".lstrip(".") in job.message
            assert job.remedy
            return
        found = {"": job, "topology": job.topology, "scheduling": job.scheduling, "prove": job.prove}
        assert table not in found or getattr(found[table], key) == value
        assert table != "environment"
        assert math.isfinite(value)


@pytest.mark.parametrize("name", [name for name, known in config.KNOWN.items() if known.key])
@settings(max_examples=25, deadline=None)
@given(text=st.one_of(st.text(max_size=20), st.sampled_from(["nan", "-inf", "1e999", "1_0", "0x10", "1e3"])))
def test_any_text_of_a_variable_is_in_range_or_refused_by_its_name(name: str, text: str) -> None:
    variable = f"BAREBOAT_{name.upper()}"
    environment = {"HOME": "/nowhere", "BAREBOAT_STORE": "/nowhere", variable: text}
    found = attempt(lambda: config.resolve({}, folder=Path("/"), environment=environment))
    if isinstance(found, UsageError):
        assert variable in found.message
        assert found.remedy
    else:
        assert RANGES[config.KNOWN[name].key].holds(found[name])


def test_ranks_are_counted_together() -> None:
    assert Topology(nodes=1000, ranks_per_node=10_000).world_size == 10_000_000
    with pytest.raises(UsageError, match="1,001 nodes x 10,000 ranks are 10,010,000 ranks"):
        Topology(nodes=1001, ranks_per_node=10_000)


def test_points_are_counted_before_they_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    from bareboat.model import sweep

    monkeypatch.setattr(
        "bareboat.model.sweep.itertools.product", lambda *_: pytest.fail("built before counted")
    )
    lists = {f"x{number}": [*range(10)] for number in range(9)}
    with pytest.raises(UsageError, match="the sweep has 1,000,000,000 points; at most 100,000"):
        sweep.read(lists)
    with pytest.raises(UsageError, match=r"more than 10\^18 points"):
        sweep.read({f"x{number}": [0, 1] for number in range(20_000)})


def test_points_at_once_are_in_range() -> None:
    with pytest.raises(UsageError, match="--at-once is nan"):
        Sweep(names=("x",), points=(("1",),), at_once=math.nan)  # type: ignore[arg-type]
