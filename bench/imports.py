"""Measure the light verbs: wall time and imported modules.

    python bench/imports.py [--starts 30]

`plan` is measured with the environment already in the store, as from the second call on.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HEAVY = ("numpy", "scipy", "torch", "matplotlib", "sklearn")


def imported(argv: list[str]) -> tuple[int, list[str]]:
    """How many modules the command imports, and the heavy ones among them."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "bareboat", *argv],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    names = [
        line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import")
    ]
    return len(names), sorted({name.partition(".")[0] for name in names} & set(HEAVY))


def seconds(argv: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--starts", type=int, default=30, help="starts of each (30)")
    starts = parser.parse_args().starts
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder, "job.toml")
        job.write_text('command = ["true"]\n')
        verbs = {
            "bareboat --help": ["--help"],
            "bareboat config": ["config"],
            "bareboat plan job.toml": ["plan", "--python", sys.executable, str(job)],
        }
        times: dict[str, list[float]] = {name: [] for name in ("python -c pass", *verbs)}
        os.environ.setdefault("TERM", "dumb")
        commands = {"python -c pass": [sys.executable, "-c", "pass"]}
        commands |= {name: [sys.executable, "-m", "bareboat", *argv] for name, argv in verbs.items()}
        for command in commands.values():
            seconds(command)
        order = random.Random(1)
        for _ in range(starts):
            for name in order.sample(list(commands), len(commands)):
                times[name].append(seconds(commands[name]))
        print(f"{'command':<24} {'median ms':>9} {'modules':>8}  heavy ones")
        for name, values in times.items():
            count, heavy = imported(verbs[name]) if name in verbs else (0, [])
            print(
                f"{name:<24} {statistics.median(values) * 1e3:>9.1f} {count:>8}  {', '.join(heavy) or 'none'}"
            )


if __name__ == "__main__":
    main()
