"""Reports replace what Bareboat can write again, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from bareboat_base.errors import UsageError
from bareboat_base.page import Markup, document
from bareboat_images.store import Store
from bareboat_study import report_files
from bareboat_study.cli import report_export

RUN = "digits-20261120-101500"


@pytest.fixture
def place(tmp_path: Path, store: Store) -> Path:
    store.run(RUN).mkdir(parents=True)
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def page(*runs: str) -> str:
    return document("t", Markup(""), runs=runs)


def refused(path: Path, store: Store, part: str) -> None:
    with pytest.raises(UsageError, match=part) as raised:
        report_files.claim(path, store, force=False)
    assert "--force" in raised.value.remedy
    assert f"{path.stem}-2{path.suffix}" in raised.value.remedy
    assert report_files.claim(path, store, force=True) == path


def test_a_new_name_and_an_empty_file_are_free(place: Path, store: Store) -> None:
    (place / "empty").touch()
    for name in ("new.html", "empty"):
        assert report_files.claim(place / name, store, force=False) == place / name


def test_a_page_of_runs_in_the_store_is_replaced(place: Path, store: Store) -> None:
    path = place / "report.html"
    path.write_text(page(RUN))
    assert report_files.reported(path) == (RUN,)
    assert report_files.claim(path, store, force=False) == path


def test_the_usual_page_of_a_study_replaces_only_its_own(
    place: Path, store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)

    def written(output: Path | None = None, *, force: bool = False) -> str:
        context = SimpleNamespace(options=SimpleNamespace(output=output, force=force), store=store)
        return report_export.page_of(context, RUN).name  # type: ignore[arg-type]

    usual = place / "report.html"
    assert written() == "report.html"
    usual.write_text(page(RUN))
    assert written() == "report.html"
    assert capsys.readouterr().err == ""
    for content in (page("other-20261120-101500"), page(RUN, "other-20261120-101500"), "mine"):
        usual.write_text(content)
        assert written() == f"{RUN}.html"
        assert "report.html is kept: it is not the page of this study" in capsys.readouterr().err
        assert written(place / "named.html") == "named.html"
        assert written(force=True) == "report.html"


def test_a_page_of_runs_that_are_gone_is_kept(place: Path, store: Store) -> None:
    path = place / "report.html"
    path.write_text(page(RUN, "gone-20250101-000000"))
    refused(path, store, "is the report of gone-20250101-000000, which is not in this store")


@pytest.mark.parametrize("content", ["mine", "<html>" + " " * 70_000, page(), "\0" * 10])
def test_somebody_elses_file_is_kept(place: Path, store: Store, content: str) -> None:
    path = place / "report.html"
    path.write_text(content)
    refused(path, store, "is not a report of Bareboat")


def test_text_in_a_page_does_not_make_it_a_report(place: Path, store: Store) -> None:
    path = place / "report.html"
    path.write_text(document('<meta name="bareboat-runs" content="x">', Markup("")))
    refused(path, store, "is not a report of Bareboat")


def write(place: Path, **files: str) -> None:
    report_files.write_folder(
        place, {name.replace("_", "."): text.encode() for name, text in files.items()}, [RUN]
    )


def claim(place: Path, store: Store, *names: str, force: bool = False) -> Path:
    return report_files.claim_folder(str(place), names, store, force=force)


def test_a_directory_is_made_and_written_again(place: Path, store: Store) -> None:
    paper = place / "paper"
    assert claim(paper, store, "a.csv") == paper
    write(paper, a_csv="1")
    write(paper, b_csv="2")
    assert claim(paper, store, "a.csv", "b.csv", "c.csv") == paper
    write(paper, a_csv="3")
    assert sorted(os.listdir(paper)) == ["a.csv", "b.csv", "bareboat-report.json"]
    assert (paper / "a.csv").read_text() == "3"
    assert json.loads((paper / report_files.LIST).read_text())["runs"] == [RUN]


def test_a_file_that_the_user_changed_is_kept(place: Path, store: Store) -> None:
    paper = place / "paper"
    write(paper, a_csv="1")
    (paper / "a.csv").write_text("mine")
    with pytest.raises(UsageError, match=r"a\.csv was changed after Bareboat wrote it"):
        claim(paper, store, "a.csv")
    claim(paper, store, "b.csv")
    claim(paper, store, "a.csv", force=True)


def test_other_files_in_a_directory_are_kept(place: Path, store: Store) -> None:
    (place / "a.csv").write_text("mine")
    with pytest.raises(UsageError, match="is not a report of Bareboat"):
        claim(place, store, "a.csv")
    claim(place, store, "b.csv")
    write(place, b_csv="1")
    with pytest.raises(UsageError, match=r"a\.csv already exists"):
        claim(place, store, "a.csv", "b.csv")


def test_a_directory_whose_runs_are_gone_is_kept(place: Path, store: Store) -> None:
    paper = place / "paper"
    write(paper, a_csv="1")
    store.run(RUN).rmdir()
    with pytest.raises(UsageError, match="not in this store"):
        claim(paper, store, "a.csv")


@pytest.mark.parametrize("name", ["file", "file/below", "no/such", ""])
def test_a_directory_that_cannot_be(place: Path, store: Store, name: str) -> None:
    (place / "file").write_text("x")
    with pytest.raises(UsageError):
        report_files.claim_folder(str(place / name) if name else "", ("a.csv",), store, force=True)


def test_a_link_to_a_list_is_not_read(place: Path, store: Store) -> None:
    paper = place / "paper"
    write(paper, a_csv="1")
    os.rename(paper / report_files.LIST, place / "list")
    (paper / report_files.LIST).symlink_to(place / "list")
    with pytest.raises(UsageError, match="is not a report of Bareboat"):
        claim(paper, store, "a.csv")
