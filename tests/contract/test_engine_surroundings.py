"""The machine around the command, in every engine: what it shares with the host, and what it must not see."""

import fcntl
import os
import pty
import resource
import select
import signal
import socket
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from engine_lab import Lab
from processes import left_after
from tools import completed_bytes, output

from bareboat.model import Mount

# -- memory, names, addresses ------------------------------------------------------------------------


def test_shared_memory_is_as_large_as_the_host_s(lab: Lab) -> None:
    """Docker's 64 MB break data loaders with a bus error."""
    there = os.statvfs("/dev/shm")
    program = """
import os
there = os.statvfs("/dev/shm")
print(there.f_blocks * there.f_frsize, os.stat("/dev/shm").st_dev)
from multiprocessing import shared_memory
memory = shared_memory.SharedMemory(create=True, size=80 << 20)
memory.buf[:] = bytes(80 << 20)
memory.close(); memory.unlink()
"""
    assert lab.says(program) == f"{there.f_blocks * there.f_frsize} {os.stat('/dev/shm').st_dev}"


def test_the_host_name_is_the_host_s(lab: Lab) -> None:
    assert lab.says("import os, socket; print(socket.gethostname(), os.uname().nodename)") == " ".join(
        [socket.gethostname()] * 2
    )


def test_host_names_resolve_as_on_the_host(lab: Lab) -> None:
    program = """
import socket, sys
for path in ("/etc/resolv.conf", "/etc/hosts"):
    try:
        print(open(path).read())
    except FileNotFoundError:
        print("none")
def found(name):
    try:
        return sorted({each[4][0] for each in socket.getaddrinfo(name, 80, type=socket.SOCK_STREAM)})
    except OSError as error:
        return type(error).__name__
print(found("localhost"), found(socket.gethostname()))
"""
    on_host = output(lab.captured.python, "-c", program).removesuffix("\n")
    assert "127.0.0.1" in on_host
    assert lab.says(program) == on_host


def test_text_beyond_ascii_is_printed_and_sorted_correctly(lab: Lab) -> None:
    program = r"""
import locale, sys
locale.setlocale(locale.LC_ALL, "")
print("\u00e9\u65e5\U0001f680", sys.stdout.encoding, sys.getfilesystemencoding())
print(locale.nl_langinfo(locale.CODESET))
open("\u00fc\u65e5", "w").close()
"""
    assert lab.says(program) == "é日🚀 utf-8 utf-8\nUTF-8"
    assert (lab.workdir / "ü日").exists()
    done = lab.run("sort", stdin="b\né\na\n".encode())
    assert (done.stdout.decode(), done.stderr) == ("a\nb\né\n", b"")


# -- what is handed down -----------------------------------------------------------------------------


def test_the_umask_is_the_caller_s(lab: Lab) -> None:
    script = lab.script("sh", "-c", "umask; touch made; mkdir folder")
    done = subprocess.run(["bash", script], capture_output=True, umask=0o027, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"0027\n"), done.stderr.decode()
    modes = [(lab.workdir / name).stat().st_mode & 0o777 for name in ("made", "folder")]
    assert modes == [0o640, 0o750]


_LIMITS = {
    resource.RLIMIT_NOFILE: (512, 600),
    resource.RLIMIT_CORE: (0, 0),
    resource.RLIMIT_STACK: (1 << 24, 1 << 25),
    resource.RLIMIT_MEMLOCK: (1 << 16, 1 << 16),
    resource.RLIMIT_CPU: (1000, 2000),
    resource.RLIMIT_FSIZE: (1 << 30, 1 << 31),
}


def test_resource_limits_are_the_caller_s(lab: Lab) -> None:
    """`ulimit`: of open files, core files, locked memory (which InfiniBand needs), and so on."""
    program = f"import resource; print([resource.getrlimit(each) for each in {list(_LIMITS)}])"
    script = lab.script("python", "-c", program)

    def lower() -> None:
        for name, (soft, hard) in _LIMITS.items():
            most = resource.getrlimit(name)[1]
            hard = hard if most == resource.RLIM_INFINITY else min(hard, most)
            resource.setrlimit(name, (min(soft, hard), hard))

    done = subprocess.run(["bash", script], capture_output=True, preexec_fn=lower, check=False, timeout=60)
    expected = subprocess.run(
        [lab.captured.python, "-c", program], capture_output=True, preexec_fn=lower, check=True
    )
    assert (done.stdout, done.stderr) == (expected.stdout, b"")


def test_cpu_affinity_is_the_caller_s(lab: Lab) -> None:
    one = max(os.sched_getaffinity(0))
    script = lab.script("python", "-c", "import os; print(os.sched_getaffinity(0))")
    done = completed_bytes(["bash", script], preexec_fn=lambda: os.sched_setaffinity(0, {one}), timeout=60)
    assert (done.stdout.decode(), done.stderr) == (f"{{{one}}}\n", b"")


