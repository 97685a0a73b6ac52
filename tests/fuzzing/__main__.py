"""Fuzz one reader, or all, one after another, guided by coverage: by atheris."""

import argparse
import importlib
import os
import pkgutil
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fuzzing
from fuzzing import LONGEST_BYTES, MEMORY_MB, TIMEOUT_S, Reader, Site

#: Files that are written to through a path that is whole.
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzzing", description=__doc__)
    parser.add_argument("reader", help="its name, `all`, or `list`")
    parser.add_argument("--seconds", type=int, default=600, help="for each reader (600)")
    parser.add_argument("--corpus", type=Path, help="where new inputs are kept, to go on from them later")
    parser.add_argument("--findings", type=Path, default=Path("findings"), help="where findings are written")
    parser.add_argument("--only", type=Path, help="read this one input and show what it does")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        _fuzz(options)
        return 0
    table = fuzzing.readers()
    if options.reader == "list":
        print("\n".join(table))
        return 0
    chosen = list(table.values()) if options.reader == "all" else [table[options.reader]]
    if options.only is not None:
        with _scratch() as top:
            print(Site(Path(top)).attempt(chosen[0], options.only.read_bytes()))
        return 0
    return max(_run(reader, options) for reader in chosen)


def _scratch() -> tempfile.TemporaryDirectory[str]:
    """In memory where that is possible: an input makes many small files."""
    memory = "/dev/shm"
    return tempfile.TemporaryDirectory(
        prefix="fuzzing-", dir=memory if os.access(memory, os.W_OK) else None, ignore_cleanup_errors=True
    )


def _run(reader: Reader, options: argparse.Namespace) -> int:
    """One reader in a process of its own, which may be ended for its memory or its time."""
    options.findings.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with _scratch() as top:
        words = [sys.executable, "-m", "fuzzing", reader.name, "--seconds", str(options.seconds)]
        words += ["--findings", str(options.findings), "--child", top]
        words += ["--corpus", str(options.corpus)] if options.corpus else []
        environment = os.environ | {
            "PYTHONPATH": str(Path(__file__).parents[1]),
            "HOME": top,
            "TMPDIR": top,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run(words, env=environment, stderr=subprocess.PIPE, text=True, errors="replace")
    executed = re.findall(r"number_of_executed_units: (\d+)", done.stderr)
    count = int(executed[-1]) if executed else 0
    found = re.findall(r"Test unit written to (\S+)", done.stderr)
    if found or done.returncode:
        sys.stderr.write(done.stderr[-6000:])
    coverage = re.findall(r" cov: (\d+) ft: (\d+)", done.stderr)
    print(
        f"{reader.name}: {time.monotonic() - began:.0f} s, {count:,} executions, "
        + (f"{coverage[-1][0]} edges, " if coverage else "")
        + (f"FINDING {' '.join(found)}" if found else f"FAILED ({done.returncode})" if done.returncode else
           "no finding"),
        flush=True,
    )  # fmt: skip
    return int(bool(found or done.returncode))


def _fuzz(options: argparse.Namespace) -> None:
    import atheris

    # Not "RegEx": what it puts in the place of a pattern cannot do all that a pattern can.
    atheris.enabled_hooks.add("str")
    with atheris.instrument_imports(include=["bareboat"]):
        reader = fuzzing.readers()[options.reader]
        _import_all("bareboat_images", "bareboat.plan", "bareboat.render", *reader.modules)
    os.chdir(options.child)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 28, 1 << 28))
    site = Site(options.child / "site")
    _watch(str(options.child), reader)

    def one(data: bytes) -> None:
        try:
            site.attempt(reader, data)
        except MemoryError:
            raise fuzzing.Finding("out of memory") from None

    def mutated(data: bytes, most_bytes: int, seed: int) -> bytes:
        new = atheris.Mutate(data, min(most_bytes, LONGEST_BYTES))
        if seed % 3 == 0 and reader.words:
            chance = random.Random(seed)
            at = chance.randrange(len(new) + 1)
            word = chance.choice(reader.words)
            new = new[:at] + word + new[at + chance.choice((0, len(word))) :]
        return (reader.mend(new) if seed % 16 else new)[:most_bytes]

    folders = [str(path) for path in (options.corpus, reader.corpus) if path is not None]
    if options.corpus is None:
        # What is found new is written to the first directory.
        new = Path(options.child) / "corpus"
        new.mkdir()
        folders.insert(0, str(new))
    else:
        options.corpus.mkdir(parents=True, exist_ok=True)
    atheris.Setup(
        [
            "fuzzing",
            *folders,
            f"-max_total_time={options.seconds}",
            f"-timeout={TIMEOUT_S}",
            f"-rss_limit_mb={MEMORY_MB}",
            f"-max_len={LONGEST_BYTES}",
            f"-artifact_prefix={options.findings.resolve()}/{reader.name}-",
            "-print_final_stats=1",
            "-reload=0",
        ],
        one,
        custom_mutator=mutated,
    )
    atheris.Fuzz()


def _import_all(*names: str) -> None:
    """Modules that are imported late would not be instrumented."""
    for name in names:
        module = importlib.import_module(name)
        for found in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{name}."):
            importlib.import_module(found.name)


def _watch(top: str, reader: Reader) -> None:
    """Refuse what no reader does: to write elsewhere, to start a program, to call another machine."""
    allowed = (top, "/dev/", "/proc/self/")

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, bytes):
                path = os.fsdecode(path)
            if (
                isinstance(path, str)
                and path.startswith("/")
                and isinstance(flags, int)
                and flags & _WRITES
                and not path.startswith((*allowed, os.getcwd()))
                and "fuzzing" not in sys._getframe(1).f_code.co_filename
            ):
                raise fuzzing.Finding(f"it opens {path} for writing")
        elif event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"):
            if not reader.processes:
                raise fuzzing.Finding(f"it starts a program: {arguments!r:.300}")
        elif event == "socket.connect" and reader.name != "relay":
            raise fuzzing.Finding(f"it connects to {arguments[1]!r:.300}")

    sys.addaudithook(hook)


if __name__ == "__main__":
    sys.exit(main())
