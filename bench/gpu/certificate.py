"""Does the health certificate see on a real GPU whether a job uses the GPU that it asked for?

    python bench/gpu/certificate.py [--engine NAME] [--jobs N] [--seconds S]

N jobs that compute on the GPU, all at once, then N that only wait; each asks for one GPU. The first are to be
healthy, of the others each is to be told that its GPU is not used, at the end of the run and by `status`.
Exit code 0 when all of it holds.
"""

import argparse
import importlib.util
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

_USES = "x = torch.randn(4096, 4096, device='cuda'); y = x @ x; torch.cuda.synchronize()"
_PROGRAM = """
import bareboat_meter, sys, time, torch
meter = bareboat_meter.Meter(samples_per_step=1)
meter.start()
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    {step}
    time.sleep(0.01)
    meter.step()
meter.close()
"""


class Told(NamedTuple):
    """`marked`: whether the end of the run says that the GPU is not used; `shown`: whether `status` does."""

    exit_code: int
    marked: bool
    shown: bool
    end: str
    status: str


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", default="bubblewrap")
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args()
    wrong = 0
    for kind, step in (("uses", _USES), ("waits", "time.sleep(0.1)")):
        told = _told(kind, _PROGRAM.format(seconds=options.seconds, step=step), options)
        marked = sum(each.marked for each in told)
        shown = sum(each.shown for each in told)
        print(f"{kind} its GPU: {len(told)} jobs, {marked} marked at the end, {shown} by status", flush=True)
        wanted = len(told) if kind == "waits" else 0
        wrong += marked != wanted or shown != wanted
        for each in told[:2]:
            print(each.exit_code, each.end, each.status)
    return int(wrong > 0)


def _told(kind: str, program: str, options: argparse.Namespace) -> list[Told]:
    """Run the jobs at once; what each was told at its end and by `status`."""
    bareboat = [sys.executable, "-m", "bareboat"]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "program.py").write_text(program)
        meter = importlib.util.find_spec("bareboat_meter")
        origin = meter.origin if meter is not None else None
        assert origin is not None  # it is a part of Bareboat
        # The meter may not be in the environment that is captured.
        (Path(folder) / "bareboat_meter.py").write_bytes(Path(origin).read_bytes())
        started = []
        for number in range(options.jobs):
            name = f"gpu-{kind}-{number}"
            job = Path(folder) / f"{name}.toml"
            job.write_text(
                f'name = "{name}"\ncommand = ["python", "program.py"]\n[topology]\ngpus_per_rank = 1\n'
            )
            words = [*bareboat, "run", str(job), "--engine", options.engine, "--python", sys.executable]
            started.append(
                subprocess.Popen(
                    words, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
                )
            )
            time.sleep(0.3)
        told: list[Told] = []
        for number, process in enumerate(started):
            text, _ = process.communicate()
            status = subprocess.run(
                [*bareboat, "status", f"gpu-{kind}-{number}"], capture_output=True, text=True, check=False
            )
            ends = text[-1500:], status.stdout[-1500:]
            told.append(Told(process.returncode, _unused(text), _unused(status.stdout), *ends))
    return told


def _unused(text: str) -> bool:
    return "the ranks use 0 of 1 GPU" in text


if __name__ == "__main__":
    sys.exit(main())
