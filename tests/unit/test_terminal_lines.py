"""What messages look like on a terminal of 80 columns."""

import datetime
import sys
import tomllib
from types import SimpleNamespace

import pytest
from terminals import on_terminal, screen

from bareboat.cli import console
from bareboat_base import toml_values
from bareboat_base.errors import BareboatError


@pytest.mark.parametrize("how", ["result", "bytes"])
def test_a_line_of_progress_is_cleared_before_a_message(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(
        write=terminal.write, flush=terminal.flush, isatty=terminal.isatty,
        buffer=SimpleNamespace(write=lambda data: terminal.write(data.decode()), flush=terminal.flush),
    ))  # fmt: skip
    progress = console.Progress(quiet=False)
    progress.say("capturing: /opt/env/lib/python3.11")
    assert screen(terminal.getvalue())[0].startswith("[0:00] capturing")
    if how == "result":
        console.result("a result")
    else:
        console.result_bytes(b"a result\n")
    assert screen(terminal.getvalue())[0] == "a result"
    before = terminal.getvalue()
    console.note("another")
    progress.end()
    assert terminal.getvalue() == f"{before}another\n"


def test_a_value_of_thousands_of_characters_does_not_fill_the_screen() -> None:
    long = "x" * 1500
    lines = console.error_lines(BareboatError(f"no Python at {long}", remedy=f"ls -l {long}"), 80)
    assert sum(map(len, lines)) < 800
    path = "/" + "d/" * 199
    assert f"no Python at {path}" in console.error_lines(BareboatError(f"no Python at {path}"), None)[0]


def test_bytes_that_are_not_utf_8_are_shown_as_bytes() -> None:
    name = "a\udcff"
    error = BareboatError(f"{name} does not exist, {name!r} neither", remedy=f"ls {name}")
    assert console.error_lines(error, None) == [
        "bareboat: a\\xff does not exist, 'a\\xff' neither", "  try: ls a\\xff"
    ]  # fmt: skip


@pytest.mark.parametrize("value", [True, datetime.date(1979, 5, 27), datetime.time(7, 32)])
def test_values_are_shown_as_a_job_file_has_them(value: object) -> None:
    assert tomllib.loads(f"a = {toml_values.shown(value)}") == {"a": value}
