"""The lines of progress on a terminal of 80 columns, and the message that takes the place of each.

After a change that is meant: `pytest tests/golden --update-golden`, then read the diff of `screens/`.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from terminals import on_terminal, screen

from bareboat.cli import console
from bareboat.cli.image.build import BuildProgress
from bareboat_base.errors import ImageError
from bareboat_base.execute import tools
from bareboat_base.outcome import Outcome

SCREEN = Path(__file__).parent / "screens" / "progress.txt"
RUN = "train-20261120-101500"


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        self.now += 0.1
        return self.now


def steps(progress: console.Progress, clock: Clock) -> Iterator[None]:
    """`say`, and `bytes` of a download."""
    progress.say("probing this machine")
    yield
    progress.say("capturing: /home/ada/venv/lib/python3.11/site-packages/torch/lib/" + "long/" * 10)
    yield
    for done in (0, 51_000_000, 102_000_000):
        progress.bytes("pulling", done, 408_000_000)
        clock.now += 1
    yield
    progress.bytes("converting registry.example.org/a-long-team-name/a-long-image-name:1.0", 3 << 30, 4 << 30)
    yield


def waiting(progress: console.Progress, _: Clock) -> Iterator[None]:
    progress.say_state(f"{RUN} pending (Resources; starts about 10:20; 3 jobs before it)")
    yield
    progress.say_state(f"{RUN} pending (ReqNodeNotAvail, UnavailableNodes:node[001-512,600-612,700])")
    yield


def build(progress: console.Progress, _: Clock) -> Iterator[None]:
    shown = BuildProgress(progress, shows=True, verbose=False)
    title, text = "[2/5]", "RUN apt-get update && apt-get install -y --no-install-recommends build-essential"
    shown.begin(title, text)
    yield
    shown.output(title, b"Get:1 http://deb.example.org/debian bookworm InRelease [151 kB]\nSelecting")
    yield
    shown.end(title, text, 41.26, cached=False)


def failure(progress: console.Progress, _: Clock) -> Iterator[None]:
    """A tool's own errors, as with --verbose, and then the program's."""
    progress.say("loading into podman")
    yield
    stderr = (
        "Error: payload does not match any of the supported image formats:\n * oci: file does not exist\n"
    )
    tools._log_errors(Outcome(argv=(), exit_code=125, stdout="", stderr=stderr, wall_s=0.1))
    console.show_error(ImageError("podman load failed", context="exit code 125", remedy="df -h /var/tmp"))


SCENES = (steps, waiting, build, failure)


def test_lines_of_progress_are_the_golden_ones(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parts = []
    caplog.set_level(logging.DEBUG, "bareboat")
    log = logging.getLogger("bareboat")
    handler = console._Handler()
    monkeypatch.setattr(log, "handlers", [handler])
    for scene in SCENES:
        parts.append("\n".join(shown(scene, monkeypatch)) + "\n")
    found = "\n".join(parts)
    assert max(map(len, found.splitlines())) <= 80
    if request.config.getoption("--update-golden"):
        SCREEN.write_text(found)
    assert found == SCREEN.read_text()


def shown(
    scene: Callable[[console.Progress, Clock], Iterator[None]], monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """The scene's last line after each step, and in the end all lines that stay."""
    clock, terminal = Clock(), on_terminal(monkeypatch)
    monkeypatch.setattr(console, "time", SimpleNamespace(monotonic=clock.monotonic))
    progress = console.Progress(quiet=False)
    for _ in scene(progress, clock):
        yield screen(terminal.getvalue())[-1]
    console.note("a message")
    progress.end()
    yield from (f">{line}" for line in screen(terminal.getvalue())[:-1])
