"""The Dockerfiles of bench/recipes with what they copy: for bench/build and for tests.

What is not in the repository is made: a channel of conda packages, Debian's source of OpenMPI, a wheel of
PyTorch for CPUs, this machine's certificates.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "recipes"
#: Recipe -> the file that changes, and what is appended to it.
CHANGES = {
    "apt": ("app.sh", "echo {}\n"),
    "c": ("main.c", "int changed{};\n"),
    "torch": ("app", "# {}\n"),
    "conda": ("app.sh", "echo {}\n"),
    "openmpi": ("hello.c", "int changed{};\n"),
}
#: Recipe -> a command in its image, and what it prints.
RUNS = {
    "apt": (("git", "--version"), "git version "),
    "c": (("hello",), "hello from C\n"),
    "torch": (("python", "/opt/app/app"), "sum 10\n"),
    "conda": (("greet",), "hello from /opt/env\n"),
    "openmpi": (
        ("mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", "hello"), "size 2 sum 3\n",
    ),
}  # fmt: skip
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_PREFIX = "/placeholder" * 12
_MADE_AT = 1_600_000_000


def lay(recipe: str, folder: Path, base: str, downloads: Path) -> None:
    """Make the context of a recipe in a new directory. `base`: the image of its FROM; `downloads`: keeps what
    is downloaded. Raises OSError, CalledProcessError."""
    shutil.copytree(FOLDER / recipe, folder)
    path = folder / "Dockerfile"
    path.write_text(path.read_text().replace("FROM base", f"FROM {base}"))
    if recipe in ("torch", "conda"):
        (folder / "ca.crt").write_bytes(_CERTIFICATES.read_bytes() if _CERTIFICATES.exists() else b"")
    if recipe == "torch":
        shutil.copytree(_wheels(downloads), folder / "wheels", copy_function=_link)
    if recipe == "conda":
        _channel(folder / "channel")
    if recipe == "openmpi":
        _link(_openmpi(downloads), folder / "openmpi.tar.xz")
    for each in (folder, *folder.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)


def change(recipe: str, folder: Path, number: int) -> None:
    """Change the last file that the recipe copies."""
    name, line = CHANGES[recipe]
    with open(folder / name, "a") as stream:
        stream.write(line.format(number))


def definition(folder: Path, base: str) -> str:
    """The Dockerfile of a context as a definition file of Apptainer, which copies files before it runs
    commands. Knows what the recipes use: FROM, RUN, COPY and ENV."""
    lines = (folder / "Dockerfile").read_text().replace("\\\n", " ").split("\n")
    stages: list[tuple[str, list[str], list[str], list[str]]] = []
    for line in lines:
        word, _, rest = line.strip().partition(" ")
        if word == "FROM":
            stages.append((rest.partition(" AS ")[2], [], [], []))
        elif word == "RUN":
            stages[-1][3].append(rest)
        elif word == "COPY":
            *sources, target = rest.split()
            origin = sources.pop(0).partition("=")[2] if sources[0].startswith("--from=") else ""
            # A directory's name is the target's here, and goes below it in a definition file.
            into = os.path.dirname(target) if (folder / sources[0]).is_dir() else target
            stages[-1][1].append(f"%files{f' from {origin}' if origin else ''}\n    {sources[0]} {into}")
        elif word == "ENV":
            stages[-1][2].append(rest)
            stages[-1][3].append(f"export {rest}")
    text = ""
    for name, files, variables, commands in stages:
        text += f"Bootstrap: localimage\nFrom: {base}\n" + (f"Stage: {name}\n" if name else "")
        text += "".join(f"\n{each}\n" for each in files)
        text += "\n%post\n" + "".join(f"    {each}\n" for each in commands)
        if variables:
            text += "\n%environment\n" + "".join(f"    export {each}\n" for each in variables)
        text += "\n"
    return text


def _link(source: str | Path, target: str | Path) -> str:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
    return str(target)


def _wheels(downloads: Path) -> Path:
    """PyTorch's build for CPUs, which is 200 MB; the configured index must have it."""
    folder = downloads / "wheels"
    if not folder.is_dir():
        subprocess.run(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder),
             "torch==2.13.0"],
            check=True,
        )  # fmt: skip
    return folder


def _openmpi(downloads: Path) -> Path:
    """Debian's source of OpenMPI 4.1.4, by apt with lists of its own."""
    found = downloads / "openmpi_4.1.4.orig.tar.xz"
    if found.is_file():
        return found
    lists = downloads / "apt"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    shown = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Codename: bookworm"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    mirror = next(iter(shown.stdout.split()), "")
    (downloads / "sources.list").write_text(f"deb-src {mirror} bookworm main\n")
    options = [
        f"Dir::Etc::SourceList={downloads}/sources.list", "Dir::Etc::SourceParts=/dev/null",
        f"Dir::State::Lists={lists}", f"Dir::Cache={lists}",
    ]  # fmt: skip
    apt = ["apt-get", "-qq", *(word for option in options for word in ("-o", option))]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "source", "--download-only", "openmpi=4.1.4-3"], check=True, cwd=downloads)
    return found


def _channel(folder: Path) -> None:
    """A channel with a package that has its prefix in a file, and one that it depends on."""
    records: dict[str, dict[str, object]] = {}
    for name, depends, files in (
        ("words", [], {"share/words": b"hello from\n"}),
        ("greet", ["words"],
         {"bin/greet": f'#!/bin/sh\necho "$(cat {_PREFIX}/share/words)" {_PREFIX}\n'.encode()}),
    ):  # fmt: skip
        index = {
            "name": name, "version": "1.0", "build": "0", "build_number": 0, "depends": depends,
            "subdir": "linux-64", "arch": "x86_64", "platform": "linux", "timestamp": _MADE_AT * 1000,
        }  # fmt: skip
        paths = [
            {"_path": path, "path_type": "hardlink", "size_in_bytes": len(data)}
            | ({"prefix_placeholder": _PREFIX, "file_mode": "text"} if _PREFIX.encode() in data else {})
            for path, data in files.items()
        ]
        described = {
            "info/index.json": json.dumps(index).encode(),
            "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}).encode(),
        }
        target = folder / "linux-64" / f"{name}-1.0-0.tar.bz2"
        target.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(target, "w:bz2") as archive:
            for path, data in (described | files).items():
                entry = tarfile.TarInfo(path)
                entry.size, entry.mtime, entry.mode = len(data), _MADE_AT, 0o755 if "bin/" in path else 0o644
                archive.addfile(entry, io.BytesIO(data))
        records[target.name] = index | {"size": target.stat().st_size}
    for subdir in ("linux-64", "noarch"):
        listed = {"info": {"subdir": subdir}, "packages": records if subdir == "linux-64" else {}}
        (folder / subdir).mkdir(exist_ok=True)
        (folder / subdir / "repodata.json").write_text(json.dumps(listed))
