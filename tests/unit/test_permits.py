"""What a node permits: the trials run for real here, and what is said of each answer that a node may give.

That the kernel's real refusals give these answers is tests/hostile/test_hostile_sites.py.
"""

import errno
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from builders import make_image, make_job, make_site
from msgspec import UnsetType
from tools import output

from bareboat import registry
from bareboat.engines import PROGRAMS_IN_STORE, USER_NAMESPACES, Container, Enclosure
from bareboat.model import (
    CaptureRequest,
    Check,
    CodeFacts,
    Command,
    EngineFacts,
    FileSystem,
    Mount,
    Outcome,
    Refusal,
    Topology,
)
from bareboat.plan import plan
from bareboat.plan.warnings import compiler_missing, site_warnings, unseen
from bareboat.probe import permits, permits_trial
from bareboat.probe.host import RealHost
from bareboat.probe.permits import Answer
from bareboat_base.errors import PlanError, ToolError

OK = Answer()


def reads(**files: str) -> Callable[[str], str]:
    """A kernel whose small files say this; keys are the ends of their paths, and a process has a root."""
    content = {"mountinfo": "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n", **files}
    return lambda path: content.get(path.rpartition("/")[2], "")


# -- the trials themselves -----------------------------------------------------------------------------


def test_every_trial_gives_an_answer(tmp_path: Path) -> None:
    host = RealHost(tmp_path)
    answers = host.trials.answers()
    assert set(answers) == {
        "user namespace", "overlay", "overlay on tmpfs", "start",
    }  # fmt: skip
    assert not [name for name in os.listdir("/tmp") if name.startswith("bareboat-probe-")]


def test_a_trial_that_hangs_is_unknown_and_the_others_answers_stay(tmp_path: Path) -> None:
    text = inspect.getsource(permits_trial)
    text = text.replace("_TIME_LIMIT_S = 5", "_TIME_LIMIT_S = 0.5")
    text = text.replace("def _overlay(folder", "def _overlay(_): time.sleep(60)\n\ndef _replaced(folder")
    answers = permits.parse(output(sys.executable, "-I", "-S", "-c", text, tmp_path, timeout=20))
    assert [name for name, answer in answers.items() if not answer.is_known] == [
        "overlay", "overlay on tmpfs",
    ]  # fmt: skip
    assert answers["start"].ok
    check = permits.overlay(answers, NFS)
    assert (check.works, check.detail, check.remedy) == (None, "the trial did not finish", "")


def test_a_machine_that_does_not_answer_in_time_is_blamed_for_nothing(tmp_path: Path) -> None:
    class Slow(RealHost):
        def run(self, argv: Sequence[str]) -> Outcome:
            raise ToolError(f"{argv[0]} did not answer within 7 s")

    host = Slow(tmp_path)
    assert host.user_namespace_obstacle() is None
    found = {check.name: check for check in permits.checks(host.trials, (NFS,), engine_in_namespace=False)}
    for name in (USER_NAMESPACES, "overlay in a user namespace", PROGRAMS_IN_STORE):
        assert found[name].works is None, name
        assert "did not finish" in found[name].detail


def test_lines_are_read_as_they_were_written() -> None:
    found = permits.parse("a\t\t0\nb\tmount(x)\t1\nc\t\t-31\nstart in /x y\t\t0\ne\t\n")
    assert found["b"].reason == "mount(x): Operation not permitted"
    assert found["c"].reason == "it was killed by signal 31, possibly by a seccomp filter"
    assert found["start in /x y"].ok
    assert not found["e"].ok, "it died without a word"


# -- user namespaces -----------------------------------------------------------------------------------

REFUSED = Answer("unshare(CLONE_NEWUSER)", errno.EPERM)


@pytest.mark.parametrize(
    ("answer", "files", "reason", "remedy"),
    [
        (Answer("unshare(CLONE_NEWUSER)", errno.ENOSPC), {"max_user_namespaces": "0\n"},
         "switched off: user.max_user_namespaces=0", "sudo sysctl -w user.max_user_namespaces="),
        (REFUSED, {"unprivileged_userns_clone": "0\n"}, "kernel.unprivileged_userns_clone=0",
         "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        (Answer("/proc/self/uid_map", errno.EACCES), {"apparmor_restrict_unprivileged_userns": "1\n"},
         "kernel.apparmor_restrict_unprivileged_userns=1",
         "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"),
        (Answer("unshare(CLONE_NEWUSER)", errno.ENOSPC), {"max_user_namespaces": "15000\n"},
         "nested too deeply", "leave the outer container"),
        (Answer("mount(tmpfs)", errno.EPERM), {"status": "Name:\tx\nSeccomp:\t2\n"},
         "a seccomp filter, as in a container, forbids user namespaces or mounts in them: mount(tmpfs)",
         "start the outer container with --security-opt seccomp=unconfined"),
        (REFUSED, {"mountinfo": "30 1 8:1 /srv/root /proc rw - proc none rw\n"}, "in a chroot",
         "leave the chroot"),
        (REFUSED, {"status": "Seccomp:\t0\n"}, "possibly by a security module: unshare",
         "ask the administrator"),
    ],
)  # fmt: skip
def test_what_forbids_user_namespaces(
    answer: Answer, files: Mapping[str, str], reason: str, remedy: str
) -> None:
    found = permits.obstacle(answer, reads(**files))
    assert found is not None
    assert reason in found.reason
    assert found.remedy.startswith(remedy)


