"""The filter of system calls: against Podman's own list, by its program and from inside a container."""

import base64
import ctypes
import errno
import functools
import json
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from engine_lab import Lab, base_site, lab  # noqa: F401
from tools import output, started

from bareboat.engines import Seccomp
from bareboat.registry import engine as engine_named
from bareboat_base import seccomp
from bareboat_base.seccomp import loader, program, start
from bareboat_base.seccomp.table import ADDED
from bareboat_images.builder import guarded_command

PODMANS = Path("/usr/share/containers/seccomp.json")
ALLOW = 0x7FFF0000
#: What Podman gives a container that nobody gave more.
_NAMES = "CHOWN DAC_OVERRIDE FOWNER FSETID KILL NET_BIND_SERVICE SETFCAP SETGID SETPCAP SETUID SYS_CHROOT"
CAPABILITIES = {f"CAP_{name}" for name in _NAMES.split()}
GO = {"x86_64": "amd64", "aarch64": "arm64"}
MACHINE = {abi: machine for machine, abis in program.MACHINES.items() for abi in abis}
#: What a call without a rule of its own, or of a machine without one, is answered with.
UNKNOWN = program.ENOSYS


def answer(compiled: bytes, number: int, arch: int, args: tuple[int, ...] = ()) -> int:
    """What the kernel would do: classic BPF, interpreted."""
    padded = (*args, *(0,) * (6 - len(args)))
    data = struct.pack("<IIQ6Q", number & 0xFFFFFFFF, arch, 0, *padded)
    at, accumulator, steps = 0, 0, 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("<HBBI", compiled, 8 * at)
        at, steps = at + 1, steps + 1
        match code:
            case 0x20:
                accumulator = struct.unpack_from("<I", data, value)[0]
            case 0x05:
                at += value
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x35:
                at += if_true if accumulator >= value else if_false
            case 0x06:
                assert steps <= 30, "a call costs more than a binary search"
                return int(value)
            case _:
                raise AssertionError(f"an instruction that is not expected: {code:#x}")


@functools.cache
def compiled(machine: str) -> bytes:
    return seccomp.files(machine)["full.bpf"]


@functools.cache
def podmans(abi: str) -> Mapping[str, int]:
    """Name -> what Podman's list does with a call whose arguments are all 0. A rule for the machine holds
    for its 32-bit programs, too."""
    if not PODMANS.exists():
        pytest.skip("containers-common is not installed")
    found: dict[str, int] = {}
    for rule in json.loads(PODMANS.read_text())["syscalls"]:
        includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
        if not set(includes.get("caps", ())) <= CAPABILITIES or set(excludes.get("caps", ())) & CAPABILITIES:
            continue
        if includes.get("arches") and GO[MACHINE[abi]] not in includes["arches"]:
            continue
        wants = all((arg["value"] == 0) == (arg["op"] == "SCMP_CMP_EQ") for arg in rule.get("args") or ())
        if wants:
            refusal = program.EPERM & ~0xFFFF | rule.get("errnoRet", 0)
            for name in rule["names"]:  # the runtime keeps the first of two rules
                found.setdefault(name, ALLOW if rule["action"] == "SCMP_ACT_ALLOW" else refusal)
    return found


#: i386 has most calls of sockets and System V's IPC twice; libseccomp gives the numbers of the other place.
_TWICE = {*range(359, 374), *range(393, 403)}


@pytest.mark.parametrize("abi", MACHINE)
def test_every_verdict_is_podman_s_but_for_the_differences_that_are_named(abi: str) -> None:
    arch, machine = program.AUDIT[abi], MACHINE[abi]
    resolve = libseccomp()
    own = {name: number for number, (name, _) in program.calls(abi).items()}
    listed = {resolve(arch, name): name for name in podmans(abi)}
    differences = {
        number
        for number in (*range(1100), *range(983030, 983060))
        if answer(compiled(machine), number, arch) != podmans(abi).get(listed.get(number, ""), UNKNOWN)
    }
    twice = _TWICE if abi == "i386" else set()
    assert all(answer(compiled(machine), number, arch) == ALLOW for number in twice)
    assert differences - twice == {own[name] for name in ADDED if name in own}


