"""Small trainings without PyTorch, for studies that take seconds: one process, pure Python, steady steps."""

import subprocess
import sys
import textwrap
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes import bareboat, left_after, start_bareboat

import bareboat_meter
from bareboat.model import Matrix, Record
from bareboat_images.store import Store
from bareboat_study import listing, matrix

#: A millisecond or two a step. `slower` is the share by which the container's arm is made slower.
TRAINING = """
    import bareboat_meter
    import os

    slower = {slower} if "BAREBOAT_IMAGE" in os.environ else 0.0
    meter = bareboat_meter.Meter(samples_per_step=8)
    meter.start()
    for step in range({steps}):
        sum(range(int({work} * (1 + slower))))
        {extra}
        meter.step()
    meter.result(test_accuracy=0.98)
    meter.close()
"""


def write_training(
    folder: Path, *, steps: int = 300, work: int = 60_000, slower: float = 0.0, extra: str = "pass"
) -> Path:
    """A training script; `work` is that of a step, and `extra` a statement that runs in every step."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(TRAINING).format(steps=steps, work=work, slower=slower, extra=extra))
    return script


def write_job(folder: Path, *, repeats: int = 3, window_s: float = 0.02, **prove: object) -> Path:
    """A job file beside the script, with the folder's name."""
    lines = [f'name = "{folder.name}"', 'command = ["python", "train.py"]', "[prove]"]
    lines += [f"repeats = {repeats}", f"window_s = {window_s}"]
    lines += [f"{key} = {value}" for key, value in prove.items()]
    job = folder / "job.toml"
    job.write_text("\n".join(lines) + "\n")
    return job


def make_small_environment(folder: Path) -> Path:
    """A virtual environment with the meter and nothing else; return its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    meter = Path(bareboat_meter.__file__)
    (packages / meter.name).write_bytes(meter.read_bytes())
    python = folder / "bin" / "python"
    assert python.exists(), f"{sys.executable} cannot make a virtual environment"
    return python


@dataclass(frozen=True, slots=True)
class Project:
    """A folder in which studies run; `place` has the environment and the store that others share."""

    place: Path
    folder: Path

    @property
    def store(self) -> Store:
        return Store(self.place / "store")

    @property
    def python(self) -> Path:
        return self.place / "env/bin/python"

    def do(self, *words: str | Path) -> tuple[int, str, str]:
        """Run `bareboat …`; exit code, stdout, stderr."""
        return bareboat(*words, store=self.place / "store", cwd=self.folder)

    def prove(self, *words: str | Path) -> tuple[int, str, str]:
        return self.do("prove", "--python", self.python, *words)

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        words = ("prove", "--python", self.python, *words)
        return start_bareboat(*words, store=self.place / "store", cwd=self.folder)

    def studies(self) -> list[str]:
        """The studies whose name begins as the folder's."""
        began = [run for run in self.store.runs() if run.startswith(self.folder.name + "-")]
        return [run for run in began if listing.is_study(self.store, run)]

    def study(self) -> tuple[Matrix, list[list[Record]]]:
        (run_id,) = self.studies()
        found = matrix.read(self.store, run_id)
        return found, matrix.measured(self.store, found)[1]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small environment and a store that tests share: it is captured once."""
    folder = tmp_path_factory.mktemp("place")
    make_small_environment(folder / "env")
    return folder


@pytest.fixture
def project(place: Path, tmp_path: Path) -> Iterator[Project]:
    """A folder of its own for each test; afterwards no process of it may be left."""
    yield Project(place, tmp_path)
    assert left_after(tmp_path.name) == []
