"""The library of bash functions (runtime/*.sh), as one text: of each job, the files on the subjects that it
needs, because bash parses all of it in every part of the script."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import UNSET

from bareboat import bash, transport_logs
from bareboat.model import Plan, Start
from bareboat.render import words
from bareboat.render.values import WITH_FUNCTIONS, Features
from bareboat.schedulers import Scheduler


class Library(NamedTuple):
    """`name`: of its file, by its digest; `text`: of that; `inner`: for a script that contains it."""

    name: str
    text: str
    inner: str


def subject(name: str) -> str:
    """The functions on one subject: the text of runtime/NAME.sh."""
    return bash.piece(__package__, f"runtime/{name}")


def of_job(plan: Plan, scheduler: Scheduler, features: Features) -> Library:
    subjects = ["common", "limits"]
    subjects += ["local"] if scheduler.IS_LOCAL else ["begin", "cluster"]
    is_small = scheduler.IS_LOCAL and plan.start is Start.NODES and not plan.keeps_output
    if not is_small or "watchdog" in features:
        subjects.append("ends")
        subjects += ["local_run"] if scheduler.IS_LOCAL else []
    elif {"secret", "health"} & features:
        subjects.append("local_run")
    if plan.executable is not UNSET or plan.job.environment_from:
        subjects.append("requirements")
    if plan.job.environment_from and not scheduler.IS_LOCAL:
        subjects.append("environment")
    if plan.start is Start.RANKS:
        subjects.append("ranks")
    elif plan.start is Start.PROGRAM:
        subjects.append("program")
    elif plan.keeps_output:
        subjects.append("nodes")
    subjects += [each for each in WITH_FUNCTIONS if each in features]
    if {"local_run", "delivery", "kernel_cache"} & {*subjects}:
        subjects.append("private")
    seldom = ["kept"] if "discarded" in features else []
    (seldom if is_small and "watchdog" not in features else subjects).append("processes")
    commands = [plan.command] if plan.mpi_check is None else [plan.command, plan.mpi_check]
    texts = words.texts(*commands, more=plan.program)
    if "fabric" in features:
        texts |= {"by_sockets": transport_logs.SOCKETS, "by_fabric": transport_logs.FABRIC}
    if "health" in features:
        # Only this job's script has it.
        from bareboat import health
        from bareboat.mpi.text import program

        texts |= {"health_program": program(health)}
    return _assembled(subjects, scheduler.snippet(), texts, seldom)


def of_shell(plan: Plan, features: Features) -> Library:
    """For the script that opens a shell in the job's container."""
    assert plan.shell is not UNSET
    subjects = [
        "common",
        "requirements",
        "shell",
        *(each for each in ("sweep", "modules") if each in features),
    ]
    return _assembled(subjects, "", words.texts(plan.shell))


def of_allocation(scheduler: Scheduler) -> Library:
    """For the script of a study's job."""
    return _assembled(("common", "begin", "environment", "allocation"), scheduler.snippet(), {})


def _assembled(
    subjects: Sequence[str], more: str, texts: Mapping[str, str], seldom: Sequence[str] = ()
) -> Library:
    """`seldom`: the subjects at its end, which most runs do not need."""
    long = (f"{name}={words.literal(text)}\n" for name, text in texts.items())
    first = [part for part in (*map(subject, subjects), more, *long) if part]
    last = [subject(each) for each in seldom]
    text = "\n".join([*first, subject("seldom"), *last] if last else first)
    digest = hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()
    return Library(f"lib-{digest[:12]}.sh", text, "\n".join([*first, *last]))
