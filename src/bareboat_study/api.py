"""Studies: what a container costs a job, against bare metal."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bareboat.api import boundary, opened
from bareboat.api.boundary import translated
from bareboat.session import planning
from bareboat_base.files import outputs
from bareboat_study import analysis as analyses
from bareboat_study import prove as measuring
from bareboat_study import report_files

if TYPE_CHECKING:
    from bareboat import model
    from bareboat.model import Record
    from bareboat.session import Prepared, Session
    from bareboat_images.store import Store
    from bareboat_study.analysis import Analysis
    from bareboat_study.measures import Metric
    from bareboat_study.statistics import Verdict


class Study:
    """A finished study: its verdict, and every measured value behind it."""

    def __init__(self, store: Store, study: model.Study) -> None:
        self._store = store
        self._study = study
        self.id = study.id

    @classmethod
    @translated()
    def find(cls, name: str) -> Study:
        """The study of this name. Raises UsageError."""
        store = opened.session().store
        return cls(store, measuring.read_study(store, boundary.text("the study", name)))

    def __repr__(self) -> str:
        return f"Study({self.id!r}: {self.sentence})"

    @property
    @translated()
    def records(self) -> Sequence[Record]:
        """The record of each run of each arm, warm-up first."""
        return measuring.read_records(self._store, self._study)

    @property
    def analysis(self) -> Analysis:
        """Everything that follows from the records."""
        return analyses.analyse(self._study, self.records)

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
        outputs.write(found, self._page().encode())
        return found

    def _page(self) -> str:
        from bareboat_study.report import render_report

        return render_report([(self._study, self.records, self.analysis)])

    def _repr_html_(self) -> str:
        from bareboat_base.page import escape, in_notebook, table, tag

        found = self.analysis
        rows = [
            (
                f"{metric.name}{f', {metric.unit}' if metric.unit else ''}",
                f"{metric.comparison.ratio:.3f}",
                f"[{metric.comparison.low:.3f}, {metric.comparison.high:.3f}]",
                found.word_of(metric),
            )
            for metric in found.metrics
        ]
        arms = self._study.arms
        shown = table(
            f"{arms[1].name} against {arms[0].name}", ("metric", "ratio", "interval", "verdict"), rows
        )
        return in_notebook(tag("p", tag("b", escape(self.sentence))) + shown)


def prove(session: Session, prepared: Prepared) -> Study:
    """Design the study, measure, and return it."""
    plans = planning.arms(session, prepared)
    study = measuring.design_study(session.store, prepared.job, plans, prepared.image, prepared.site)
    return Study(session.store, measuring.conduct(session.store, study, say=session.reporter.say))
