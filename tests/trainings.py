"""Small trainings without PyTorch, for studies that take seconds: one process, pure Python, steady steps."""

from __future__ import annotations

import sys
import textwrap
import venv
from pathlib import Path

import bareboat_meter

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


def write_job(folder: Path, *, name: str, repeats: int = 3, window_s: float = 0.02, **prove: object) -> Path:
    """A job file beside the script."""
    lines = [f'name = "{name}"', 'command = ["python", "train.py"]', "[prove]"]
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
