"""Measure what each engine costs: Bareboat's job scripts, each tool used by hand, and bare metal.

    python bench/engines.py [--rounds 3] [--engines bubblewrap,podman] [--rows start,stat]
                            [--json FILE]

Every variant does the same over one flat tree of the captured environment (of the interpreter that runs
this), in random order in every round, as an ordinary user. `start` rows are wall times of a whole start; the
load itself measures the others (bench/loads.py), without the start. Prints Markdown: medians [minimum to
maximum] of Bareboat's scripts with their ratio to bare metal, the tools by hand, and what Bareboat adds to a
start. With PyTorch in the environment the
rows `import` and `loader` use it, and there is a row `allreduce`; without it, `import` is NumPy's. A tool
that is not installed, or fails, is skipped and named.
"""

import argparse
import importlib.util
import itertools
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import hands

from bareboat import config, plan, registry, render
from bareboat.captures import capture
from bareboat.deployment.present import present, rootfs_of
from bareboat.engines import Enclosure
from bareboat.model import CaptureRequest, Image, Job, Mount, Plan, Site
from bareboat.probe import probe
from bareboat_base.errors import BareboatError
from bareboat_images.formats.flatten import make_flat
from bareboat_images.store import Store

BAREBOAT, BY_HAND = "bareboat", "by hand"
SMALL_FILES, SMALL_BYTES = 20_000, 4096
#: How many files the stat load goes round.
LISTED = 1_000
NATIVE = "native"
#: Modes of udocker that its own command is tried in; Bareboat drives what its probe says.
UDOCKER_MODES = ("P1", "P2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A load. `words(root)`: the command, for an image whose files begin at `root` ("" inside it)."""

    name: str
    title: str
    words: Callable[[str], Sequence[str]]
    repeats: int = 1
    unit: str = "s"
    shows_folder: bool = False
    #: The load tells its own seconds; else the wall time of the start counts.
    tells: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """An engine, by Bareboat or by hand. `argv(row)`: all that is started."""

    by: str
    #: The engine, with its variant: both sides of a comparison have the same.
    engine: str
    tool: str
    argv: Callable[[Row], list[str]]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    row: str
    by: str
    engine: str
    round: int
    wall_s: float
    #: What the load says of itself; None for starts.
    load_s: float | None
    #: Load of the machine (1 minute) when it began.
    load_1min: float

    @property
    def counted_s(self) -> float:
        return self.wall_s if self.load_s is None else self.load_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """Where everything is: the image, this machine, and the folder that jobs work in."""

    store: Store
    image: Image
    site: Site
    folder: Path

    @property
    def work(self) -> str:
        return str(self.folder / "work")

    @property
    def shown(self) -> str:
        return str(self.folder / "shown")


def rows(ground: Ground) -> list[Row]:
    python = ground.image.python or "python3"
    load = [python, f"{ground.work}/loads.py"]
    trees = ["/usr", *(prefix.path for prefix in ground.image.prefixes)]
    torch = importlib.util.find_spec("torch") is not None
    module = "torch" if torch else "numpy"
    found = [
        Row(name="start", title="start of `/bin/true`", words=lambda _: ["/bin/true"], repeats=10, unit="ms",
            tells=False),
        Row(name="mount", title="the same with a read-only mount", words=lambda _: ["/bin/true"], repeats=5,
            unit="ms", shows_folder=True, tells=False),
        Row(name="python", title="start of `python -c pass`", words=lambda _: [python, "-c", "pass"],
            repeats=5, unit="ms", tells=False),
        Row(name="import", title=f"`import {module}`", words=lambda _: [*load, "import", module]),
        Row(name="stat", title="200,000 calls of stat",
            words=lambda _: [*load, "stat", f"{ground.work}/listed", "200000"]),
        Row(name="walk", title="walking /usr and the environment",
            words=lambda root: [*load, "walk", *(root + tree for tree in trees)], repeats=2),
        Row(name="cpu", title="CPU loop", words=lambda _: [*load, "cpu"], repeats=2),
        Row(name="loader", title=f"data loader, {SMALL_FILES:,} files of 4 KiB",
            words=lambda _: [*load, "loader", f"{ground.work}/data"]),
    ]  # fmt: skip
    if torch:
        found.append(
            Row(name="allreduce", title="2-rank gloo all-reduce of 100 MB", unit="ms",
                words=lambda _: [*load, "allreduce", "100"])
        )  # fmt: skip
    return [
        row for row in found if row.name != "import" or importlib.util.find_spec(module) is not None
    ]  # an environment without either has nothing heavy to import


def prepare(folder: Path, store: Store) -> Ground:
    image, _ = capture(CaptureRequest(python=sys.executable), store)
    ground = Ground(store=store, image=image, site=probe(store), folder=folder)
    for name in ("work", "work/data", "shown", "scripts"):
        (folder / name).mkdir()
    shutil.copy(Path(__file__).with_name("loads.py"), ground.work)
    content = random.Random(1).randbytes(SMALL_BYTES)
    for number in range(SMALL_FILES):
        (folder / "work/data" / f"{number:05}").write_bytes(content)
    # Under the same names inside and outside: a longer path takes longer.
    tree = Path(image.prefixes[0].path if image.prefixes else os.path.dirname(os.__file__))
    listed = itertools.islice((str(path) for path in tree.rglob("*.py") if path.is_file()), LISTED)
    (folder / "work/listed").write_text("\n".join(listed))
    return ground


# -- Bareboat's ways ---------------------------------------------------------------------------------


def variants(ground: Ground) -> Iterator[tuple[str, str, bool]]:
    """Name, engine and whether layers are stacked, of each of the ways to run the image here."""
    site = ground.site
    for name in registry.names("engines"):
        facts = site.engine(name)
        if facts is None or not facts.works or facts.path in hands.other_names(site):
            continue
        for mode in registry.modes(name):
            if isinstance(registry.engine(mode).judge(site, ground.image), Enclosure):
                yield mode.replace(":", " "), mode, False
        if registry.engine(name).STACKS and facts.overlay:
            yield f"{name}, layers", name, True


def by_bareboat(ground: Ground) -> Iterator[Way]:
    for name, engine, stacked in variants(ground):

        def argv(row: Row, name: str = name, engine: str = engine, stacked: bool = stacked) -> list[str]:
            script = ground.folder / "scripts" / f"{row.name} {name}.sh"
            if not script.exists():
                script.write_text(render.script(made_plan(ground, row, engine, stacked)))
            return ["/bin/bash", str(script)]

        yield Way(by=BAREBOAT, engine=name, tool=name, argv=argv)


def made_plan(ground: Ground, row: Row, engine: str, stacked: bool) -> Plan:
    job = Job(
        name=row.name,
        command=tuple(row.words(root_of(ground, engine))),
        workdir=ground.work,
        engine=engine,
        launcher="single",
        writable=stacked,
        mounts=(Mount(source=ground.shown, target=ground.shown),) if row.shows_folder else (),
    )
    made = plan.plan(job, ground.image, present(ground.store, ground.image, ground.site, job), ground.site)
    if made.needs_flat:
        make_flat(ground.store, ground.image, made.mount_points, relinked=made.relinked)
    return made


def root_of(ground: Ground, engine: str) -> str:
    """Where the image's files are for the command. Bare metal reads the same files, in the store."""
    return rootfs_of(ground.store, ground.image).flat if engine == NATIVE else ""


def by_hand(ground: Ground, notes: list[str], engines: Sequence[str] | None) -> Iterator[Way]:
    rootfs = rootfs_of(ground.store, ground.image)
    tools = [hands.native(), *hands.found(ground.site, rootfs, ground.work)]
    if engines is None or "udocker" in engines:
        try:
            tools += hands.udocker(ground.folder, rootfs, ground.work, UDOCKER_MODES)
        except hands.MissingToolError as missing:
            notes.append(f"udocker run: {missing}")
    for hand in tools:

        def argv(row: Row, hand: hands.Hand = hand) -> list[str]:
            words = list(row.words(root_of(ground, hand.beside)))
            return hand.words(words, ground.shown if row.shows_folder else None)

        yield Way(by=BY_HAND, engine=hand.beside, tool=hand.name, argv=argv, environment=hand.environment)


# -- measuring ---------------------------------------------------------------------------------------


class FailedError(Exception):
    """A way did not do what it was asked to, and what it said."""


def measure(row: Row, way: Way, number: int) -> tuple[Sample, int]:
    """One start; also what the load says that it did."""
    argv = way.argv(row)
    # What belongs to the caller's Python is no part of any way.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "BAREBOAT_"))}
    environment |= way.environment
    load_1min = os.getloadavg()[0]
    if row.tells:
        began = time.perf_counter()
        done = subprocess.run(argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)  # fmt: skip
        code, said = done.returncode, done.stdout
        wall_s = time.perf_counter() - began
    else:
        # Without subprocess: its pipes and threads are a millisecond of a start.
        with tempfile.TemporaryFile() as output:
            files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                     *((os.POSIX_SPAWN_DUP2, output.fileno(), number) for number in (1, 2))]  # fmt: skip
            began = time.perf_counter()
            pid = os.posix_spawnp(argv[0], argv, environment, file_actions=files)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            wall_s = time.perf_counter() - began
            output.seek(0)
            said = output.read()
    if code:
        raise FailedError(f"exit code {code}: {hands.last_line(said)}")
    load_s, did = None, 0
    if row.tells:
        try:
            # Tools may have said something of their own before.
            told = json.loads(next(line for line in said.splitlines() if line.startswith(b'{"s"')))
            load_s, did = float(told["s"]), int(told["n"])
        except (ValueError, StopIteration):
            raise FailedError(f"it printed {said[-200:]!r}") from None
    sample = Sample(row=row.name, by=way.by, engine=f"{way.engine} / {way.tool}", round=number, wall_s=wall_s,
                    load_s=load_s, load_1min=load_1min)  # fmt: skip
    return sample, did