@pytest.mark.parametrize("abi", MACHINE)
def test_the_numbers_are_the_kernel_s(abi: str) -> None:
    resolve = libseccomp()
    for number, (name, _) in program.calls(abi).items():
        known = resolve(program.AUDIT[abi], name)
        assert known == number or (known == -1 and name in ADDED) or (known < -100 and abi == "i386"), name


@functools.cache
def libseccomp():  # type: ignore[no-untyped-def]
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("libseccomp is not installed")
    resolve = library.seccomp_syscall_resolve_name_arch
    resolve.argtypes = (ctypes.c_uint32, ctypes.c_char_p)
    return lambda arch, name: resolve(arch, name.encode())


@pytest.mark.parametrize("machine", program.MACHINES)
def test_every_number_is_answered_as_the_table_says(machine: str) -> None:
    for abi in program.MACHINES[machine]:
        verdicts = program.verdicts(abi)
        plain = {"allow": ALLOW, "eperm": program.EPERM}
        for number in (*range(1100), *range(983030, 983060), *range(0x40000000, 0x40000400), 0xFFFFFFFF):
            verdict = verdicts.get(number)
            if verdict in plain or verdict is None:
                said = answer(compiled(machine), number, program.AUDIT[abi])
                assert said == plain.get(str(verdict), UNKNOWN), (abi, number)


@pytest.mark.parametrize("machine", program.MACHINES)
@pytest.mark.parametrize("arch", [0, 0xC0000015, 0xC00000F3, 0x80000016, 0x40000014, 0xFFFFFFFF])
def test_calls_of_other_machines_are_refused(machine: str, arch: int) -> None:
    for which in ("full.bpf", "root.bpf", "terminal.bpf"):
        for number in (0, 1, 16, 54):
            assert answer(seccomp.files(machine)[which], number, arch) == program.ENOSYS


UNTOUCHED = ("fsync", "openat", "mount", "ptrace", "keyctl", "unlinkat", "execve")


@pytest.mark.parametrize("abi", MACHINE)
def test_an_emulated_root_changes_owners_in_appearance_only(abi: str) -> None:
    numbers = {name: number for number, (name, _) in program.calls(abi).items()}
    silent, full = seccomp.files(MACHINE[abi])["root.bpf"], compiled(MACHINE[abi])

    def said(made: bytes, name: str) -> int:
        return answer(made, numbers[name], program.AUDIT[abi])

    for name in ("fchown", "fchownat", "setuid", "setgroups", "capset"):
        assert said(silent, name) == program.SUCCESS
    numbers |= {name: libseccomp()(program.AUDIT[abi], name) for name in UNTOUCHED}
    for name in UNTOUCHED:
        assert said(silent, name) == said(full, name)


HIGH = (0, 1, 0x80000000, 0xFFFFFFFF)


@pytest.mark.parametrize("which", ["full.bpf", "root.bpf", "terminal.bpf"])
@pytest.mark.parametrize("abi", MACHINE)
@pytest.mark.parametrize("high", HIGH, ids=hex)
@pytest.mark.parametrize("request_", [program.TIOCSTI, program.TIOCLINUX], ids=hex)
def test_no_upper_half_hides_a_request(which: str, abi: str, high: int, request_: int) -> None:
    made = seccomp.files(MACHINE[abi])[which]
    number = next(n for n, (name, _) in program.calls(abi).items() if name == "ioctl")
    assert answer(made, number, program.AUDIT[abi], (0, high << 32 | request_)) == program.EPERM
    for other in (request_ ^ 1, request_ ^ 0x80, request_ ^ 0x80000000, 0x5401, 0x5413, 0):
        assert answer(made, number, program.AUDIT[abi], (0, high << 32 | other)) == ALLOW


@pytest.mark.parametrize("which", ["full.bpf", "root.bpf", "terminal.bpf"])
@pytest.mark.parametrize("number", [0x40000000, 0x40000010, 0x40000202, 0x7FFFFFFF, 0xC0000010])
def test_x32_is_refused(which: str, number: int) -> None:
    made = seccomp.files("x86_64")[which]
    assert answer(made, number, program.AUDIT["x86_64"], (0, program.TIOCSTI)) == program.ENOSYS


