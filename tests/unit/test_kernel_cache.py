"""Compiled GPU kernels, kept between runs: which jobs do so, and the script's functions."""

import os
import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from builders import make_driver, make_image, make_job, make_rootfs, make_site
from tools import output

from bareboat import render
from bareboat.model import ForwardEnv, Job, Plan, Topology
from bareboat.plan import plan
from bareboat.plan.kernel_cache import of_study
from bareboat.render import library
from bareboat_study import allocation

_GPU = Topology(gpus_per_rank=1)
_VARIABLES = ("CUDA_CACHE_PATH", "TRITON_CACHE_DIR")


def planned(job: Job, **image: object) -> Plan:
    made = make_image(frameworks={"numpy": "2.1.0"}, **image)
    site = make_site(gpus=("/dev/nvidia0",), gpu_drivers=(make_driver(),))
    return plan(job, made, make_rootfs(made), site)


def gpu_job(**changes: object) -> Job:
    return make_job(**{"topology": _GPU, "command": ("python", "x.py"), **changes})


def decided(made: Plan) -> str | None:
    return next((each.choice for each in made.decisions if each.subject == "kernel cache"), None)


def test_a_job_with_gpus_keeps_its_kernels_for_its_project_and_image() -> None:
    made = planned(gpu_job())
    assert isinstance(made.kernel_cache, msgspec.Struct)
    digest = str(made.image_digest).removeprefix("sha256:")
    assert made.kernel_cache.key.startswith(f"{digest}/")
    assert decided(made) == (
        f"compiled GPU kernels are kept between runs, in {made.kernel_cache.folder}/{made.kernel_cache.key}"
    )
    passed = {name for word in made.command.argv if isinstance(word, ForwardEnv) for name in word.names}
    assert passed >= set(made.kernel_cache.variables)
    script = render.script(made)
    assert '${BAREBOAT_KERNELS:+--bind "$BAREBOAT_KERNELS" /run/bareboat/BAREBOAT_KERNELS}' in script
    assert "kernel_place=/run/bareboat/BAREBOAT_KERNELS" in script
    other = planned(gpu_job(workdir="/project/other"))
    assert isinstance(other.kernel_cache, msgspec.Struct)
    assert other.kernel_cache.key != made.kernel_cache.key


def test_a_job_without_gpus_is_unchanged() -> None:
    made = planned(make_job())
    assert made.kernel_cache is msgspec.UNSET
    assert decided(made) is None
    assert not {"BAREBOAT_KERNELS", "kernel_variables"} & set(re.findall(r"\w+", render.script(made)))


def test_the_key_turns_it_off() -> None:
    made = planned(gpu_job(kernel_cache=False))
    assert (made.kernel_cache, decided(made)) == (msgspec.UNSET, "none")
    assert "BAREBOAT_KERNELS" not in render.script(made)


def test_variables_of_the_job_and_the_image_win() -> None:
    made = planned(
        gpu_job(environment={"CUDA_CACHE_PATH": "/mine", "CUDA_CACHE_MAXSIZE": "1"}),
        environment={"TRITON_CACHE_DIR": "/theirs"},
    )
    assert isinstance(made.kernel_cache, msgspec.Struct)
    assert not {"CUDA_CACHE_PATH", "TRITON_CACHE_DIR"} & set(made.kernel_cache.variables)
    assert "JAX_COMPILATION_CACHE_DIR" in made.kernel_cache.variables
    assert "CUDA_CACHE_MAXSIZE 1 " in render.script(made)


def test_bare_metal_keeps_none_outside_of_a_study() -> None:
    """There the user's own are used; in a study both arms have one of the study, empty when it begins."""
    bare = planned(gpu_job(engine="native"))
    assert isinstance(bare.kernel_cache, msgspec.Struct)
    assert (bare.kernel_cache.key, decided(bare)) == ("", None)
    assert "kernel_cache=''" in render.script(bare)
    for made in (bare, planned(gpu_job())):
        for script in (
            render.script(of_study(made, "x-1.0-0")),
            allocation.arm_script(made, "x-1.0", 0),
        ):
            assert "kernel_cache=/scratch/ada/bareboat/kernel-caches/studies/x-1.0-0" in script


# -- the script's functions ------------------------------------------------------------------------


def part(
    top: Path,
    command: str,
    *,
    code: int = 0,
    limit: int = 1 << 20,
    node: int = 0,
    place: str = "",
    **env: str,
) -> subprocess.CompletedProcess[str]:
    """One part of a job script, whose command writes to its caches."""
    subjects = "".join(map(library.subject, ("common", "private", "kernel_cache")))
    script = f"""{subjects}
exit_commands= HERE=' on n{node}' what=job BAREBOAT_HOST=n{node} BAREBOAT_NODE={node} kernel_place={place}
kernel_cache={top}/own/HEX/KEY kernel_variables=({" ".join(_VARIABLES)}) kernel_limit_bytes={limit}
use_kernels
{command}
code={code}
exit {code}
"""
    (top / "tmp").mkdir(exist_ok=True)
    return subprocess.run(
        ["bash", "-u", "-c", script], capture_output=True, text=True, timeout=20, check=False,
        env={"PATH": os.environ["PATH"], "TMPDIR": f"{top}/tmp", **env},
    )  # fmt: skip


