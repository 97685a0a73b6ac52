"""Writing a run or study as a Research Object Crate, to deposit it: the lock, its records, output and code.

Sources: https://www.researchobject.org/ro-crate/specification/1.1/, the profile Process Run Crate 0.5
(https://w3id.org/ro/wfrun/process/0.5), and https://citation-file-format.github.io (1.2.0).
"""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

from bareboat_base import codec
from bareboat_base.clock import epoch_s, moment, utc_now
from bareboat_base.errors import UsageError
from bareboat_base.files import outputs, untrusted
from bareboat_base.files.trees import remove_tree
from bareboat_base.printable import one_line, quoted
from bareboat_images.store import Store
from bareboat_study.reproduction import making
from bareboat_study.reproduction.document import Lock

_CONTEXT = "https://w3id.org/ro/crate/1.1/context"
_SPECIFICATION = "https://w3id.org/ro/crate/1.1"
_PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
_ORCID = r"https://orcid\.org/\d{4}-\d{4}-\d{4}-\d{3}[\dX]"
_SPDX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,63}")
#: Of a zip archive; its format cannot hold an earlier one.
_TIME_STAMP = (1980, 1, 1, 0, 0, 0)


class Author(NamedTuple):
    """`orcid`: a URL, or ""."""

    name: str
    orcid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The user's description of a crate."""

    title: str = ""
    licence: str = ""
    authors: tuple[Author, ...] = ()

    @classmethod
    def read(cls, title: str | None, licence: str | None, authors: Sequence[str]) -> Description:
        """From the command line. Raises UsageError."""
        if licence is not None and not _SPDX.fullmatch(licence):
            raise UsageError(
                f"--license {quoted(licence, limit=100)} is not an SPDX identifier",
                remedy="--license CC-BY-4.0",
            )
        if title is not None and (not title.isprintable() or len(title) > 500):
            raise UsageError("--title is not one line of at most 500 characters", remedy="shorten it")
        return cls(title=title or "", licence=licence or "", authors=tuple(map(_author, authors)))


def _author(text: str) -> Author:
    name, bracket, rest = text.partition("<")
    orcid = rest.rstrip().removesuffix(">")
    name = name.strip()
    if not name or not name.isprintable() or len(name) > 200 or (bracket and not re.fullmatch(_ORCID, orcid)):
        raise UsageError(
            f"--author {quoted(text, limit=200)} is not a name, or a name and an ORCID",
            remedy='--author "Ada Lovelace <https://orcid.org/0000-0002-1825-0097>"',
        )
    return Author(name, orcid)


class _Entry(NamedTuple):
    """A file of the crate: its content, or the file that has it."""

    path: str
    title: str
    form: str
    data: bytes | None = None
    source: Path | None = None


def check(text: str, *, force: bool) -> Path:
    """The path of the crate, once it can be written. Raises UsageError."""
    if text.endswith(".zip"):
        path = outputs.check(text, flag="--ro-crate")
        outputs.check_free(path, force=force)
        return path
    return outputs.check(text, flag="--ro-crate", is_folder=True)


def write(store: Store, lock: Lock, described: Description, target: Path) -> None:
    """Write the crate completely or not at all: a directory, or a zip archive."""
    entries = list(_entries(store, lock, described))
    with outputs.beside(target) as part:
        if target.name.endswith(".zip"):
            with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
                for entry in entries:
                    _add(archive, entry)
            return
        part.mkdir(mode=0o755)
        try:
            for entry in entries:
                place = part / entry.path
                place.parent.mkdir(parents=True, exist_ok=True)
                with open(place, "xb") as stream:
                    _copy(entry, stream)
        except BaseException:
            remove_tree(part)
            raise


def _add(archive: zipfile.ZipFile, entry: _Entry) -> None:
    about = zipfile.ZipInfo(entry.path, _TIME_STAMP)
    about.compress_type = zipfile.ZIP_DEFLATED
    about.external_attr = 0o644 << 16
    with archive.open(about, "w", force_zip64=True) as stream:
        _copy(entry, stream)


