"""The host's MPI library bound into an image: what it loads, what the image's own copies serve, what the
ranks are given."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import environment_of, make_image, make_job, make_rootfs, make_site
from stored import image_of

from bareboat.deployment import host_mpi
from bareboat.model import (
    DriverFile,
    HostLibrary,
    HostMpiTree,
    Image,
    Mount,
    MpiFacts,
    MpiFamily,
    Plan,
    Pmi,
    Refusal,
    SchedulerFacts,
    Topology,
)
from bareboat.mpi import inject
from bareboat.mpi.rules import Layout
from bareboat.mpi.start_methods import MpiSite, Rung, Step, binds, walk
from bareboat.plan import plan
from bareboat.probe import mpi_library
from bareboat_base.errors import PlanError
from bareboat_images.store import Store

NODES = Layout(nodes=2, ranks_per_node=2, container_per_rank=True)
RUNTIME = HostLibrary(
    libraries=(
        DriverFile(name="libmpi.so.40", path="/sw/ompi/lib/libmpi.so.40.30.4"),
        DriverFile(name="libopen-pal.so.40", path="/sw/ompi/lib/libopen-pal.so.40.30.2"),
        DriverFile(name="libhwloc.so.15", path="/usr/lib64/libhwloc.so.15.6.0"),
    ),
    folders={"lib/openmpi": "/sw/ompi/lib/openmpi", "etc": "/etc/openmpi"},
    glibc="2.34",
    glibc_by="libhwloc.so.15",
)


def host_openmpi(version: str = "4.1.6", **changes: Any) -> MpiFacts:
    facts: dict[str, Any] = {
        "family": MpiFamily.OPENMPI, "version": version, "library": "/sw/ompi/lib/libmpi.so.40.30.4",
        "prefix": "/sw/ompi", "launcher": "/sw/ompi/bin/mpirun", "speaks": (Pmi.PMIX,), "slurm": True,
        "runtime": RUNTIME,
    }  # fmt: skip
    return MpiFacts(**(facts | changes))


def image_for(
    glibc: str | None = "2.36", users: Sequence[str] = ("libmpi.so.40", "libmpi.so.12"), **more: Any
) -> Image:
    return make_image(mpi_users={"mpi4py": tuple(users)}, frameworks={"mpi4py": "4.1.2"}, glibc=glibc, **more)


# -- what a library loads --------------------------------------------------------------------------


def make_library(path: Path, *needed: Path, asks: str = "", gives: str = "", rpath: str = "") -> Path:
    """A real shared library. `asks`: a function that it calls; `gives`: one that it has, with the version of
    symbols V_GIVES."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler: sudo apt-get install gcc")
    path.parent.mkdir(parents=True, exist_ok=True)
    text = f"int {gives or 'nothing'}(void) {{ return 1; }}\n"
    if asks:
        text += f"int {asks}(void);\nint call_{asks}(void) {{ return {asks}(); }}\n"
    source = path.with_name("source.c")
    source.write_text(text)
    script = path.with_name("versions")
    script.write_text(f"V_{gives or 'nothing'} {{ global: *; }};\n")
    soname = path.name if path.name.startswith("mca_") else ".".join(path.name.split(".")[:3])
    argv = [compiler, "-shared", "-fPIC", "-nostdlib", "-o", str(path), str(source), f"-Wl,-soname,{soname}"]
    argv += [
        "-Wl,--no-as-needed",
        "-Wl,--allow-shlib-undefined",
        *([f"-Wl,--version-script={script}"] if gives else []),
    ]
    argv += [str(each) for each in needed]
    argv += [f"-Wl,-rpath,{rpath}"] if rpath else []
    subprocess.run(argv, check=True)
    source.unlink()
    script.unlink()
    if soname != path.name:
        path.with_name(soname).symlink_to(path.name)
    return path


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with an OpenMPI of its own prefix: plugins, a library from elsewhere, and the C library."""
    root = tmp_path / "root"
    c = make_library(root / "usr/lib64/libc.so.6", gives="GLIBC_2_34")
    hwloc = make_library(root / "usr/lib64/libhwloc.so.15.6.0", c, gives="hwloc")
    net = make_library(root / "sw/net/lib/libnet.so.1.0", c)
    pal = make_library(root / "sw/ompi/lib/libopen-pal.so.40.30.2", hwloc, c, asks="hwloc")
    make_library(root / "sw/ompi/lib/libmpi.so.40.30.4", pal, c, rpath="$ORIGIN")
    make_library(root / "sw/ompi/lib/openmpi/mca_btl_net.so", net, c, rpath="/sw/net/lib")
    (root / "sw/ompi/etc").mkdir()
    (root / "sw/ompi/share/openmpi").mkdir(parents=True)
    return root


def test_a_library_its_plugins_and_what_they_need(machine: Path) -> None:
    mpi = host_openmpi(runtime=None)
    found = mpi_library.closure(mpi, environment={}, root=str(machine))
    assert {file.name: file.path for file in found.libraries} == {
        "libmpi.so.40": "/sw/ompi/lib/libmpi.so.40.30.4",
        "libopen-pal.so.40": "/sw/ompi/lib/libopen-pal.so.40.30.2",
        "libhwloc.so.15": "/usr/lib64/libhwloc.so.15.6.0",
        "libnet.so.1": "/sw/net/lib/libnet.so.1.0",
    }, "neither the C library nor plugins, which are opened by their path"
    assert found.folders == {
        "lib/openmpi": "/sw/ompi/lib/openmpi",
        "share/openmpi": "/sw/ompi/share/openmpi",
        "etc": "/sw/ompi/etc",
    }
    assert found.asked == {"libhwloc.so.15": ("V_hwloc",)}


def test_a_library_is_found_by_what_a_module_sets(machine: Path) -> None:
    (machine / "sw/net/lib/libnet.so.1").rename(machine / "opt")
    (machine / "sw/module").mkdir()
    (machine / "sw/module/libnet.so.1").symlink_to("/sw/net/lib/libnet.so.1.0")
    mpi = host_openmpi(runtime=None)
    for path, seen in (("", False), ("/sw/module", True)):
        found = mpi_library.closure(mpi, environment={"LD_LIBRARY_PATH": path}, root=str(machine))
        assert ("libnet.so.1" in {file.name for file in found.libraries}) is seen


def test_what_was_found_is_kept_until_the_library_is_another(machine: Path, tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    library = machine / "sw/ompi/lib/libmpi.so.40.30.4"
    mpi = host_openmpi(runtime=None, library=str(library), prefix=str(machine / "sw/ompi"))
    first = mpi_library.complete(mpi, store, {})
    assert first.runtime is not None
    (kept,) = (tmp_path / "store/host-libraries").iterdir()
    kept.write_bytes(kept.read_bytes().replace(b"libopen-pal", b"libopen-lap"))
    assert "libopen-lap.so.40" in {
        file.name for file in mpi_library.complete(mpi, store, {}).runtime.libraries
    }  # type: ignore[union-attr]
    kept.write_bytes(b"{")
    assert mpi_library.complete(mpi, store, {}) == first, "one that is damaged is made anew"
    library.write_bytes(library.read_bytes() + b"\0")
    mpi_library.complete(mpi, store, {})
    assert len(list((tmp_path / "store/host-libraries").iterdir())) == 2


# -- what the image's own copies serve -------------------------------------------------------------


def provided(store: Store, files: Mapping[str, str], runtime: HostLibrary, **facts: Any) -> HostMpiTree:
    """`files`: paths in the image -> a file of this machine to copy there, or text."""
    image = image_of(store, dict.fromkeys(files, ""))
    for name, source in files.items():
        if Path(source).is_file():
            place = store.layer(image.layers[0].diff_id) / name
            place.unlink()
            shutil.copyfile(source, place)
    more = {"mpi_users": {"mpi4py": ("libmpi.so.40",)}, "glibc": "2.36"} | facts
    image = make_image(digest=image.digest, layers=image.layers, **more)
    mpi = host_openmpi(runtime=runtime)
    return host_mpi.provide(store, image, make_site(mpis=(mpi,)))[str(mpi.library)]


def runtime_of(**paths: str) -> HostLibrary:
    return HostLibrary(libraries=tuple(DriverFile(name=n, path=p) for n, p in paths.items()))


@pytest.mark.parametrize(
    ("host", "image", "taken"),
    [
        ("6.0.30", "6.0.33", "image"),
        ("6.0.33", "6.0.30", "host"),
        ("6.0.30", "6.0.30", "image"),
    ],
)
def test_the_newer_of_two_is_taken(tmp_path: Path, host: str, image: str, taken: str) -> None:
    runtime = runtime_of(**{"libstdc++.so.6": f"/usr/lib/libstdc++.so.{host}"})
    tree = provided(
        Store(tmp_path), {"usr/lib/libstdc++.so.6": "", f"usr/lib/libstdc++.so.{image}": ""}, runtime
    )
    # Not a link: the file tells nothing of its version.
    assert tree.left_out == ()
    store = Store(tmp_path / "linked")
    linked = image_of(
        store, {f"usr/lib/libstdc++.so.{image}": "", "usr/lib/libstdc++.so.6": f"-> libstdc++.so.{image}"}
    )
    facts = make_image(
        digest=linked.digest, layers=linked.layers, mpi_users={"mpi4py": ("libmpi.so.40",)}, glibc="2.36"
    )
    mpi = host_openmpi(runtime=runtime)
    (tree,) = host_mpi.provide(store, facts, make_site(mpis=(mpi,))).values()
    assert tree.left_out == (("libstdc++.so.6",) if taken == "image" else ())
    link = Path(tree.folder) / "lib/libstdc++.so.6"
    assert link.is_symlink() is (taken == "host")


def test_a_copy_that_lacks_what_is_asked_for_is_not_used(tmp_path: Path) -> None:
    real = make_library(tmp_path / "made/libz.so.1.2", gives="old")
    for asked, left_out in (("V_old", ("libz.so.1",)), ("V_new", ())):
        runtime = HostLibrary(
            libraries=(DriverFile(name="libz.so.1", path="/lib/libz.so.1"),), asked={"libz.so.1": (asked,)}
        )
        tree = provided(Store(tmp_path / asked), {"usr/lib/libz.so.1": str(real)}, runtime)
        assert tree.left_out == left_out


def test_what_is_of_mpi_is_the_hosts_whatever_the_image_has(tmp_path: Path) -> None:
    names = ("libmpi.so.40", "libfabric.so.1", "libucp.so.0")
    runtime = runtime_of(**{name: f"/usr/lib/{name}.1.0" for name in names})
    tree = provided(Store(tmp_path), {f"usr/lib/{name}": "" for name in names}, runtime)
    assert tree.left_out == ()
    assert tree.over == (), "the image has an MPI's name there, but none that its programs load"


def test_the_drivers_of_infiniband_go_with_their_library(tmp_path: Path) -> None:
    """libibverbs and its drivers must be of one build: all the image's, or all the host's."""
    verbs = make_library(tmp_path / "made/libibverbs.so.1.14", gives="IBVERBS_1")
    mlx = make_library(tmp_path / "made/libmlx5.so.1.24", gives="MLX5_1")
    runtime = HostLibrary(
        libraries=(
            DriverFile(name="libibverbs.so.1", path="/lib/libibverbs.so.1.15"),
            DriverFile(name="libmlx5.so.1", path="/lib/libmlx5.so.1.25"),
        ),
        asked={"libibverbs.so.1": ("V_IBVERBS_1", "IBVERBS_PRIVATE_34"), "libmlx5.so.1": ("V_MLX5_1",)},
    )
    both = {"usr/lib/libibverbs.so.1": str(verbs), "usr/lib/libmlx5.so.1": str(mlx)}
    assert provided(Store(tmp_path / "a"), both, runtime).left_out == ("libibverbs.so.1", "libmlx5.so.1")
    one = {"usr/lib/libibverbs.so.1": str(verbs)}
    assert provided(Store(tmp_path / "b"), one, runtime).left_out == ()
    old = {"usr/lib/libibverbs.so.1": str(verbs), "usr/lib/libmlx5.so.1": str(verbs)}
    assert provided(Store(tmp_path / "c"), old, runtime).left_out == ()


def test_empty_parts_of_the_c_library_only_where_the_image_lacks_them(tmp_path: Path) -> None:
    runtime = runtime_of(**{"libdl.so.2": "/lib/libdl.so.2", "libpthread.so.0": "/lib/libpthread.so.0"})
    tree = provided(Store(tmp_path / "a"), {"usr/lib/libdl.so.2": ""}, runtime)
    assert tree.left_out == ("libdl.so.2",)
    tree = provided(Store(tmp_path / "b"), {"usr/lib/x": ""}, runtime, glibc="2.31")
    assert set(tree.left_out) == {"libdl.so.2", "libpthread.so.0"}, "there they are not empty"


def test_the_hosts_files_lie_over_those_of_the_images_mpi(tmp_path: Path) -> None:
    """mpi4py looks beside its interpreter by path; a program with DT_RPATH looks there first."""
    own = MpiFacts(family=MpiFamily.OPENMPI, version="5.0.3", library="/env/lib/libmpi.so.40")
    runtime = runtime_of(
        **{
            "libmpi.so.40": "/sw/lib/libmpi.so.40.30.4",
            "libfabric.so.1": "/sw/lib/libfabric.so.1.2",
            "libopen-pal.so.40": "/sw/lib/libopen-pal.so.40.30.2",
        }
    )
    files = {
        "env/lib/libmpi.so.40": "",
        "env/lib/libopen-pal.so.80": "",
        "env/lib/openmpi/libfabric.so.1": "",
    }
    tree = provided(Store(tmp_path), files, runtime, mpis=(own,))
    assert tree.over == (
        Mount(source="/sw/lib/libmpi.so.40.30.4", target="/env/lib/libmpi.so.40"),
        Mount(source="/sw/lib/libfabric.so.1.2", target="/env/lib/openmpi/libfabric.so.1"),
    ), "what the host's has under another name stays"


def test_an_image_that_cannot_use_it_costs_nothing(tmp_path: Path) -> None:
    site = make_site(mpis=(host_openmpi(),))
    for image in (make_image(), image_for(users=("libmpi.so.12",))):
        assert host_mpi.provide(Store(tmp_path / "store"), image, site) == {}
    assert not (tmp_path / "store").exists()


def test_it_is_made_once_for_an_image(tmp_path: Path) -> None:
    store = Store(tmp_path)
    runtime = runtime_of(**{"libmpi.so.40": "/sw/lib/libmpi.so.40"})
    first = provided(store, {"usr/lib/x": ""}, runtime)
    assert (Path(first.folder) / "lib/libmpi.so").readlink() == Path(f"{inject.HOST}/0/libmpi.so.40")
    assert provided(store, {"usr/lib/x": ""}, runtime) == first
    assert len(list((tmp_path / "host-mpis").iterdir())) == 1


# -- what the ranks are given ----------------------------------------------------------------------


def test_folders_of_the_host_are_mounted_once_and_never_one_in_another() -> None:
    tree = HostMpiTree(folder="/store/tree")
    mounts = {mount.target: mount.source for mount in inject.mounts(RUNTIME, tree)}
    assert mounts == {
        inject.PLACE: "/store/tree",
        f"{inject.HOST}/0": "/etc/openmpi",
        f"{inject.HOST}/1": "/sw/ompi/lib",
        f"{inject.HOST}/2": "/usr/lib64",
    }
    assert inject.links(RUNTIME, ["libhwloc.so.15"]) == {
        "lib/libmpi.so.40": f"{inject.HOST}/1/libmpi.so.40.30.4",
        "lib/libmpi.so": f"{inject.HOST}/1/libmpi.so.40.30.4",
        "lib/libopen-pal.so.40": f"{inject.HOST}/1/libopen-pal.so.40.30.2",
        "lib/openmpi": f"{inject.HOST}/1/openmpi",
        "etc": f"{inject.HOST}/0",
    }


@pytest.mark.parametrize(
    "name",
    ["libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld64.so.2", "libpthread.so.0", "libnss_files.so.2",
     "libresolv.so.2", "ld-linux-aarch64.so.1"],
)  # fmt: skip
def test_the_c_library_is_never_taken(name: str) -> None:
    assert inject.C_LIBRARY.fullmatch(name)


def ground(*mpis: MpiFacts, **changes: Any) -> MpiSite:
    facts: dict[str, Any] = {"mpis": mpis, "ssh": True, "glibc": "2.39"}
    return MpiSite(**(facts | changes))


def test_an_image_with_mpi4py_and_no_mpi_at_all() -> None:
    """What pip install mpi4py leaves. By all rungs above there is nothing to start."""
    found = walk(image_for(), ground(host_openmpi(), in_slurm=True, plugins=("pmix",)), NODES)
    assert isinstance(found, Step)
    assert (found.rung, found.plugin) == (Rung.HOST_LIBRARY, "pmix")
    given = {setting.name: setting.value for setting in found.settings}
    assert given["LD_LIBRARY_PATH"] == "/run/bareboat/mpi/lib"
    assert given["OPAL_PREFIX"] == "/run/bareboat/mpi"
    assert given["OPAL_PKGLIBDIR"] == "/run/bareboat/mpi/lib/openmpi"
    assert len(found.rejected) == 3, [each.choice for each in found.rejected]


def test_what_its_libraries_need_of_glibc_counts_not_what_the_host_has() -> None:
    assert isinstance(walk(image_for("2.34"), ground(host_openmpi()), NODES), Step)
    found = walk(image_for("2.31"), ground(host_openmpi()), NODES)
    assert isinstance(found, Refusal)
    reasons = [each.reason for each in found.rejected]
    assert "libhwloc.so.15 needs glibc 2.34, and the image has 2.31" in reasons
    assert isinstance(walk(image_for("2.36"), ground(host_openmpi(runtime=None)), NODES), Refusal)


def test_of_several_the_one_that_the_image_can_load_is_taken() -> None:
    newer = host_openmpi("5.0.11", runtime=HostLibrary(libraries=(), glibc="2.38", glibc_by="libmpi.so.40"))
    found = walk(image_for("2.34"), ground(newer, host_openmpi()), NODES)
    assert isinstance(found, Step)
    assert found.library == host_openmpi()


def test_an_image_of_the_other_family_is_not_bound() -> None:
    image = image_for(users=("libmpi.so.12",))
    assert not binds(image, host_openmpi())
    assert binds(image_for(), host_openmpi())
    assert not binds(image_for(users=()), host_openmpi())
    found = walk(make_image(glibc="2.36"), ground(host_openmpi()), NODES)
    assert isinstance(found, Refusal)


def planned(image: Image, *, tree: HostMpiTree | None, host: MpiFacts | None = None, **more: Any) -> Plan:
    import msgspec

    mpi = host or host_openmpi()
    facts = SchedulerFacts(name="slurm", version="22.05", mpi_plugins=("pmix",))
    rootfs = make_rootfs(image)
    if tree is not None:
        rootfs = msgspec.structs.replace(rootfs, host_mpis={str(mpi.library): tree})
    job = make_job(topology=Topology(nodes=2, ranks_per_node=2), scheduler="slurm", walltime_s=60, **more)
    return plan(job, image, rootfs, make_site(mpis=(mpi,), schedulers=(facts,)))


def given(made: Plan, name: str) -> str:
    return str(environment_of(made.command)[name])


def test_the_plan_brings_it_in() -> None:
    over = Mount(source="/sw/ompi/lib/libmpi.so.40.30.4", target="/env/lib/libmpi.so.40")
    made = planned(image_for(), tree=HostMpiTree(folder="/store/t", over=(over,)))
    assert made.launcher == "host-mpi"
    assert made.program[0] == "srun"
    assert given(made, "LD_LIBRARY_PATH") == inject.LIBRARIES
    needs = {each.path: each.what for each in made.requirements}
    assert needs["/sw/ompi/lib"] == "a part of the host's MPI"
    words = [str(word) for word in made.command.argv]
    assert words.index("/env/lib/libmpi.so.40") == words.index("/sw/ompi/lib/libmpi.so.40.30.4") + 1
    assert made.mpi_check is not None
    assert "LD_LIBRARY_PATH" in made.prelude, "the launcher's own must not come through"


def test_what_the_image_or_the_job_says_of_libraries_is_kept() -> None:
    tree = HostMpiTree(folder="/store/t")
    made = planned(image_for(environment={"LD_LIBRARY_PATH": "/opt/cuda/lib"}), tree=tree)
    assert given(made, "LD_LIBRARY_PATH") == f"{inject.LIBRARIES}:/opt/cuda/lib"
    made = planned(image_for(), tree=tree, environment={"LD_LIBRARY_PATH": "/mine"})
    assert given(made, "LD_LIBRARY_PATH") == "/mine", "the job's own word wins, as everywhere"


def test_a_program_in_c_is_proved_with_the_hosts_library() -> None:
    own = MpiFacts(family=MpiFamily.OPENMPI, version="5.0.3", library="/env/lib/libmpi.so.40")
    image = make_image(mpis=(own,), glibc="2.36")
    made = planned(image, tree=HostMpiTree(folder="/store/t"), launcher="host-mpi")
    assert made.mpi_check is not None
    assert f"{inject.LIBRARIES}/libmpi.so.40" in made.mpi_check.argv


def test_it_is_refused_without_its_links_and_on_bare_metal() -> None:
    with pytest.raises(PlanError, match="it is not known what OpenMPI"):
        planned(image_for(), tree=None)
    with pytest.raises(PlanError):
        planned(image_for(), tree=None, engine="native", launcher="host-mpi")
