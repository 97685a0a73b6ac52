"""Measure how long a container takes to start: Bareboat's job script and the same by hand.

    python bench/start.py [--starts 300]

Every variant starts /bin/true over the same root file system, in random order, one start of each per round.
Prints medians, and ratios to bubblewrap by hand. The environment is captured first if it is not in the store.
"""

import argparse
import os
import random
import shlex
import statistics
import sys
import tempfile
import time
from pathlib import Path

from bareboat import config, plan, render
from bareboat.captures import capture
from bareboat.deployment.present import present
from bareboat.model import CaptureRequest, Image, Job, Rootfs, Site
from bareboat.probe import probe
from bareboat.runs import programs
from bareboat_images.formats.flatten import make_flat
from bareboat_images.store import Store

#: What a container needs of the host for names of machines and users.
HOST_FILES = ("/etc/resolv.conf", "/etc/hosts", "/etc/passwd", "/etc/group")


def by_hand(site: Site, rootfs: Rootfs, workdir: str, files: tuple[str, ...] = ()) -> list[str]:
    """What one would write after reading bwrap's manual."""
    facts = site.engine("bubblewrap")
    if facts is None or not facts.works:
        sys.exit("bubblewrap does not work here; see: bareboat doctor")
    mounts = ["--dev-bind", "/dev", "/dev", "--bind", "/proc", "/proc", "--ro-bind", "/sys", "/sys"]
    for path in files:
        mounts += ["--ro-bind", path, path]
    return [
        facts.path, "--bind", rootfs.flat, "/", *mounts, "--bind", workdir, workdir, "--chdir", workdir,
        "/bin/true",
    ]  # fmt: skip


def script_of(engine: str, image: Image, rootfs: Rootfs, site: Site, workdir: str) -> str:
    job = Job(name="start", command=("/bin/true",), workdir=workdir, engine=engine)
    return render.script(plan.plan(job, image, rootfs, site))


def seconds(argv: list[str]) -> float:
    began = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, os.environ)
    _, status = os.waitpid(pid, 0)
    took = time.perf_counter() - began
    if status:
        sys.exit(f"{shlex.join(argv)} ended with {os.waitstatus_to_exitcode(status)}")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--starts", type=int, default=300, help="starts of each variant (300)")
    starts = parser.parse_args().starts
    settings = config.resolve({}, folder=Path.cwd(), environment=os.environ)
    store = Store(settings.store)
    image, _ = capture(CaptureRequest(python=sys.executable), store)
    site = programs.provide_filters(store, probe(store))
    rootfs = present(store, image, site)
    make_flat(store, image)
    with tempfile.TemporaryDirectory() as folder:
        hand = by_hand(site, rootfs, folder)
        same = by_hand(site, rootfs, folder, HOST_FILES)
        scripts = {
            "by-hand.sh": "#!/bin/bash\n" + shlex.join(hand) + "\n",
            "same-by-hand.sh": "#!/bin/bash\n" + shlex.join(same) + "\n",
            "bareboat.sh": script_of("bubblewrap", image, rootfs, site, folder),
            "native.sh": script_of("native", image, rootfs, site, folder),
        }
        for name, text in scripts.items():
            Path(folder, name).write_text(text)
        ways = {
            "/bin/true, no container": ["/bin/true"],
            "bubblewrap by hand, no shell": hand,
            "bubblewrap by hand, in a bash script": ["/bin/bash", f"{folder}/by-hand.sh"],
            "the same, with the host's names": ["/bin/bash", f"{folder}/same-by-hand.sh"],
            "Bareboat's script, bubblewrap": ["/bin/bash", f"{folder}/bareboat.sh"],
            "Bareboat's script, native": ["/bin/bash", f"{folder}/native.sh"],
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        order = random.Random(1)
        for round_number in range(starts + 10):
            for name in order.sample(list(ways), len(ways)):
                took = seconds(ways[name])
                if round_number >= 10:  # the first rounds warm the caches
                    times[name].append(took)
    print(
        f"{site.cpu_model}, {site.cpus} CPUs, kernel {site.kernel}; {starts} starts of each variant, "
        "interleaved"
    )
    print(f"{'variant':<38} {'median ms':>9} {'ratio':>6}")
    unit = statistics.median(times["bubblewrap by hand, in a bash script"])
    for name, values in times.items():
        middle = statistics.median(values)
        print(f"{name:<38} {middle * 1e3:>9.2f} {middle / unit:>6.2f}")


if __name__ == "__main__":
    main()