def _copy(entry: _Entry, target: IO[bytes]) -> None:
    if entry.source is None:
        target.write(entry.data or b"")
        return
    try:
        descriptor = untrusted.open_regular(entry.source)
    except OSError as error:
        raise untrusted.unreadable(entry.source, error) from None
    with open(descriptor, "rb") as stream:
        shutil.copyfileobj(stream, target)


def _entries(store: Store, lock: Lock, described: Description) -> Iterator[_Entry]:
    """All files, the metadata first."""
    own = [*_files(store, lock), _citation(lock, described)]
    metadata = _metadata(lock, described, own)
    data = codec.to_pretty_json(metadata).encode() + b"\n"
    yield _Entry("ro-crate-metadata.json", "", "", data)
    yield from own


def _files(store: Store, lock: Lock) -> Iterator[_Entry]:
    folder = store.run(lock.name)
    yield _Entry("run.lock", "what made it, for bareboat replay", "application/json", making.written(lock))
    if lock.kind == "run":
        for name, title, form in (
            ("record.json", "the record: samples and results", "application/json"),
            ("output.log", "what it printed", "text/plain"),
        ):
            if os.path.lexists(folder / name):
                yield _Entry(name, title, form, source=folder / name)
    else:
        below = folder / "points"
        for path in sorted(below.glob("[0-9]*/[0-9]*/*.json")):
            yield _Entry(
                f"records/{path.relative_to(below)}", "the record of one arm in one run",
                "application/json", source=path,
            )  # fmt: skip
    if lock.code is None:
        return
    for file in lock.code.files:
        if file.text is not None:
            yield _Entry(f"code/{file.path}", "a file of the code", "text/plain", file.text.encode())
    if lock.code.repository is not None and lock.code.repository.difference:
        yield _Entry(
            "code.patch", f"what changed since commit {lock.code.repository.commit}", "text/x-diff",
            lock.code.repository.difference.encode("utf-8", "surrogateescape"),
        )  # fmt: skip


def _citation(lock: Lock, described: Description) -> _Entry:
    import yaml

    fields: dict[str, Any] = {
        "cff-version": "1.2.0",
        "message": "If you use this dataset, please cite it as below.",
        "type": "dataset",
        "title": described.title or _title(lock),
        "authors": [
            {"name": author.name} | ({"website": author.orcid} if author.orcid else {})
            for author in described.authors
        ]
        or [{"name": "unknown"}],
        "date-released": utc_now()[:10],
    }
    if described.licence:
        fields["license"] = described.licence
    text = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True)
    return _Entry("CITATION.cff", "how to cite it", "text/yaml", text.encode())


def _title(lock: Lock) -> str:
    return f"{lock.kind.capitalize()} {lock.name}"


def _summary(lock: Lock) -> str:
    if lock.study is not None:
        return one_line("; ".join(lock.study.sentences), limit=2000)
    command = one_line(" ".join(lock.job.command), limit=300) or "the image's own command"
    return f"{command}: exit code {lock.results.exit_code}"


def _people(described: Description) -> list[dict[str, Any]]:
    return [
        {"@id": author.orcid or f"#author-{number}", "@type": "Person", "name": author.name}
        for number, author in enumerate(described.authors, 1)
    ]


def _licences(described: Description) -> list[dict[str, Any]]:
    if not described.licence:
        return []
    return [{
        "@id": f"https://spdx.org/licenses/{described.licence}", "@type": "CreativeWork",
        "name": described.licence, "description": f"SPDX licence {described.licence}",
    }]  # fmt: skip


def _data(lock: Lock) -> list[dict[str, Any]]:
    return [
        {
            "@id": f"#data-{number}", "@type": "CreativeWork", "name": os.path.basename(datum.path) or "/",
            "identifier": f"sha256:{datum.sha256}",
            "description": f"data of {datum.size_bytes:,} bytes in {datum.files:,} files, not in the crate",
        }
        for number, datum in enumerate(lock.data, 1)
    ]  # fmt: skip


