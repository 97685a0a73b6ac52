"""What surrounds a script: its environment, the lists of its packages, data, links and checkpoints. Only
names and the first bytes of files are read."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from bareboat.captures.interpreter import Interpreter
from bareboat.project import packages
from bareboat.project.code import Argument, Code
from bareboat_base.expressions import expression
from bareboat_base.files import links, untrusted
from bareboat_base.paths import lies_in

#: Lists of packages -> the command that installs from them.
_LISTS = {
    "uv.lock": "uv sync",
    "poetry.lock": "poetry install",
    "pdm.lock": "pdm install",
    "requirements.txt": "pip install -r requirements.txt",
    "environment.yml": "conda env create -f environment.yml",
    "environment.yaml": "conda env create -f environment.yaml",
    "Pipfile": "pipenv install",
    "pyproject.toml": "pip install -e .",
    "setup.py": "pip install -e .",
}
_VENVS = (".venv", "venv", "env", ".env")
_DATA = expression(r".*(data|input|corpus|train_?file|root|images?|path|dir|folder).*", re.IGNORECASE)
_OUTPUT = expression(
    r".*(out|save|log|ckpt|checkpoint|result|artifact|export|runs?_?dir|model_?dir|work_?dir).*",
    re.IGNORECASE,
)
#: Directories of the system, which an image has of its own.
_SYSTEM = expression(r"/(usr|bin|sbin|lib\w*|etc|proc|sys|dev|run|boot)(/.*)?")
#: Those which a program may only mention.
_MENTIONED = expression(r"/(var|tmp|root|opt)(/.*)?")
_CHECKPOINTS = expression(r".*\.(pt|pth|ckpt|h5|keras|safetensors|npz)|checkpoints?|.*_ckpts?")
#: Imported package -> the directory below the home where it keeps what it downloads.
_CACHES = {
    "transformers": "~/.cache/huggingface", "datasets": "~/.cache/huggingface",
    "diffusers": "~/.cache/huggingface", "huggingface_hub": "~/.cache/huggingface",
    "timm": "~/.cache/huggingface", "torchvision": "~/.cache/torch", "keras": "~/.keras",
    "tensorflow_datasets": "~/tensorflow_datasets", "nltk": "~/nltk_data",
}  # fmt: skip


class Place(Struct, frozen=True, kw_only=True):
    """A directory or file outside the project that the script uses. `exists`: a mount must."""

    path: str
    why: str
    writable: bool = False
    exists: bool = True


class Surroundings(Struct, frozen=True, kw_only=True):
    """`python`: the project's interpreter, relative to it, when another environment is active; `lists`: files
    that name its packages; `missing`: packages that the script imports and the environment lacks."""

    python: str | None = None
    environment: str = ""
    lists: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    places: tuple[Place, ...] = ()
    checkpoints: tuple[str, ...] = ()

    @property
    def install(self) -> str:
        """The command that installs the project's packages."""
        if self.lists:
            return _LISTS[self.lists[0]]
        return "pip install " + " ".join(self.missing)


def package_lists(top: Path) -> tuple[str, ...]:
    return tuple(name for name in _LISTS if (top / name).is_file())


def own_environment(top: Path, variables: Mapping[str, str]) -> Interpreter | None:
    """The interpreter of a virtual environment in the project, by its files; it is not started. None where
    another environment is active, or there is none."""
    if any(variables.get(name) for name in ("VIRTUAL_ENV", "CONDA_PREFIX")):
        return None
    for name in _VENVS:
        folder = top / name
        python = folder / "bin" / "python"
        try:
            text = untrusted.read_text(folder / "pyvenv.cfg", limit=1 << 16)
        except OSError:
            continue
        if python.exists():
            return _interpreter(folder, python, text)
    return None


