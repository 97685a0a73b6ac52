"""How long building takes, beside buildah, podman, Charliecloud and Apptainer: cold, warm, and changed.

    python bench/build.py [--rounds 3] [--only bareboat,buildah] [--recipes apt,c] [--cpu]

Every tool builds the same Dockerfiles (bench/recipes) from the same base, a Debian made by mmdebstrap, with
the host's network, as an ordinary user. `cold` runs every step; `warm` repeats the build; `changed` follows a
change of the last file that the recipe copies. Apptainer builds a definition file with the same commands, and
has no cache. Rounds are interleaved; figures are medians in seconds, with the smallest and the largest: of
the wall time, and with `--cpu` of the time on processors, which other users of the machine change less.
"""

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import contexts


@dataclass(frozen=True, slots=True, kw_only=True)
class Builder:
    """A tool: how it is given the base, and how it builds `folder` as `name`."""

    name: str
    program: str
    base: str
    prepare: Callable[[Path, Path], list[str]]
    build: Callable[[Path, str, bool], list[str]]
    variables: Callable[[Path], Mapping[str, str]] = lambda _home: {}
    definition: bool = False


#: Charliecloud's cache is a git repository.
_GIT = {f"GIT_{who}_{what}": "bench" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def _bareboat(*words: str) -> list[str]:
    return [sys.executable, "-m", "bareboat", *words]


def _of_podmans_store(program: str, *verb: str, prefix: str = "") -> Builder:
    return Builder(
        name=program,
        program=program,
        base="localhost/base",
        prepare=lambda tar, home: ["podman", *_roots(home), "import", str(tar), "localhost/base"],
        build=lambda folder, name, cold: [
            program, *_roots(folder.parent.parent), *verb, "--isolation", "chroot", "--network", "host",
            *(["--no-cache"] if cold else []), "-q", "-t", f"{prefix}{name}", str(folder),
        ],
    )  # fmt: skip


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
    _of_podmans_store("buildah", "bud", "--layers"),
    _of_podmans_store("podman", "build", prefix="podman-"),
    Builder(
        name="ch-image",
        program="ch-image",
        base="base",
        prepare=lambda tar, home: ["ch-image", "-s", str(home / "ch"), "import", str(tar), "base"],
        build=lambda folder, name, cold: [
            "ch-image", "-s", str(folder.parent.parent / "ch"), *(["--rebuild"] if cold else []), "build",
            "--force", "-t", name, str(folder),
        ],
        variables=lambda _home: {"PATH": "/usr/bin:/bin", "USER": "bench", **_GIT},
    ),
    Builder(
        name="apptainer",
        program="apptainer",
        base="base",
        prepare=lambda _tar, home: [*_bareboat("image", "save", "base", f"sif:{home}/base.sif")],
        build=lambda folder, _name, _cold: [
            "apptainer", "-q", "build", "--force", str(folder.parent / "built.sif"), str(folder / "app.def"),
        ],
        variables=lambda home: {"BAREBOAT_STORE": str(home / "bareboat")},
        definition=True,
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
    parser.add_argument("--cpu", action="store_true", help="print the time on processors, too")
    options = parser.parse_args()
    chosen = [
        builder
        for builder in BUILDERS
        if builder.name in (options.only or builder.name).split(",") and shutil.which(builder.program)
    ]
    recipes = [name for name in contexts.CHANGES if name in (options.recipes or name).split(",")]
    home = Path(tempfile.mkdtemp(prefix="build-", dir=options.folder))
    times: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    try:
        base = options.base or _base(home)
        for builder in chosen:
            _run(builder.prepare(base, home), builder.variables(home))
        for number in range(options.rounds):
            for recipe in recipes:
                for builder in chosen:
                    for what, taken in _measure(builder, recipe, home, number):
                        times.setdefault((recipe, what, builder.name), []).append(taken)
    finally:
        subprocess.run(["buildah", "unshare", "rm", "-rf", str(home)], check=False, stderr=subprocess.DEVNULL)
        shutil.rmtree(home, ignore_errors=True)
    if options.json:
        rows = [
            {"recipe": r, "what": w, "tool": t, "s": [wall for wall, _ in s], "cpu_s": [cpu for _, cpu in s]}
            for (r, w, t), s in times.items()
        ]
        print(json.dumps(rows))
        return 0
    for number, kind in enumerate(("wall", "cpu") if options.cpu else ("wall",)):
        print(f"{kind:<10}{'':<10}" + "".join(f"{builder.name:<26}" for builder in chosen))
        for recipe in recipes:
            for what in ("cold", "warm", "changed"):
                cells = [[each[number] for each in times[recipe, what, builder.name]] for builder in chosen]
                shown = [f"{statistics.median(c):.2f} [{min(c):.2f}-{max(c):.2f}]" for c in cells]
                print(f"{recipe:<10}{what:<10}" + "".join(f"{cell:<26}" for cell in shown))
    return 0


def _base(home: Path) -> Path:
    tar = home / "base.tar"
    subprocess.run(["mmdebstrap", "--mode=unshare", "--variant=minbase", "bookworm", str(tar)], check=True)
    return tar


def _measure(builder: Builder, recipe: str, home: Path, number: int) -> list[tuple[str, tuple[float, float]]]:
    folder = home / builder.name / f"{recipe}-{number}"
    folder.parent.mkdir(exist_ok=True)
    contexts.lay(recipe, folder, builder.base, home / "downloads")
    if builder.definition:
        (folder / "app.def").write_text(contexts.definition(folder, str(home / "base.sif")))
    variables = builder.variables(home)
    found = []
    for what in ("cold", "warm", "changed"):
        if what == "changed":
            # buildah and podman share a cache: each builder makes a change of its own.
            contexts.change(recipe, folder, number * len(BUILDERS) + BUILDERS.index(builder))
        began, used_s = time.monotonic(), _cpu_s()
        argv = builder.build(folder, f"{recipe}:{number}", what == "cold")
        _run(argv, variables, folder if builder.definition else None)
        taken = (time.monotonic() - began, _cpu_s() - used_s)
        found.append((what, taken))
        print(
            f"{recipe} {builder.name} {what}: {taken[0]:.2f} s, cpu {taken[1]:.2f} s",
            file=sys.stderr,
            flush=True,
        )
    return found


def _cpu_s() -> float:
    """Of all children that ended, with theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(argv: list[str], variables: Mapping[str, str], folder: Path | None = None) -> None:
    done = subprocess.run(
        argv, env={**os.environ, **variables}, capture_output=True, text=True, check=False, cwd=folder
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(argv)}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")


if __name__ == "__main__":
    sys.exit(main())
