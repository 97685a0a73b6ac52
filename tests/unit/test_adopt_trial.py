"""What is compared of an old job and its job file, and where the old job cannot run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bareboat.cli.main import main
from bareboat_adopt.comparison import Comparison, Execution


def execution(output: str = "", code: int | None = 0, **files: str) -> Execution:
    return Execution(code, 1.26, output, files)


def test_lines_are_paired_in_any_order_and_by_their_text() -> None:
    old = execution("rank 1 of 2\nrank 0 of 2\nloss 0.5\nloss 0.5\ntook 3 s\nbye\n")
    job = execution("rank 0 of 2\rrank 1 of 2\nloss 0.5\nloss 0.25\ntook 4 s\nwarning: slow")
    assert Comparison(old, job, "r").differences() == [
        "2 lines with other numbers; 3 equal", "  loss 0.5\n  loss 0.25", "  took 3 s\n  took 4 s",
        "1 line of the old script only", "  bye", "1 line of the job only", "  warning: slow",
    ]  # fmt: skip


def test_equal_executions_have_no_difference() -> None:
    both = Comparison(execution("a\nb\n\n", out="1"), execution("b\na\n", out="1"), "r")
    assert (both.differences(), both.agrees) == ([], True)
    assert both.rows() == [
        ("", "old script", "job file"), ("exit code", "0", "0"), ("wall time", "1.3 s", "1.3 s"),
        ("lines printed", "2", "2"), ("last line", "b", "a"), ("files written", "1", "1"),
    ]  # fmt: skip


def test_differences_are_named() -> None:
    old = execution("rank 0 of 1\nrank 0 of 1\n", a="1", b="1", c="1")
    job = execution("rank 0 of 2\nrank 1 of 2\nhealthy\n", b="2", d="1")
    assert Comparison(old, job, "r").differences() == [
        "2 lines with other numbers; 0 equal",
        "  rank 0 of 1\n  rank 0 of 2",
        "  rank 0 of 1\n  rank 1 of 2",
        "1 line of the job only",
        "  healthy",
        "2 files written by the old script only: a, c",
        "1 file written by the job only: d",
        "1 file with other content: b",
    ]


@pytest.mark.parametrize(
    ("old", "job", "agrees", "text"),
    [
        (0, 3, False, "the job failed with exit code 3; the old script did not"),
        (127, 0, False, "the old script failed with exit code 127; the job did not"),
        (0, None, False, "the job failed with exit code unknown; the old script did not"),
        (1, 2, True, "both failed: the old script with exit code 1, the job with 2"),
    ],
)
def test_failures(old: int, job: int | None, agrees: bool, text: str) -> None:
    both = Comparison(execution(code=old), execution(code=job), "r")
    assert (both.agrees, both.differences()) == (agrees, [text])


OBSTACLES = {
    "#SBATCH -N1\nsrun ./a": "it is a job of Slurm, and sbatch is not on PATH",
    "#PBS -l nodes=1\ncd $PBS_O_WORKDIR\n./a": "it is a job of PBS, and qsub is not on PATH",
    "#flux: -N1\n./a": "--run does not submit jobs of FLUX",
    "#SBATCH -N1 --array=0-1\nsrun ./a $SLURM_ARRAY_TASK_ID": "it is an array",
    "module load none/1.0\npython a.py": "its modules cannot be loaded: ",
}


@pytest.mark.parametrize("text", OBSTACLES)
def test_an_old_job_that_cannot_run_here_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is written."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin" if "module" in text else str(tmp_path))
    monkeypatch.delenv("BASH_FUNC_module%%", raising=False)
    (tmp_path / "old.sh").write_text(f"#!/bin/bash\n{text}\n")
    assert main(["init", "--from", "old.sh", "--run"]) == 2
    shown = capsys.readouterr().err
    assert f"old.sh cannot run here: {OBSTACLES[text]}" in " ".join(shown.split())
    assert "try: bareboat init --from old.sh" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["old.sh"]


def test_run_is_a_flag_of_old_scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Dockerfile").write_text("FROM debian:12\n")
    assert main(["init", "--run", "a.py"]) == 2
    assert main(["init", "--from", "Dockerfile", "--run", "--dry-run"]) == 2
    assert main(["init", "--from", "Dockerfile", "--run"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["Dockerfile"]
