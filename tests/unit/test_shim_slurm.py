"""The shims of srun, sbatch and salloc: command lines, scripts and settings."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from tools import executable, output

from bareboat.cli.main import main as bareboat
from bareboat.model import Mount
from bareboat_shim import (
    pyxis,
    pyxis_mounts,
    pyxis_names,
    pyxis_script,
    pyxis_settings,
    pyxis_task,
    shims,
    slurm_options,
)
from bareboat_shim.pyxis_settings import NAMES, Settings
from bareboat_shim.pyxis_table import TABLE
from bareboat_shim.table import Mistake

#: Of the help of Slurm 22.05's srun and sbatch.
HELP = """\
Usage: srun [OPTIONS(0)... [executable(0) [args(0)...]]]

Parallel run options:
  -B  --extra-node-info=S[:C[:T]]  combine request of sockets per node
      --bcast=<dest_path>     Copy executable file to compute nodes
      --container             Path to OCI container bundle
  -I, --immediate[=secs]      exit if resources not available in "secs"
  -J, --job-name=jobname      name of job
  -l, --label                 prepend task number to lines of stdout/err
      --multi-prog            if set the program name specified is the
  -n, --ntasks=ntasks         number of tasks to run
      --ntasks-per-node=n     number of tasks to invoke on each node
  -N, --nodes=N               number of nodes on which to run (N = min[-max])
      --cpu-bind=             Bind tasks to CPUs
      --wrap[=command string] wrap command string in a sh script and submit