def archives(top: Path) -> list[Path]:
    return sorted((top / "own").glob("*/*/*"))


def kept(top: Path) -> list[str]:
    (archive,) = archives(top)
    return sorted(output("tar", "-tf", archive).split())


_COMPILE = 'mkdir -p "$TRITON_CACHE_DIR/ab" && echo code > "$TRITON_CACHE_DIR/ab/kernel.cubin"'
_LIST = '(cd "$TRITON_CACHE_DIR/.." && find . -type f | sort)'


def test_the_next_run_finds_what_was_compiled(tmp_path: Path) -> None:
    done = part(tmp_path, _COMPILE)
    assert (done.returncode, done.stderr) == (0, "")
    assert kept(tmp_path) == ["TRITON_CACHE_DIR/ab/kernel.cubin"]
    (archive,) = archives(tmp_path)
    assert archive.stat().st_mode & 0o077 == 0
    assert archive.parent.stat().st_mode & 0o077 == 0
    before = archive.stat().st_ino
    again = part(tmp_path, _LIST)
    assert again.stdout == "./TRITON_CACHE_DIR/ab/kernel.cubin\n"
    assert archive.stat().st_ino == before  # nothing new, nothing written
    assert not list((tmp_path / "tmp").iterdir())


def test_the_caller_s_variables_do_not_reach_the_command(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("no directory")
    done = part(tmp_path, 'echo "${CUDA_CACHE_PATH-unset} ${BAREBOAT_KERNELS-unset}"', CUDA_CACHE_PATH="/x")
    assert (done.stdout, done.returncode) == ("unset unset\n", 0)


def test_nodes_of_a_job_add_to_one_archive(tmp_path: Path) -> None:
    """The second began before the first ended, and has kernels of its own; one write for equal ones."""
    inner = 'mkdir -p "$CUDA_CACHE_PATH/%s" && echo code > "$CUDA_CACHE_PATH/%s/x"'
    go = f"until [ -e {tmp_path}/go ]; do sleep 0.02; done; "
    with ThreadPoolExecutor() as pool:
        second = pool.submit(part, tmp_path, go + inner % ("b", "b"), node=1)
        first = part(tmp_path, inner % ("a", "a"))
        (tmp_path / "go").touch()
        assert (first.returncode, second.result().returncode, first.stderr) == (0, 0, "")
    assert kept(tmp_path) == ["CUDA_CACHE_PATH/a/x", "CUDA_CACHE_PATH/b/x"]


def test_a_directory_or_an_archive_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    assert part(tmp_path, _COMPILE).returncode == 0
    (archive,) = archives(tmp_path)
    archive.parent.chmod(0o770)
    done = part(tmp_path, 'echo "${TRITON_CACHE_DIR-unset}"')
    assert (done.returncode, done.stdout) == (0, "unset\n")
    archive.parent.chmod(0o700)
    archive.rename(tmp_path / "elsewhere")
    archive.symlink_to(tmp_path / "elsewhere")
    assert part(tmp_path, _LIST).stdout == ""
    assert part(tmp_path, _COMPILE).returncode == 0
    assert not archive.is_symlink()


def test_a_damaged_archive_is_replaced(tmp_path: Path) -> None:
    assert part(tmp_path, _COMPILE).returncode == 0
    (archive,) = archives(tmp_path)
    archive.write_bytes(b"no tar" * 1000)
    done = part(tmp_path, f"{_LIST}; {_COMPILE}")
    assert (done.stdout, done.stderr) == ("", "")
    assert kept(tmp_path) == ["TRITON_CACHE_DIR/ab/kernel.cubin"]


def test_links_that_a_container_wrote_are_not_kept(tmp_path: Path) -> None:
    done = part(tmp_path, f'{_COMPILE}; ln -s /etc/passwd "$CUDA_CACHE_PATH/x"; mkfifo "$CUDA_CACHE_PATH/y"')
    assert done.stderr == ""
    assert kept(tmp_path) == ["TRITON_CACHE_DIR/ab/kernel.cubin"]


@pytest.mark.parametrize("linked", ["CUDA_CACHE_PATH", "CUDA_CACHE_PATH/.ssh"])
def test_a_link_in_place_of_a_directory_leads_nowhere(linked: str, tmp_path: Path) -> None:
    """One job leaves a file, the next one a link where the file's directory was."""
    home = tmp_path / "home"
    shown = home / ".ssh" if linked.endswith(".ssh") else home
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "secret").write_text("of the user")
    key = 'mkdir -p "$CUDA_CACHE_PATH/.ssh" && echo mine > "$CUDA_CACHE_PATH/.ssh/authorized_keys"'
    assert part(tmp_path, key).returncode == 0
    link = f'rm -rf "$BAREBOAT_KERNELS/{linked}"; ln -s {shown} "$BAREBOAT_KERNELS/{linked}"'
    for _ in range(2):
        done = part(tmp_path, f"{link}; {_COMPILE}")
        assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in home.rglob("*")] == [".ssh", "secret"]
    assert kept(tmp_path) == ["CUDA_CACHE_PATH/.ssh/authorized_keys", "TRITON_CACHE_DIR/ab/kernel.cubin"]
    done = part(tmp_path, 'find "$BAREBOAT_KERNELS" -type l; rm -rf "$BAREBOAT_KERNELS"; echo here')
    assert (done.returncode, done.stdout) == (0, "here\n")