def test_an_open_file_of_the_caller_reaches_the_command(lab: Lab) -> None:
    """MPICH's mpiexec talks to its ranks over one (PMI_FD)."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        number = theirs.fileno()
        script = lab.script("python", "-c", f"import socket; socket.socket(fileno={number}).sendall(b'rank')")
        done = completed_bytes(["bash", script], pass_fds=[number], timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        ours.settimeout(5)
        assert ours.recv(10) == b"rank"


def test_no_open_file_leads_out_of_the_container(lab: Lab) -> None:
    """A folder of the host's that an engine leaves open is a way out (CVE-2024-21626), and so is a device or
    a socket; what can only be read, such as a configuration, is none."""
    program = """
import fcntl, os, stat
for name in os.listdir("/proc/self/fd"):
    try:
        mode, flags = os.fstat(int(name)).st_mode, fcntl.fcntl(int(name), fcntl.F_GETFL)
    except OSError:
        continue  # that of the listing itself
    only_read = flags & os.O_ACCMODE == os.O_RDONLY and (stat.S_ISREG(mode) or stat.S_ISFIFO(mode))
    if int(name) > 2 and not only_read:
        print(name, os.readlink("/proc/self/fd/" + name))
"""
    assert lab.says(program) == ""


# -- who ---------------------------------------------------------------------------------------------


def test_user_and_groups_are_the_caller_s(lab: Lab) -> None:
    """As the kernel sees them from outside: inside, groups that a user namespace does not map are shown as
    nobody's, 65534, and give their rights all the same."""
    listed = lab.run("sh", "-c", "id -u; id -g")
    assert listed.stdout.decode().split() == [str(os.getuid()), str(os.getgid())]
    assert lab.says("import grp, os; print(grp.getgrgid(os.getgid()).gr_gid)") == str(os.getgid())
    script = lab.script("python", "-c", "import os, sys; print(os.getpid(), flush=True); sys.stdin.read(1)")
    with subprocess.Popen(["bash", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        status = Path(f"/proc/{run.stdout.readline().strip()}/status").read_text()
        run.communicate("x", timeout=30)
    found = {name: rest.split() for name, _, rest in (line.partition(":") for line in status.splitlines())}
    assert set(found["Uid"]) == {str(os.getuid())}
    assert set(found["Gid"]) == {str(os.getgid())}
    facts = lab.site.engine(lab.case.engine)
    lost = facts is not None and facts.settings.get("groups") == "lost"  # the plan says so
    groups = {os.getgid()} if lost else {*os.getgroups(), os.getgid()}
    assert set(map(int, found["Groups"])) | {os.getgid()} == groups


# -- home, and what must not be seen -----------------------------------------------------------------


@pytest.mark.parametrize("target", ["/only-here", "/usr/share/only/here"])
def test_the_mounts_of_one_job_leave_no_places_for_others(lab: Lab, tmp_path: Path, target: str) -> None:
    if not lab.contains:
        return
    (tmp_path / "file").write_text("content")
    (tmp_path / "folder").mkdir()
    file, folder = (Mount(source=str(tmp_path / name), target=target) for name in ("file", "folder"))
    listing = "import os; print([sorted(os.listdir(path)) for path in ('/', '/usr', '/usr/share', '/etc')])"
    before = lab.says(listing)
    assert lab.says("import sys; print(open(sys.argv[1]).read())", target, mounts=(file,)) == "content"
    assert lab.says(listing) == before
    program = "import os, sys; print(os.listdir(sys.argv[1]), len(os.listdir('/usr/lib')) > 0)"
    assert lab.says(program, target, mounts=(folder,)) == "[] True"
    assert lab.says(listing) == before


def test_home_is_the_host_s_when_it_is_mounted(lab: Lab) -> None:
    """As `mounts = ["~:~:rw"]` says it."""
    home = Mount(source=str(lab.home), target=str(lab.home), writable=True)
    program = "import os; os.chdir(os.environ['HOME']); print(open('secret').read()); open('n', 'w').close()"
    assert lab.says(program, mounts=(home,)) == "secret"
    assert (lab.home / "n").exists()


def test_home_is_another_directory_on_request(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    mount = Mount(source=str(folder), target=str(folder), writable=True)
    said = lab.says(
        "import os, pathlib; (pathlib.Path.home() / 'n').touch(); print(os.path.expanduser('~'))",
        mounts=(mount,),
        environment={"HOME": str(folder)},
    )
    assert said == str(folder)
    assert (folder / "n").exists()


def test_packages_and_settings_of_the_caller_do_not_leak(lab: Lab, tmp_path: Path) -> None:
    """Even where the home is mounted: ~/.local, PYTHONPATH, conda, and libraries that LD_* names."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "leaked.py").write_text("")
    version = lab.says("import sys; print(*sys.version_info[:2], sep='.')")
    user_site = lab.home / f".local/lib/python{version}/site-packages"
    user_site.mkdir(parents=True)
    (user_site / "leaked.py").write_text("")
    (user_site / "sitecustomize.py").write_text("raise SystemExit('the user site is seen')")
    (lab.home / ".bashrc").write_text("export LEAKED=bashrc\n")
    (lab.home / ".profile").write_text("export LEAKED=profile\n")
    here = str(outside)
    caller = {
        "PYTHONPATH": here, "PYTHONSTARTUP": f"{here}/leaked.py", "PYTHONUSERBASE": str(lab.home),
        "LD_LIBRARY_PATH": here, "CONDA_PREFIX": here, "CONDA_SHLVL": "1", "OMP_NUM_THREADS": "77",
        "MKL_NUM_THREADS": "77", "KMP_AFFINITY": "disabled", "OMPI_MCA_btl": "none", "SLURM_NTASKS": "4",
        "CUDA_VISIBLE_DEVICES": "9", "BASH_ENV": f"{lab.home}/.bashrc", "ENV": f"{lab.home}/.profile",
        "SINGULARITY_HOME": here, "APPTAINER_HOME": here, "CH_RUNNING": "x", "PROOT_NO_SECCOMP": "1",
        "http_proxy": "http://leaked",
    }  # fmt: skip
    home = Mount(source=str(lab.home), target=str(lab.home), writable=True)
    program = """
import importlib.util, os, sys
names = sys.argv[1].split(",") + ["LEAKED", "HTTP_PROXY"]
print([name for name in names if name in os.environ], importlib.util.find_spec("leaked"))
"""
    said = lab.says(program, ",".join(caller), caller=caller, mounts=(home,))
    assert said == "[] None"
    done = lab.run("bash", "-c", "echo $LEAKED", caller=caller, mounts=(home,))
    assert done.stdout == b"\n"


# -- mounts ------------------------------------------------------------------------------------------


def test_a_missing_mount_source_is_reported_before_anything_runs(lab: Lab, tmp_path: Path) -> None:
    if not lab.contains:
        return  # bare metal has no mounts
    source = tmp_path / "gone data"
    source.mkdir()
    script = lab.script("touch", "ran", mounts=(Mount(source=str(source), target="/data"),))
    source.rmdir()
    done = subprocess.run(["bash", script], capture_output=True, check=False, timeout=60)
    assert done.returncode == 3
    assert f"the source of a mount does not exist: {source}" in done.stderr.decode()
    assert "try:" in done.stderr.decode()
    assert not (lab.workdir / "ran").exists()


# -- terminals and streams ---------------------------------------------------------------------------


@contextmanager
def on_terminal(script: Path, *, columns: int, lines: int) -> Iterator[int]:
    """bash with the script on a terminal of its own; gives the other end."""
    pid, end = pty.fork()
    if pid == 0:
        os.execvp("bash", ["bash", str(script)])
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    try:
        yield end
    finally:
        os.close(end)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def until(end: int, text: bytes, patience_s: float = 30.0) -> bytes:
    """What the terminal shows, until it shows the text."""
    shown = b""
    deadline = time.monotonic() + patience_s
    while text not in shown and time.monotonic() < deadline:
        if select.select([end], [], [], 0.2)[0]:
            try:
                shown += os.read(end, 4096)
            except OSError:  # the other side has gone
                break
    return shown


def test_a_terminal_is_passed_to_the_command(lab: Lab) -> None:
    program = """
import os
input("ready? ")
print("is", [os.isatty(each) for each in (0, 1, 2)], tuple(os.get_terminal_size()), "so")
"""
    with on_terminal(lab.script("python", "-c", program), columns=101, lines=33) as end:
        assert b"ready? " in until(end, b"ready? ")
        os.write(end, b"yes\n")
        shown = until(end, b"so\r\n")
    assert b"is [True, True, True] (101, 33) so" in shown


def test_control_c_on_a_terminal_ends_the_command(lab: Lab) -> None:
    name = f"interrupted-{os.getpid()}"
    script = lab.script("sh", "-c", "echo ready; sleep 600", name=name)
    with on_terminal(script, columns=80, lines=24) as end:
        assert b"ready" in until(end, b"ready")
        os.write(end, b"\x03")
        until(end, b"nothing that is ever shown", 20)
        assert left_after(name) == []


@pytest.mark.parametrize("how", ["</dev/null", "<&-"])
def test_without_a_terminal_the_standard_input_is_empty(lab: Lab, how: str) -> None:
    script = lab.script("sh", "-c", "cat | wc -c; echo done")
    done = completed_bytes(["setsid", "--wait", "bash", "-c", f'exec bash "$0" {how}', script], timeout=60)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, [b"0", b"done"], b"")


def test_a_closed_output_pipe_ends_the_command(lab: Lab) -> None:
    script = lab.script("sh", "-c", "while echo line; do :; done", name="unread")
    mark = f"unread-{os.getpid()}-run"
    run = subprocess.Popen(["bash", script, mark], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stdout.readline() == b"line\n"
    run.stdout.close()
    assert run.wait(timeout=30) != 0
    assert left_after(mark) == []
    assert run.stderr is not None
    run.stderr.close()


def test_a_thousand_arguments_and_a_large_environment(lab: Lab) -> None:
    words = [f"word {number}" for number in range(1000)]
    environment = {f"V{number}": str(number) * 20 for number in range(200)} | {"BIG": "x" * 100_000}
    program = """
import os, sys
assert sys.argv[1:] == [f"word {number}" for number in range(1000)]
assert all(os.environ[f"V{number}"] == str(number) * 20 for number in range(200))
print(len(os.environ["BIG"]))
"""
    assert lab.says(program, *words, environment=environment) == "100000"


# -- what ranks do to each other ---------------------------------------------------------------------

#: Prints where something is in memory, waits, and says whether it is as it was.
_READ = """
import ctypes, os
class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
def read(pid, address, length):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.process_vm_readv.restype = ctypes.c_ssize_t
    own = ctypes.create_string_buffer(length)
    here, there = Vector(ctypes.addressof(own), length), Vector(address, length)
    got = libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return own.raw[:got] if got >= 0 else os.strerror(ctypes.get_errno())
"""
_SHOW = """
import ctypes, os, sys
secret = ctypes.create_string_buffer(b"rank's memory")
print(os.getpid(), ctypes.addressof(secret), flush=True)
sys.stdin.read(1)
"""


def skip_where_nobody_reads_memory() -> None:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and scope.read_text().strip() != "0":
        pytest.skip("this machine lets only parents read memory: kernel.yama.ptrace_scope is not 0")


def test_ranks_of_one_container_read_each_other_s_memory(lab: Lab) -> None:
    """CMA, by which MPI and NCCL copy between the ranks of a node: here between two children."""
    skip_where_nobody_reads_memory()
    program = f"""{_READ}
import subprocess, sys
shows, reads = {_SHOW!r}, {_READ!r}
with subprocess.Popen([sys.executable, "-c", shows], stdin=-1, stdout=-1, text=True) as peer:
    pid, address = peer.stdout.readline().split()
    subprocess.run([sys.executable, "-c", reads + f"print(read({{pid}}, {{address}}, 13))"], check=True)
    peer.communicate("x")
"""
    assert lab.says(program) == repr(b"rank's memory")


def test_ranks_of_two_containers_read_each_other_s_memory(lab: Lab) -> None:
    """As mpirun and srun start them: one container for each rank."""
    skip_where_nobody_reads_memory()
    script = lab.script("python", "-c", _SHOW)
    with subprocess.Popen(["bash", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdout is not None
        pid, address = peer.stdout.readline().split()
        said = lab.says(f"{_READ}\nprint(read({pid}, {address}, 13))")
        peer.communicate("x", timeout=30)
    assert said == repr(b"rank's memory")


def test_ranks_of_two_containers_share_memory_files_and_signals(lab: Lab) -> None:
    name = f"bareboat-test-{os.getpid()}-{time.monotonic_ns()}"
    waits = f"""
import mmap, os, signal, sys
signal.signal(signal.SIGUSR1, lambda *_: print("told", flush=True))
with open("/dev/shm/{name}", "w+b") as stream:
    stream.truncate(4096)
    memory = mmap.mmap(stream.fileno(), 4096)
memory[:4] = b"here"
print(os.getpid(), flush=True)
sys.stdin.read(1)
print(bytes(memory[:5]).decode())
os.unlink("/dev/shm/{name}")
"""
    tells = f"""
import mmap, os, signal, sys
with open("/dev/shm/{name}", "r+b") as stream:
    memory = mmap.mmap(stream.fileno(), 4096)
assert memory[:4] == b"here"
memory[:5] = b"there"
os.kill(int(sys.argv[1]), signal.SIGUSR1)
"""
    script = lab.script("python", "-c", waits)
    with subprocess.Popen(["bash", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdout is not None
        pid = peer.stdout.readline().strip()
        try:
            lab.says(tells, pid)
            assert peer.stdout.readline() == "told\n"
            out, _ = peer.communicate("x", timeout=30)
        finally:
            peer.kill()
            Path("/dev/shm", name).unlink(missing_ok=True)
    assert out == "there\n"
