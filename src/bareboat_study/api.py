"""Studies: what a container costs a job, against bare metal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.api import boundary, opened
from bareboat.api.boundary import translated
from bareboat_base.errors import BareboatError, UsageError
from bareboat_base.files import outputs
from bareboat_study import listing, matrix, point_plans, report_files, study_report, studyfile

if TYPE_CHECKING:
    from bareboat import model
    from bareboat.model import Record
    from bareboat.session import Session
    from bareboat_images.store import Store
    from bareboat_study.analysis import Analysis
    from bareboat_study.measures import Metric
    from bareboat_study.statistics import Verdict
    from bareboat_study.study_report import StudyReport


class Study:
    """A finished study: its verdict, and every measured value behind it."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self.id = name

    @classmethod
    @translated()
    def find(cls, name: str) -> Study:
        """The study of this name, else the newest study of the job of this name. Raises UsageError."""
        store = opened.session().store
        named = store.newest_of(boundary.text("the study", name), lambda run: listing.is_study(store, run))
        if not listing.is_study(store, named or name):
            raise UsageError(f"study {name} not found", remedy="bareboat.Study.all()")
        return cls(store, matrix.read(store, named or name).id)

    @classmethod
    @translated()
    def all(cls) -> list[Study]:
        """The studies of the store, oldest first."""
        store = opened.session().store
        return [cls(store, name) for name in store.runs() if listing.is_study(store, name)]

    def __repr__(self) -> str:
        try:
            return f"Study({self.id!r}: {_text(self._report)})"
        except BareboatError as error:
            return f"Study({self.id!r}: {error.message})"

    @property
    def _report(self) -> StudyReport:
        return study_report.read(self._store, self.id)

    @property
    @translated()
    def records(self) -> Sequence[Record]:
        """The record of each run of each arm, warm-up first; point after point."""
        return [record for own in self._report.records for record in own]

    @property
    @translated()
    def analysis(self) -> Analysis:
        """Everything that follows from the records, of two arms at one point. Raises UsageError for a study
        of more."""
        if self._report.only is None:
            raise UsageError(
                f"{self.id} has several comparisons, or none", remedy=f"bareboat report {self.id} --json"
            )
        return self._report.only.analysis

    @property
    def verdict(self) -> Verdict:
        """That of the primary metric, or that the training diverged."""
        return self.analysis.verdict

    @property
    def sentence(self) -> str:
        """The verdict in words, with the ratio and its interval."""
        return self.analysis.text

    @property
    def metrics(self) -> Sequence[Metric]:
        """Each quantity in both arms, with the ratio of the container to bare metal and its interval."""
        return self.analysis.metrics

    @translated()
    def write_report(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the report as one HTML page, which loads nothing from the network. `force`: replace a file
        that is not a report of a run in the store. Raises UsageError, StoreError."""
        found = report_files.claim(boundary.path("the report", path), self._store, force=force)
        from bareboat_study.report import render

        outputs.write(found, render(self._report).encode())
        return found


def _text(shown: StudyReport) -> str:
    """The answer to each comparison; of a study of one, with what makes it doubtful."""
    return "; ".join(shown.found.sentences) if shown.only is None else shown.only.analysis.text


def prove(session: Session, job: model.Job) -> Study:
    """Design the study of a job on bare metal and in a container, measure, and return it."""
    request = studyfile.study_of_job(job)
    store, reporter = session.store, session.reporter
    made = matrix.design(store, request, *point_plans.cells(session, request))
    matrix.conduct(store, made, say=reporter.say, note=reporter.note)
    return Study(store, made.id)