def test_a_setting_or_a_filter_that_forbids_nothing_is_no_obstacle() -> None:
    assert permits.obstacle(OK, reads(status="Seccomp:\t2\n", unprivileged_userns_clone="0")) is None


def test_a_security_module_may_let_an_engine_through() -> None:
    refused, answers = Refusal("forbidden", "do"), {"user namespace": REFUSED}
    check = permits.user_namespaces(answers, refused, engine_in_namespace=True)
    assert check.works
    assert permits.user_namespaces(answers, refused, engine_in_namespace=False).works is False


# -- the rest ------------------------------------------------------------------------------------------

NFS = FileSystem(purpose="store", path="/scratch", kind="nfs4", free_bytes=1, free_inodes=1)


@pytest.mark.parametrize(
    ("answers", "detail", "remedy"),
    [
        ({"overlay": OK}, "stacked layers", ""),
        ({"user namespace": REFUSED, "overlay": REFUSED}, "requires user namespaces", ""),
        ({"overlay": Answer("mount(overlay)", errno.ENODEV)}, "no overlayfs", "sudo modprobe overlay"),
        ({"overlay": Answer("mount(overlay)", errno.EINVAL), "overlay on tmpfs": OK},
         "the store's file system (nfs4) cannot be a layer, a tmpfs can", "none needed"),
        ({"overlay": Answer("mount(overlay)", errno.EPERM),
          "overlay on tmpfs": Answer("mount(overlay)", errno.EPERM)},
         "denied: mount(overlay): Operation not permitted", "none needed"),
    ],
)  # fmt: skip
def test_overlay(answers: dict[str, Answer], detail: str, remedy: str) -> None:
    check = permits.overlay({"user namespace": OK, **answers}, NFS)
    assert detail in check.detail
    assert check.remedy.startswith(remedy)
    assert check.works == answers["overlay"].ok


def test_a_trial_that_could_not_be_made_refuses_nothing() -> None:
    """Full, say, or with no /bin/sh: that is no answer to whether programs may be started there."""
    for answer in (Answer("write", errno.ENOSPC), Answer("execve", errno.ENOENT)):
        check = permits.programs_in_store({"start": answer}, "/s", NFS, "/home/ada")
        assert check.works is None
    assert permits.programs_in_store({}, "/s", NFS, "").works is None


# -- what engines and the planner make of it -----------------------------------------------------------

NOEXEC = Check(name=PROGRAMS_IN_STORE, works=False, detail="noexec there", remedy="export BAREBOAT_STORE=/x")


@pytest.mark.parametrize("name", ["charliecloud", "apptainer", "singularity", "podman", "udocker:P1"])
def test_a_store_without_programs_rules_out_what_runs_a_tree(name: str) -> None:
    facts = EngineFacts(
        name=name.partition(":")[0], path=f"/bin/{name}", version="1", origin="", works=True, modes=("P1",)
    )  # fmt: skip
    with pytest.raises(PlanError) as caught:
        plan(make_job(engine=name), make_image(), None, make_site(engines=(facts,), checks=(NOEXEC,)))
    assert "noexec there" in caught.value.message
    assert caught.value.remedy.startswith("export BAREBOAT_STORE=/x")


def bwrap(*, overlay: bool) -> EngineFacts:
    return EngineFacts(name="bubblewrap", path="/b", version="1", origin="", works=True, overlay=overlay)