"""
OPTIONS = {**dict(slurm_options._listed(HELP)), **slurm_options._UNLISTED}
IMAGE = ("--container-image", "debian:12")


def words(*line: str) -> slurm_options.Words:
    return slurm_options.read(line, OPTIONS, NAMES)


def settings(*flags: tuple[str, str], **environment: str) -> Settings:
    return pyxis_settings.read([flags], environment)


def test_the_help_says_which_options_take_a_value() -> None:
    found = words(
        "-lN2", "-n", "4", "-I", "-B", "1", "--ntasks-per-n", "2", "--cpu-bind", "none", "ls", "-n", "1"
    )
    assert found.options == ["-lN2", "-n", "4", "-I", "-B", "1", "--ntasks-per-n", "2", "--cpu-bind", "none"]
    assert found.rest == ("ls", "-n", "1")
    assert words("--container", "bundle", "true").rest == ("true",), "Slurm's help lists it without a value"
    assert words("--wrap", "a b").value("--wrap") == "a b"
    assert words("--wrap=a b").value("--wrap") == "a b"


def test_flags_of_the_shim_end_at_the_command() -> None:
    found = words("-N1", "--container-image", "a", "--container-writable", "--", "ls", "--container-name=b")
    assert found.flags == (("--container-image", "a"), ("--container-writable", ""))
    assert found.options == ["-N1"]
    assert found.rest == ("ls", "--container-name=b")


@pytest.mark.parametrize(
    "line",
    [
        ("--container-foo=1", "true"), ("--no-container-foo", "true"), ("--container-image",),
        ("--container-writable=yes", "true"), ("--of-a-newer-version", "value", "true"), ("-n",),
    ],
)  # fmt: skip
def test_what_cannot_be_read_for_sure_is_refused(line: tuple[str, ...]) -> None:
    with pytest.raises(Mistake) as caught:
        words(*line)
    assert caught.value.remedy


def test_an_unlisted_option_with_its_value_is_passed_on() -> None:
    assert words("--of-a-newer-version=value", "true").options == ["--of-a-newer-version=value"]


@pytest.mark.parametrize(
    "flags",
    [
        [("--container-image", "")], [("--container-workdir", "/")],
        [IMAGE, ("--container-image", "debian:11")], [IMAGE, ("--container-workdir", "")],
        *([IMAGE, ("--container-mounts", text)] for text in (
            "", ":", "/tmp:", "/tmp:mnt:ro", "/home:../home", "devpts:/x:ro", "/tmp:/mnt:unbindable+ro",
            "tmpfs:/x:huge=within_size")),
        [IMAGE, ("--container-readonly", ""), ("--container-writable", "")],
        [IMAGE, ("--container-remap-root", ""), ("--no-container-remap-root", "")],
        [IMAGE, ("--container-env", "")], [IMAGE, ("--container-env", "FOO,")],
        [IMAGE, ("--container-unshare", "net,foo")], *([("--container-name", text)] for text in (
            "", ":exec", "a/b", "a:other")),
        [("--container-name", "a"), ("--container-name", "b")], [("--container-save", "file.sqsh")],
        [IMAGE, ("--container-save", "directory/")], [("--environment", "pytorch")],
    ],
)  # fmt: skip
def test_invalid_flags_are_refused(flags: list[tuple[str, str]]) -> None:
    with pytest.raises(Mistake):
        settings(*flags)


def test_the_command_line_comes_before_a_script_and_both_before_variables() -> None:
    assert settings(PYXIS_CONTAINER_IMAGE="a").image == "a"
    assert not settings(PYXIS_CONTAINER_MOUNTS="/a", ENROOT_NONSENSE="1").is_given
    found = settings(
        IMAGE, ("--container-mounts", "/a:/b"), ("--container-readonly", ""),
        PYXIS_CONTAINER_IMAGE="other", PYXIS_CONTAINER_MOUNTS="/c", PYXIS_CONTAINER_WORKDIR="../",
        PYXIS_CONTAINER_WRITABLE="1", PYXIS_CONTAINER_ENTRYPOINT="0", PYXIS_CONTAINER_MOUNT_HOME="1",
        PYXIS_CONTAINER_ENV="A,B",
    )  # fmt: skip
    assert found == Settings(
        "debian:12", ("/a:/b",), "/", ("A", "B"), mount_home=True, writable=False, entrypoint=False
    )
    script = [("--container-image", "of-script"), ("--container-writable", "")]
    found = pyxis_settings.read([[IMAGE, ("--container-readonly", "")], script], {})
    assert (found.image, found.writable) == ("debian:12", False)


def test_names_have_flags_and_need_no_image() -> None:
    found = settings(("--container-name", "a.b-c:no_exec"), ("--container-save", "x.sqsh"))
    assert (found.image, found.name, found.name_flag, found.save) == (None, "a.b-c", "no_exec", "x.sqsh")
    assert found.is_given
    assert settings(PYXIS_CONTAINER_NAME="a", PYXIS_CONTAINER_SAVE="x").name_flag == "auto"


def test_tasks_of_a_node_are_counted() -> None:
    counts = "2(x3),1"
    for node, expected in enumerate((2, 2, 2, 1)):
        outside = {"SLURM_STEP_TASKS_PER_NODE": counts, "SLURM_NODEID": str(node)}
        assert pyxis_names._tasks(outside) == expected


def test_variables_of_enroot_apply_or_are_refused() -> None:
    found = settings(IMAGE, ENROOT_MOUNT_HOME="y", ENROOT_ROOTFS_WRITABLE="n", ENROOT_CACHE_PATH="/x")
    assert (found.mount_home, found.writable) == (True, False)
    assert not settings(IMAGE, ("--no-container-mount-home", ""), ENROOT_MOUNT_HOME="y").mount_home
    for environment in ({"ENROOT_NONSENSE": "1"}, {"ENROOT_MOUNT_HOME": "maybe"}):
        with pytest.raises(Mistake, match=next(iter(environment))):
            settings(IMAGE, **environment)


def test_mounts_have_sources_targets_and_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my data").mkdir()
    monkeypatch.chdir(tmp_path)
    specs = pyxis_mounts.parse(
        f"{tmp_path}/my data:/m n:ro+rprivate,./:/here,/usr,tmpfs:/t,umount:/home/eve,/dev"
    )
    home = Mount(source="/root", target="/home/eve", writable=True)
    shown = pyxis_mounts.shown(specs, home=home, needed=())
    assert {each.target: (each.source, each.writable) for each in shown.mounts} == {
        "/m n": (f"{tmp_path}/my data", False), "/here": (str(tmp_path), True), "/usr": ("/usr", True),
    }  # fmt: skip
    assert shown.empty == ("/t",)
    for text in ("/no/such/path:/x", "umount:/x", "/dev/null:/null"):
        with pytest.raises(Mistake):
            pyxis_mounts.shown(pyxis_mounts.parse(text), home=None, needed=())


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("ubuntu:24.04", "docker://ubuntu:24.04"),
        ("docker.io#ubuntu", "docker://docker.io/ubuntu"),
        ("me@nvcr.io#nvidia/pytorch:1", "docker://nvcr.io/nvidia/pytorch:1"),
        ("docker://nvcr.io#a/b", "docker://nvcr.io/a/b"),
    ],
)
def test_references_have_enroots_form(text: str, name: str) -> None:
    assert pyxis.reference(text) == name


@pytest.mark.parametrize("text", ["./", "/dev/urandom", "./none.sqsh", "dockerd://a", "file.sqsh"])
def test_what_is_no_image_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file.sqsh").touch()
    with pytest.raises(Mistake):
        pyxis.reference(text)


SCRIPT = """\
#!/bin/bash -l
# a comment
#SBATCH --container-image nvcr.io\\#a/b:1 -N2   # ignored: --container-name=x
#SBATCH -J 'my job' --container-mounts=/a:/b

