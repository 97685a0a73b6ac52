"""The Research Object Crate of a run: read back by the community's own library."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
import yaml
from locked import make_lock, make_locked_pair, make_results, make_study_lock

from bareboat_base.errors import UsageError
from bareboat_images.store import Store
from bareboat_study.reproduction import crate, reading
from bareboat_study.reproduction.document import Lock

ADA = "Ada Lovelace <https://orcid.org/0000-0002-1825-0097>"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "store")
    folder = made.run(make_lock().name)
    folder.mkdir(parents=True)
    (folder / "record.json").write_text("{}")
    (folder / "output.log").write_text("loss 0.1\n")
    for run in ("0000", "0001"):
        (folder / "points/0" / run).mkdir(parents=True)
        (folder / "points/0" / run / "baseline.json").write_text("{}")
    return made


def write(store: Store, lock: Lock, target: Path) -> Path:
    described = crate.Description.read("Digits", "CC-BY-4.0", [ADA, "Charles Babbage"])
    crate.write(store, lock, described, crate.check(str(target), force=False))
    return target


@pytest.mark.parametrize("name", ["crate", "crate.zip"])
def test_the_library_reads_the_crate(store: Store, tmp_path: Path, name: str) -> None:
    rocrate = pytest.importorskip("rocrate.rocrate")
    found = rocrate.ROCrate(str(write(store, make_lock(), tmp_path / name)))
    assert found.name == "Digits"
    assert found.license["name"] == "CC-BY-4.0"
    assert [person["name"] for person in found.root_dataset["author"]] == ["Ada Lovelace", "Charles Babbage"]
    assert found.root_dataset["author"][0].id == "https://orcid.org/0000-0002-1825-0097"
    (action,) = found.get_by_type("CreateAction")
    assert action["instrument"]["name"] == "Bareboat"
    assert {each.id for each in action["object"]} >= {"run.lock", "code/train.py", "#image", "#data-1"}
    assert {each.id for each in action["result"]} >= {"record.json", "output.log", "#metric-loss"}
    assert action["startTime"] == "2026-11-20T10:15:00Z"
    assert action["endTime"] == "2026-11-20T10:15:12Z"
    parts = {part.id for part in found.root_dataset["hasPart"]}
    assert parts == {"run.lock", "record.json", "output.log", "code/train.py", "CITATION.cff"}
    # What the library writes is a whole crate again: it found each file that is named.
    found.write(str(tmp_path / "again"))
    assert {path.name for path in (tmp_path / "again").iterdir()} >= {"run.lock", "code", "output.log"}


def test_a_run_whose_wall_time_is_unknown_has_no_end(store: Store, tmp_path: Path) -> None:
    target = write(store, make_lock(results=make_results(wall_s=None)), tmp_path / "crate")
    document = (target / "ro-crate-metadata.json").read_text()
    assert ('"startTime"' in document, '"endTime"' in document) == (True, False)


def test_no_reference_of_the_metadata_leads_nowhere(store: Store, tmp_path: Path) -> None:
    target = write(
        store, make_lock(results=make_results(exit_code=3, ended_because="memory")), tmp_path / "crate"
    )
    document = json.loads((target / "ro-crate-metadata.json").read_text())
    entities = {each["@id"]: each for each in document["@graph"]}
    assert len(entities) == len(document["@graph"])

    def references(value: object) -> set[str]:
        if isinstance(value, list):
            return set().union(*map(references, value)) if value else set()
        return {str(value["@id"])} if isinstance(value, dict) and len(value) == 1 else set()

    for entity in document["@graph"]:
        for key, value in entity.items():
            for reference in references(value):
                outside = reference.startswith(("https://w3id.org/ro/crate", "http://schema.org/"))
                assert outside or reference in entities, (key, reference)
        if entity["@type"] == "File":
            assert int(entity["contentSize"]) == (target / entity["@id"]).stat().st_size
    assert entities["#run"]["actionStatus"] == {"@id": "http://schema.org/FailedActionStatus"}
    assert entities["#run"]["error"] == "memory"


def test_the_lock_in_a_crate_is_read(store: Store, tmp_path: Path) -> None:
    target = write(store, make_lock(), tmp_path / "crate")
    assert reading.read(target / "run.lock")[0] == make_lock()


def test_a_study_has_its_records(store: Store, tmp_path: Path) -> None:
    lock = make_study_lock(make_locked_pair())
    target = write(store, lock, tmp_path / "study.zip")
    with zipfile.ZipFile(target) as archive:
        assert archive.testzip() is None
        assert {"records/0/0000/baseline.json", "records/0/0001/baseline.json"} <= set(archive.namelist())


def test_the_citation_file_has_authors_and_licence(store: Store, tmp_path: Path) -> None:
    target = write(store, make_lock(), tmp_path / "crate")
    found = yaml.safe_load((target / "CITATION.cff").read_text())
    assert (found["cff-version"], found["license"], found["title"]) == ("1.2.0", "CC-BY-4.0", "Digits")
    assert found["authors"][0] == {
        "name": "Ada Lovelace", "website": "https://orcid.org/0000-0002-1825-0097",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("title", "licence", "authors"),
    [
        ("a\nb", None, []),
        (None, "CC BY", []),
        (None, "../x", []),
        (None, None, [""]),
        (None, None, ["Ada <javascript:alert(1)>"]),
        (None, None, ["<https://orcid.org/0000-0002-1825-0097>"]),
    ],
)
def test_wrong_descriptions_are_refused(title: str | None, licence: str | None, authors: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        crate.Description.read(title, licence, authors)
    assert error.value.remedy


def test_an_existing_crate_is_not_overwritten(store: Store, tmp_path: Path) -> None:
    write(store, make_lock(), tmp_path / "crate")
    (tmp_path / "crate.zip").write_text("mine")
    for name in ("crate", "crate.zip"):
        with pytest.raises(UsageError, match="already exists"):
            crate.check(str(tmp_path / name), force=False)
    assert (tmp_path / "crate.zip").read_text() == "mine"


def test_a_crate_that_cannot_be_written_whole_leaves_nothing(store: Store, tmp_path: Path) -> None:
    (store.run(make_lock().name) / "output.log").unlink()
    (store.run(make_lock().name) / "output.log").symlink_to("/etc/passwd")
    for name in ("crate", "crate.zip"):
        with pytest.raises(UsageError, match="symbolic link"):
            write(store, make_lock(), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
