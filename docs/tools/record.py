"""Record a real session in a terminal as an animated SVG: python docs/tools/record.py FILE.svg REPORT.html

The commands run in a terminal of 80 columns, with the files of the tutorial, in an environment into which
this checkout is installed. pyte interprets what they print, and each new screen becomes a frame. Waits are
shortened to at most 1.5 s, and the time that Bareboat measures runs faster.
"""

from __future__ import annotations

import contextlib
import fcntl
import html
import os
import pty
import re
import secrets
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
COLUMNS, LINES = 80, 24
#: What is typed, and the longest time in s that the recording keeps of each.
COMMANDS = (
    ("bareboat run train.py --steps 100", 8.0),
    ("bareboat plan train.toml", 5.0),
    ("bareboat prove train.toml --output report.html", 16.0),
)
PROMPT = "$ "
_LONGEST_WAIT_S = 1.5
_TYPED_S = 0.03
#: The sixteen colours of a terminal, readable on the background, by pyte's names.
COLOURS = {
    "default": "#d5d8de", "black": "#5c6370", "red": "#f07178", "green": "#8bd49c", "brown": "#e6c07b",
    "blue": "#70a5eb", "magenta": "#c991e1", "cyan": "#6cc4d0", "white": "#e8eaee",
    "brightblack": "#8a919e", "brightred": "#ff8b92", "brightgreen": "#a5e8b4", "brightbrown": "#f5d899",
    "brightblue": "#8fbcff", "brightmagenta": "#dcb0f0", "brightcyan": "#8ddde8", "brightwhite": "#ffffff",
}  # fmt: skip
BACKGROUND = "#1e2128"
_CELL, _ROW = 8.4, 18

#: A screen: its lines, each of (column, text, colour, bold).
Screen = tuple[tuple[tuple[int, str, str, bool], ...], ...]


