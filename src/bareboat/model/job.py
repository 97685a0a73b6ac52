"""The job: what the user requests, and the table of its keys (`bareboat.model.keys`)."""

import re
from typing import Annotated

from msgspec import Struct, field

from bareboat.model.job_tables import MOST_SECONDS, CaptureRequest, ProveRequest, Scheduling, Topology
from bareboat.model.keys import Key, check_keys, keys_of, reset, tables_of
from bareboat.model.sweep import Sweep
from bareboat.model.variables import check_passed_on, check_variable
from bareboat_base import ranges
from bareboat_base.errors import UsageError
from bareboat_base.host_files import Mount
from bareboat_base.ranges import Range

#: Of `shim`: the shims replace tools that a node has.
SHIMS_ALWAYS = "always"


def _check_health(name: str, value: str | bool) -> None:
    if value not in ("report", "require", False):
        raise UsageError(
            f'{name} is {value!r}; it must be "report", "require" or false',
            key=name,
            remedy=ranges.setting(name, '"report"'),
        )


def _check_node_scratch(name: str, path: str) -> None:
    if not re.fullmatch(r"(/(?!\.\.?(/|$))[A-Za-z0-9._+-]+)+/?", path):
        raise UsageError(
            f"{name} is {path!r}; it must be the absolute path of a directory below / on each node, of "
            "letters, digits and . _ + -",
            key=name,
            remedy=ranges.setting(name, '"/tmp"'),
        )


def _check_shim(name: str, value: bool | str) -> None:
    if isinstance(value, str) and value != SHIMS_ALWAYS:
        raise UsageError(
            f'{name} is {value!r}; it must be true, false or "{SHIMS_ALWAYS}"',
            key=name,
            remedy=ranges.setting(name, "true"),
        )


def _check_modules(name: str, modules: str | tuple[str, ...]) -> None:
    for module in modules.split(",") if isinstance(modules, str) else modules:
        if not module or any(c.isspace() or not c.isprintable() for c in module):
            raise UsageError(
                f"{name} has {module!r}, which is not a valid name of an environment module",
                key=name,
                remedy=ranges.setting(name, '["NAME/VERSION"]'),
            )


