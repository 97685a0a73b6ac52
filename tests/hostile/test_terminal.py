"""What strangers write does not reach the terminal as anything but text: one place sees to it."""

import ast
import io
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from bareboat import cli
from bareboat.cli import console
from bareboat_base.errors import BareboatError
from bareboat_base.printable import in_json, one_line, printable

HARM = {
    "a window's title": "\033]0;owned\a",
    "a cleared screen": "\033[2J\033[H",
    "hidden text": "\033[8m",
    "a link": "\033]8;;http://evil/\033\\here\033]8;;\033\\",
    "the clipboard": "\033]52;c;cm0gLXJmIH4K\a",
    "an answer that the terminal types": "\033[c\033[6n\033[21t",
    "a string to the host": '\033P$q"p\033\\',
    "C1": "\x9b2J\x9d0;x\x9c",
    "a line written over": "all is well\rowned",
    "backspaces": "a\b\b\b",
    "a bell": "\a",
    "NUL": "\0",
    "DEL": "\x7f",
    "turned text": "\u202egpj.exe\u202c",
    "isolates": "\u2066\u2067\u2068\u2069",
    "lines of Unicode": "a\u2028b\u2029c",
    "half a pair": "\ud800",
    "form feed and vertical tab": "\f\v",
    "shift out": "\x0e\x0f",
    "device control": "\x11\x13\x1a",
}
ALLOWED = set("\n\t")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 2


class Pipe(io.StringIO):
    pass


Streams = Callable[[], tuple[io.StringIO, io.StringIO]]


@pytest.fixture(params=[Terminal, Pipe], ids=["terminal", "pipe"])
def streams(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Streams:
    """Takes the place of stdout and stderr when it is called: before the test pytest puts its own there."""

    def take() -> tuple[io.StringIO, io.StringIO]:
        out, err = request.param(), request.param()
        monkeypatch.setattr("sys.stdout", out)
        monkeypatch.setattr("sys.stderr", err)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        monkeypatch.setattr("os.get_terminal_size", lambda _: type("Size", (), {"columns": 400}))
        return out, err

    return take


def harmless(text: str) -> bool:
    for code in ("0", "1", "2", "31", "32", "33"):
        text = text.replace(f"\033[{code}m", "")
    return not any(c not in ALLOWED and printable(c) != c for c in text.replace("\r\033[K", ""))


@pytest.mark.parametrize("what", list(HARM))
def test_results_notes_errors_and_logs(what: str, streams: Streams) -> None:
    out, err = streams()
    text = HARM[what]
    console.result(f"{text} {console.bold(text)}")
    console.result(console.table([("NAME", text), (text, text)]))
    console.note(text)
    console.show_error(BareboatError(text, context=f"{text}\n{text}", remedy=text))
    progress = console.Progress(quiet=False)
    progress.say(f"pulling {text}: {text}")
    progress.end()
    logger = logging.getLogger("bareboat.test")
    handler = console._Handler()
    logger.addHandler(handler)
    logger.warning("%s", text)
    logger.removeHandler(handler)
    assert out.getvalue()
    assert harmless(out.getvalue())
    assert err.getvalue()
    assert harmless(err.getvalue())


@pytest.mark.parametrize("what", list(HARM))
def test_json_is_harmless_and_reads_back_as_it_was(what: str, streams: Streams) -> None:
    out, _ = streams()
    console.result_json({"name": HARM[what], HARM[what]: 1})
    assert harmless(out.getvalue())
    assert json.loads(out.getvalue()) == {"name": HARM[what], HARM[what]: 1}
    out.seek(0)
    out.truncate()
    console.json_line({"line": HARM[what]})
    assert harmless(out.getvalue())
    assert json.loads(out.getvalue()) == {"line": HARM[what]}


@pytest.mark.parametrize("what", list(HARM))
def test_a_script_is_exact_in_a_pipe_and_shown_on_a_terminal(what: str, streams: Streams) -> None:
    out, _ = streams()
    console.script(f"echo '{HARM[what]}'")
    if isinstance(out, Terminal):
        assert harmless(out.getvalue())
    else:
        assert out.getvalue() == f"echo '{HARM[what]}'\n"


@pytest.mark.parametrize("what", list(HARM))
def test_one_line_is_one(what: str) -> None:
    assert harmless(one_line(HARM[what] * 100))
    assert "\n" not in one_line(HARM[what] * 100)
    assert len(one_line(HARM[what] * 100)) <= 200
    assert json.loads(in_json(json.dumps(HARM[what], ensure_ascii=False))) == HARM[what]


def test_bytes_of_a_path_stay_what_they_are_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", pipe := Pipe())
    console.result("/a/\udcff\udc9b\033[2J")
    assert pipe.getvalue() == "/a/\udcff\udc9b\\x1b[2J\n"


#: The user's own jobs' output, byte by byte.
_OWN_OUTPUT = {("logs.py", "sys.stdout.buffer.write")}


@pytest.mark.parametrize("path", sorted(Path(cli.__file__).parent.rglob("*.py")), ids=lambda path: path.name)
def test_nothing_else_writes_to_the_terminal(path: Path) -> None:
    if path.name == "console.py":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called != "print", f"{path}:{node.lineno}: use bareboat.cli.console"
            if called.startswith(("sys.stdout", "sys.stderr", "os.write")) and "write" in called:
                assert (path.name, called) in _OWN_OUTPUT, f"{path}:{node.lineno}: use bareboat.cli.console"
