"""The code of a job: the repository around its working directory, and the files that its command uses."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import UNSET, UnsetType

from bareboat import commands
from bareboat.model import CodeFacts, Job
from bareboat.model.provenance import Code, CodeFile
from bareboat.runs import repository
from bareboat_base.expressions import expression
from bareboat_base.files import links, untrusted
from bareboat_base.paths import lies_in

#: Limits on what is read before a run: files, the size of one, and of all.
_MOST_FILES = 200
_LARGEST_BYTES = 16 << 20
_MOST_BYTES = 64 << 20
#: Text that is kept, of one file and of all: a lock holds it.
_KEPT_FILE_BYTES = 128 << 10
_KEPT_BYTES = 256 << 10
_IMPORT = expression(
    r"^([ \t]*)(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+([^#\n]*)|import[ \t]+([^#\n]+))", re.M
)


#: Compiles C while it runs, or may by an option of Hugging Face's Trainer.
_COMPILES = expression(
    r"\btorch[._]compile\b|\btorch[ \t]+import[^\n]*\bcompile\b|\btriton\b|\bdeepspeed\b|\bcpp_extension\b",
    re.IGNORECASE,
)


#: Paths in quotes that lead out of the working directory, and commands that submit jobs.
_PATHS = expression(r"""["']((?:~/|/|\.\./)[^"'\s:*?{}$%]{2,300})["']""")
_SUBMITS = expression(r"""["'](sbatch|qsub|bsub|flux batch|flux submit)["' ]""")
_OF_SHELL = expression(r"#![^\n]*\b(?:ba|da|k|z)?sh\b")
#: Paths in quotes in directories that containers discard: of the home, those that this machine lacks.
_SCRATCH = expression(r"""["']((?:~|/tmp|/var/tmp)/[^"'\s:*?{}$%]{1,300})["']""")
#: Directories that a container has itself, also where this machine has the path.
_OF_CONTAINERS = expression(r"/(usr|bin|sbin|lib\w*|etc|proc|sys|dev|run|boot|tmp|var|opt|root)(/.*)?")
#: What every container shows of this machine.
_OF_KERNEL = ("/dev/", "/proc/", "/sys/")
_MOST_PATHS = 5


def facts(job: Job, home: str) -> CodeFacts:
    """What the command, the Python files that it uses and the links of the working directory show."""
    compiles = any(map(_COMPILES.search, job.command))
    if job.workdir is None or not os.path.isdir(job.workdir):
        return CodeFacts(compiles=compiles)
    folder = Path(os.path.realpath(job.workdir))
    named = {word: "the command names it" for word in job.command if word.startswith(("/", "../"))}
    submits = None
    scratch: tuple[str, str] | UnsetType = UNSET
    starter = _starter_of_script(folder, job)
    imports: dict[str, bool] = {}
    is_read = False
    for path in itertools.islice(_used(folder, job), _MOST_FILES):
        if not path.endswith(".py"):
            continue
        try:
            text = untrusted.read_text(folder / path, limit=_KEPT_FILE_BYTES)
        except OSError:
            continue
        compiles = compiles or _COMPILES.search(text) is not None
        for package, is_indented in _packages(text):
            imports[package] = imports.get(package, True) and is_indented
        is_read = True
        if submits is None and (match := _SUBMITS.search(text)) is not None:
            submits = match[1], path
        if starter is UNSET and (name := commands.starter_in_python(text)) is not None:
            starter = name, path
        if scratch is UNSET and (word := _discarded(text, folder, job)) is not None:
            scratch = word, path
        for word in _PATHS.findall(text):
            named.setdefault(word, f"{path} names it")
    outside = {
        target: f"the link {name} leads to it"
        for name, target in links.leading_out(folder)
        # Virtual environments are captured.
        if name.isprintable()
        and not target.startswith(_OF_KERNEL)
        and not os.path.lexists(os.path.join(target, "pyvenv.cfg"))
        and _is_outside(target, folder, "")
    }
    for word, reason in named.items():
        full = os.path.normpath(folder / os.path.expanduser(word))
        if _OF_CONTAINERS.fullmatch(full) is None and _is_outside(full, folder, home):
            outside.setdefault(full, reason)
    return CodeFacts(
        compiles=compiles,
        outside=tuple(outside.items())[:_MOST_PATHS],
        submits=submits,
        starter=starter,
        scratch=scratch,
        imports=tuple(sorted(imports)) if is_read else UNSET,
        outer_imports=tuple(name for name, is_indented in sorted(imports.items()) if not is_indented),
    )


def _packages(text: str) -> Iterator[tuple[str, bool]]:
    """The packages that Python code imports by their names, and whether the line is indented."""
    for indent, source, _, modules in _IMPORT.findall(text):
        for each in [source] if source else modules.split(","):
            name = each.strip().partition(" ")[0]
            if name and not name.startswith("."):
                yield name.partition(".")[0], bool(indent)


def _discarded(text: str, folder: Path, job: Job) -> str | None:
    """The first path that the code names and the container discards: outside of the working directory and of
    all mounts, and no file of the home that is there."""
    mounted = [place for mount in job.mounts for place in (mount.source, mount.target)]
    places = [str(folder), *([job.workdir] if job.workdir else ()), *mounted]
    for word in _SCRATCH.findall(text):
        full = os.path.normpath(os.path.expanduser(word))
        if not any(lies_in(full, place) for place in places) and not (
            word[0] == "~" and os.path.exists(full)
        ):
            return str(word)
    return None


def _starter_of_script(folder: Path, job: Job) -> tuple[str, str] | UnsetType:
    """By which program the shell script that is the job's command starts ranks, with its path."""
    word = commands.script(job.command)
    path = None if word is None or word.endswith(".py") else _below(folder, folder, word)
    if path is None:
        return UNSET
    try:
        text = untrusted.read_text(folder / path, limit=_KEPT_FILE_BYTES)
    except OSError:
        return UNSET
    is_shell = word != commands.target(job.command)[0] or _OF_SHELL.match(text) is not None
    name = commands.starter_in_shell(text) if is_shell else None
    return UNSET if name is None else (name, path)


def _is_outside(path: str, folder: Path, home: str) -> bool:
    """Whether the path exists, is printable, and is neither in the directory nor around it."""
    return (
        path not in ("/", home)
        and path.isprintable()
        and not lies_in(path, str(folder))
        and not lies_in(str(folder), path)
        and os.path.exists(path)
    )


def look(job: Job, others: Sequence[Job] = ()) -> Code | None:
    """The code of the job; None where its working directory is the image's, or is gone. `others`: jobs whose
    code is recorded with it where they have the same working directory."""
    if job.workdir is None or not os.path.isdir(job.workdir):
        return None
    folder = Path(os.path.realpath(job.workdir))
    notes: list[str] = []
    found = repository.find(folder, skipped=notes.append)
    notes += found.notes if found is not None else ()
    files: list[CodeFile] = []
    read_bytes = kept_bytes = 0
    for path in _used(folder, job, *(each for each in others if each.workdir == job.workdir)):
        if len(files) == _MOST_FILES:
            notes.append(f"only the first {_MOST_FILES} files of the code are recorded")
            break
        file, size = _file(folder, path, _MOST_BYTES - read_bytes, _KEPT_BYTES - kept_bytes)
        if file is None:
            continue
        read_bytes += size
        kept_bytes += size if file.text is not None else 0
        files.append(file)
    return Code(
        folder=job.workdir,
        repository=found.repository if found is not None else None,
        files=tuple(files),
        notes=tuple(notes),
    )


def _file(folder: Path, path: str, most: int, most_kept: int) -> tuple[CodeFile | None, int]:
    """One file, and the number of its bytes that were read."""
    place = folder / path
    try:
        size = place.stat().st_size
        if size > min(_LARGEST_BYTES, most):
            return CodeFile(path=path, size_bytes=size), 0
        data = untrusted.read_bytes(place, limit=_LARGEST_BYTES, follow=True)
    except OSError:
        return None, 0
    text = None
    if len(data) <= min(_KEPT_FILE_BYTES, most_kept):
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = None
        if text is not None and "\0" in text:
            text = None
    made = CodeFile(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), text=text)
    return made, len(data)