#SBATCH --ntasks=3
srun true
#SBATCH --container-name=late
"""


def test_directives_of_a_script_are_read_up_to_its_first_command() -> None:
    script = pyxis_script.read(SCRIPT, OPTIONS, NAMES)
    assert script.flags == (("--container-image", "nvcr.io#a/b:1"), ("--container-mounts", "/a:/b"))
    assert script.lines == ("#SBATCH -N2", "#SBATCH -J 'my job'", "#SBATCH --ntasks=3")
    assert "-J" in script.names


def test_slurm_gets_the_directives_and_the_container_the_script(tmp_path: Path) -> None:
    script = pyxis_script.read(SCRIPT, OPTIONS, NAMES)
    written = tmp_path / "written"
    written.write_text(pyxis_script.composed(script, ["printf", "%s|", "it's"]))
    assert output("sh", written, "one", "two words") == f"it's|{written}|one|two words|"
    assert pyxis_script.extracted(str(written)) == SCRIPT
    again = pyxis_script.read(written.read_text(), OPTIONS, NAMES)
    assert (again.lines, again.flags) == (script.lines, ())
    assert pyxis_script.interpreter(SCRIPT, "/s") == ("/bin/bash", "-l", "/s")
    with pytest.raises(Mistake, match="batch script"):
        pyxis_script.interpreter("echo", "/s")
    with pytest.raises(Mistake, match="line 2: a quote is not closed"):
        pyxis_script.read("#!/bin/sh\n#SBATCH --container-image='a\n", OPTIONS, NAMES)


def test_the_image_s_variables_have_priority_over_the_shell_s() -> None:
    outside = {
        "A": "outside", "B": "outside", "PATH": "/outside", "LANG": "de_DE", "HOME": "/outside",
        "PMIX_GDS_MODULE": "hash", "PYTORCH_VERSION": "2", "SLURM_PROCID": "3", "SLURM_LOCALID": "1",
        "SLURM_NTASKS": "4", "SLURM_STEP_NODELIST": "node-[03-04,7]", "SLURM_JOB_ID": "7",
    }  # fmt: skip
    found = pyxis_task.environment(["B"], outside, {"A": "image", "B": "image"}, home="/home/eve")
    expected = {
        "A": "image", "B": "outside", "PATH": pyxis_task._PATH, "LANG": "C.UTF-8", "HOME": "/home/eve",
        "PMIX_MCA_gds": "hash", "RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4",
        "MASTER_ADDR": "node-03", "MASTER_PORT": "49159",
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory `bin` with Slurm's programs, which print their arguments, and shims beside it."""
    (tmp_path / "bin").mkdir()
    for name in TABLE.names:
        program(tmp_path / "bin" / name, HELP)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    return tmp_path


