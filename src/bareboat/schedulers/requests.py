"""What a job requests, in the numbers and words that schedulers take. Pure."""

from __future__ import annotations

import re

from bareboat.model import Job


def job_name(job: Job) -> str:
    """The job's name without spaces, colons and leading digits, which schedulers reject."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", job.name) or "job"
    return name if name[0].isalpha() else f"job-{name}"


def given(*options: tuple[str, object]) -> list[str]:
    """The forms of options with their values, without those that the job leaves out: None, 0, False, ""."""
    return [form.format(value) for form, value in options if value]


def quoted(text: str | None) -> str:
    """The text as one word of a directive, which schedulers split at blanks outside quotes; "" for None."""
    if text is None or not re.search(r"[\s'\"\\#]", text):
        return text or ""
    # With both quotes in pieces: schedulers have no escape in common.
    pieces = re.findall(r'"+|[^"]+', text) if "'" in text else [text]
    return "".join(f"'{piece}'" if '"' in piece else f'"{piece}"' for piece in pieces)


def array_range(job: Job, *, first: int = 0) -> str | None:
    """The numbers of a sweep's elements, FIRST-LAST; None when the job is not a sweep."""
    return None if job.sweep is None else f"{first}-{first + len(job.sweep.points) - 1}"


def max_concurrent(job: Job) -> int | None:
    """The number of a sweep's elements that may run at the same time."""
    return None if job.sweep is None else job.sweep.at_once


def cpus_per_node(job: Job) -> int:
    return job.topology.ranks_per_node * (job.topology.cpus_per_rank or 1)


def gpus_per_node(job: Job) -> int:
    return job.topology.ranks_per_node * job.topology.gpus_per_rank


def clock(seconds: int) -> str:
    """HH:MM:SS, the time format of all schedulers."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def mebibytes(size: int | None) -> int:
    """The size in MiB, rounded up; 0 for None."""
    return -(-(size or 0) // 2**20)