def test_bubblewrap_runs_it_by_an_overlay() -> None:
    site = make_site(engines=(bwrap(overlay=True),), checks=(NOEXEC,))
    enclosure = registry.engine("bubblewrap").judge(site, make_image())
    assert isinstance(enclosure, Enclosure)
    mounts = (Mount(source="/store/flat/env", target="/env"), Mount(source="/data", target="/data"))
    container = Container(flat="/store/flat", mounts=mounts, home="/home/ada")
    argv = enclosure.wrap(Command(argv=("true",)), container).argv
    assert argv[1:5] == ("--overlay-src", "/store/flat", "--tmp-overlay", "/")
    at = argv.index("/store/flat/env")
    assert argv[at - 1 : at + 3] == ("--overlay-src", "/store/flat/env", "--tmp-overlay", "/env")
    assert argv[argv.index("/data") - 1] == "--ro-bind"
    judged = registry.engine("bubblewrap").judge(
        make_site(engines=(bwrap(overlay=False),), checks=(NOEXEC,)), make_image()
    )
    assert judged == Refusal("noexec there", "export BAREBOAT_STORE=/x")


@pytest.mark.parametrize(
    ("free_mib", "ranks", "frameworks", "warned"),
    [(64, 1, {"torch": "2.13.0"}, True), (64, 1, {}, False), (300, 1, {"torch": "2"}, False),
     (300, 2, {"torch": "2"}, True)],
)  # fmt: skip
def test_a_small_dev_shm_is_a_warning_for_pytorch(
    free_mib: int, ranks: int, frameworks: dict[str, str], warned: bool
) -> None:
    shm = FileSystem(
        purpose="shm", path="/dev/shm", kind="tmpfs", free_bytes=free_mib * 2**20, free_inodes=99
    )
    job = make_job(topology=Topology(ranks_per_node=ranks))
    found = site_warnings(job, make_image(frameworks=frameworks), make_site(file_systems=(shm,)))
    assert bool(found) == warned
    if warned:
        assert "num_workers=0" in found[0]
        assert f"/dev/shm has {free_mib} MiB free for {ranks}" in found[0]


def test_a_run_waits_for_no_trial_that_nobody_needs(tmp_path: Path) -> None:
    host = RealHost(tmp_path)
    found = permits.checks(host.trials, (NFS,), engine_in_namespace=True, thorough=False)
    assert not host.trials.asked
    assert {check.name for check in found} == {"seccomp", "/dev/shm"}
    noexec = msgspec.structs.replace(NFS, options=("noexec",))
    found = permits.checks(host.trials, (noexec,), engine_in_namespace=True, thorough=False)
    assert host.trials.asked
    assert PROGRAMS_IN_STORE in {check.name for check in found}


@pytest.mark.parametrize(
    ("frameworks", "has_compiler", "asked", "told"),
    [
        ({"torch": "2.5", "triton": "3.1"}, False, None, "Triton's kernels and torch.compile require"),
        ({"torch": "2.5"}, False, None, "torch.compile requires"),
        ({"torch": "2.5"}, False, False, None),
        ({"torch": "2.5"}, True, None, None),
        ({"torch": "2.5"}, None, None, None),
        ({"numpy": "2.0"}, False, None, None),
    ],
)
def test_a_missing_compiler_is_a_warning(
    frameworks: dict[str, str], has_compiler: bool | None, asked: bool | UnsetType, told: str | None
) -> None:
    job = make_job(capture=CaptureRequest(compiler=asked))
    image = msgspec.structs.replace(make_image(frameworks=frameworks), compiler=has_compiler)
    found = compiler_missing(job, image)
    if told is None:
        assert found == ()
    else:
        assert f"no C compiler, which {told}: set compiler = true" in found[0]
    pulled = compiler_missing(msgspec.structs.replace(job, image="debian:12"), image)
    assert [each.endswith("use an image that has gcc, if the job uses it") for each in pulled] == [
        True for _ in found
    ]


def test_paths_that_the_container_does_not_show_are_named() -> None:
    code = CodeFacts(
        outside=(("/home/ada/sets", "the link data leads to it"), ("/data/x/y", "train.py names it")),
        submits=("sbatch", "train.py"),
        scratch=("/tmp/out.bin", "save.py"),
    )
    first, second, discarded, third = unseen(make_job(), code)
    assert first == (
        "/home/ada/sets is not in the container, and the link data leads to it: add it to "
        'mounts = ["/home/ada/sets"], or ["/home/ada/sets:rw"]'
    )
    assert second.startswith("/data/x/y is not in the container, and train.py names it")
    assert discarded.startswith("save.py names /tmp/out.bin: what the job writes there is discarded")
    assert third.startswith("train.py starts sbatch, which is not in the container")
    mounts = (Mount(source="/home/ada", target="/home/ada"), Mount(source="/data/x", target="/x"))
    assert unseen(make_job(mounts=mounts), code) == (discarded, third)
    mounts += (Mount(source="/scratch", target="/tmp", writable=True),)
    assert unseen(make_job(mounts=mounts), code) == (third,)
