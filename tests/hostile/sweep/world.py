"""A small world for one invocation after another: a directory to work in, a home, a store with an image and
runs, and programs on PATH. What an invocation changes in it is seen, and put right again."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from builders import fake_digest
from pythons import needed
from tools import output

from bareboat.model import Submission
from bareboat_base import codec
from bareboat_images.store import Store

IMAGE = "small"
RUN = "finished-20261122-030000"
#: Runs that a scheduler has, and of which nothing was heard since.
WAITING = {name: f"{name}-20261121-030000" for name in ("slurm", "gridengine", "flux")}
JOB = f"""\
command = ["/bin/true"]
image = "{IMAGE}"
workdir = "image"
"""
#: What the program and its scripts need of a machine, no engine and no scheduler among it.
PROGRAMS = (
    "bash", "sh", "env", "cat", "ls", "cp", "mv", "rm", "mkdir", "mktemp", "ln", "chmod", "touch", "head",
    "tail", "sed", "grep", "sort", "cut", "tr", "wc", "date", "sleep", "nproc", "uname", "getconf",
    "readlink", "stat", "id", "hostname", "dirname", "basename", "true", "false", "tar", "gzip", "test",
    "expr", "find", "timeout", "kill", "setsid", "nohup", "tee", "printf", "seq", "df", "ps", "awk",
    "xargs", "rmdir", "mount", "umount", "python3",
)  # fmt: skip
PARTS = ("cwd", "home", "tmp", "store", "runtime")


class World:
    """`cwd`, `home`, `tmp`, `store` and `bin` below one directory."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.cwd, self.home, self.tmp, self.store, self.runtime = (top / part for part in PARTS)
        self.bin = top / "bin"
        self._kept = top / "kept"

    def environment(self) -> dict[str, str]:
        return {
            "PATH": str(self.bin),
            "HOME": str(self.home),
            "VIRTUAL_ENV": str(self.cwd / "env"),
            "TMPDIR": str(self.tmp),
            "BAREBOAT_STORE": str(self.store),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "LANG": "C.UTF-8",
            "USER": "ada",
        }

    def build(self) -> None:
        """Make it, with real commands where these are the way."""
        for part in (*PARTS, "bin", "kept"):
            (self.top / part).mkdir(parents=True, exist_ok=True)
        self.runtime.chmod(0o700)
        for name in PROGRAMS:
            found = shutil.which(name)
            if found:
                (self.bin / name).symlink_to(found)
        self._write_files()
        self._bareboat("image", "pull", str(self.cwd / "tree"), "--name", IMAGE)
        self._bareboat("image", "save", IMAGE, "bundle.tar")
        for verb in ("plan", "run"):
            self._bareboat(verb, "job.toml")
        self._bareboat("lock", "job", "-o", "run.lock")
        self._submission(RUN, "slurm", over=True)
        for scheduler, run in WAITING.items():
            self._submission(run, scheduler)
        self._bareboat("status")
        for part in PARTS:
            subprocess.run(["cp", "-a", self.top / part, self._kept], check=True)
        self._add_odd()
        self.before = dict(self.files())

    def _write_files(self) -> None:
        (self.cwd / "job.toml").write_text(JOB)
        (self.cwd / "captured.toml").write_text('command = ["/bin/true"]\n')
        (self.cwd / "train.py").write_text("pass\n")
        (self.cwd / "empty").write_bytes(b"")
        (self.cwd / "text").write_text("some text\n")
        (self.cwd / "binary").write_bytes(bytes(range(256)) * 8)
        (self.cwd / "folder").mkdir()
        (self.cwd / "context").mkdir()
        (self.cwd / "context/Dockerfile").write_text("ARG A\nFROM scratch AS one\nCOPY a /a\n")
        (self.cwd / "context/a").write_text("1\n")
        programs = self.cwd / "tree" / "bin"
        programs.mkdir(parents=True)
        program = shutil.which("busybox") or "/bin/true"
        shutil.copy(program, programs / "busybox")
        for library in needed(program):
            place = self.cwd / "tree" / library.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(library, place)
        for name in ("sh", "true", "cat", "sleep"):
            (programs / name).symlink_to("busybox")
        for name in ("tmp", "proc", "dev", "sys", "etc", "root"):
            (self.cwd / "tree" / name).mkdir()
        python = self.cwd / "env"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", python], check=True)

    def _bareboat(self, *words: str) -> None:
        environment = self.environment() | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        words = ("-m", "bareboat", *words, "--quiet")
        output(sys.executable, *words, cwd=self.cwd, env=environment, timeout=60)

    def _submission(self, run: str, scheduler: str, *, over: bool = False) -> None:
        store = Store(self.store)
        folder = store.run(run)
        for inner in ("control/watch", "control/logs", "ranks/logs"):
            (folder / inner).mkdir(parents=True)
        made = Submission(
            run_id=run, scheduler=scheduler, job_id="17", name=run.partition("-")[0], nodes=1, world_size=1,
            engine="native", submitted_at="2026-11-21T03:00:00Z", plan_digest=fake_digest("1"),
            image_digest=None, site_digest=fake_digest("2"),
        )  # fmt: skip
        store.write(folder / "submission.json", codec.to_json(made))
        if over:
            (folder / "output.log").write_text("output\n")
            (folder / "control/starts").write_text("100 c1 17\n")
            (folder / "control/hosts").write_text("c1\n")
            (folder / "control/exit_code").write_text("0 160\n")

    def _add_odd(self) -> None:
        """Files that cp would not copy."""
        os.mkfifo(self.cwd / "fifo")
        (self.cwd / "unreadable").write_text("x = 1\n")
        (self.cwd / "unreadable").chmod(0)
        (self.cwd / "closed").mkdir()
        (self.cwd / "closed").chmod(0)

    def close(self) -> None:
        """Leave nothing that cannot be removed."""
        (self.cwd / "closed").chmod(0o700)

    def restore(self) -> None:
        """Take away what is new, and put back what is gone or other."""
        now = dict(self.files())
        before = self.before
        for path in sorted(now.keys() - before.keys(), reverse=True):
            _remove(self.top / path)
        for path in sorted(path for path in before if now.get(path) != before[path]):
            kept = self._kept / path
            if kept.is_symlink() or not kept.is_dir() or path not in now:
                _remove(self.top / path)
                subprocess.run(["cp", "-a", kept, (self.top / path).parent], check=True)
            else:
                (self.top / path).chmod(stat.S_IMODE(before[path][0]))

    def files(self) -> Iterator[tuple[str, tuple[int, int, int]]]:
        """Every path with what would tell a change: its kind and mode, and a file's size and time."""
        pending = [self.top / part for part in PARTS]
        while pending:
            folder = pending.pop()
            try:
                entries = list(os.scandir(folder))
            except OSError:
                continue
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                regular = stat.S_ISREG(found.st_mode)
                yield (
                    os.path.relpath(entry.path, self.top),
                    (found.st_mode, regular * found.st_size, regular * found.st_mtime_ns),
                )
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))

    def changes(self, before: Mapping[str, tuple[int, int, int]]) -> list[str]:
        """What is new, gone or other than before."""
        now = dict(self.files())
        found = [f"{path} is new" for path in sorted(now.keys() - before.keys())]
        found += [f"{path} is gone" for path in sorted(before.keys() - now.keys())]
        found += [f"{path} changed" for path in sorted(now) if path in before and now[path] != before[path]]
        return found


def _remove(path: Path) -> None:
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    for folder, names, _ in os.walk(path):
        for name in names:
            inner = os.path.join(folder, name)
            if not os.path.islink(inner):
                os.chmod(inner, 0o700)
    shutil.rmtree(path, ignore_errors=True)