def _used(folder: Path, *jobs: Job) -> Iterator[str]:
    """The files below the directory that the commands name, and what their Python scripts import from it, by
    their relative paths. Each once."""
    words = dict.fromkeys(word for job in jobs for word in _words(job))
    pending = [path for word in words if (path := _below(folder, folder, word)) is not None]
    seen: set[str] = set()
    while pending:
        path = pending.pop(0)
        if path in seen or not path.isprintable():
            continue
        seen.add(path)
        yield path
        if path.endswith(".py"):
            pending += _imports(folder, path)


def _words(job: Job) -> Iterator[str]:
    words = job.command
    for at, word in enumerate(words):
        if at and words[at - 1] == "-m" and re.fullmatch(r"[\w.]+", word):
            place = word.replace(".", "/")
            yield from (f"{place}.py", f"{place}/__main__.py")
        elif word.startswith("-"):
            yield word.partition("=")[2]
        else:
            yield word


def _below(folder: Path, start: Path, word: str) -> str | None:
    """The path of a file that lies below the directory, also once links are followed."""
    if not word or len(word) > 4096 or "\0" in word:
        return None
    path = Path(os.path.normpath(start / word))
    try:
        if not path.is_relative_to(folder) or not path.is_file():
            return None
        if not Path(os.path.realpath(path)).is_relative_to(folder):
            return None
    except OSError:
        return None
    return str(path.relative_to(folder))


def _imports(folder: Path, path: str) -> list[str]:
    """The files below the directory that a script imports by name."""
    try:
        text = untrusted.read_text(folder / path, limit=_KEPT_FILE_BYTES)
    except OSError:
        return []
    here = (folder / path).parent
    names: list[str] = []
    for _, source, parts, modules in _IMPORT.findall(text):
        if modules:
            names += [part.split()[0] for part in modules.split(",") if part.split()]
        else:
            short = [part.split()[0] for part in parts.strip("() ").split(",") if part.split()]
            names += [source, *(f"{source.rstrip('.')}.{name}" for name in short if name.isidentifier())]
    found = []
    for name in names:
        start = here
        dots = len(name) - len(name.lstrip("."))
        for _ in range(dots - 1):
            start = start.parent
        place = name.strip(".").replace(".", "/")
        if not re.fullmatch(r"[\w/]+", place):
            continue
        for base in dict.fromkeys((start,) if dots else (here, folder)):
            found += [
                inner
                for candidate in (f"{place}.py", f"{place}/__init__.py")
                if (inner := _below(folder, base, candidate)) is not None
            ]
    return found