@pytest.mark.parametrize("abi", MACHINE)
@pytest.mark.parametrize("high", HIGH, ids=hex)
def test_personality_and_the_audit_s_socket(abi: str, high: int) -> None:
    numbers = {name: number for number, (name, _) in program.calls(abi).items()}

    def said(name: str, *args: int) -> int:
        return answer(compiled(MACHINE[abi]), numbers[name], program.AUDIT[abi], args)

    above = high << 32
    for kind in (0, 8, 0x20000, 0x20008, 0xFFFFFFFF):
        assert said("personality", above | kind) == ALLOW
    for kind in (1, 0x40000, 0x400000, 0x100000):
        assert said("personality", above | kind) == program.ENOSYS
    assert said("socket", above | 16, 3, above | 9) == program.EINVAL
    assert said("socket", above | 16, 3, 0) == said("socket", 2, 1, 9) == said("socket", 1, 1, 0) == ALLOW


@pytest.mark.parametrize("machine", program.MACHINES)
def test_the_files_are_those_that_are_pinned(machine: str) -> None:
    assert seccomp.digest(seccomp.files(machine)) == seccomp.DIGESTS[machine]


@pytest.mark.parametrize("machine", program.MACHINES)
@pytest.mark.parametrize("name", ["start", "loader"])
def test_the_program_is_its_source(name: str, machine: str, tmp_path: Path) -> None:
    prefix = "" if os.uname().machine == machine else f"{machine}-linux-gnu-"
    if shutil.which(f"{prefix}as") is None:
        pytest.skip(f"no assembler for {machine}")
    source = Path(loader.__file__).with_name(f"{name}-{machine}.s")
    subprocess.run([f"{prefix}as", str(source), "-o", "made.o"], check=True, cwd=tmp_path)
    argv = [f"{prefix}objcopy", "-O", "binary", "-j", ".text", "made.o", "made.bin"]
    subprocess.run(argv, check=True, cwd=tmp_path)
    code = {"start": start, "loader": loader}[name].CODE[machine]
    assert base64.b64encode((tmp_path / "made.bin").read_bytes()).decode() == code


def refused() -> list[tuple[int, int]]:
    """Each number below 1024 that the filter refuses whatever its arguments, and the errno."""
    machine = os.uname().machine
    verdicts = program.verdicts(machine) if machine in program.MACHINES else {}
    found = []
    for number in range(1024):
        verdict = verdicts.get(number, "enosys")
        # uretprobe and uprobe are seen by no filter: they end whoever calls them outside a probe.
        is_probe = machine == "x86_64" and number in (335, 336)
        if verdict in ("eperm", "enosys") and (number < 480 or number % 64 == 0) and not is_probe:
            found.append((number, errno.EPERM if verdict == "eperm" else errno.ENOSYS))
    return found


#: Each call with arguments that no call does anything with.
LOOP = """\
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
bad = [ctypes.c_long(-1)] * 6
for word in sys.argv[1:]:
    ctypes.set_errno(0)
    done = libc.syscall(ctypes.c_long(int(word)), *bad)
    print(word, done, ctypes.get_errno())
"""


def full_only(lab: Lab) -> bool:  # noqa: F811
    return engine_named(lab.case.engine).SECCOMP is Seccomp.FULL


def from_inside(lab: Lab, **changes: bool) -> dict[int, tuple[int, int]]:  # noqa: F811
    """What each refused call answered: its result and the errno."""
    done = lab.python(LOOP, *(str(number) for number, _ in refused() if number < 480), **changes)
    lines = done.stdout.decode().splitlines()
    return {int(n): (int(did), int(no)) for n, did, no in map(str.split, lines)}


def test_from_inside_every_refused_call_is_refused(lab: Lab) -> None:  # noqa: F811
    if not full_only(lab):
        return
    said = from_inside(lab)
    assert len(said) > 100
    assert {n: said[n] for n, expected in refused() if n in said and said[n] != (-1, expected)} == {}


def test_without_the_filter_the_kernel_answers_otherwise(lab: Lab) -> None:  # noqa: F811
    """So it is the filter that the tests above see."""
    if not full_only(lab):
        return
    said = from_inside(lab, seccomp=False)
    others = [number for number, expected in refused() if number < 480 and said[number] != (-1, expected)]
    assert len(others) >= 10, said


