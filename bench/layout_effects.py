"""Is a program slower in a container, with other files, or because its files lie elsewhere in memory?

    python bench/layout_effects.py --json effects.json     # 15 minutes on two idle cores
    python bench/layout_effects.py --repeats 2 digits.py    # does it work here?

Two experiments with a training, `examples/digits.py` unless another is named, as an ordinary user in the
environment of this interpreter, or of `--python`:

- factors: 2 x 2 of {bare metal, bubblewrap} x {environment in place, its captured copy}. Each run has new
  layouts in the page cache. In place inside bubblewrap is a mount of the environment over the image's copy;
  the copy on bare metal is started from the image's tree. The interpreter's own file and the libraries of the
  system are those of the host on bare metal, and those of the image in bubblewrap.
- layouts: two copies of the environment, both on bare metal. The files that the training uses are read at
  random (single pages) in one and in order (large pieces) in the other; halfway they are swapped. The layouts
  are kept during the study.
"""

import argparse
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bareboat.cli import console
from bareboat.session import opening
from bareboat_images.store import Store
from bareboat_study import analysis, arm_differences, matrix, page_cache
from bareboat_study.statistics import Estimate, change, estimate, mean_of

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
BAREBOAT = str(Path(sys.executable).with_name("bareboat"))
CONFIDENCE = 0.95
ARMS = ("bare_in_place", "bare_copy", "bubblewrap_in_place", "bubblewrap_copy")
#: How a file is read at random: the kernel gives each page of a piece a place of its own.
_PIECE = 1 << 17


class Experiment:
    """Studies of one training in a directory of their own. `prefix`: of the environment; `words`: the program
    in the examples, or its path, and its arguments."""

    def __init__(self, folder: Path, prefix: Path, words: Sequence[str]) -> None:
        self.folder = folder
        self.prefix = prefix
        self._words = [Path(words[0]).name, *words[1:]]
        notes = console.Progress(quiet=False, steps=False)
        opened = opening.open_session({}, folder=folder, environment=os.environ, reporter=notes)
        self.store: Store = opened.store
        shutil.copy(EXAMPLES / words[0], folder)
        called = [BAREBOAT, "image", "capture", "--json", "--python", f"{prefix}/bin/python"]
        job = folder / "tree.toml"  # a run unpacks the image's tree
        job.write_text(self._head("tree", ["python", "-c", ""]))
        self._do("run", str(job))
        digest = json.loads(subprocess.run(called, capture_output=True, text=True, check=True).stdout)[
            "digest"
        ]
        self.tree = Path(self.store.root) / "flat" / "sha256" / digest.removeprefix("sha256:")

    def _do(self, *words: str) -> None:
        subprocess.run([BAREBOAT, *words], cwd=self.folder, check=True, stdout=sys.stderr)

    def _head(self, name: str, command: Sequence[str]) -> str:
        python = f"{self.prefix}/bin/python"
        head = f"name = {_toml(name)}\ncommand = {_toml(command)}\n[capture]\npython = {_toml(python)}\n"
        return head + "[topology]\nranks_per_node = 2\n"

    def command(self, prefix: Path) -> list[str]:
        return [f"{prefix}/bin/python", *self._words]

    def study(self, name: str, arms: Mapping[str, Mapping[str, Any]], prove: Mapping[str, Any]) -> str:
        """Measure a study; return its name in the store."""
        text = self._head(name, self.command(self.prefix))
        for title, values in {"arms": arms, "prove": {"margin": 0.02, **prove}}.items():
            text += f"[{title}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in values.items())
        path = self.folder / f"{name}.toml"
        path.write_text(text)
        before = set(self.store.runs())
        self._do("prove", str(path), "-o", str(self.folder / f"{name}.html"))
        return next(each for each in self.store.runs() if each not in before)

    def log_ratios(self, study: str) -> list[list[float]]:
        """Of each arm but the first, the log of its throughput over the first one's in each run that all arms
        ended well."""
        found = matrix.read(self.store, study)
        (design,), (records,) = matrix.measured(self.store, found)
        effects = []
        for contrast in found.contrasts:
            pair = arm_differences.of_arms(design, contrast.baseline, contrast.contender)
            metric = analysis.analyse(pair, records).primary
            effects.append(list(metric.effects))
        if len({len(each) for each in effects}) != 1:
            raise SystemExit(f"{study}: an arm failed in some runs; repeat it on an idle machine")
        return effects

    def used(self, study: str) -> dict[str, int]:
        """The files of the environment that the first arm used, and how many of their bytes."""
        point = matrix.read(self.store, study).point_id(0)
        path = self.store.run(point) / "executed.json"
        used: dict[str, int] = json.loads(path.read_text())[0]
        return {name: size for name, size in used.items() if Path(name).is_relative_to(self.prefix)}


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value)