def sample_all(
    chosen: Sequence[Row], ways: Sequence[Way], rounds: int, notes: list[str]
) -> Iterator[tuple[Sample, int]]:
    """Samples, and what the load did. What fails once is not tried again."""
    order = random.Random(1)
    watched = sys.stderr.isatty()
    failed: set[tuple[str, int]] = set()

    def attempt(row: Row, way: Way, number: int) -> tuple[Sample, int] | None:
        if (row.name, id(way)) in failed:
            return None
        try:
            return measure(row, way, number)
        except (FailedError, OSError, BareboatError) as error:
            failed.add((row.name, id(way)))
            notes.append(f"{way.by}, {way.tool}, {row.name}: {error}")
        return None

    for row in chosen:
        if not row.tells:  # a start not counted, to warm the caches; a load reads far more than that
            for way in ways:
                attempt(row, way, -1)
    for number in range(rounds):
        starts = [(row, way) for row in chosen for way in ways for _ in range(row.repeats)]
        for done, (row, way) in enumerate(order.sample(starts, len(starts))):
            if watched:
                print(f"\rround {number + 1} of {rounds}: {done} of {len(starts)} ", end="", file=sys.stderr)
            sample = attempt(row, way, number)
            if sample is not None:
                yield sample
    if watched:
        print("\r" + " " * 40 + "\r", end="", file=sys.stderr)