def program(path: Path, text: str) -> None:
    executable(
        path,
        f"#!/bin/sh\nif [ \"$1\" = --help ]; then cat <<'X'\n{text}X\nexit; fi\n"
        'printf "%s|" "$@"; [ -t 0 ] || cat\n',
    )


def run(place: Path, tool: str, *line: str, stdin: str = "", environment: Mapping[str, str] | None = None):
    path = {"PATH": f"{place}/shims:{place}/bin:/usr/bin:/bin", "BAREBOAT_STORE": str(place / "store")}
    done = subprocess.run(
        [place / "shims" / tool, *line], env={**path, **(environment or {})}, cwd=place, input=stdin,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_lines_without_flags_are_passed_on_untouched(slurm: Path) -> None:
    assert bareboat(["shim", "--into", str(slurm / "shims"), "--tools", "srun,sbatch,salloc"]) == 0
    assert sorted(os.listdir(slurm / "shims")) == ["salloc", "sbatch", "srun"]
    line = ("-N", "2", "x", "--container-image=a")
    assert run(slurm, "srun", *line) == (0, "-N|2|x|--container-image=a|", "")
    script = "#!/bin/sh\n#SBATCH -N1\necho\n"
    assert run(slurm, "sbatch", stdin=script) == (0, f"|{script}", "")
    for tool, words, stdin, named in (
        ("srun", ("--container-image=./none", "true"), "", "./none"),
        ("srun", ("--container-writable", "true"), "", "--container-image"),
        ("sbatch", (), "#!/bin/sh\n#SBATCH --container-image=./none\n", "./none"),
    ):
        code, _, said = run(slurm, tool, *words, stdin=stdin)
        assert (code, said.startswith(f"{tool}: error: "), named in said) == (1, True, True)
    assert run(slurm, "srun", "true", environment={shims.INSIDE: "srun"})[0] == 1


def test_pyxis_itself_has_priority_unless_the_shim_is_forced(slurm: Path) -> None:
    program(slurm / "bin/srun", f"{HELP}      --container-image=IMAGE   [pyxis]\n")
    line = ("--container-image=./none", "true")
    shims.write(slurm / "shims", ["srun"], force=False, dry_run=False)
    assert run(slurm, "srun", *line) == (0, "--container-image=./none|true|", "")
    shims.write(slurm / "shims", ["srun"], force=True, dry_run=False)
    assert run(slurm, "srun", *line)[0] == 1


@pytest.mark.parametrize("line", [("--multi-prog", "file"), ("--bcast", "x", "a"), ("a", ":", "b"), ()])
def test_steps_that_choose_their_own_programs_are_refused(line: tuple[str, ...]) -> None:
    with pytest.raises(Mistake):
        pyxis._check_step(words(*line))


def test_salloc_gives_its_flags_to_the_steps() -> None:
    found = settings(IMAGE, ("--container-mounts", "/a:/b"), ("--container-readonly", ""))
    variables = pyxis._for_steps(found, {"PYXIS_CONTAINER_IMAGE": "old", "A": "1"})
    assert variables["A"] == "1"
    assert pyxis_settings.read([[]], variables) == found


def test_a_shim_is_written_only_where_slurm_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bareboat(["shim", "--into", str(tmp_path / "shims"), "--tools", "srun", "--force"]) == 0
    assert "srun is not installed" in capsys.readouterr().err
    assert not (tmp_path / "shims").exists()
