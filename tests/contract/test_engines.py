"""What every engine promises, tried on the real one: through the planner, the renderer and bash.

A new engine is tested by its line in the registry, in every way of `engine_lab.cases`. What becomes of
the image's own process is in test_engine_process.py, the machine around it in test_engine_surroundings.py.
"""

import os
import signal
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from engine_lab import Lab
from environments import BASE_PYTHON, Captured, make_environment, site_packages
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from processes import left_after

from bareboat.captures import capture
from bareboat.model import CaptureRequest, Mount
from bareboat_base.errors import ProgramError
from bareboat_images.layers import layer
from bareboat_images.store import Store


@pytest.fixture(scope="session")
def homely(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """A capture of an environment below the user's home, whose interpreter is reached by links there."""
    home = tmp_path_factory.mktemp("homely")
    for folder in ("tools/3.x/bin", "envs"):
        (home / folder).mkdir(parents=True)
    (home / "tools/3.x/bin/python3").symlink_to(BASE_PYTHON)
    (home / "tools/current").symlink_to("3.x")
    python = make_environment(home / "envs" / "a", base=home / "tools/current/bin/python3")
    store = Store(home / "store")
    (home / "data").mkdir()
    (home / "data" / "inner").mkdir()
    (home / "data" / "words").write_text("words")
    request = CaptureRequest(python=str(python), include=(str(home / "data"),))
    return Captured(home / "envs" / "a", store, capture(request, store)[0])


def tree_digests(captured: Captured) -> list[str]:
    return [layer.digest_tree(str(captured.store.layer(each.diff_id)))[0] for each in captured.image.layers]


# -- how it ends -------------------------------------------------------------------------------------


@pytest.mark.one_in(3)
@pytest.mark.parametrize("code", [0, 1, 7, 255])
def test_the_exit_code_is_the_command_s(lab: Lab, code: int) -> None:
    done = lab.run("sh", "-c", f"exit {code}")
    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_command_killed_by_a_signal_exits_as_in_a_shell(lab: Lab, number: int) -> None:
    assert lab.run("sh", "-c", f"kill -{number:d} $$").returncode == 128 + number


def test_a_missing_command_is_reported(lab: Lab) -> None:
    with pytest.raises(ProgramError, match="no-such-program") as caught:
        lab.run("no-such-program")
    assert caught.value.status == 127


_WAITS = """
import pathlib, signal, sys, time
def on_term(*_):
    time.sleep(0.3)
    import graphlib  # the image's files are there to the end
    pathlib.Path("said").write_text("goodbye")
    sys.exit(0)
signal.signal(signal.SIGTERM, on_term)
print("ready", flush=True)
while True:
    time.sleep(60)
"""


def test_sigterm_to_the_script_reaches_the_command(lab: Lab) -> None:
    """The command has the time to say goodbye."""
    script = lab.script("python", "-c", _WAITS, name="terminated")
    mark = f"terminated-{os.getpid()}-run"
    run = subprocess.Popen(["bash", str(script), mark], stdout=subprocess.PIPE)
    assert run.stdout is not None
    assert run.stdout.readline() == b"ready\n"
    run.send_signal(signal.SIGTERM)
    assert run.wait(timeout=30) == 0  # the command's own
    run.stdout.close()
    assert left_after(mark) == []
    assert (lab.workdir / "said").read_text() == "goodbye"


def test_no_process_and_no_file_is_left_after_many_starts(lab: Lab, pytestconfig: pytest.Config) -> None:
    def files() -> list[str]:
        top = lab.workdir.parent
        stored = lab.captured.store.root
        return sorted(map(str, [*top.rglob("*"), *stored.glob("*"), *stored.glob("tmp/*")]))

    lab.run("true")
    before = files()
    script = str(lab.script("sh", "-c", "echo x > /tmp/left-by-job-$$; exit 0")) if lab.contains else None
    script = script or str(lab.script("true"))
    mounts = Path("/proc/self/mounts").read_text()
    temporary = set(os.listdir("/tmp"))
    mark = f"many-starts-{os.getpid()}"
    for _ in range(50 if pytestconfig.getoption("--exhaustive") else 10):
        subprocess.run(["bash", script, mark], check=True, stdin=subprocess.DEVNULL)
    assert left_after(mark) == []
    assert files() == before
    assert Path("/proc/self/mounts").read_text() == mounts
    assert [name for name in set(os.listdir("/tmp")) - temporary if "left-by-job" in name] == []


# -- what goes in and out ----------------------------------------------------------------------------


def test_binary_data_passes_unchanged(lab: Lab) -> None:
    data = os.urandom(1 << 20)
    done = lab.run("cat", stdin=data)
    assert done.stdout == data
    assert (done.returncode, done.stderr) == (0, b"")


def test_stdout_and_stderr_are_separate(lab: Lab) -> None:
    done = lab.run("sh", "-c", "echo out; echo err >&2")
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")


_ECHO = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"


@given(st.lists(st.binary(max_size=20).map(lambda word: word.replace(b"\0", b"")), min_size=1, max_size=5))
@example([bytes(range(1, 256)), b"", b"$(id)", b"'", b'"', b"\\", b"a b", b"--", b"\n", b"*", b"${X:-y}"])
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_arguments_may_contain_any_byte(lab: Lab, words: list[bytes]) -> None:
    done = lab.python(_ECHO, *map(os.fsdecode, words))
    assert done.returncode == 0, done.stderr
    assert done.stdout == b"\0".join(words)


def test_values_of_environment_variables_may_contain_any_text(lab: Lab) -> None:
    values = ("", "a b", "$HOME", "'\"\\`id`", "ü\n x", "=", "-x")
    said = lab.says(
        "import os; print(ascii([os.environ[f'V{n}'] for n in range(7)]))",
        environment={f"V{n}": value for n, value in enumerate(values)},
    )
    assert said == ascii(list(values))


# -- what the command sees ---------------------------------------------------------------------------


def test_the_environment_is_exactly_the_documented_one(lab: Lab) -> None:
    """docs/job-file.md: the image's, the job's, and these; nothing of the caller's."""
    callers = (
        "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "VIRTUAL_ENV",
        "OMPI_MCA_x", "SLURM_JOB_ID", "X_SECRET", "TMPDIR", "HOME", "USER", "LANG", "LC_ALL",
        "APPTAINERENV_X", "APPTAINER_BIND", "SINGULARITYENV_X", "SINGULARITY_BINDPATH",
        "SHIFTER_VOLUME", "ENROOT_REMAP_ROOT",
    )  # fmt: skip
    leaks = dict.fromkeys(callers, "/nowhere")
    seen = lab.run("env", "-0", caller=leaks, environment={"MINE": "yes"})
    assert seen.returncode == 0, seen.stderr
    found = dict(word.split("=", 1) for word in seen.stdout.decode().split("\0") if word)
    assert found.pop("BAREBOAT_RUN").startswith("job-")
    promised = {
        **lab.image.environment,
        "HOME": lab.site.home,
        "USER": lab.site.user,
        "LOGNAME": lab.site.user,
        "LANG": "C.UTF-8",
        "PYTHONNOUSERSITE": "1",
        "MINE": "yes",
        **({"TZ": lab.site.timezone} if lab.site.timezone else {}),
        **({"BAREBOAT_IMAGE": lab.image.digest} if lab.contains else {}),
    }
    assert found.pop("PWD", str(lab.workdir)) == str(lab.workdir)  # bwrap sets it, env(1) does not
    assert found == promised


def test_user_and_working_directory_are_the_documented_ones(lab: Lab) -> None:
    program = """
import getpass, os, pathlib, pwd
print(getpass.getuser(), pwd.getpwuid(os.getuid()).pw_name, os.getuid(), os.getgid(), sep="\\n")
print(os.path.expanduser("~"), os.getcwd(), sep="\\n")
"""
    assert lab.says(program).split("\n") == [
        lab.site.user, lab.site.user, str(os.getuid()), str(os.getgid()), lab.site.home, str(lab.workdir),
    ]  # fmt: skip


def test_home_is_writable_and_not_the_host_s(lab: Lab) -> None:
    program = "import os; h = os.environ['HOME']; print(os.listdir(h)); open(h + '/new', 'w').write('x')"
    listed = lab.says(program)
    assert listed == ("[]" if lab.contains else "['secret']")
    assert (lab.home / "new").exists() != lab.contains


def test_the_image_s_files_in_the_home_are_visible_and_unchanged(
    lab: Lab, homely: Captured, tmp_path: Path
) -> None:
    """Miniconda in ~, ~/.pyenv, what uv keeps in ~/.local; and the job's own mounts go over it."""
    home = homely.folder.parents[1]
    at_home = replace(lab, captured=homely, site=msgspec.structs.replace(lab.site, home=str(home)))
    (tmp_path / "mounted").mkdir()
    (tmp_path / "mounted" / "mine").write_text("mine")
    program = """
import os, sys, ware
home = os.environ["HOME"]
print(os.path.relpath(sys.prefix, home), ware.NAME, os.path.exists(home + "/store/version"))
print(open(home + "/data/words").read(), os.listdir(home + "/data/inner"))
open(home + "/new", "w").close()
"""
    said = at_home.says(
        program, mounts=(Mount(source=str(tmp_path / "mounted"), target=f"{home}/data/inner"),)
    )
    assert said.split("\n") == [
        f"envs/a ware {not lab.contains}",
        f"words {['mine'] if lab.contains else []}",
    ]
    assert (home / "new").exists() != lab.contains
    (home / "new").unlink(missing_ok=True)
    assert tree_digests(homely) == [each.diff_id for each in homely.image.layers]


def test_a_store_in_the_home_is_not_visible(lab: Lab, homely: Captured) -> None:
    """Where it is, unless told otherwise."""
    home = homely.folder.parents[1]
    at_home = replace(lab, captured=homely, site=msgspec.structs.replace(lab.site, home=str(home)))
    said = at_home.says("import os; print(os.path.exists(os.environ['HOME'] + '/store'))")
    assert said == str(not lab.contains)


def test_files_outside_the_mounts_are_not_visible(lab: Lab) -> None:
    outside = [lab.home / "secret", lab.script("true"), lab.captured.store.root / "version"]
    assert all(path.exists() for path in outside)
    seen = lab.says(
        "import os, sys; print([p for p in sys.argv[1:] if os.path.exists(p)])", *map(str, outside)
    )
    assert seen == ("[]" if lab.contains else str(list(map(str, outside))))


def test_the_interpreter_is_the_captured_one_with_its_packages(lab: Lab) -> None:
    said = lab.says("import sys, ware; print(sys.executable, sys.prefix, ware.NAME)")
    assert said == f"{lab.captured.python} {lab.captured.folder} ware"


def test_the_shell_and_its_tools_are_available(lab: Lab) -> None:
    done = lab.run(
        "bash", "-c", "echo a b | sed s/a/c/ | awk '{print $2, $1}' | grep -c b; date; tar --version"
    )
    assert done.stdout.startswith(b"1\n")
    assert (done.returncode, done.stderr) == (0, b"")


# -- mounts ------------------------------------------------------------------------------------------


def test_writes_to_the_working_directory_persist(lab: Lab) -> None:
    lab.says("open('made', 'w').write('x')")
    made = lab.workdir / "made"
    assert made.read_text() == "x"
    assert (made.stat().st_uid, made.stat().st_gid) == (os.getuid(), os.getgid())


def test_mounts_may_be_read_only_writable_nested_or_single_files(lab: Lab, tmp_path: Path) -> None:
    if not lab.contains:
        return  # bare metal has no mounts
    for folder in ("ro", "rw", "ro/inner", "b c", "late"):
        (tmp_path / folder).mkdir(exist_ok=True)
    for name in ("ro/x", "rw/x", "b c/x", "alone", "late/x", "ro/inner/hidden"):
        (tmp_path / name).write_text(name)
    program = """
import errno, os
def tried(path):
    try:
        open(path, "a").close()
        return "written"
    except OSError as error:  # where the mount is not read-only, the kernel forbids it: Landlock
        return "refused" if error.errno in (errno.EROFS, errno.EACCES) else error.strerror
print(open("/data/ro/x").read(), tried("/data/ro/new"), tried("/data/ro/x"))
print(open("/data/rw/x").read(), tried("/data/rw/new"))
print(sorted(os.listdir("/data/ro/inner")), tried("/data/ro/inner/new"))
print(open("/etc/alone").read(), tried("/etc/alone"))
"""
    mounts = (
        Mount(source=str(tmp_path / "b c"), target="/data/ro/inner", writable=True),
        Mount(source=str(tmp_path / "ro"), target="/data/ro"),
        Mount(source=str(tmp_path / "rw"), target="/data/rw", writable=True),
        Mount(source=str(tmp_path / "alone"), target="/etc/alone"),
    )
    assert lab.says(program, mounts=mounts).split("\n") == [
        "ro/x refused refused",
        "rw/x written",
        "['x'] written",
        "alone refused",
    ]
    assert (tmp_path / "rw" / "new").exists()
    assert (tmp_path / "b c" / "new").exists()
    assert not (tmp_path / "ro" / "new").exists()


def test_writes_elsewhere_are_discarded_and_the_layers_unchanged(lab: Lab) -> None:
    if not lab.contains:
        return
    before = tree_digests(lab.captured)
    assert before == [each.diff_id for each in lab.image.layers]
    python_library = os.path.dirname(os.__file__)
    program = """
import errno, os, sys
for path in sys.argv[1:]:
    try:
        with open(path, "a") as stream:
            stream.write("changed")
        print("written")
    except OSError as error:
        print("refused" if error.errno in (errno.EROFS, errno.EACCES) else error.strerror)
    try:
        os.unlink(path)
    except OSError:
        pass
"""
    inside = f"{lab.captured.folder}/lib"
    ware = str(site_packages(lab.captured.folder) / "ware" / "part.py")
    paths = ["/tmp/x", "/var/tmp/x", f"{lab.site.home}/x", "/etc/hostname-of-mine", ware, f"{inside}/x"]
    said = lab.says(program, *paths, f"{python_library}/x").split("\n")
    assert said[:3] == ["written"] * 3, "programs write there although nobody told them to"
    assert set(said[3:]) == {"written" if lab.case.writable else "refused"}
    assert lab.says("import os, sys; print([os.path.lexists(p) for p in sys.argv[1:]])", *paths) == str(
        [False, False, False, False, True, False]
    )
    assert tree_digests(lab.captured) == before
    assert Path(ware).read_text() == "NAME = 'ware'\n"


def test_the_project_s_own_venv_is_the_image_s_not_the_host_s(lab: Lab) -> None:
    """The usual `.venv` in the project: the working folder's mount would put the host's copy in place."""
    project = lab.captured.folder.parent
    changed = site_packages(lab.captured.folder) / "ware" / "part.py"
    original, times = changed.read_bytes(), changed.stat()
    (project / "train.py").write_text("import ware; print(ware.NAME)\n")
    try:
        changed.write_text("NAME = 'changed after the capture'\n")
        done = lab.run("python", "-B", "train.py", workdir=str(project))
    finally:
        changed.write_bytes(original)
        os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert done.stdout == (b"ware\n" if lab.contains else b"changed after the capture\n"), done.stderr


# -- what ranks share --------------------------------------------------------------------------------


def test_shared_memory_is_shared_with_the_host(lab: Lab) -> None:
    name = f"bareboat-test-{os.getpid()}-{time.monotonic_ns()}"
    path = Path("/dev/shm", name)
    path.write_bytes(b"host " + bytes(11))
    try:
        lab.says(f"""
from multiprocessing import resource_tracker, shared_memory
resource_tracker.register = lambda *_: None
memory = shared_memory.SharedMemory({name!r})
assert bytes(memory.buf[:5]) == b"host "
memory.buf[5:9] = b"rank"
memory.close()
""")
        assert path.read_bytes()[:9] == b"host rank"
    finally:
        path.unlink()


def test_loopback_is_the_host_s(lab: Lab) -> None:
    program = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=10) as peer:
    peer.sendall(b"rank")
with socket.create_server(("localhost", 0)):
    pass
"""
    with socket.create_server(("127.0.0.1", 0)) as server:
        lab.says(program, str(server.getsockname()[1]))
        server.settimeout(10)
        peer, _ = server.accept()
        with peer:
            assert peer.recv(16) == b"rank"


def test_ranks_see_each_other_s_processes(lab: Lab) -> None:
    """Gloo, MPI and NCCL look at /proc/PID of their neighbours."""
    assert lab.says(f"import os; print(os.path.exists('/proc/{os.getpid()}/status'))") == "True"
