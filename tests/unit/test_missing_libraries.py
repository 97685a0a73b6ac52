"""The libraries that a job's program needs and its image lacks, found before the start."""

from pathlib import Path

import pytest
from builders import make_image, make_job, make_rootfs, make_site
from elves import make_elf

from bareboat.engines.native import Native
from bareboat.model import CodeFacts, Executable, Job, Missing, Plan, Scheduling
from bareboat.plan import plan
from bareboat.program_analysis import executable
from bareboat.program_analysis.command import Sight
from bareboat.program_analysis.libraries import ContainerLoader
from bareboat_base.elf.binary import SearchPath
from bareboat_base.errors import ProgramError
from bareboat_images.store import Store

ENVIRONMENT = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/opt/lib"}
TEXTS = {
    "job.R": "library(Rmpi)\n",
    "job.py": "",
    "run.sh": "#!/bin/sh\nexport LD_LIBRARY_PATH=/x\n./heat\n",
}


@pytest.fixture
def sight(tmp_path: Path) -> Sight:
    elves = {
        "usr/bin/whole": ["libc.so.6", "libpthread.so.0", "libcuda.so.1", "libopt.so.1", "libdeep.so.2"],
        "usr/bin/Rscript": ["libc.so.6"],
        **{f"usr/bin/{name}": ["libc.so.6"] for name in ("sh", "env", "nice")},
        "usr/bin/python3": ["libnowhere.so.1"],
        "opt/lib/libopt.so.1": ["libdeep.so.2"],
        "opt/plug/libdeep.so.2": ["libgone.so.7"],
    }
    tree, work = tmp_path / "tree", tmp_path / "work"
    for path, needed in elves.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(make_elf(needed=needed))
        (tree / path).chmod(0o755)
    (tree / "bin").symlink_to("usr/bin")
    (tree / "etc/ld.so.conf.d").mkdir(parents=True)
    (tree / "etc/ld.so.conf.d/plug.conf").write_text("/opt/plug\n")
    work.mkdir()
    (work / "heat").write_bytes(make_elf(needed=["libgfortran.so.5", "libm.so.6"]))
    for name, text in TEXTS.items():
        (work / name).write_text(text)
    for name in ("heat", "run.sh"):
        (work / name).chmod(0o755)
    return Sight([tree], mounts={"/work": str(work), "/run": None})


def seen(
    sight: Sight, monkeypatch: pytest.MonkeyPatch, *words: str, **changes: object
) -> tuple[Missing, ...]:
    monkeypatch.setattr(executable, "sight_of", lambda *_: sight)
    image = make_image(**({"environment": ENVIRONMENT} | changes))
    job = make_job(command=words, image="theirs", workdir="/work", engine="bubblewrap")
    found = executable.look(Store(Path("/nowhere")), image, make_site(), job)
    assert found is not None
    assert not found.code
    return found.missing


@pytest.mark.parametrize("prefix", ["", "nice -n 3 ", "env A=1 "])
def test_libraries_that_the_loader_does_not_find_are_named(
    sight: Sight, monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    assert seen(sight, monkeypatch, *prefix.split(), "./heat") == (
        Missing(library="libgfortran.so.5", needed_by="/work/heat"),
    )
    assert seen(sight, monkeypatch, *prefix.split(), "whole") == (
        Missing(library="libgone.so.7", needed_by="/opt/plug/libdeep.so.2"),
    )


def test_ld_library_path_is_searched_before_runpath_and_after_rpath(sight: Sight, tmp_path: Path) -> None:
    for folder in ("opt/own", "opt/lib"):
        (tmp_path / "tree" / folder).mkdir(exist_ok=True)
        (tmp_path / "tree" / folder / "libx.so.1").write_bytes(make_elf())
    loader = ContainerLoader(sight, ENVIRONMENT, "/work", "x86_64")
    paths = [
        loader.find("libx.so.1", "/usr/bin/whole", SearchPath(**{key: ("/opt/own",)}))
        for key in ("rpath", "runpath")
    ]
    assert [path and path.path for path in paths] == ["/opt/own/libx.so.1", "/opt/lib/libx.so.1"]


# -- what the planner makes of it ------------------------------------------------------------------

HEAT = Executable(word="./heat", missing=(Missing(library="libgfortran.so.5", needed_by="/work/heat"),))


def planned(program: Executable, **changes: object) -> Plan:
    image = make_image(frameworks={})
    job: Job = make_job(command=("./heat",), **({"image": "theirs"} | changes))
    return plan(job, image, make_rootfs(image), make_site(), code=CodeFacts(program=program))


def test_a_program_without_its_libraries_is_refused() -> None:
    with pytest.raises(ProgramError) as caught:
        planned(HEAT)
    assert caught.value.status == 127
    assert "Dockerfile" in caught.value.remedy
    with pytest.raises(ProgramError) as caught:
        planned(HEAT, image="capture")
    assert caught.value.remedy.startswith('set programs = ["./heat"] under [capture]')
    assert planned(HEAT, engine=Native.NAME).warnings == planned(Executable(word="./heat")).warnings


def test_a_program_that_an_earlier_job_may_replace_is_planned_with_a_warning() -> None:
    lacks = (Missing(library="libgfortran.so.5", needed_by="/work/heat"),)
    heat = Executable(word="./heat", place="/work/heat", missing=lacks)
    found = planned(heat, scheduling=Scheduling(after=("7",))).warnings
    assert [each for each in found if "which the image does not have" in each] == [
        "/work/heat requires libgfortran.so.5, which the image does not have: use an image that has it, "
        "unless a job in `after` replaces the program",
    ]
    with pytest.raises(ProgramError, match=r'"./heat" requires libgfortran.so.5, which'):
        planned(heat)
