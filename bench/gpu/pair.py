"""Does a container cost training on a GPU anything? `bareboat prove` with bench/gpu/train.py.

    python bench/gpu/pair.py [--engine NAME] [--repeats N] [--margin X] [--output report.html] [-- OPTIONS]

Bare metal and the container run in turn on one GPU, with this Python's environment: PyTorch with CUDA, and
`bareboat[study]`. No network is needed. OPTIONS are handed on to train.py.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", default="bubblewrap")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--margin", type=float, default=0.02)
    parser.add_argument("--output", default="report.html")
    parser.add_argument(
        "--gpus", type=int, default=1, help="0 tries the pair itself on a machine without GPU"
    )
    parser.add_argument("options", nargs="*", help="after --, for train.py")
    chosen = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("this Python has no torch", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        meter = importlib.util.find_spec("bareboat_meter")
        meter_path = meter.origin if meter is not None else None
        assert meter_path is not None  # it is a part of Bareboat
        # The meter may not be in the environment that is captured.
        for path in (HERE / "train.py", Path(meter_path)):
            (work / path.name).write_bytes(path.read_bytes())
        device = [] if chosen.gpus else ["--device", "cpu"]
        command = ["python", "train.py", *device, *chosen.options]
        job = work / "gpu.toml"
        words = ", ".join('"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in command)
        job.write_text(
            f'name = "gpu-pair"\ncommand = [{words}]\n\n[topology]\ngpus_per_rank = {chosen.gpus}\n\n'
            f"[prove]\nrepeats = {chosen.repeats}\nmargin = {chosen.margin}\n"
        )
        prove = [sys.executable, "-m", "bareboat", "prove", str(job), "--engine", chosen.engine,
                 "--python", sys.executable, "--output", os.path.abspath(chosen.output)]  # fmt: skip
        return subprocess.run(prove, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
