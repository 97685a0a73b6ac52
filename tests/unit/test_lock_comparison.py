"""What differs between two locks and ranks highest, and whether two results are equal."""

from pathlib import Path

import msgspec
import pytest
from builders import make_job, make_study
from hypothesis import given
from hypothesis import strategies as st
from locked import (
    make_code,
    make_file,
    make_lock,
    make_locked_image,
    make_machine,
    make_results,
)

from bareboat.model import Topology
from bareboat_base import codec
from bareboat_base.errors import UsageError
from bareboat_images.store import Store
from bareboat_study.cli import diff
from bareboat_study.reproduction import comparison, making, replay
from bareboat_study.reproduction.comparison import Tolerances, of_runs
from bareboat_study.reproduction.difference import UNKNOWN, Weight, compare
from bareboat_study.reproduction.document import Datum, Lock, LockedPackage

NUMPY = LockedPackage(purl="pkg:pypi/numpy@2.2.0", sha256="4" * 64)
TORCH = LockedPackage(purl="pkg:pypi/torch@2.13.0%2Bcpu", sha256="2" * 64)
SIX = LockedPackage(purl="pkg:pypi/six@1.0", sha256="5" * 64)


def other_image(**changes: object) -> Lock:
    return make_lock(image=make_locked_image(digest="sha256:" + "f" * 64, **changes))


def found(first: Lock, second: Lock) -> list[tuple[str, str]]:
    return [(each.section, each.item) for each in compare(first, second)]


def test_a_lock_does_not_differ_from_itself() -> None:
    assert compare(make_lock(), make_lock()) == []
    assert "identical" in diff.text(make_lock(), make_lock(), [])


LONG = "x" * 300


def with_job(**changes: object) -> Lock:
    lock = make_lock()
    return msgspec.structs.replace(lock, job=msgspec.structs.replace(lock.job, **changes))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"command": ("train", LONG + "a")}, {"command": ("train", LONG + "b")}),
        ({"command": ("a b",)}, {"command": ("a", "b")}),
        ({"command": ("train", "a  b")}, {"command": ("train", "a b")}),
        ({"command": ("y" * 50,) * 9 + ("1",)}, {"command": ("y" * 50,) * 9 + ("2",)}),
        ({"environment": {"A": LONG + "a"}}, {"environment": {"A": LONG + "b"}}),
        ({"environment": {"A": "none"}}, {"environment": {}}),
        ({"environment": {"A": ""}}, {"environment": {}}),
        ({"environment": {"A": "not recorded"}}, {"environment": {"A": "1"}}),
        ({"environment": {"A": "a, b"}}, {"environment": {"A": "a,  b"}}),
        ({"modules": ("m" * 60,) * 9 + ("a",)}, {"modules": ("m" * 60,) * 9 + ("b",)}),
    ],
)
def test_values_that_look_the_same_when_shortened_differ(first: object, second: object) -> None:
    """Whole values are compared, and the texts that are shown differ, too."""
    differences = compare(with_job(**first), with_job(**second))  # type: ignore[arg-type]
    assert len(differences) == 1
    (only,) = differences
    assert only.first != only.second
    assert max(len(only.first), len(only.second)) <= 200
    assert only.weight > Weight.UNLIKELY


@given(
    st.lists(st.text(max_size=80), min_size=1, max_size=6),
    st.lists(st.text(max_size=80), min_size=1, max_size=6),
)
def test_two_commands_differ_exactly_where_their_words_do(first: list[str], second: list[str]) -> None:
    words = [tuple(word.replace("\0", "") for word in each) for each in (first, second)]
    differences = compare(with_job(command=("x", *words[0])), with_job(command=("x", *words[1])))
    assert bool(differences) == (words[0] != words[1])
    assert all(each.first != each.second for each in differences)


