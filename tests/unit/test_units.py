"""Sizes and times with units: what is read, and what is refused because it could mean two things."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareboat import config
from bareboat.jobfile import read_job
from bareboat_base import units

GIB = 2**30


@pytest.mark.parametrize(
    ("text", "unit", "amount"),
    [
        ("16 GiB", "bytes", 16 * GIB),
        ("16GiB", "bytes", 16 * GIB),
        ("64G", "bytes", 64 * GIB),  # as Slurm reads it
        ("64g", "bytes", 64 * GIB),
        ("64 GB", "bytes", 64 * 10**9),
        ("1.5T", "bytes", 3 * 2**39),
        ("0.1 GiB", "bytes", 107_374_182),
        ("500 kB", "bytes", 500_000),
        ("8589934592B", "bytes", 8_589_934_592),
        ("2h30m", "s", 9000),
        ("2h 30min", "s", 9000),
        ("1.5h", "s", 5400),
        ("90 minutes", "s", 5400),
        ("2w", "s", 14 * 86_400),
        ("1d2h3m4s", "s", 93_784),
        ("250ms", "s", 0.25),
        ("01:30:00", "s", 5400),
        ("1-12:00:00", "s", 129_600),
        ("1-12:30", "s", 131_400),
        ("1-12", "s", 129_600),
        ("12h", "days", 0.5),
        ("2w", "days", 14),
    ],
)
def test_an_amount_is_read_in_its_unit(text: str, unit: str, amount: float) -> None:
    assert units.parse(text, unit) == amount


@pytest.mark.parametrize(
    ("text", "unit", "reason", "instead"),
    [
        ("64", "bytes", "without a unit", "64M"),
        ("64gb", "bytes", "which could mean GiB", "64GiB"),
        ("64Gb", "bytes", "or bits", "64GiB"),
        ("64Gi", "bytes", "which could mean GiB", "64GiB"),
        ("64 parsecs", "bytes", "whose unit 'parsecs' is unknown", ""),
        ("lots", "bytes", "", ""),
        ("-1G", "bytes", "", ""),
        ("30", "s", "without a unit", "30m"),
        ("30:00", "s", "which could mean minutes and seconds, or hours and minutes", "30m"),
        ("2h30", "s", "whose last number has no unit", ""),
        ("30m2h", "s", "with a unit that is not shorter", ""),
        ("1h1h", "s", "with a unit that is not shorter", ""),
        ("5M", "s", "whose unit 'M' is unknown", "5m"),
        ("2 Hours", "s", "whose unit 'Hours' is unknown", "2hours"),
        ("1:99:00", "s", "with more than 59 minutes", ""),
        ("UNLIMITED", "s", "", ""),
        ("", "s", "", ""),
    ],
)
def test_what_could_mean_two_things_is_refused(text: str, unit: str, reason: str, instead: str) -> None:
    with pytest.raises(units.Unclear) as caught:
        units.parse(text, unit)
    assert reason in caught.value.reason
    assert bool(reason) == bool(caught.value.reason)
    assert caught.value.instead == instead
    if instead:
        units.parse(instead, unit)


@given(st.text(max_size=30), st.sampled_from(["bytes", "s", "days"]))
def test_any_text_is_an_amount_or_unclear(text: str, unit: str) -> None:
    try:
        amount = units.parse(text, unit)
    except units.Unclear as error:
        amount = units.parse(error.instead, unit) if error.instead else 0
    assert amount >= 0


@given(st.integers(1, 2**60), st.sampled_from(["bytes", "s", "days"]))
def test_an_amount_that_is_written_is_read_again(value: int, unit: str) -> None:
    value = value % 10**9 + 1
    assert units.parse(units.written(value, unit), unit) == value


def test_a_job_file_takes_units_where_it_takes_numbers(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(
        'command = ["true"]\nwalltime_s = "2h30m"\n[prove]\nwindow_s = "150ms"\n'
        '[scheduling]\nmem_per_node_bytes = "16 GiB"\nwarning_s = "2m"\nwatchdog_s = "00:10:00"\n'
    )
    own = config.resolve({}, folder=tmp_path, environment={"HOME": "/x", "BAREBOAT_STORE": "/x"})
    job = read_job(path, own)
    found = job.scheduling
    assert (job.walltime_s, found.mem_per_node_bytes) == (9000, 16 * GIB)
    assert (found.warning_s, found.watchdog_s, job.prove.window_s) == (120, 600, 0.15)
    assert isinstance(job.walltime_s, int)
    assert isinstance(found.watchdog_s, int)
