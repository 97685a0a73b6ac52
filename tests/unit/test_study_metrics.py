"""Metrics of unmodified programs: patterns over their output, and keys of their JSON files."""

import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareboat.model import MetricRequest
from bareboat_base.errors import UsageError
from bareboat_study import matching, patterns
from bareboat_study.metrics import Reader
from bareboat_study.patterns import MissingMetricError

OUTPUT = """step 10 loss 0.5
1 images/sec: 10.5
step 20 loss nan
total images/sec: 1.25e2
"""


def metric(**keys: Any) -> MetricRequest:
    return MetricRequest(**({"name": "speed"} | keys))


def number(request: MetricRequest, output: str) -> float:
    assert request.pattern is not None
    return patterns.number(request, matching.texts(request.name, request.pattern, output))


def test_a_pattern_finds_its_number() -> None:
    assert number(metric(pattern=r"^total images/sec: ([0-9.e]+)$"), OUTPUT) == 125.0


def test_a_pattern_that_matches_twice_or_never_is_refused() -> None:
    with pytest.raises(UsageError, match=r"matches 2 times in the output: 10.5, 1.25e2") as caught:
        number(metric(pattern=r"images/sec: ([0-9.e]+)"), OUTPUT)
    assert "take" in caught.value.remedy
    with pytest.raises(MissingMetricError, match="matches nothing"):
        number(metric(pattern="frames/sec: (.*)"), OUTPUT)
    with pytest.raises(UsageError, match="'loss' is not a number"):
        number(metric(pattern="step 10 ([a-z]+)"), OUTPUT)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20))
def test_take_makes_one_number_of_several(numbers: list[float]) -> None:
    texts = [repr(number) for number in numbers]
    found = {
        take: patterns.number(metric(pattern="v=(.*)", take=take), texts)
        for take in ("first", "last", "min", "max", "mean", "sum")
    }
    assert (found["first"], found["last"]) == (numbers[0], numbers[-1])
    assert (found["min"], found["max"]) == (min(numbers), max(numbers))
    assert math.isclose(found["sum"], math.fsum(numbers), abs_tol=1e-6)
    assert math.isclose(found["mean"] * len(numbers), found["sum"], abs_tol=1e-6)


def test_a_series_is_a_curve_with_what_is_not_finite() -> None:
    series = r"step (?P<x>\d+) loss (?P<y>\S+)"
    found = patterns.curve(metric(series=series), matching.search("loss", series, ("x", "y"), OUTPUT))
    assert found == ((10.0, 0.5), (20.0, "nan"))
    with pytest.raises(MissingMetricError):
        patterns.curve(metric(series="(?P<x>a)(?P<y>b)"), [])


def test_a_search_that_takes_exponential_time_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any thread, where a signal cannot interrupt Python's engine."""
    monkeypatch.setattr(matching, "LIMIT_S", 0.5)
    output = "x" * 60 + "\n"
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(matching.texts, "speed", "(x+x+)+y", output)
        with pytest.raises(UsageError, match=r"metrics.speed: the search .* does not end within 0.5 s"):
            ended.result(20)


def test_a_match_is_text_of_any_kind_and_length() -> None:
    output = "v=\udcff\n" + "v=" + "1" * 100_000 + "\n"
    with pytest.raises(UsageError, match="is not a number"):
        number(metric(pattern="v=(.*)", take="first"), output)
    assert patterns.finite(matching.texts("v", "v=(.*)", output)) == []
    assert matching.texts("v", "v(=)?", "v\n") == [""]


def test_a_pattern_is_short() -> None:
    with pytest.raises(UsageError, match=r"metrics.speed.pattern is empty or longer than 1000 characters"):
        metric(pattern="(a)" + "b" * 1000)


def test_a_key_is_a_name_or_a_json_pointer() -> None:
    content = json.dumps({"a/b": {"x~y": [0, {"v": "7.5"}]}, "flat": 3}).encode()
    assert patterns.entry(metric(file="f", key="flat"), content) == 3.0
    assert patterns.entry(metric(file="f", key="/a~1b/x~0y/1/v"), content) == 7.5
    for key, message in (
        ("/a~1b/none", "'none' is missing"),
        ("/a~1b/x~0y/2", "'2' is missing"),
        ("/a~1b/x~0y/-1", "'-1' is missing"),
        ("/a~1b", "is a table, not a number"),
        ("/a~1b/x~0y", "is a list, not a number"),
    ):
        with pytest.raises(UsageError, match=message):
            patterns.entry(metric(file="f", key=key), content)
    with pytest.raises(UsageError, match="is not JSON"):
        patterns.entry(metric(file="f", key="a"), b"{")
    with pytest.raises(UsageError, match="is not JSON"):
        patterns.entry(metric(file="f", key="a"), b"[" * 100_000)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists), st.text(min_size=1))
def test_any_document_and_key_give_a_number_or_one_error(document: Any, key: str) -> None:
    try:
        found = patterns.entry(metric(file="f", key=key), json.dumps(document).encode())
    except UsageError:
        return
    assert isinstance(found, float)


# Files.


def reader(folder: Path, *metrics: MetricRequest) -> Reader:
    made = Reader(metrics, str(folder))
    made.start()
    return made


def test_only_a_file_that_the_run_wrote_counts(tmp_path: Path) -> None:
    """Another arm's result would be a wrong number with exit code 0."""
    out, log = tmp_path / "out.json", tmp_path / "log"
    log.write_text("")
    out.write_text('{"v": 1}')
    found = reader(tmp_path, metric(file="out.json", key="v"))
    with pytest.raises(MissingMetricError, match="did not write") as caught:
        found.read(log)
    assert caught.value.context == "the file is older than the run"
    out.write_text('{"v": 2.5}')
    assert found.read(log) == ({"speed": 2.5}, {})
    out.unlink()
    with pytest.raises(MissingMetricError, match="did not write"):
        reader(tmp_path, metric(file="out.json", key="v")).read(log)


def test_a_file_is_read_as_untrusted(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    (tmp_path / "secret").write_text('{"v": 1}')
    found = reader(tmp_path, metric(file="out.json", key="v"))
    os.symlink("secret", tmp_path / "out.json")
    with pytest.raises(UsageError, match="symbolic link"):
        found.read(tmp_path / "log")
    (tmp_path / "out.json").unlink()
    os.mkfifo(tmp_path / "out.json")
    with pytest.raises(UsageError, match="is a pipe"):
        found.read(tmp_path / "log")


@pytest.mark.parametrize("value", ["0", "-3", "nan", "inf"])
def test_the_primary_metric_is_a_number_above_0(tmp_path: Path, value: str) -> None:
    log = tmp_path / "log"
    log.write_text(f"speed={value}\nother=0\n")
    with pytest.raises(UsageError, match="must be a number above 0"):
        reader(tmp_path, metric(pattern="speed=(.*)")).read(log)
    log.write_text("speed=1\nother=0\n")
    numbers, _ = reader(
        tmp_path, metric(pattern="speed=(.*)"), metric(name="other", pattern="other=(.*)")
    ).read(log)
    assert numbers == {"speed": 1.0, "other": 0.0}