def factors(experiment: Experiment, repeats: int) -> tuple[str, dict[str, Estimate]]:
    """The 2 x 2 study, and its effects as ratios of throughputs."""
    in_place = {"engine": "bubblewrap", "mounts": [f"{experiment.prefix}:{experiment.prefix}"]}
    copy = {"engine": "native", "command": experiment.command(Path(f"{experiment.tree}{experiment.prefix}"))}
    arms = ({"engine": "native"}, copy, in_place, {"engine": "bubblewrap"})
    study = experiment.study("factors", dict(zip(ARMS, arms, strict=True)), {"repeats": repeats})
    rows = list(zip(*experiment.log_ratios(study), strict=True))
    effects = {
        "copy / in place": [(copy + both - box) / 2 for copy, box, both in rows],
        "bubblewrap / bare metal": [(box + both - copy) / 2 for copy, box, both in rows],
        "interaction": [both - copy - box for copy, box, both in rows],
        "bubblewrap with the copy / bare metal in place": [both for _, _, both in rows],
    }
    return study, {name: estimate(mean_of(values), confidence=CONFIDENCE) for name, values in effects.items()}


def layouts(experiment: Experiment, used: Mapping[str, int], repeats: int) -> tuple[list[str], Estimate]:
    """Two studies, of layouts and of the same swapped; and single pages / large pieces."""
    trees = [_copy(experiment.prefix, experiment.folder / name, used) for name in ("a", "b")]
    arms = {
        name: {"engine": "native", "command": experiment.command(tree)}
        for name, tree in zip(("copy_a", "copy_b"), trees, strict=True)
    }
    studies, halves = [], []
    for half, at_random in enumerate((0, 1)):
        for tree in trees:
            for name in used:
                path = str(tree / Path(name).relative_to(experiment.prefix))
                page_cache.evict(path)
                if tree is trees[at_random]:
                    read_at_random(path)
                else:
                    page_cache.read_in_order(path)
        studies.append(experiment.study(f"layouts-{half}", arms, {"repeats": repeats, "layout": "kept"}))
        halves.append(experiment.log_ratios(studies[-1])[0])
    # b / a with a at random, and with b at random: the second over the first is the effect twice.
    twice = estimate(change(*halves), confidence=CONFIDENCE)
    return studies, Estimate(
        runs=twice.runs,
        freedom=twice.freedom,
        skewness=twice.skewness,
        confidence=CONFIDENCE,
        ratio=math.sqrt(twice.ratio),
        low=math.sqrt(twice.low),
        high=math.sqrt(twice.high),
    )


def _copy(prefix: Path, folder: Path, used: Mapping[str, int]) -> Path:
    """The environment with its used files as copies, and links to the others."""
    shutil.copytree(prefix, folder, copy_function=os.symlink, symlinks=True)
    for name in (*used, str(prefix / "pyvenv.cfg")):
        path = folder / Path(name).relative_to(prefix)
        path.unlink()
        shutil.copy2(name, path)
    return folder


def read_at_random(path: str) -> None:
    """Read a file in pieces in random order, so that its pages lie apart from each other."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        places = list(range(0, os.fstat(descriptor).st_size, _PIECE))
        random.shuffle(places)
        for at in places:
            os.pread(descriptor, _PIECE, at)
    finally:
        os.close(descriptor)


def show(effects: Mapping[str, Estimate]) -> None:
    print("\n| effect | ratio of the throughputs | 95 % interval | runs |\n|---|---|---|---|")
    for name, found in effects.items():
        print(f"| {name} | {found.ratio:.4f} | [{found.low:.4f}, {found.high:.4f}] | {found.runs} |")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=20, help="runs of the factors; of each half, a half")
    parser.add_argument("--python", type=Path, help="the environment's interpreter (default: this one)")
    parser.add_argument("words", nargs="*", default=["digits.py", "--epochs", "12"], help="the training")
    parser.add_argument("--json", type=Path, help="write the effects and the names of the studies here")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="layout-effects-", dir=Path.home()) as folder:
        prefix = Path(sys.prefix) if options.python is None else options.python.absolute().parents[1]
        experiment = Experiment(Path(folder), prefix, options.words)
        first, effects = factors(experiment, options.repeats)
        half = max(2, options.repeats // 2)
        studies, effects["single pages / large pieces"] = layouts(experiment, experiment.used(first), half)
    show(effects)
    if options.json is not None:
        found = {name: asdict(each) for name, each in effects.items()}
        data = {"studies": [first, *studies], "load_before": load, "load_after": os.getloadavg()[0]}
        options.json.write_text(json.dumps(data | {"effects": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