def main(target: Path) -> None:
    with _home() as home:
        work = Path(home) / "line"
        work.mkdir()
        tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
        for name, text in re.findall(r"^```\w+ file=(\S+)\n(.*?)^```", tutorial, re.DOTALL | re.MULTILINE):
            (work / name).write_text(text, encoding="utf-8")
        python = [sys.executable, "-m", "venv", f"{home}/env"]
        for words in (python, [f"{home}/env/bin/pip", "install", "--quiet", f"{ROOT}[study]"]):
            subprocess.run(words, check=True)
        frames = list(_frames(Path(home) / "env" / "bin", Path(home), work))
        Path(sys.argv[2]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(work / "report.html", sys.argv[2])
    drawn = svg(frames)
    if "/tmp/" in drawn:
        sys.exit("a path of this machine is on the screen; record again")
    target.write_text(drawn, encoding="utf-8")
    print(f"{target}: {len(frames)} frames, {frames[-1][0]:.0f} s, {target.stat().st_size // 1024} KiB")


@contextlib.contextmanager
def _home() -> Iterator[str]:
    """A home directory whose name is as long as the one that is shown for it, so that lines fold equally."""
    while True:
        home = "/tmp/" + secrets.token_hex(2)
        with contextlib.suppress(FileExistsError):
            os.mkdir(home, 0o700)
            break
    try:
        yield home
    finally:
        shutil.rmtree(home)


def _frames(programs: Path, home: Path, work: Path) -> Iterator[tuple[float, Screen]]:
    """Moments in s and screens."""
    import pyte

    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    now = 0.0
    for command, limit_s in COMMANDS:
        stream.feed(PROMPT.encode())
        yield now, snapshot(screen)
        for at in range(0, len(command), 2):
            stream.feed(command[at : at + 2].encode())
            now += 2 * _TYPED_S
            yield now, snapshot(screen)
        now += 10 * _TYPED_S
        stream.feed(b"\r\n")
        began, last = now, None
        moments: list[tuple[float, Screen]] = []
        for at_s, output in _run(command, programs, home, work):
            stream.feed(output)
            shown = snapshot(screen)
            if shown != last:
                moments.append((at_s, shown))
                last = shown
        for at_s, shown in _shortened(moments, limit_s):
            now = began + at_s
            yield now, shown
        now += 1.5
    yield now + 2.0, snapshot(screen)


def _shortened(moments: list[tuple[float, Screen]], limit_s: float) -> list[tuple[float, Screen]]:
    """At most ten frames a second, no wait longer than _LONGEST_WAIT_S, and no more in all than the limit."""
    times, before, now = [], 0.0, 0.0
    for at_s, _ in moments:
        now += min(at_s - before, _LONGEST_WAIT_S)
        before = at_s
        times.append(now)
    factor = min(1.0, limit_s / now) if now else 1.0
    kept: list[tuple[float, Screen]] = []
    for at_s, (_, shown) in zip(times, moments, strict=True):
        if kept and at_s * factor - kept[-1][0] < 0.1:
            kept[-1] = (kept[-1][0], shown)
        else:
            kept.append((at_s * factor, shown))
    return kept


def _run(command: str, programs: Path, home: Path, work: Path) -> Iterator[tuple[float, bytes]]:
    """What a command prints in a terminal, with the moment in s."""
    environment = {
        "HOME": str(home), "USER": "you", "TERM": "xterm-256color", "LANG": "C.UTF-8",
        "PATH": f"{programs}:/usr/local/bin:/usr/bin:/bin", "VIRTUAL_ENV": str(programs.parent),
        "COLUMNS": str(COLUMNS), "LINES": str(LINES),
    }  # fmt: skip
    began, rest = time.monotonic(), b""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(work)
        os.execvpe("bash", ["bash", "-c", command], environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    while True:
        select.select([terminal], [], [])
        try:
            output = os.read(terminal, 65536)
        except OSError:  # Linux reports the end of a terminal so
            break
        if not output:
            break
        # The temporary home stands for the reader's; its name may be cut between two reads.
        output = (rest + output).replace(os.fsencode(home), b"/home/you")
        cut = max(n for n in range(len(str(home))) if output.endswith(os.fsencode(home)[:n]))
        output, rest = output[: len(output) - cut], output[len(output) - cut :]
        yield time.monotonic() - began, output
    yield time.monotonic() - began, rest
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    if (code := os.waitstatus_to_exitcode(status)) != 0:
        sys.exit(f"exit code {code}: {command}")


def snapshot(screen: Any) -> Screen:
    """The lines of a screen of pyte as runs of one colour."""
    lines = []
    for row in range(LINES):
        cells = screen.buffer[row]
        runs: list[tuple[int, str, str, bool]] = []
        for column in range(COLUMNS):
            cell = cells[column]
            colour = COLOURS.get(cell.fg) or (f"#{cell.fg}" if len(cell.fg) == 6 else COLOURS["default"])
            if runs and runs[-1][2:] == (colour, cell.bold) and runs[-1][0] + len(runs[-1][1]) == column:
                runs[-1] = (runs[-1][0], runs[-1][1] + cell.data, colour, cell.bold)
            else:
                runs.append((column, cell.data, colour, cell.bold))
        lines.append(tuple(run for run in runs if run[1].strip()))
    return tuple(lines)


def svg(frames: list[tuple[float, Screen]]) -> str:
    """An animated SVG, without a script; where animations are off, it shows the last screen."""
    total = frames[-1][0]
    width, height = COLUMNS * _CELL + 24, LINES * _ROW + 44
    styles, groups = [], []
    lines: dict[tuple[tuple[int, str, str, bool], ...], str] = {}
    for number, (at_s, screen) in enumerate(frames):
        until = frames[number + 1][0] if number + 1 < len(frames) else total
        uses = []
        for row, line in enumerate(screen):
            if line:
                name = lines.setdefault(line, f"l{len(lines)}")
                uses.append(f'<use href="#{name}" y="{row * _ROW}"/>')
        last = number + 1 == len(frames) or until >= total
        begin, end = 100 * at_s / total, 100 if last else 100 * until / total
        styles.append(
            f"@keyframes k{number}{{0%,{begin:.3f}%{{visibility:hidden}}"
            f"{begin:.3f}%,{end:.3f}%{{visibility:visible}}"
            + ("}" if last else f"{end:.3f}%,100%{{visibility:hidden}}}}")
        )
        styles.append(f"#f{number}{{animation-name:k{number}}}")
        groups.append(f'<g id="f{number}" class="f{" last" if last else ""}">{"".join(uses)}</g>')
    definitions = "".join(_line(name, line) for line, name in lines.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" role="img" '
        f'aria-label="A terminal session: bareboat run, plan and prove">'
        "<style>text{font-family:'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:14px;white-space:pre}"
        f".f{{visibility:hidden;animation-duration:{total:.1f}s;animation-iteration-count:infinite;"
        "animation-timing-function:step-end}"
        "@media (prefers-reduced-motion:reduce){.f{animation:none}.last{visibility:visible}}"
        f"{''.join(styles)}</style>"
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>'
        + "".join(
            f'<circle cx="{20 + 18 * place}" cy="16" r="5" fill="{colour}"/>'
            for place, colour in enumerate(("#f07178", "#e6c07b", "#8bd49c"))
        )
        + f'<defs>{definitions}</defs><g transform="translate(12 46)">{"".join(groups)}</g></svg>\n'
    )


def _line(name: str, line: tuple[tuple[int, str, str, bool], ...]) -> str:
    runs = "".join(
        f'<tspan x="{column * _CELL:.1f}" textLength="{len(text.rstrip()) * _CELL:.1f}" fill="{colour}"'
        f"{' font-weight=&quot;bold&quot;'.replace('&quot;', chr(34)) if bold else ''}>"
        f"{html.escape(text.rstrip())}</tspan>"
        for column, text, colour, bold in line
    )
    return f'<text id="{name}">{runs}</text>'


if __name__ == "__main__":
    main(Path(sys.argv[1]))
