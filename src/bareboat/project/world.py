"""How a script expects its ranks to be started, by the names that it uses. Pure."""

from __future__ import annotations

import posixpath
import re

from msgspec import Struct

from bareboat.python_source import Source, not_of_pytorch

#: Launchers of programs that use MPI, in the planner's order.
MPI = ("srun", "mpirun", "image-mpirun", "host-mpi")
#: How the variable begins by which a program finds its rank -> the launchers that set it.
_SET_BY = {
    "SLURM_": ("srun",),
    "OMPI_": ("mpirun", "image-mpirun"),
    "TF_CONFIG": ("tensorflow",),
    "": ("torchrun", "srun", "jax", "tensorflow", "ranks"),
}


class World(Struct, frozen=True, kw_only=True):
    """How many ranks a script is made for. `launchers`: those that fit, the usual first; () for one process.
    `per_core`: one rank per core is usual; `per_node`: one rank per node, which uses all that it has."""

    framework: str
    reason: str
    launchers: tuple[str, ...] = ()
    per_core: bool = False
    per_node: bool = False
    uses_gpus: bool = False


#: Framework as users call it, the names by which a script starts its ranks, and the launchers.
_RULES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("Horovod", (r"horovod\..*\.init", r"horovod\.init"), MPI),
    ("DeepSpeed", (r"deepspeed\.(init_distributed|initialize)",), ("torchrun",)),
    ("Accelerate", (r"accelerate\.(\w+\.)*(Accelerator|PartialState)",), ("torchrun",)),
    (
        "Lightning",
        (r"(lightning(\.pytorch|\.fabric)?|pytorch_lightning|lightning_fabric)\.(\w+\.)*(Trainer|Fabric|LightningCLI)",
         r"(lightning\.pytorch|pytorch_lightning)\.cli\.LightningCLI"),
        ("torchrun",),
    ),
    ("Transformers", (r"transformers\.(\w+\.)*(Seq2Seq)?Trainer",), ("torchrun",)),
    ("Ignite", (r"ignite\.distributed\..*",), ("torchrun",)),
    (
        "PyTorch",
        (r"torch\.distributed\.init_process_group", r"torch\.distributed\.(\w+\.)*init_process_group",
         r"torch\.distributed\.(\w+\.)*init_device_mesh", r"torch\.distributed\.fsdp\..*",
         r"torch\.nn\.parallel\.(\w+\.)*DistributedDataParallel"),
        ("torchrun",),
    ),
    ("JAX", (r"jax\.distributed\.initialize",), ("jax", "srun")),
    ("Keras", (r"keras\.distribution\.initialize",), ("jax", "srun")),
    (
        "TensorFlow",
        (r"tensorflow\.distribute\.(experimental\.)?MultiWorkerMirroredStrategy",
         r"tensorflow\.distribute\.(\w+\.)*TFConfigClusterResolver"),
        ("tensorflow",),
    ),
    ("mpi4py", (r"mpi4py\.(MPI\.COMM_WORLD|futures\.MPIPoolExecutor|MPI\.\w+|MPI)",), MPI),
    ("mpi4jax", (r"mpi4jax\..*",), MPI),
)  # fmt: skip
#: Package -> what users call it, for scripts that start no ranks; the ones that build on others first.
_FRAMEWORKS = {
    "lightning": "Lightning", "pytorch_lightning": "Lightning", "accelerate": "Accelerate",
    "deepspeed": "DeepSpeed", "transformers": "Transformers", "ray": "Ray", "dask": "Dask",
    "distributed": "Dask", "keras": "Keras", "flax": "JAX", "torch": "PyTorch", "tensorflow": "TensorFlow",
    "jax": "JAX", "horovod": "Horovod", "mpi4py": "mpi4py", "xgboost": "XGBoost", "sklearn": "scikit-learn",
    "cupy": "CuPy", "numpy": "NumPy",
}  # fmt: skip
_ON_GPUS = {
    "Lightning", "Accelerate", "DeepSpeed", "Transformers", "Ignite", "Keras", "PyTorch", "TensorFlow",
    "JAX", "Horovod", "CuPy",
}  # fmt: skip


def judge(code: Source) -> World:
    """How the script's ranks are started, by the first rule that fits."""
    if code.fault:
        return World(framework="Python", reason="the script was not read: one process")
    if (name := code.uses(r"torch\.multiprocessing\.spawn", r"torch\.multiprocessing\.start_processes")) and (
        code.uses(r"torch\.distributed\..*")
    ):
        return World(
            framework="PyTorch",
            reason=f"the script starts its ranks itself, by {name}: one process for it",
            per_node=True,
            uses_gpus=True,
        )
    others = not_of_pytorch(code.variables)
    variable = next(iter(others or code.variables), "")
    setting = next(names for start, names in _SET_BY.items() if variable.startswith(start))
    # Not only imported modules of Lightning.
    trains = any(re.search(r"\.(Trainer|Fabric|LightningCLI)$", name) for name in code.names)
    for framework, patterns, launchers in _RULES:
        if framework == "Lightning" and not trains:
            continue
        name = code.uses(*patterns)
        if name is None:
            continue
        lacks = bool(others) and {*setting}.isdisjoint(launchers)
        return World(
            framework=framework,
            reason=f"the script reads {variable}" if lacks else f"the script uses {name}",
            launchers=setting if lacks else launchers,
            per_core=framework in ("mpi4py",),
            per_node=framework == "TensorFlow",
            uses_gpus=framework in _ON_GPUS,
        )
    framework = next(
        (called for package, called in _FRAMEWORKS.items() if package in code.packages), "Python"
    )
    if variable:
        return World(
            framework=framework,
            reason=f"the script reads {variable}",
            launchers=setting,
            per_core=framework not in _ON_GPUS,
            per_node=variable == "TF_CONFIG",
            uses_gpus=framework in _ON_GPUS,
        )
    return World(
        framework=framework,
        reason="the script forms no group of ranks: each further rank would do the same work again",
        uses_gpus=framework in _ON_GPUS,
    )


def of_program(path: str) -> World:
    """The same of a command that is not a Python script."""
    program = posixpath.basename(path)
    reason = "one process; for a program that uses MPI, set ranks_per_node under [topology]"
    return World(framework=program, reason=reason)
