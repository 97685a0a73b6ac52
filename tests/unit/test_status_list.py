"""The list of runs, at 80 columns and elsewhere."""

from __future__ import annotations

from pathlib import Path

from bareboat.cli.run_list import placed

LIST = Path(__file__).parents[1] / "golden" / "status.txt"
ROWS = [
    ("digits-20261120-101500", "python train.py --epochs 90 --lr 0.1", "slurm 4711", "running", "0:12:03",
     "2 h"),
    ("train-20261123-094501", "python -c 'raise ValueError(1)'", "login1", "1", "0:00:02", "5 min"),
    ("a-job-with-a-long-name-20261123-094501", "./solver", "gridengine 17.4", "lost", "", "12 d"),
]  # fmt: skip
DETAILS = [
    "",
    "Python exception: ValueError: 1; a longer reason that does not fit on one line of a terminal",
    "",
]


def test_the_list_fits_80_columns() -> None:
    lines = placed(ROWS, DETAILS, 80)
    assert max(map(len, lines)) <= 80
    assert "\n".join(lines) + "\n" == LIST.read_text()


def test_elsewhere_each_run_has_one_line_and_one_for_its_reason() -> None:
    lines = placed(ROWS, DETAILS, None)
    assert len(lines) == 5
    assert lines[3].strip() == DETAILS[1]
    assert all(row[0] in "\n".join(lines) for row in ROWS)