def checked(found: Sequence[tuple[Sample, int]], notes: list[str]) -> list[Sample]:
    """The samples of loads that did what the same load did elsewhere, with the same files."""
    kept = []
    usual = {
        name: statistics.mode(did for sample, did in found if sample.row == name)
        for name in {sample.row for sample, _ in found}
    }
    for sample, did in found:
        if did == usual[sample.row]:
            kept.append(sample)
        else:
            notes.append(
                f"{sample.by}, {sample.engine}, {sample.row}: {did:,} done, elsewhere {usual[sample.row]:,}"
            )
    return kept


# -- telling -----------------------------------------------------------------------------------------


class Results:
    """The samples, by row and way."""

    def __init__(self, chosen: Sequence[Row], ways: Sequence[Way], samples: Sequence[Sample]) -> None:
        self.rows, self.ways = chosen, ways
        self._values: dict[tuple[str, str, str], list[float]] = {}
        for sample in samples:
            key = (sample.row, sample.by, sample.engine)
            self._values.setdefault(key, []).append(sample.counted_s)

    def values(self, row: Row, way: Way) -> list[float]:
        return self._values.get((row.name, way.by, f"{way.engine} / {way.tool}"), [])

    def middle(self, row: Row, way: Way) -> float | None:
        values = self.values(row, way)
        return statistics.median(values) if values else None

    def of(self, by: str) -> list[Way]:
        return [way for way in self.ways if way.by == by]

    def bare(self, row: Row) -> float | None:
        return next((self.middle(row, way) for way in self.of(BY_HAND) if way.engine == NATIVE), None)


def cell(row: Row, values: Sequence[float], bare: float | None) -> str:
    if not values:
        return ""
    scale, digits = (1e3, 1) if row.unit == "ms" else (1.0, 2)
    middle, least, most = statistics.median(values), min(values), max(values)
    text = f"{middle * scale:.{digits}f}"
    if len(values) > 1:
        text += f" [{least * scale:.{digits}f} to {most * scale:.{digits}f}]"
    return text + (f" {middle / bare:.2f}x" if bare and row.tells else "")