def _images(lock: Lock) -> list[dict[str, Any]]:
    images = lock.study.images if lock.study is not None else (lock.image,) if lock.image else ()
    return [
        {
            "@id": f"#image-{number}" if number else "#image", "@type": "SoftwareApplication",
            "name": each.reference or "captured image", "identifier": each.digest,
            "softwareVersion": each.digest, "description": "the container image, not in the crate",
        }
        for number, each in enumerate(images)
    ]  # fmt: skip


def _action(lock: Lock) -> dict[str, Any]:
    """What was done, and how it ended."""
    state = "FailedActionStatus" if lock.results.exit_code else "CompletedActionStatus"
    done: dict[str, Any] = {
        "@type": "CreateAction",
        "name": _title(lock),
        "description": _summary(lock),
        "actionStatus": {"@id": f"http://schema.org/{state}"},
    }
    if lock.results.started_at:
        done["startTime"] = lock.results.started_at
        if lock.results.wall_s is not None:
            done["endTime"] = moment(epoch_s(lock.results.started_at) + round(lock.results.wall_s))
    if lock.results.exit_code:
        done["error"] = lock.results.ended_because or f"exit code {lock.results.exit_code}"
    return done


def _metadata(lock: Lock, described: Description, entries: Sequence[_Entry]) -> dict[str, Any]:
    """The JSON-LD. Each entity refers to others by @id."""
    own, action = "#run", "#bareboat"
    inputs = [e.path for e in entries if e.path.startswith("code") or e.path == "run.lock"]
    made = [e.path for e in entries if e.path.startswith("record") or e.path == "output.log"]
    root: dict[str, Any] = {
        "@id": "./",
        "@type": "Dataset",
        "name": described.title or _title(lock),
        "description": _summary(lock),
        "datePublished": utc_now(),
        "conformsTo": {"@id": _PROFILE},
        "hasPart": [{"@id": entry.path} for entry in entries],
        "mentions": {"@id": own},
    }
    people = _people(described)
    if people:
        root["author"] = _ids(people)
    licences = _licences(described)
    if licences:
        root["license"] = {"@id": licences[0]["@id"]}
    data, image = _data(lock), _images(lock)
    values = [
        {"@id": f"#metric-{name}", "@type": "PropertyValue", "name": name, "value": value}
        for name, value in lock.results.metrics.items()
    ]
    doing = {
        **_action(lock),
        "@id": own,
        "instrument": {"@id": action},
        "object": [*({"@id": path} for path in inputs), *_ids(data), *_ids(image)],
        "result": [*({"@id": path} for path in made), *_ids(values)],
    }
    if people:
        doing["agent"] = _ids(people)[0]
    version = (lock.recorded_by or lock.made_by).partition(" ")[2]
    return {
        "@context": _CONTEXT,
        "@graph": [
            {
                "@id": "ro-crate-metadata.json",
                "@type": "CreativeWork",
                "about": {"@id": "./"},
                "conformsTo": {"@id": _SPECIFICATION},
            },
            root,
            {"@id": _PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
            {
                "@id": action, "@type": "SoftwareApplication", "name": "Bareboat", "softwareVersion": version,
                "url": "https://pypi.org/project/bareboat/",
            },
            doing,
            *people, *licences, *data, *image, *values,
            *(
                {"@id": e.path, "@type": "File", "name": e.title, "encodingFormat": e.form} | _size(e)
                for e in entries
            ),
        ],
    }  # fmt: skip


def _size(entry: _Entry) -> dict[str, str]:
    if entry.source is not None:
        return {"contentSize": str(entry.source.lstat().st_size)}
    return {"contentSize": str(len(entry.data or b""))}


def _ids(entities: Iterable[dict[str, Any]]) -> list[dict[str, str]]:
    return [{"@id": entity["@id"]} for entity in entities]
