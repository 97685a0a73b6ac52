"""Pages are replaced where they can be written again; every other file is kept."""

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


def refused(path: Path, store: Store) -> None:
    with pytest.raises(UsageError) as raised:
        report_files.claim(path, store, force=False)
    assert "--force" in raised.value.remedy
    assert report_files.claim(path, store, force=True) == path


def test_a_new_name_and_an_empty_file_are_free(place: Path, store: Store) -> None:
    (place / "empty").touch()
    for name in ("new.html", "empty"):
        assert report_files.claim(place / name, store, force=False) == place / name


def test_the_usual_page_is_that_of_the_newest_study(
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
    store.run("other-20261120-101500").mkdir()
    usual.write_text(page("other-20261120-101500"))
    assert written() == "report.html"
    usual.write_text("mine")
    assert written() == f"{RUN}.html"
    assert "report.html is kept" in capsys.readouterr().err
    assert written(place / "named.html") == "named.html"
    assert written(force=True) == "report.html"
    usual.write_text(gone := page("gone-20261120-101500", RUN))
    assert written() == "report.html"
    assert (place / "gone-20261120-101500.html").read_text() == gone
    assert not usual.exists()


def test_a_page_of_runs_that_are_gone_is_kept(place: Path, store: Store) -> None:
    path = place / "report.html"
    path.write_text(page(RUN, "gone-20250101-000000"))
    refused(path, store)


SHOWN = document('<meta name="bareboat-runs" content="x">', Markup(""))


@pytest.mark.parametrize("content", ["mine", "<html>" + " " * 70_000, page(), "\0" * 10, SHOWN])
def test_somebody_elses_file_is_kept(place: Path, store: Store, content: str) -> None:
    path = place / "report.html"
    path.write_text(content)
    refused(path, store)


def test_files_in_a_directory_are_kept(place: Path, store: Store) -> None:
    assert report_files.claim_folder(str(place / "paper"), ["a.csv"], store, force=False) == place / "paper"
    (place / "a.csv").write_text("mine")
    assert report_files.claim_folder(str(place), ["b.csv"], store, force=False) == place
    with pytest.raises(UsageError) as raised:
        report_files.claim_folder(str(place), ["b.csv", "a.csv"], store, force=False)
    assert "--force" in raised.value.remedy
    assert report_files.claim_folder(str(place), ["a.csv"], store, force=True) == place


@pytest.mark.parametrize("name", ["file", "file/below", "no/such", ""])
def test_a_directory_that_cannot_be(place: Path, store: Store, name: str) -> None:
    (place / "file").write_text("x")
    with pytest.raises(UsageError):
        report_files.claim_folder(str(place / name) if name else "", ("a.csv",), store, force=True)
