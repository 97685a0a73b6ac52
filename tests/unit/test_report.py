"""The page: whole, self-contained, safe against what the data holds, and the same every time."""

import dataclasses
import re
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser

import pytest

pytest.importorskip("matplotlib")

import msgspec
from builders import make_analysis, make_image, make_job, make_records, make_site, make_study
from matrices import report_of

from bareboat.model import Arm, Layer, Record, Study
from bareboat_study import blocks
from bareboat_study.analysis import Analysis
from bareboat_study.report import render

Case = tuple[Study, Sequence[Record], Analysis]

HOSTILE = '<script>alert(1)</script> & "q" \'a\' $x^2$ </svg> id="axes_1" url(#p) http://evil.example/ é測'
VOID = {"meta", "br"}
URL_ATTRIBUTES = {"src", "href", "xlink:href", "srcset", "action", "data", "poster", "style", "clip-path"}


class Page(HTMLParser):
    """Checks the nesting while it reads, and keeps what the tests ask for."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.references: list[str] = []
        self.outside: list[str] = []
        self.handlers: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._see(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert "svg" in self.open, f"<{tag}/> closes itself only inside SVG"
        self._see(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if self.open and self.open[-1] == "style":
            assert "@import" not in data
            assert "url(" not in data

    def _see(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            value = value or ""
            if name == "id":
                self.ids.append(value)
            elif name in ("aria-labelledby", "aria-describedby"):
                self.references.append(value)
            elif name in URL_ATTRIBUTES:
                self.references += re.findall(r"^#(.+)", value) + re.findall(r"url\(#([^)]+)\)", value)
                absolute = re.search(r"//|data:|url\((?!#)", value)
                if absolute or (name in ("src", "href") and not value.startswith("#")):
                    self.outside.append(f"{tag} {name}={value}")
            if name.startswith("on"):
                self.handlers.append(f"{tag} {name}")

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


def make_case(*, metered: bool = True, runs: int = 4, windows: int = 6, ratio: float = 0.998) -> Case:
    study = make_study(metered=metered, runs=runs)
    records = make_records(study, ratio=ratio, windows=windows)
    return study, records, make_analysis(study, records, notes=("The frequency could not be fixed.",))


def make_hostile_case() -> Case:
    study = make_study(
        runs=3,
        job=msgspec.structs.replace(
            make_job(name=HOSTILE, command=("python", HOSTILE)), prove=make_study(runs=3).job.prove
        ),
        arms=tuple(
            Arm(
                name=HOSTILE + side,
                engine=HOSTILE,
                plan_digest=HOSTILE,
                script=f"echo '{HOSTILE}'\0\x1b[31m\n",
            )
            for side in "12"
        ),
        site=make_site(hostname=HOSTILE, cpu_model=HOSTILE, kernel=HOSTILE, distribution=HOSTILE),
        image=make_image(
            frameworks={HOSTILE: HOSTILE},
            layers=(Layer(diff_id=HOSTILE, size_bytes=1, unpacked_bytes=1, inodes=1, comment=HOSTILE),),
        ),
    )
    records = make_records(study, windows=4)
    records = tuple(msgspec.structs.replace(r, results={**r.results, HOSTILE: 1.0}) for r in records)
    analysis = make_analysis(study, records, notes=(HOSTILE,))
    metrics = tuple(
        dataclasses.replace(m, name=m.name + HOSTILE, unit=m.unit + HOSTILE) for m in analysis.metrics
    )
    return study, records, dataclasses.replace(analysis, metrics=metrics, sentence=HOSTILE)


CASES = {
    "metered": make_case,
    "unmetered": lambda: make_case(metered=False),
    "hostile": make_hostile_case,
}


@pytest.mark.parametrize("make", CASES.values(), ids=CASES.keys())
def test_ids_are_unique_and_every_reference_lands(make) -> None:
    page = Page(render(report_of(*make())))
    assert [name for name, count in Counter(page.ids).items() if count > 1] == []
    assert set(page.references) <= set(page.ids)


def test_a_study_that_is_too_noisy_names_no_number_of_runs() -> None:
    study = make_study(metered=False, runs=9)
    records = [
        msgspec.structs.replace(each, wall_s=each.wall_s * (1 + 0.2 * (each.run % 3 - 1)))
        if each.arm == study.arms[1].name
        else each
        for each in make_records(study)
    ]
    analysis = make_analysis(study, records)
    assert analysis.verdict.value == "too noisy"
    assert analysis.comparison.enough_runs is not None
    assert "runs for 80 %" not in Page(render(report_of(study, records, analysis))).text


def test_hostile_text_is_shown_and_not_obeyed() -> None:
    text = render(report_of(*make_hostile_case()))
    assert "<script" not in text.lower()
    assert "\0" not in text
    assert "\x1b" not in text
    assert HOSTILE in Page(text).text
    # The same holds inside the drawings, where matplotlib wrote the text.
    drawn = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", text))
    assert "&lt;script&gt;" in drawn


def test_every_number_of_the_verdict_is_on_the_page() -> None:
    study, records, analysis = make_case(runs=10)
    page = render(report_of(study, records, analysis))
    text = Page(page).text
    c = analysis.comparison
    assert analysis.sentence in text
    assert "equivalent within 2\u00a0%: " in page  # a number stays with its unit
    assert c.verdict.value in text
    assert f"{c.ratio:.3f} [{c.low:.3f}, {c.high:.3f}]" in text
    assert f"±{c.margin * 100:g} %" in text
    assert "95 %" in text
    assert f"{c.runs} of 10 planned" in text
    for metric in analysis.metrics:
        assert metric.name in text
    assert "secondary metric" in text
    assert "The frequency could not be fixed." in text


def test_goals_say_whether_they_were_reached() -> None:
    study, records, analysis = make_case()
    assert "reached by every run" in Page(render(report_of(study, records, analysis))).text
    failed = tuple(dataclasses.replace(goal, reached=False, lowest=None) for goal in analysis.goals)
    text = Page(render(report_of(study, records, dataclasses.replace(analysis, goals=failed)))).text
    assert "NOT reached" in text
    assert "no value" in text


def test_the_scripts_are_there_verbatim_and_the_environment_is_not() -> None:
    study, records, analysis = make_case()
    study = msgspec.structs.replace(
        study, job=msgspec.structs.replace(study.job, environment={"TOKEN": "hunter2"})
    )
    text = render(report_of(study, records, analysis))
    parsed = Page(text)
    for arm in study.arms:
        assert arm.script in parsed.texts
    assert "hunter2" not in text
    assert study.site.home not in text


def test_the_users_matplotlib_settings_neither_matter_nor_change() -> None:
    import matplotlib as mpl

    case = make_case()
    plain = render(report_of(*case))
    with mpl.rc_context({"svg.fonttype": "path", "font.size": 30.0, "axes.facecolor": "black"}):
        before = dict(mpl.rcParams)
        assert render(report_of(*case)) == plain
        assert dict(mpl.rcParams) == before


def test_warm_ups_are_listed_but_not_drawn() -> None:
    study, records, analysis = make_case()
    without = [record for record in records if not record.warm_up]
    drawings = [
        re.findall(r"<svg.*?</svg>", render(report_of(study, some, make_analysis(study, some))), flags=re.S)
        for some in (records, without)
    ]
    assert drawings[0] == drawings[1]
    assert "warm-up 0" in Page(render(report_of(study, records, analysis))).text


def test_a_phase_of_no_time_and_a_lone_hiccup_do_not_break_the_axes() -> None:
    study, records, _ = make_case(runs=6, windows=20)
    changed = []
    for r in records:
        assert r.phases is not None
        slow = msgspec.structs.replace(r.windows[0], step_s=tuple(50 * s for s in r.windows[0].step_s))
        phases = msgspec.structs.replace(r.phases, process_start_s=0.0)
        changed.append(msgspec.structs.replace(r, phases=phases, windows=(slow, *r.windows[1:])))
    page = Page(render(report_of(study, changed, make_analysis(study, changed))))
    assert "are beyond the axis" in page.text


def test_a_part_of_a_second_is_no_zero() -> None:
    assert [blocks.duration(each) for each in (0.0, 0.0227, 1.25, 40, 600, 11100)] == [
        "0 ms", "23 ms", "1.2 s", "40 s", "10 min", "3 h 5 min",
    ]  # fmt: skip
