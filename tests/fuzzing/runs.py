"""Run directories: what jobs and containers leave in them, as `status`, `logs` and `report` read it."""

import argparse
import contextlib
import io
import json
import os
from argparse import Namespace
from pathlib import Path
from typing import Any, cast
from unittest import mock

from builders import fake_digest

from bareboat.cli import console, logs, status
from bareboat.cli.common import Context
from bareboat.model import Submission
from bareboat.runs import mpi_checks, state, transports
from bareboat_base import codec, execute
from bareboat_base.errors import BareboatError
from bareboat_images.store import Store
from bareboat_study.cli import report
from fuzzing import Finding, Reader, Terminal, check_message, check_shown
from fuzzing.trees import BETWEEN, make

RUN = "job-20261122-101010"
OTHER = "other-20261122-101011"
#: `logs` passes on whatever there is, to the end.
_LARGEST_LOG = 1 << 20


class _Screen(Terminal):
    """A terminal that bytes may be written to, as the output of jobs is."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = io.BytesIO()


def _submission(run_id: str, nodes: int = 2) -> bytes:
    return codec.to_json(
        Submission(
            run_id=run_id, scheduler="slurm", job_id="17", name="job", nodes=nodes, world_size=2,
            engine="native", submitted_at="2026-11-22T03:00:00Z", plan_digest=fake_digest("1"),
            image_digest=None, site_digest=fake_digest("2"),
        )
    )  # fmt: skip


def read_run(data: bytes, scratch: Path) -> None:
    """The input is one run's directory, beside another run's that is in order; `pending/…` and `mpi-checks/…`
    are the store's. No scheduler answers."""
    store = Store(scratch / "store")
    for run_id in (OTHER, RUN):
        folder = store.run(run_id)
        (folder / "control").mkdir(parents=True)
        (folder / "ranks").mkdir()
        (folder / "submission.json").write_bytes(_submission(run_id))
        (folder / "control/exit_code").write_text("7 160\n" if run_id == OTHER else "")
        (folder / "control/starts").write_text("100 c1 17\n")
    (store.mpi_checks() / "pending").mkdir(parents=True)
    make(data, store.run(RUN))
    for path in (store.run(RUN) / "pending", store.run(RUN) / "mpi-checks"):
        if path.is_dir() and not path.is_symlink():
            for each in path.iterdir():
                # A subject is of a run: of this one, whatever it is called here.
                pending = path.name == "pending"
                with contextlib.suppress(OSError):  # another kind of thing lies there already
                    each.rename(store.mpi_checks() / ("pending/" + RUN if pending else each.name))
    shown = ""
    with (
        mock.patch.object(state, "_SETTLE_S", 0.0),
        mock.patch.object(state, "ask", return_value={}),
        mock.patch.object(execute, "run", side_effect=Finding("a program is started")),
    ):
        for json_wanted in (False, True):
            out = _call(status, store, runs=[], all=True, json=json_wanted)
            if json_wanted:
                told = {each["run_id"]: each for each in json.loads(out)}
                if told[OTHER]["exit_code"] != 7:
                    raise Finding("the other run is not told of rightly")
            shown += out
        shown += _call(status, store, runs=[RUN])
        shown += _call(report, store, runs=[])
        if _is_short(store.run(RUN)):
            for more in ({}, {"json": True}, {"rank": 0}):
                shown += _call(logs, store, run=RUN, **more)
            page = store.root.parent / "page.html"
            for given in (
                {},
                {"csv": ""},
                {"markdown": ""},
                {"html": "", "output": str(page), "force": True},
            ):
                shown += _call(report, store, runs=[RUN], **given)
            if page.exists():
                shown += page.read_text().replace("\n", "")
                page.unlink()
        mpi_checks.gather(store)
        transports.read(store.run(RUN))
    if "root:x:0" in shown and b"root:x:0" not in data:
        raise Finding("a file of this machine is shown")


def _is_short(folder: Path) -> bool:
    paths = [folder / "output.log", *(folder / each / f"logs/0.{end}" for each in ("control", "ranks")
             for end in ("out", "err"))]  # fmt: skip
    with contextlib.suppress(OSError):
        paths += [path / "output.log" for path in (folder / "points").iterdir()]
    sizes = []
    for path in paths:
        with contextlib.suppress(OSError):
            sizes.append(os.lstat(path).st_size)
    return sum(sizes) <= _LARGEST_LOG


def _call(verb: Any, store: Store, **more: object) -> str:
    """What the verb shows on a terminal. The output of jobs is left out."""
    parser = argparse.ArgumentParser()
    verb.add(parser)
    options = Namespace(**{**vars(parser.parse_known_args([])[0]), "quiet": True, **more})
    screen = _Screen()
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
        context = Context(options, cast(Any, None), store, console.Progress(quiet=True))
        try:
            verb.run(context)
        except BareboatError as error:
            check_message(error)
    check_shown(screen.getvalue())
    return screen.getvalue()


READERS = (
    Reader(
        name="runs",
        read=read_run,
        words=(
            BETWEEN,
            BETWEEN + b"file control/",
            BETWEEN + b"file ranks/",
            BETWEEN + b"link ",
            BETWEEN + b"fifo ",
            b"hole ",
            b"folder ",
            b"closed ",
            b"submission.json\n",
            b"record.json\n",
            b"sweep.json\n",
            b"matrix.json\n",
            b"ended_because\n",
            b"control/exit_code\n",
            b"control/starts\n",
            b"control/agains\n",
            b"control/hosts\n",
            b"control/mpi_check.log\n",
            b"control/deliveries.c1\n",
            b"ranks/progress/1\n",
            b"ranks/nccl/x\n",
            b"output.log\n",
            b"/etc/passwd",
            b"../../",
            b"143 160\n",
            b"\x1b]0;x\x07",
            b"\xe2\x80\xae",
            b'"points":2',
            b'"nodes":1',
        ),
        modules=(
            "bareboat.cli.status",
            "bareboat.runs.state",
            "bareboat_study.point_runs",
            "bareboat.schedulers",
        ),
    ),
)