WANTED = """\
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
value = ctypes.c_long(41)
place = ctypes.c_long(0)
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
mine, theirs = Vector(ctypes.addressof(place), 8), Vector(ctypes.addressof(value), 8)
done = libc.process_vm_readv(os.getpid(), ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0)
assert (done, place.value) == (8, 41), "CMA"
assert libc.ptrace(0, 0, 0, 0) == 0, "ptrace"
mode = ctypes.c_int()
assert libc.syscall({get_mempolicy}, ctypes.byref(mode), None, 0, None, 0) == 0, "NUMA"
os.sched_setaffinity(0, os.sched_getaffinity(0))
status = open("/proc/self/status").read()
print(*(line.split()[1] for line in status.splitlines() if line.startswith(("NoNewPrivs", "Seccomp:"))))
"""


@pytest.mark.parametrize("is_on", [True, False], ids=["", "seccomp = false"])
def test_what_ranks_need_goes_on_working(lab: Lab, is_on: bool) -> None:  # noqa: F811
    if not lab.contains or engine_named(lab.case.engine).SECCOMP is Seccomp.NONE:
        return
    numbers = {"x86_64": 239, "aarch64": 236}
    text = WANTED.replace("{get_mempolicy}", str(numbers[os.uname().machine]))
    said = lab.says(text, **({} if is_on else {"seccomp": False}))
    if lab.case.engine == "podman-hpc" or (lab.case.engine == "podman" and not is_on):
        assert said.split()[1] == "0"  # podman-hpc itself asks Podman for none
    else:
        assert said.split()[1] == "2"
    if not lab.case.engine.startswith("podman"):
        assert said.split()[0] == "1"


HOLD = """\
import os
found = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{fd}"
            if os.readlink(path).endswith((".run", ".bpf")):
                found.append((pid, os.readlink(path)))
                os.close(os.open(path, os.O_WRONLY))
                print("OPENED", path)
    except OSError:
        pass
for path in ("/run/bareboat/filter", "/.singularity.d/bareboat/filter"):
    try:
        os.chmod(path, 0o700)
        print("CHANGED", path)
    except OSError:
        pass
"""


def test_the_filter_cannot_be_changed_from_inside(lab: Lab) -> None:  # noqa: F811
    if lab.contains:
        assert lab.says(HOLD) == ""


def test_a_node_that_does_not_see_the_filter_does_not_run_the_job(lab: Lab) -> None:  # noqa: F811
    if not lab.contains or engine_named(lab.case.engine).SECCOMP in (Seccomp.OWN, Seccomp.NONE):
        return
    script = lab.script("python", "-c", "print('it ran')")
    text = script.read_text()
    folder = seccomp.DIGESTS[os.uname().machine]
    assert folder in text
    script.write_text(text.replace(f"programs/{folder}", f"programs/{folder[::-1]}"))
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "it ran" not in done.stdout
    assert "the programs of Bareboat" in done.stderr


KEYS = """\
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
add_key, keyctl = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
SESSION, USER = ctypes.c_long(-3), ctypes.c_long(-4)
found = ctypes.create_string_buffer(99)
def ask(*words):
    return libc.syscall(ctypes.c_long(keyctl), *words)
"""
OWN_KEY = f"""{KEYS}
assert ask(1, None) > 0, "a new session keyring"
key = libc.syscall(ctypes.c_long(add_key), b"user", b"bareboat-ticket", b"secret", 6, SESSION)
assert key > 0
"""
SEEN = f"""{KEYS}
for ring in (SESSION, USER):
    key = ask(10, ring, b"user", b"bareboat-ticket", 0)
    size = ask(11, key, found, 99) if key > 0 else 0
    print(found.raw[:size].decode() or "nothing")
print("bareboat-ticket" in open("/proc/keys").read())
"""


@pytest.fixture
def session_key() -> None:
    """A key of this process's session, as a Kerberos ticket is."""
    if not os.path.exists("/proc/keys"):
        pytest.skip("this kernel has no keys")
    exec(OWN_KEY, {})