def test_names_like_options_are_names(tmp_path: Path) -> None:
    names = "'--to-command=touch ran' --remove-files $'a\\nb' $'9 -C\\n.'"
    done = part(tmp_path, f'cd "$BAREBOAT_KERNELS" && touch -- {names}; {_COMPILE}')
    assert (done.returncode, done.stderr) == (0, "")
    assert part(tmp_path, _LIST).stdout.count("\n") == 7


@pytest.mark.parametrize(
    "fill",
    [
        'kernel_limit_files=20; for i in {1..20}; do : > "$CUDA_CACHE_PATH/$i"; done',
        'kernel_limit_bytes=50000; head -c 100000 /dev/zero > "$CUDA_CACHE_PATH/x"',
    ],
)
def test_a_cache_over_a_limit_begins_again(fill: str, tmp_path: Path) -> None:
    assert part(tmp_path, _COMPILE).returncode == 0
    assert part(tmp_path, fill).returncode == 0
    assert not archives(tmp_path)


def test_an_archive_over_the_limit_is_not_unpacked(tmp_path: Path) -> None:
    assert part(tmp_path, _COMPILE).returncode == 0
    assert part(tmp_path, _LIST, limit=1000).stdout == ""


def test_the_archive_used_longest_ago_goes_first(tmp_path: Path) -> None:
    for name, age_s in (("old", 200), ("newer", 100)):
        other = tmp_path / "own" / "OTHER" / name / "n.tar"
        other.parent.mkdir(parents=True)
        other.write_bytes(bytes(30_000))
        os.utime(other, (time.time() - age_s,) * 2)
    assert part(tmp_path, _COMPILE, limit=60_000).returncode == 0
    assert {path.parent.name for path in archives(tmp_path)} == {"newer", "KEY"}


def test_a_full_store_does_not_fail_the_job(tmp_path: Path) -> None:
    done = part(tmp_path, f"{_COMPILE}; ulimit -f 0; trap '' XFSZ")
    assert done.returncode == 0
    assert not archives(tmp_path)
    assert not list((tmp_path / "tmp").iterdir())


def test_a_failed_command_s_last_files_are_not_kept(tmp_path: Path) -> None:
    """They may be incomplete."""
    old = 'touch -d "1 minute ago" "$TRITON_CACHE_DIR/ab/kernel.cubin"; echo x > "$CUDA_CACHE_PATH/x"'
    assert part(tmp_path, f"{_COMPILE}; {old}", code=1).returncode == 1
    assert kept(tmp_path) == ["TRITON_CACHE_DIR/ab/kernel.cubin"]


def test_what_a_killed_part_left_is_removed_by_a_later_one(tmp_path: Path) -> None:
    """Not by one that starts at the same time: it may belong to a part that has not locked it yet."""
    part(tmp_path, f"{_COMPILE}; kill -9 $$")
    (left,) = (tmp_path / "tmp").iterdir()
    assert part(tmp_path, _LIST).stdout == ""
    assert left.exists()
    os.utime(left, (time.time() - 100,) * 2)
    assert part(tmp_path, _LIST).stdout == ""
    assert not left.exists()


@pytest.mark.parametrize("age_s", [0, 3600])
def test_a_part_that_is_writing_is_not_waited_for(age_s: int, tmp_path: Path) -> None:
    assert part(tmp_path, "true").returncode == 0
    assert part(tmp_path, _COMPILE).returncode == 0
    (archive,) = archives(tmp_path)
    lock = archive.with_name(archive.name + ".lock")
    lock.mkdir()
    os.utime(lock, (time.time() - age_s,) * 2)
    archive.unlink()
    assert part(tmp_path, _COMPILE).returncode == 0
    assert lock.exists() == (age_s == 0)
    assert not archive.exists()