def table(results: Results, by: str) -> Iterator[str]:
    """A line for each way, a column for each row: there are more engines than loads."""
    yield "| | " + " | ".join(f"{row.title}, {row.unit}" for row in results.rows) + " |"
    yield "|---" * (len(results.rows) + 1) + "|"
    for way in results.of(by):
        cells = [cell(row, results.values(row, way), results.bare(row)) for row in results.rows]
        if any(cells):
            yield f"| {way.tool} | " + " | ".join(cells) + " |"


def added(results: Results) -> Iterator[str]:
    """What Bareboat's script adds to a start, in ms, against each tool by hand that does the same."""
    starts = [row for row in results.rows if not row.tells]
    if not starts:
        return
    yield "| Bareboat | compared with | " + " | ".join(f"{row.title}, ms more" for row in starts) + " |"
    yield "|---" * (len(starts) + 2) + "|"
    for own in results.of(BAREBOAT):
        for tool in results.of(BY_HAND):
            if tool.engine != own.engine:
                continue
            pairs = [(results.middle(row, own), results.middle(row, tool)) for row in starts]
            cells = ["" if a is None or b is None else f"{(a - b) * 1e3:+.1f}" for a, b in pairs]
            if any(cells):
                yield f"| {own.tool} | {tool.tool} | " + " | ".join(cells) + " |"


def machine(ground: Ground) -> str:
    site = ground.site
    kind = next((fs.kind for fs in site.file_systems if fs.purpose == "store"), "?")
    return (
        f"{site.cpu_model}, {site.cpus} CPUs, {site.distribution}, kernel {site.kernel}, store on {kind}; "
        f"image of {ground.image.inodes:,} files"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds (3); a start row is repeated in each")
    parser.add_argument("--engines", help="only these, separated by commas; bare metal is always measured")
    parser.add_argument("--rows", help="only these: start,mount,python,import,stat,walk,cpu,loader,allreduce")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample here")
    options = parser.parse_args()
    engines = options.engines.split(",") if options.engines else None
    settings = config.resolve({}, folder=Path.cwd(), environment=os.environ)
    store = Store(settings.store)
    notes: list[str] = []
    # Beside the store, not in /tmp: that is the container's own, which no real job works in.
    store.root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix="bareboat-bench-", dir=store.root.parent, ignore_cleanup_errors=True
    ) as folder:
        ground = prepare(Path(folder), store)
        chosen = rows(ground)
        if options.rows:
            known = {row.name for row in chosen}
            for name in set(options.rows.split(",")) - known:
                notes.append(f"there is no row {name!r} here; there are: {', '.join(sorted(known))}")
            chosen = [row for row in chosen if row.name in options.rows.split(",")]
        # Places for all mounts, made once: the tools by hand need them too.
        for row in chosen:
            for name in ("podman", "charliecloud", "udocker"):
                facts = ground.site.engine(name)
                if facts is not None and facts.works:
                    made_plan(ground, row, name, stacked=False)
                    break
        make_flat(store, ground.image, ())
        ways = [*by_bareboat(ground), *by_hand(ground, notes, engines)]
        if engines is not None:
            ways = [way for way in ways if way.engine.split(" ")[0].rstrip(",") in (*engines, NATIVE)]
        before = os.getloadavg()
        found: list[tuple[Sample, int]] = []
        try:
            for sample in sample_all(chosen, ways, options.rounds, notes):
                found.append(sample)
        except KeyboardInterrupt:
            notes.append("the last round was cut short by Ctrl-C")
        samples = checked(found, notes)
        after = os.getloadavg()
        about = (
            f"{machine(ground)}; load {before[0]:.1f} before, {after[0]:.1f} after; {options.rounds} rounds"
        )
        if options.json:
            kept = {"about": about, "notes": notes, "samples": [asdict(sample) for sample in samples]}
            options.json.write_text(json.dumps(kept, indent=1) + "\n")
    results = Results(chosen, ways, samples)
    print(about)
    for title, lines in (
        ("Bareboat's job script", table(results, BAREBOAT)),
        ("The tools by hand", table(results, BY_HAND)),
        ("What Bareboat adds to a start", added(results)),
    ):
        print(f"\n**{title}**\n", *lines, sep="\n")
    if notes:
        print("\nLeft out:\n", *(f"- {note}" for note in notes), sep="\n")


if __name__ == "__main__":
    main()