@pytest.mark.usefixtures("session_key")
def test_the_session_key_is_seen_without_a_container() -> None:
    assert output(sys.executable, "-c", SEEN).split()[0] == "secret"


@pytest.mark.usefixtures("session_key")
@pytest.mark.parametrize("is_on", [True, False], ids=["", "seccomp = false"])
def test_a_container_does_not_have_the_session_s_keys(lab: Lab, is_on: bool) -> None:  # noqa: F811
    """As with Podman, which joins a new session keyring; the list of calls allows keyctl(2)."""
    if lab.contains:
        session, user, _ = lab.says(SEEN, **({} if is_on else {"seccomp": False})).split()
        assert (session, user) == ("nothing", "nothing")


@pytest.mark.usefixtures("session_key")
@pytest.mark.parametrize("kind", ["sandbox", "tool", "shell"])
def test_a_step_of_a_build_does_not_have_the_session_s_keys(kind: str) -> None:
    """As with Buildah: a recipe may be a stranger's. A tool, such as git, is the user's."""
    words = [sys.executable, "-c", SEEN]
    shown: list[bytes] = []
    if kind == "shell":
        guard = [sys.executable, str(guarded_command._GUARD), "shell", "-"]
        shown.append(subprocess.run([*guard, *words], stdout=subprocess.PIPE, check=True).stdout)
    else:
        is_sandbox = kind == "sandbox"
        assert (
            guarded_command.run_step(words, environment=os.environ, show=shown.append, is_sandbox=is_sandbox)
            == 0
        )
    session, user, _ = b"".join(shown).decode().split()
    assert (session, user) == ("secret" if kind == "tool" else "nothing", "nothing")


#: What docs/security.md names: `keyctl setperm @u 0x3f010000`, and of @us.
NARROW, DEFAULT = 0x3F010000, 0x1F3F0000


@pytest.fixture
def user_keys() -> Iterator[str]:
    """The numbers of a key in this user's keyring, of that keyring and of the user's session keyring, whose
    permissions are narrowed."""
    if not os.path.exists("/proc/keys"):
        pytest.skip("this kernel has no keys")
    names: dict[str, Any] = {}
    exec(
        f"""{KEYS}
key = libc.syscall(ctypes.c_long(add_key), b"user", b"bareboat-user-key", b"secret", 6, USER)
own = USER, ctypes.c_long(-5)
rings = [ask(0, ring, 1) for ring in own]
assert [ask(5, ring, {NARROW}) for ring in own] == [0, 0]
""",
        names,
    )
    yield str([names["key"], *names["rings"]])
    for ring in names["own"]:
        names["ask"](5, ring, DEFAULT)
    names["ask"](9, names["key"], names["USER"])


def test_a_container_has_no_key_of_a_user_keyring_with_narrow_permissions(
    lab: Lab,  # noqa: F811
    user_keys: str,
) -> None:
    """A container finds the numbers of the user's keyrings in /proc/keys; with the kernel's permissions it
    can link these and read what is in them, with every engine."""
    if lab.contains:
        said = lab.says(
            f"""{KEYS}
key, *rings = {user_keys}
for ring in rings:
    ask(8, ring, SESSION)
size = ask(11, key, found, 99)
print(found.raw[:max(size, 0)].decode() or "nothing")
"""
        )
        assert said.split() == ["nothing"]


def limited(most: int, argv: list[str]) -> str:
    """Run a command many times at once, with room for few keys."""
    hold = [started([*argv, "/bin/sh", "-c", "read x; echo $x"], stdin=subprocess.PIPE) for _ in range(most)]
    return "".join(each.communicate("ok\n")[0] for each in hold)


def test_more_containers_than_keys_all_start(tmp_path: Path) -> None:
    """A node of 256 ranks has more containers than the kernel gives keys to a user (200)."""
    program = tmp_path / "start.run"
    program.write_bytes(start.elf(os.uname().machine))
    program.chmod(0o755)
    limit = Path("/proc/sys/kernel/keys/maxkeys")
    if os.getuid() == 0 or not limit.exists() or int(limit.read_text()) > 300:
        pytest.skip("this user has no limit on keys")
    most = int(limit.read_text()) + 20
    assert limited(most, [str(program), seccomp.Mode.KEYS]) == "ok\n" * most