def test_digests_and_numbers_are_compared_whole() -> None:
    files = [
        make_code(files=(msgspec.structs.replace(make_file(), sha256="a" * 60 + end),))
        for end in ("0000", "1111")
    ]
    (code,) = compare(make_lock(code=files[0]), make_lock(code=files[1]))
    assert code.first != code.second
    (metric,) = compare(
        make_lock(results=make_results(metrics={"loss": 0.12345678})),
        make_lock(results=make_results(metrics={"loss": 0.12345679})),
    )
    assert (metric.first, metric.second) == ("0.12345678", "0.12345679")
    data = [
        tuple(
            Datum(path=f"/d/{at}", sha256=digit * 64, size_bytes=1, files=1)
            for at, digit in enumerate(digits)
        )
        for digits in ("112", "122")
    ]
    (datum,) = compare(make_lock(data=data[0]), make_lock(data=data[1]))
    assert datum.item == "/d/1"


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ({"metrics": {}}, {"metrics": {}}, replay.NOT_COMPARED),
        ({"exit_code": 1, "metrics": {}}, {"exit_code": 1, "metrics": {}},
         replay.NOT_COMPARED),
        ({"metrics": {}}, {"exit_code": 1, "metrics": {}}, replay.DIFFERENT),
        ({"metrics": {"loss": 1.0}}, {"metrics": {"loss": 1.0}}, replay.EQUAL),
        ({"metrics": {"loss": 1.0}}, {"metrics": {"loss": 2.0}},
         replay.DIFFERENT),
    ],
)  # fmt: skip
def test_equal_exit_codes_alone_are_not_equal_results(
    first: dict[str, object], second: dict[str, object], code: int
) -> None:
    assert replay.of_runs(of_runs(make_results(**first), make_results(**second), Tolerances())) == code


def test_results_whose_metrics_are_all_ignored_are_not_compared() -> None:
    results = make_results(metrics={"loss": 1.0})
    ignored = of_runs(results, results, Tolerances(ignored=frozenset({"loss"})))
    assert replay.of_runs(ignored) == replay.NOT_COMPARED


def test_a_point_of_a_study_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path)
    study = make_study(id="s-20260101-000000.0", point=0)
    store.run(study.id).mkdir(parents=True)
    store.write(store.run(study.id) / "study.json", codec.to_json(study))
    with pytest.raises(UsageError, match="is a point of a study") as error:
        making.Maker(store).lock(study.id)
    assert error.value.remedy == "bareboat lock s-20260101-000000   # its file"


def test_packages_that_compute_rank_before_others() -> None:
    second = other_image(packages=(NUMPY, SIX, TORCH))
    differences = compare(make_lock(), second)
    assert [each.item for each in differences] == ["numpy", "digest", "six"]
    assert (differences[0].first, differences[0].second) == ("2.1.0", "2.2.0")
    assert differences[0].reason
    assert differences[0].weight == Weight.STRONG
    assert differences[-1].first == "none"


def test_the_same_packages_in_another_image_explain_nothing() -> None:
    (only,) = compare(make_lock(), other_image())
    assert (only.item, only.weight) == ("digest", Weight.UNLIKELY)


@pytest.mark.parametrize(
    ("second", "section", "item"),
    [
        (make_lock(machine=make_machine(cpu="Intel Xeon")), "CPU", "CPU"),
        (make_lock(machine=make_machine(kernel="6.1")), "kernel", "kernel"),
        (make_lock(machine=make_machine(glibc="2.36")), "glibc", "glibc of the host"),
        (make_lock(nodes=("node018",)), "node", "nodes"),
        (other_image(cuda="12.4"), "CUDA", "CUDA of the image"),
        (make_lock(code=make_code(files=(make_file(text="x = 2\n"),))), "code", "train.py"),
        (make_lock(job=make_job(command=("python", "other.py"))), "command", "command"),
    ],
)
def test_each_section_names_its_difference(second: Lock, section: str, item: str) -> None:
    assert (section, item) in found(make_lock(), second)
    assert (section, item) in found(second, make_lock())


def test_what_was_not_recorded_is_said_and_explains_nothing() -> None:
    differences = compare(make_lock(machine=None, code=None), make_lock())
    assert differences
    assert all(UNKNOWN in (each.first, each.second) for each in differences)
    assert {each.weight for each in differences} == {Weight.UNLIKELY}
    text = diff.text(
        make_lock(machine=None), make_lock(not_recorded=("the code: no directory",)), differences
    )
    assert "not recorded in B: the code: no directory" in text


def test_one_unknown_value_explains_nothing() -> None:
    (only,) = compare(make_lock(), make_lock(machine=make_machine(kernel="")))
    assert (only.item, only.second, only.weight) == ("kernel", UNKNOWN, Weight.UNLIKELY)


def test_a_commit_counts_less_where_the_files_used_are_equal() -> None:
    repository = msgspec.structs.replace(make_code().repository, commit="b" * 40)
    (only,) = compare(make_lock(), make_lock(code=make_code(repository=repository)))
    assert (only.item, only.weight) == ("commit", Weight.POSSIBLE)


