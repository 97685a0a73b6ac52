"""Every reader of strangers' bytes: its whole kept corpus, and a short burst of changed inputs.

For longer: `PYTHONPATH=tests python -m fuzzing READER --seconds 600` (docs/testing.md).
"""

import random
import time
from pathlib import Path

import fuzzing
import pytest
from fuzzing import Reader, Site, changed
from tools import tool

READERS = fuzzing.readers()
KEPT = [(name, path) for name, reader in READERS.items() for path in sorted(reader.corpus.iterdir())]
BURST_S = 0.5


def need_tools(reader: Reader) -> None:
    for program in ("unsquashfs",) if reader.name == "squashfs" else ():
        tool(program)


@pytest.mark.parametrize(("name", "path"), KEPT, ids=[f"{name}-{path.name}" for name, path in KEPT])
def test_what_is_kept_is_read_or_refused(name: str, path: Path, tmp_path: Path) -> None:
    """Well-formed inputs, and all that were ever a finding."""
    need_tools(READERS[name])
    Site(tmp_path / "site").attempt(READERS[name], path.read_bytes())


@pytest.mark.parametrize("name", READERS)
def test_burst_of_changed_inputs(name: str, tmp_path: Path) -> None:
    """Another one each time; an input that fails is kept, and named in the message."""
    reader = READERS[name]
    need_tools(reader)
    site = Site(tmp_path / "site")
    seeds = [path.read_bytes() for path in sorted(reader.corpus.iterdir())]
    chance = random.Random()
    end = time.monotonic() + BURST_S
    while time.monotonic() < end:
        data = changed(chance.choice(seeds), seeds, chance, reader.words)
        data = reader.mend(data) if chance.random() < 0.9 else data
        try:
            site.attempt(reader, data)
        except Exception as error:
            (tmp_path / "finding").write_bytes(data)
            error.add_note(f"the input: {tmp_path / 'finding'}; it belongs into {reader.corpus}")
            raise


def test_corpus_stays_small() -> None:
    """It is read at every run of the tests, and is in every clone."""
    assert sum(path.stat().st_size for _, path in KEPT) < 2_000_000
    assert all(path.stat().st_size <= fuzzing.LONGEST_BYTES for _, path in KEPT)
