from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareboat_base.files import untrusted
from bareboat_base.files.untrusted import UntrustedFileError
from bareboat_base.printable import one_line, printable, quoted


def test_a_small_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0 1\n")
    assert untrusted.read_bytes(tmp_path / "file") == b"0 1\n"
    assert untrusted.read_text(tmp_path / "file") == "0 1\n"


def test_a_file_of_exactly_the_limit_is_read_and_a_larger_one_is_not(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert untrusted.read_bytes(tmp_path / "file", limit=5) == b"12345"
    with pytest.raises(UntrustedFileError, match="larger than 4 bytes"):
        untrusted.read_bytes(tmp_path / "file", limit=4)


def test_a_file_without_a_size_is_limited_too() -> None:
    """The kernel's files say 0."""
    with pytest.raises(UntrustedFileError, match="larger than"):
        untrusted.read_bytes("/proc/self/maps", limit=10)


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        untrusted.read_bytes(tmp_path / "file")


def test_a_sparse_file_costs_no_memory(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(UntrustedFileError, match="larger"):
        untrusted.read_bytes(tmp_path / "file")
    assert untrusted.read_tail(tmp_path / "file", limit=3) == b"\0\0\0"


def test_the_tail_of_a_small_file_is_all_of_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    assert untrusted.read_tail(tmp_path / "file", limit=10) == b"abc"


@given(st.text(st.characters()))
def test_what_is_printable_has_no_control_character(text: str) -> None:
    shown = printable(text)
    assert all(character in "\t\n" or character.isprintable() or ord(character) > 0x9F for character in shown)
    shown.encode()  # a lone surrogate could not be written
    assert "\x1b" not in shown
    assert "\n" not in one_line(text)
    assert len(one_line(text)) <= 200
    assert "\n" not in quoted(text)
    assert eval(quoted(text[:60])) == text[:60]
    assert eval(quoted("x" * 60 + text)) == ("x" * 59 + "…" if text else "x" * 60)
