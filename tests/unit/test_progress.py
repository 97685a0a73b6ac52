"""Tables, at 80 columns and elsewhere."""

import pytest

from bareboat.cli import console

ROWS = [
    ("", "login node", "compute node"),
    ("system", "Debian GNU/Linux 12 (bookworm), with much more " * 2, "x"),
    ("path", "/a/path/that/has/no/place/to/break/" * 4, "12"),
]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_is_folded_on_a_narrow_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", lambda: width)
    lines = console.table(ROWS).splitlines()
    assert max(map(len, lines)) <= width
    letters = sorted("".join(lines).replace(" ", ""))
    assert letters == sorted("".join("".join(row) for row in ROWS).replace(" ", "")), "nothing is lost"


def test_elsewhere_a_row_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "width", lambda: None)
    assert len(console.table(ROWS).splitlines()) == len(ROWS)