def test_lines_fit_into_80_columns() -> None:
    second = make_lock(
        image=make_locked_image(digest="sha256:" + "f" * 64, packages=(NUMPY, SIX), python_version="3.13.1"),
        machine=make_machine(cpu="x" * 70, gpus=("NVIDIA H100 80GB HBM3",) * 8),
        job=make_job(command=("python", *["word"] * 60), topology=Topology(nodes=8)),
        nodes=tuple(f"node{number:03}" for number in range(40)),
        results=make_results(exit_code=1, metrics={"l" * 90: 1.0}),
        not_recorded=("a long sentence about what nobody wrote down when the run began, so that it wraps",),
    )
    text = diff.text(make_lock(), second, compare(make_lock(), second), every=True)
    assert max(map(len, text.splitlines())) <= 80
    assert text.index("likely to explain") < text.index("results\n")


def test_control_characters_of_strangers_are_escaped() -> None:
    second = make_lock(
        name="a\x1b[2Jb", nodes=("\x1b]0;x\x07",), job=make_job(environment={"A": "\x1b[31m\u202e"})
    )
    text = diff.text(second, make_lock(), compare(second, make_lock()), every=True)
    assert "\x1b" not in text
    assert "\u202e" not in text


@given(st.sampled_from(["machine", "node", "image", "code", "plan", "nodes", "data"]))
def test_order_does_not_matter(part: str) -> None:
    empty = () if part in ("nodes", "data") else None
    without = msgspec.structs.replace(make_lock(), **{part: empty})
    assert sorted(found(make_lock(), without)) == sorted(found(without, make_lock()))


# --- results ------------------------------------------------------------------------------------------------


def judged(first: object, second: object, **tolerances: object) -> dict[str, bool | None]:
    made = Tolerances(**tolerances)  # type: ignore[arg-type]
    return {each.item: each.equal for each in of_runs(first, second, made)}  # type: ignore[arg-type]


def test_equal_results_are_equal() -> None:
    assert set(judged(make_results(), make_results(wall_s=90.0)).values()) == {True, None}


@pytest.mark.parametrize(("value", "equal"), [(0.1009, True), (0.102, False), (0.0991, True), (0.098, False)])
def test_metrics_are_compared_to_a_tolerance(value: float, equal: bool) -> None:
    second = make_results(metrics={"loss": value, "accuracy": 0.93})
    assert judged(make_results(), second)["loss"] is equal
    assert judged(second, make_results())["loss"] is equal
    assert judged(make_results(), second, own={"loss": 0.5})["loss"] is True
    assert judged(make_results(), second, ignored=frozenset({"loss"}))["loss"] is None


def test_a_metric_that_one_of_them_lacks_is_a_difference() -> None:
    assert judged(make_results(), make_results(metrics={"loss": 0.1}))["accuracy"] is False
    assert judged(make_results(metrics={}), make_results())["loss"] is False


def test_values_that_are_not_finite_must_be_the_same() -> None:
    nan = make_results(metrics={"loss": "nan"})
    assert judged(nan, nan)["loss"] is True
    assert judged(nan, make_results(metrics={"loss": 0.1}))["loss"] is False
    assert judged(nan, make_results(metrics={"loss": "inf"}))["loss"] is False


def test_a_failed_run_is_another_result() -> None:
    assert judged(make_results(), make_results(exit_code=1))["exit code"] is False


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 1))
def test_every_value_equals_itself(value: float, tolerance: float) -> None:
    made = make_results(metrics={"x": value})
    assert False not in judged(made, made, usual=tolerance).values()


@pytest.mark.parametrize("text", ["", "x", "nan", "2", "-1", "=0.1", "loss=", "loss=inf"])
def test_wrong_tolerances_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--tolerance"):
        comparison.read_tolerances([text], [])


def test_tolerances_are_read() -> None:
    read = comparison.read_tolerances(["0.1", "a=b=0.2"], ["c"])
    assert (read.of("x"), read.of("a=b"), read.ignored) == (0.1, 0.2, frozenset({"c"}))
    exact = comparison.read_tolerances(["0.1", "loss=0"], [])
    first, other = (make_results(metrics={"loss": value}) for value in (1.0, 1.0 + 1e-12))
    for second, equal in ((first, True), (other, False)):
        assert [each.equal for each in of_runs(first, second, exact) if each.item == "loss"] == [equal]
