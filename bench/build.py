"""How long building takes, beside buildah, podman and Charliecloud: cold, warm, and after one changed line.

    python bench/build.py [--rounds 3] [--only bareboat,buildah] [--recipes c,python]

Every tool builds the same Dockerfiles from the same base, a Debian made by mmdebstrap, with the host's
network, as an ordinary user. `cold` runs every step; `warm` repeats the build; `changed` follows a change of
the last file that the recipe copies. Rounds are interleaved; figures are medians of the wall time in seconds,
with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"

#: Name -> Dockerfile with BASE, and its files; the last file is the one that changes.
RECIPES: dict[str, tuple[str, dict[str, str]]] = {
    "small": (
        "FROM BASE\nRUN for i in 1 2 3 4 5 6 7 8 9; do echo $i > /srv/$i; done\nWORKDIR /app\nCOPY app.sh .\n"
        "RUN sh app.sh > out\n",
        {"app.sh": "echo 1\n"},
    ),
    "c": (
        "FROM BASE AS build\nRUN apt-get update -qq && "
        "apt-get install -qq --no-install-recommends gcc libc6-dev\n"
        "COPY main.c /src/\nRUN gcc -O2 -static -o /hello /src/main.c\n"
        "FROM BASE\nCOPY --from=build /hello /bin/\n",
        {"main.c": "int main(void) { return 0; }\n"},
    ),
    "python": (
        "FROM BASE\nRUN apt-get update -qq && "
        "apt-get install -qq --no-install-recommends python3 python3-venv ca-certificates\n"
        "COPY ca.crt /ca.crt\nRUN python3 -m venv /opt/venv && /opt/venv/bin/pip install -q "
        "--no-cache-dir --cert /ca.crt numpy==2.1.3\n"
        "COPY app.py /app/\nRUN /opt/venv/bin/python /app/app.py\n",
        {"ca.crt": "", "app.py": "import numpy\n"},
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """A tool: how it is given the base, and how it builds `folder` as `name`."""

    name: str
    program: str
    base: str
    prepare: Callable[[Path, Path], list[str]]
    build: Callable[[Path, str, bool], list[str]]
    variables: Callable[[Path], Mapping[str, str]] = lambda _home: {}


def _bareboat(*words: str) -> list[str]:
    return [sys.executable, "-m", "bareboat", *words]


BUILDERS = (
    Builder(
        name="bareboat",
        program=sys.executable,
        base="base",
        prepare=lambda tar, _home: _bareboat("image", "pull", f"rootfs:{tar}", "--name", "base"),
        build=lambda folder, name, cold: _bareboat(
            "image", "build", "-q", "-t", name, *(["--no-cache"] if cold else []), str(folder)
        ),
        variables=lambda home: {"BAREBOAT_STORE": str(home / "bareboat")},
    ),
    Builder(
        name="buildah",
        program="buildah",
        base="localhost/base",
        prepare=lambda tar, home: ["podman", *_roots(home), "import", str(tar), "localhost/base"],
        build=lambda folder, name, cold: [
            "buildah", *_roots(folder.parent.parent), "bud", "--layers", "--isolation", "chroot", "--network",
            "host", *(["--no-cache"] if cold else []), "-q", "-t", name, str(folder),
        ],
    ),
    Builder(
        name="podman",
        program="podman",
        base="localhost/base",
        prepare=lambda tar, home: ["podman", *_roots(home), "import", str(tar), "localhost/base"],
        build=lambda folder, name, cold: [
            "podman", *_roots(folder.parent.parent), "build", "--isolation", "chroot", "--network", "host",
            *(["--no-cache"] if cold else []), "-q", "-t", f"podman-{name}", str(folder),
        ],
    ),
    Builder(
        name="ch-image",
        program="ch-image",
        base="base",
        prepare=lambda tar, home: ["ch-image", "-s", str(home / "ch"), "import", str(tar), "base"],
        build=lambda folder, name, cold: [
            "ch-image", "-s", str(folder.parent.parent / "ch"), *(["--rebuild"] if cold else []), "build",
            "--force", "-q", "-t", name, str(folder),
        ],
    ),
)  # fmt: skip


def _roots(home: Path) -> list[str]:
    return ["--root", str(home / "containers"), "--runroot", str(home / "run"), "--storage-driver", "overlay"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="tools, with commas between")
    parser.add_argument("--recipes", default="", help="recipes, with commas between")
    parser.add_argument("--base", type=Path, help="a tar of Debian (default: made by mmdebstrap)")
    parser.add_argument("--folder", type=Path, help="where stores are (default: a temporary directory)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = [
        builder
        for builder in BUILDERS
        if builder.name in (options.only or builder.name).split(",") and shutil.which(builder.program)
    ]
    recipes = [name for name in RECIPES if name in (options.recipes or name).split(",")]
    home = Path(tempfile.mkdtemp(prefix="build-", dir=options.folder))
    times: dict[tuple[str, str, str], list[float]] = {}
    try:
        base = options.base or _base(home)
        for builder in chosen:
            _run(builder.prepare(base, home), builder.variables(home))
        for number in range(options.rounds):
            for recipe in recipes:
                for builder in chosen:
                    for what, wall_s in _measure(builder, recipe, home, number):
                        times.setdefault((recipe, what, builder.name), []).append(wall_s)
    finally:
        subprocess.run(["buildah", "unshare", "rm", "-rf", str(home)], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(home, ignore_errors=True)
    if options.json:
        print(json.dumps([{"recipe": r, "what": w, "tool": t, "s": s} for (r, w, t), s in times.items()]))
        return 0
    print(f"{'recipe':<10}{'':<10}" + "".join(f"{builder.name:<26}" for builder in chosen))
    for recipe in recipes:
        for what in ("cold", "warm", "changed"):
            cells = [times[recipe, what, builder.name] for builder in chosen]
            shown = [f"{statistics.median(c):.2f} [{min(c):.2f}-{max(c):.2f}]" for c in cells]
            print(f"{recipe:<10}{what:<10}" + "".join(f"{cell:<26}" for cell in shown))
    return 0


def _base(home: Path) -> Path:
    tar = home / "base.tar"
    subprocess.run(["mmdebstrap", "--mode=unshare", "--variant=minbase", "bookworm", str(tar)], check=True)
    return tar


def _measure(builder: Builder, recipe: str, home: Path, number: int) -> list[tuple[str, float]]:
    folder = home / builder.name / f"{recipe}-{number}"
    folder.mkdir(parents=True)
    text, files = RECIPES[recipe]
    (folder / "Dockerfile").write_text(text.replace("BASE", builder.base))
    for name, content in files.items():
        (folder / name).write_text(Path(CERTIFICATES).read_text() if name == "ca.crt" else content)
    variables = builder.variables(home)
    found = []
    for what in ("cold", "warm", "changed"):
        if what == "changed":
            last = folder / list(files)[-1]
            added = f"int changed{number};" if last.suffix == ".c" else f"# {number}"
            last.write_text(f"{last.read_text()}{added}\n")
        began = time.monotonic()
        _run(builder.build(folder, f"{recipe}:{number}", what == "cold"), variables)
        found.append((what, time.monotonic() - began))
    return found


def _run(argv: list[str], variables: Mapping[str, str]) -> None:
    done = subprocess.run(argv, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


if __name__ == "__main__":
    sys.exit(main())