class Job(Struct, frozen=True, kw_only=True):
    """What to run. Paths are absolute: the job file's reader resolves them against its directory.

    `entrypoint`: None is False with a command and True without. `workdir`: None is the image's, with nothing
    of the host mounted there.
    """

    # fmt: off
    command: Annotated[tuple[str, ...], Key(
        "what each rank runs", kind="list of arguments, or a string that is split as a shell would",
        default="the image's", aliases=("args", "cmd"), names_files=False, is_words=True,
        example='["python", "train.py"]', is_free=True,
    )] = ()
    entrypoint: Annotated[bool | tuple[str, ...] | None, Key(
        "what precedes the command: the image's ENTRYPOINT, nothing, or these arguments",
        kind="`true`, `false`, or arguments as in `command`", default="`false`; `true` without a `command`",
        is_words=True,
        example="false", is_free=True,
    )] = None
    name: Annotated[str, Key(
        "appears in run names and in the script", default="the file's name", is_name=True, names_files=False,
        example='"training"', is_free=True,
    )]
    image: Annotated[str, Key(
        "image to run in; `capture` is the active environment; or a name or digest in the store; "
        "`NAME:{mpi}`, the [variant](building.md#variants) that fits the site; or a reference, such as "
        "`debian:12` or `./torch.sif`, that `run`, `submit` and `prove` pull ([images.md](images.md))",
        flags=("--image",), value="REF",
        example='"IMAGE"',
    )] = "capture"
    workdir: Annotated[str | None, Key(
        "working directory; mounted read-write at the same path, unless it is the image's (`./image` is a "
        "directory of that name). `/`, `/usr`, `/etc` and such are refused: the host's would replace the "
        "image's", kind='path, or `"image"`',
        default='the file\'s directory; `"image"` without a `command`',
        example='"."',
    )]
    mounts: Annotated[tuple[Mount, ...], Key(
        "more files and directories; read-only unless `:rw`; `plan` warns of a target that hides the image's "
        "programs or libraries, such as `/usr`",
        kind='list of `"SOURCE[:TARGET][:rw]"`', aliases=("volumes",),
        example='["/tmp:/data"]', used_by="container",
    )] = ()
    environment: Annotated[dict[str, str], Key(
        "environment variables for the command; in addition to "
        "[those that each job has](job-file.md#what-the-command-finds)", aliases=("env",), names_files=False,
        example='{ OMP_NUM_THREADS = "1" }', is_free=True,
    )] = field(default_factory=dict)
    environment_from: Annotated[tuple[str, ...], Key(
        "pass this environment variable to the job, its value is never stored; from the shell that runs or "
        'submits the job; a submitted job reads the values from a private file: `["WANDB_API_KEY"]` '
        "([secrets](job-file.md#secrets))", kind="list of names", flags=("--env-from",),
        check=check_passed_on,
        example='["NAME"]',
    )] = ()
    walltime_s: Annotated[int | None, Key(
        "time limit, such as 2h30m or 1-12:00:00; the scheduler ends the job, and `run` a run on this "
        "machine, with exit code 124", default="none: the partition's",
        range=Range(1, MOST_SECONDS, "3600", unit="s"),
        flags=("-t", "--time"), value="TIME", aliases=("time", "time_limit", "walltime"), names_files=False,
    )] = None
    engine: Annotated[str | None, Key(
        "engine to use, optionally in a given mode, native: no container; `udocker:P2` "
        "([engines.md](engines.md))", default="the planner chooses",
        is_name=True, flags=("--engine",), value="NAME[:MODE]", is_setting=True, names_files=False,
        example='"bubblewrap"',
    )] = None
    launcher: Annotated[str | None, Key(
        "launcher that starts the ranks; [launchers.md](launchers.md)", default="the planner chooses",
        is_name=True, flags=("--launcher",), is_setting=True,
        example='"mpirun"',
    )] = None
    scheduler: Annotated[str | None, Key(
        "submit to this scheduler",
        default="`run` and `prove`: this machine; `plan` and `submit`: the one installed here; with it "
        "`prove` measures [in its jobs](studies.md#in-a-schedulers-jobs)",
        is_name=True, flags=("--scheduler",), is_setting=True,
        example='"slurm"',
    )] = None
    modules: Annotated[tuple[str, ...], Key(
        'environment modules to load on the node before the job starts; `["openmpi/4.1.4"]`', is_setting=True,
        check=_check_modules,
        example='["NAME/VERSION"]', is_free=True,
    )] = ()
    writable: Annotated[bool, Key(
        "let the command write anywhere, changes are discarded; with the container. Requires bubblewrap and "
        "an overlay ([engines.md](engines.md))", flags=("--writable",), used_by="container",
    )] = False
    form: Annotated[str | None, Key(
        "image as a directory, or as one file (SIF, squashfs) where the engine supports it; Apptainer, "
        "Singularity and Charliecloud do", default="the planner chooses", values=("tree", "file"),
        flags=("--form",), used_by="container",
    )] = None
    delivery: Annotated[str | None, Key(
        "read the image from the shared store, or copy it to node-local storage; once on each node "
        "([clusters.md](clusters.md#copying-the-image-to-the-nodes))",
        default='the site\'s setting, else `"auto"`', values=("auto", "shared", "node"),
        flags=("--delivery",), is_setting=True,
    )] = None
    node_scratch: Annotated[str | None, Key(
        "node-local directory for image copies (default: /tmp); letters, digits and `. _ + -`",
        kind="path", default="the site's setting, else `/tmp`", check=_check_node_scratch,
        flags=("--node-scratch",), value="DIR", is_setting=True,
        example='"/tmp"',
    )] = None
    site_layer: Annotated[tuple[str, ...], Key(
        "what to add to the image for this cluster: `openmpi` or `mpich`, `mpi4py`, `horovod`, each also as "
        "`NAME==VERSION` ([mpi.md](mpi.md#the-site-layer))",
        example='["openmpi"]', used_by="container",
    )] = ()
    fabric: Annotated[str | None, Key(
        "if ranks on several nodes fall back to TCP although the nodes have a fast network: mark the record, "
        "or fail the job ([fabric.md](fabric.md))", default='"mark"', values=("mark", "require"),
    )] = None
    health: Annotated[str | bool, Key(
        "compare what the nodes give the job with what it requested; `require` does not start the job when "
        "something is wrong (exit code 72), `false` does nothing ([failures.md](failures.md#health))",
        kind='`"report"`, `"require"` or `false`', check=_check_health, names_files=False,
        example='"report"',
    )] = "report"
    kernel_cache: Annotated[bool, Key(
        "`false` keeps no compiled GPU kernels between runs ([gpus.md](gpus.md#shorten-the-first-step))",
        names_files=False,
    )] = True
    seccomp: Annotated[bool, Key(
        "`false` removes the system call filter, for `perf` or io_uring; the container still cannot type "
        "into your terminal ([engines.md](engines.md#system-calls))", names_files=False, used_by="container",
    )] = True
    shim: Annotated[bool | str, Key(
        "run the command without a container, with the [shims](shims.md#in-a-job) of `singularity`, "
        "`udocker` and Slurm's commands on PATH, and with all variables of the job script; "
        "`\"always\"`: also where a node has the tool itself",
        kind='`true`, `false`, or `"always"`', check=_check_shim, names_files=False,
        example="true",
    )] = False
    topology: Annotated[Topology, Key("nodes, ranks, GPUs", names_files=False)] = field(
        default_factory=Topology
    )
    scheduling: Annotated[Scheduling, Key("what the scheduler gets", names_files=False)] = field(
        default_factory=Scheduling
    )
    capture: Annotated[CaptureRequest, Key("the captured environment")] = field(
        default_factory=CaptureRequest
    )
    sweep: Annotated[Sweep | None, Key(
        "runs the job once for each combination of the values of lists, `lr = [0.1, 0.01]`, or for each "
        "table of `points`: [sweeps](job-file.md#sweeps); for `prove`, factors, which may be keys of the job "
        "([studies.md](studies.md#factors))", kind="table of lists",
        example="{ lr = [0.1, 0.01] }", aliases=("factors", "matrix"),
    )] = None
    prove: Annotated[ProveRequest, Key("the measurement", names_files=False)] = field(
        default_factory=ProveRequest
    )
    # fmt: on

    def elsewhere(self) -> "Job":
        """The job without what belongs to the site where it ran: scheduler, partition, account, and so on."""
        of_site = {name for name, key in KEYS.items() if key.is_setting and not name.startswith("prove.")}
        always = {"scheduler", "node_scratch", "scheduling.options", "scheduling.after"}
        return reset(self, of_site | always)

    def __post_init__(self) -> None:
        check_keys(self)
        if self.writable and self.form == "file":
            raise UsageError(
                "the job is writable, and an image as one file cannot be",
                key="form",
                remedy=ranges.setting("form", '"tree"'),
            )
        self._check_command()
        self._check_variables()
        self._check_parts()

    def _check_command(self) -> None:
        if self.command and not self.command[0]:
            raise UsageError(
                "the job has no command", key="command", remedy='set command = ["python", "train.py"]'
            )
        if isinstance(self.entrypoint, tuple) and not (self.entrypoint and self.entrypoint[0]):
            raise UsageError(
                "the entrypoint is empty",
                key="entrypoint",
                remedy="set entrypoint = false for none",
            )
        words = self.entrypoint if isinstance(self.entrypoint, tuple) else ()
        for key, given in (("entrypoint", words), ("command", self.command)):
            if any("\0" in word for word in given):
                raise UsageError(
                    f"the {key} contains a NUL byte, which cannot be passed to a program",
                    key=key,
                    remedy="write the bytes to a file, and pass the file's path to the command",
                )

    def _check_variables(self) -> None:
        for name, value in self.environment.items():
            check_variable(name, value)
        for name in self.environment_from:
            if name in self.environment:
                raise UsageError(
                    f"{name} is both in environment_from and under [environment]",
                    key="environment_from",
                    remedy="remove one of them",
                )

    def _check_parts(self) -> None:
        targets: set[str] = set()
        for mount in self.mounts:
            if mount.target in targets:
                raise UsageError(
                    f"two mounts have the same target {mount.target}",
                    key="mounts",
                    remedy=f"give {mount.source} another target, such as {mount.target.rstrip('/')}-2",
                )
            targets.add(mount.target)


TABLES = tables_of(Job)
#: Each key by its name with its table: `topology.nodes`. Tables are no keys.
KEYS = {
    **{name: key for name, key in keys_of(Job).items() if name not in TABLES},
    **{f"{table}.{name}": key for table, kind in TABLES.items() for name, key in keys_of(kind).items()},
}
ranges.RANGES.update({name: key.range for name, key in KEYS.items() if key.range is not None})
ranges.ALLOWED.update({name: key.allowed for name, key in KEYS.items() if key.values or key.example})