def _interpreter(folder: Path, python: Path, text: str) -> Interpreter:
    values = dict(re.findall(r"^\s*([\w-]+)\s*=\s*(.*?)\s*$", text, re.MULTILINE))
    version: str = values.get("version") or values.get("version_info") or ""
    minor = ".".join(version.split(".")[:2])
    home: str = values.get("home") or "/usr/bin"
    base = os.path.dirname(home)
    stdlib = f"{base}/lib/python{minor}"
    own = sorted(str(each) for each in folder.glob("lib/python3*/site-packages"))
    if values.get("include-system-site-packages") == "true":
        own += [f"{stdlib}/site-packages", "/usr/lib/python3/dist-packages"]
    return Interpreter(
        executable=str(python),
        base_executable=f"{home}/python3",
        prefix=str(folder),
        base_prefix=base,
        version=version,
        stdlib=stdlib,
        path=(stdlib, *own),
    )


def missing(code: Code, local: frozenset[str], path: Iterable[str]) -> tuple[str, ...]:
    """The packages that the code needs and that no directory of `path`, the environment's, has. The standard
    library and local modules are not counted."""
    asked = _foreign(code, local)
    if not asked:
        return ()
    found = _installed(path)
    return _distributions(name for name in asked if name.lower() not in found)


def required(code: Code, local: frozenset[str]) -> tuple[str, ...]:
    """The packages that the code needs, without the standard library and local modules."""
    return _distributions(_foreign(code, local))


def _foreign(code: Code, local: frozenset[str]) -> frozenset[str]:
    return code.needed - local - set(sys.stdlib_module_names) - {"__future__", ""}


def _distributions(modules: Iterable[str]) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(filter(None, (packages.OTHER_NAMES.get(name, name) for name in sorted(modules))))
    )


def _installed(path: Iterable[str]) -> set[str]:
    """The names that can be imported, in lower case."""
    names: set[str] = set()
    folders = [folder for folder in path if os.path.isdir(folder)]
    for folder in folders:
        try:
            entries = os.listdir(folder)
        except OSError:
            continue
        for entry in entries:
            names.add(entry.partition(".")[0].lower())
            if editable := re.match(r"__editable__[._]+(.+?)[-_]\d", entry):
                names.add(editable[1].lower())
            if entry.endswith(".pth") and len(folders) < 100:
                folders += [line for line in _lines(Path(folder, entry)) if line.startswith("/")]
    return names


def _lines(path: Path) -> list[str]:
    try:
        return untrusted.read_text(
            path,
            limit=1 << 16,
        ).splitlines()
    except OSError:
        return []


def places(top: Path, code: Code, home: str) -> tuple[Place, ...]:
    """Directories and files outside the project: links in it that lead there, paths in the code, defaults of
    arguments, and caches of downloads."""
    found: dict[str, Place] = {}

    def add(path: str, why: str, *, writable: bool = False) -> None:
        full = os.path.normpath(os.path.expanduser(path))
        if not full.startswith("/") or lies_in(full, str(top)) or not full.isprintable() or ":" in full:
            return
        if full in ("/", home) or (_SYSTEM.fullmatch(full) and not lies_in(full, home)):
            return
        shown = "~" + full[len(home) :] if lies_in(full, home) else full
        found.setdefault(full, Place(path=shown, why=why, writable=writable, exists=os.path.exists(full)))

    for name, target in links.leading_out(top):
        if name not in _VENVS:
            add(target, f"{name} is a link to it")
    for argument in code.arguments:
        if (text := argument.text) and text.startswith(("/", "~/")):
            add(text, f"default of {argument.name}", writable=is_output(argument))
    for text in sorted(code.paths):
        full = os.path.normpath(os.path.expanduser(text))
        if os.path.isdir(full) and (lies_in(full, home) or not _MENTIONED.fullmatch(full)):
            add(text, "the code names it")
    for package, folder in _CACHES.items():
        if package in code.packages:
            add(folder, f"{package} keeps downloads there", writable=True)
    return tuple(found.values())


def is_data(argument: Argument) -> bool:
    return _DATA.fullmatch(argument.name) is not None and not is_output(argument)


def is_output(argument: Argument) -> bool:
    return _OUTPUT.fullmatch(argument.name) is not None


def checkpoints(top: Path) -> tuple[str, ...]:
    """Files and directories of the project that look like checkpoints."""
    try:
        with os.scandir(top) as entries:
            names = sorted(entry.name for entry in entries if _CHECKPOINTS.fullmatch(entry.name))
    except OSError:
        return ()
    return tuple(name for name in names if name.isprintable())[:5]
