"""The code of a job: the repository around its working directory, and the files that its command uses."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import UNSET, UnsetType, structs

from bareboat import commands, python_source
from bareboat.model import CodeFacts, Job
from bareboat.model.provenance import Code, CodeFile
from bareboat.runs import repository
from bareboat.schedulers import inherited
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
_BY_COMMAND, _TEMPORARY = "the command names it", ("/tmp/", "/var/tmp/")
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
    named, new = _named(job, folder, home)
    submits = None
    scratch: tuple[str, str] | UnsetType = (new, "the command") if new else UNSET
    starter: tuple[str, str] | UnsetType = UNSET
    variables = dict.fromkeys(python_source.variables(" ".join(job.command)), "the command")
    imports: set[str] = set()
    is_read = False
    for path, text in _scripts(folder, job):
        variables |= dict.fromkeys(python_source.variables(text), path)
        if not path.endswith(".py"):
            if (name := commands.starter_in_shell(text)) is not None:
                starter = name, path
            continue
        compiles = compiles or _COMPILES.search(text) is not None
        imports |= python_source.read(folder / path).packages
        is_read = True
        if submits is None and (match := _SUBMITS.search(text)) is not None:
            submits = match[1], path
        if starter is UNSET and (name := commands.starter_in_python(text)) is not None:
            starter = name, path
        paths = _PATHS.findall(text)
        if scratch is UNSET and (word := _discarded(text, paths, folder, job, home)) is not None:
            scratch = word, path
        for word in paths:
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
        is_of_machine = reason == _BY_COMMAND and full.startswith(_TEMPORARY)
        if (is_of_machine or not _OF_CONTAINERS.fullmatch(full)) and _is_outside(full, folder, home):
            outside.setdefault(full, reason)
    return CodeFacts(
        compiles=compiles,
        outside=tuple(outside.items())[:_MOST_PATHS],
        submits=submits,
        starter=starter,
        scratch=scratch,
        rank_variables=tuple((each, variables[each]) for each in python_source.not_of_pytorch(variables)),
        job_variables=tuple((each, variables[each]) for each in inherited.of_job(variables)),
        imports=tuple(sorted(imports)) if is_read else UNSET,
    )


def _scripts(folder: Path, job: Job) -> Iterator[tuple[str, str]]:
    """The Python files that the command uses, and the shell script that it is, with their text."""
    script = commands.script(job.command) or ""
    of_shell = _below(folder, folder, script)
    for path in itertools.islice(_used(folder, _words(job)), _MOST_FILES):
        if path.endswith(".py") or path == of_shell:
            with contextlib.suppress(OSError):
                text = untrusted.read_text(folder / path, limit=_KEPT_FILE_BYTES)
                is_named = path.endswith(".py") or script != commands.target(job.command)[0]
                if is_named or _OF_SHELL.match(text):
                    yield path, text


def merged(folder: Path, script: str) -> python_source.Source:
    """What a script and the files that it imports from its directory reveal."""
    first = python_source.read(folder / script, uses=True)
    files = itertools.islice(_used(folder, [script]), _MOST_FILES)
    others = [_source(folder, path, uses=True) for path in files]
    return structs.replace(
        first,
        imports=tuple(each for other in others for each in other.imports),
        names=frozenset().union(*(other.names for other in others)),
        variables=tuple(dict.fromkeys(name for other in others for name in other.variables)),
    )


def own_packages(folder: Path, script: str) -> frozenset[str]:
    """The names by which a script and its modules import files of their own."""
    files = [folder / path for path in itertools.islice(_used(folder, [script]), _MOST_FILES)]
    return frozenset(part for file in files for part in file.relative_to(folder).with_suffix("").parts)


def _named(job: Job, folder: Path, home: str) -> tuple[dict[str, str], str]:
    """What the command names outside of the working directory: what exists, or the directory of a new file;
    and the first new file in a directory that the container discards."""
    named, new = {}, ""
    for word in job.command:
        path = word.partition("=")[2] if word.startswith("-") else word
        if not path.startswith(("/", "../")):
            continue
        full = os.path.normpath(folder / path)
        parent = os.path.dirname(full)
        if os.path.exists(full):
            named[full] = _BY_COMMAND
        elif os.path.isdir(parent) and (parent == home or full.startswith(_TEMPORARY)):
            new = new or ("" if _is_shown(full, folder, job) else full)
        else:
            named[parent] = _BY_COMMAND
    return named, new


def _is_shown(path: str, folder: Path, job: Job) -> bool:
    """Whether the path lies in the working directory or in a mount."""
    mounted = [place for mount in job.mounts for place in (mount.source, mount.target)]
    places = [str(folder), *([job.workdir] if job.workdir else ()), *mounted]
    return any(lies_in(path, place) for place in places)


def _discarded(text: str, paths: Iterable[str], folder: Path, job: Job, home: str) -> str | None:
    """The first path that the code names and the container discards: outside of the working directory and of
    all mounts, and nothing of the home that is there."""
    for word in (*_SCRATCH.findall(text), *(path for path in paths if lies_in(path, home))):
        full = os.path.normpath(os.path.expanduser(word))
        is_new = not lies_in(full, home) or word[0] == "~" or os.path.isdir(os.path.dirname(full))
        if is_new and not _is_shown(full, folder, job) and not (lies_in(full, home) and os.path.exists(full)):
            return str(word)
    return None


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
    jobs = (job, *(each for each in others if each.workdir == job.workdir))
    for path in _used(folder, (word for each in jobs for word in _words(each))):
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
    if len(data) <= min(_KEPT_FILE_BYTES, most_kept) and b"\0" not in data:
        with contextlib.suppress(UnicodeDecodeError):
            text = data.decode()
    made = CodeFile(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), text=text)
    return made, len(data)


def _used(folder: Path, words: Iterable[str]) -> Iterator[str]:
    """The files below the directory that words of commands name, and what their Python scripts import from
    it, by their relative paths. Each once."""
    pending = [path for word in dict.fromkeys(words) if (path := _below(folder, folder, word)) is not None]
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
    with contextlib.suppress(OSError):
        if path.is_relative_to(folder) and path.is_file() and path.resolve().is_relative_to(folder):
            return str(path.relative_to(folder))
    return None


def _source(folder: Path, path: str, *, uses: bool = False) -> python_source.Source:
    """What a Python file reveals; nothing of other files, and of one that cannot be read."""
    if path.endswith(".py"):
        with contextlib.suppress(OSError):
            return python_source.read(folder / path, uses=uses)
    return python_source.Source()


def _imports(folder: Path, path: str) -> list[str]:
    """The files below the directory that a script imports by name."""
    found: list[str] = []
    for each in _source(folder, path).imports:
        start = (folder / path).parent
        for _ in range(each.level - 1):
            start = start.parent
        place = each.module.replace(".", "/")
        places = [place, *(f"{place}/{name}".lstrip("/") for name in each.names if name != "*")]
        for base in dict.fromkeys((start,) if each.level else (start, folder)):
            candidates = (f"{name}{end}" for name in places if name for end in (".py", "/__init__.py"))
            found += [inner for name in candidates if (inner := _below(folder, base, name)) is not None]
    return found
