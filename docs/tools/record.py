"""Record a real session in a terminal as an animated SVG: python docs/tools/record.py FILE.svg REPORT.html

The commands run in a terminal of 80 columns on the login node of a local Slurm cluster
(docs/testing.md#local-clusters), with the files of the tutorial and this checkout. pyte interprets what they
print, and each new screen becomes a frame. Waits are shortened to at most 1.5 s, and the time that Bareboat
measures runs faster, which the picture says. It takes about six minutes, and fails if the study is not
decided: the machine must have nothing else to do. REPEATS=2 tries it in less time, and accepts any verdict.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
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
COLUMNS, LINES = 80, 28
REPEATS = os.environ.get("REPEATS")
#: What is typed, and the longest time in s that the recording keeps of each.
COMMANDS = (
    ("bareboat doctor", 2.0),
    ("bareboat run train.py --steps 100", 5.0),
    ("bareboat submit -N 3 train.toml", 4.0),
    ("bareboat wait && bareboat logs --rank 5", 4.0),
    (f"bareboat prove --repeats {REPEATS or 24} train.py --steps 4000", 12.0),
)
CLUSTER = ROOT / "tests" / "lab" / "cluster" / "cluster.sh"
#: The home that the recording shows; as long as the real one, so that lines fold equally.
SHOWN_HOME = "/home/student"
#: What the pictures show: the session, its files, and the code of the page and of the terminal's table.
_SHOWN = (
    "docs/tools/record.py", "docs/tools/screenshot.py", "docs/tutorial.md", "src/bareboat_base/page.*",
    "src/bareboat_study/report.py", "src/bareboat_study/report_[fv]*s.py", "src/bareboat_study/text.py",
    "src/bareboat_study/drawing.py", "src/bareboat_study/forest.py", "src/bareboat_study/plots.py",
    "src/bareboat_study/cli/result.py",
)  # fmt: skip
#: The digest of what they were made from.
MADE_FROM = ROOT / "docs" / "pictures" / "made-from.sha256"
_DECIDED = re.compile(r"(equivalent within|different)")
#: In the picture itself, which is shown without its page, too.
NOTICE = "real output, waits shortened"
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


def main(target: Path, report: Path) -> None:
    with _cluster() as cluster:
        home = cluster / "home"
        work = home / "line"
        work.mkdir()
        tutorial = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
        for name, text in re.findall(r"^```\w+ file=(\S+)\n(.*?)^```", tutorial, re.DOTALL | re.MULTILINE):
            (work / name).write_text(text, encoding="utf-8")
        # Two files of Python: what Bareboat itself has mapped keeps its layout, which a study redraws.
        for name in ("env", "tool"):
            subprocess.run([sys.executable, "-m", "venv", "--copies", home / name], check=True)
            subprocess.run([home / name / "bin/pip", "install", "--quiet", f"{ROOT}[study]"], check=True)
        (home / "env/bin/bareboat").unlink()
        for _ in _run("bareboat doctor --compute", cluster, work):  # so that the job is planned for the nodes
            pass
        frames = list(_frames(cluster, work))
        report.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(work / "report.html", report)
    fault = fault_of(frames)
    if fault is not None and (REPEATS is None or "verdict" not in fault):
        sys.exit(f"{fault}; record again on an idle machine")
    drawn = svg(frames)
    target.write_text(drawn, encoding="utf-8")
    MADE_FROM.write_text(digest() + "\n")
    print(f"{target}: {len(frames)} frames, {frames[-1][0]:.0f} s, {target.stat().st_size // 1024} KiB")


def digest() -> str:
    """The digest of what the pictures show; of the tutorial, only its files."""
    found = hashlib.sha256()
    for path in sorted(each for pattern in _SHOWN for each in ROOT.glob(pattern)):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".md":
            text = "".join(re.findall(r"^```\w+ file=\S+\n.*?^```", text, re.DOTALL | re.MULTILINE))
        found.update(f"{path.relative_to(ROOT)}\n{text}".encode())
    return found.hexdigest()


@contextlib.contextmanager
def _cluster() -> Iterator[Path]:
    """A Slurm cluster in a directory whose home has a name as long as the shown one."""
    while True:
        directory = Path("/tmp") / secrets.token_hex(4)[: len(SHOWN_HOME) - len("/tmp//home")]
        if not directory.exists():
            break
    subprocess.run([CLUSTER, "up", directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run([CLUSTER, "down", directory], check=True)


def fault_of(frames: list[tuple[float, Screen]]) -> str | None:
    """Why these frames are no recording for the first page."""
    if any("/tmp/" in _text(screen) for _, screen in frames):
        return "a path of this machine is on the screen"
    if not _DECIDED.search(_text(frames[-1][1])):
        return "the last screen has no decided verdict"
    return None


def _text(screen: Screen) -> str:
    return "\n".join(" ".join(text for _, text, _, _ in line) for line in screen if line)


def _frames(cluster: Path, work: Path) -> Iterator[tuple[float, Screen]]:
    """Moments in s and screens."""
    import pyte

    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    now = 0.0
    for command, limit_s in COMMANDS:
        stream.feed(PROMPT.encode())
        for at in range(0, len(command), 2):
            yield now, snapshot(screen)
            stream.feed(command[at : at + 2].encode())
            now += 2 * _TYPED_S
        stream.feed(b"\r\n")
        moments: list[tuple[float, Screen]] = []
        for at_s, output in _run(command, cluster, work):
            stream.feed(output)
            shown = snapshot(screen)
            if not moments or shown != moments[-1][1]:
                moments.append((at_s, shown))
        now += 10 * _TYPED_S
        began = now
        for at_s, shown in _shortened(moments, limit_s):
            now = began + at_s
            yield now, shown
        now += 1.5
    yield now + 3.0, snapshot(screen)


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


def _run(command: str, cluster: Path, work: Path) -> Iterator[tuple[float, bytes]]:
    """What a command prints in a terminal of the login node, with the moment in s."""
    home = cluster / "home"
    environment = {
        "HOME": str(home), "USER": "student", "TERM": "xterm-256color", "LANG": "C.UTF-8",
        "PATH": f"{home}/env/bin:{home}/tool/bin:/usr/bin:/bin", "VIRTUAL_ENV": f"{home}/env",
        "COLUMNS": str(COLUMNS), "LINES": str(LINES),
    }  # fmt: skip
    settings = [f"{name}={value}" for name, value in environment.items()]
    words = [str(CLUSTER), "login", str(cluster), "env", "-C", str(work), *settings, "bash", "-c", command]
    began, rest = time.monotonic(), b""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(words[0], words)
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
        output = (rest + output).replace(os.fsencode(home), SHOWN_HOME.encode())
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
        f'aria-label="A terminal session: bareboat doctor, run, submit, wait and prove">'
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
        + f'<text x="{width - 12:.0f}" y="20" text-anchor="end" fill="{COLOURS["brightblack"]}">'
        + f"{NOTICE}</text>"
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
    main(Path(sys.argv[1]), Path(sys.argv[2]))
