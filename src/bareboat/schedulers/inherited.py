"""Pure: the environment variables that describe one allocation.

A command that is started inside a job inherits them, and applies them to another job: with `SLURM_CPU_BIND`
of a step, srun puts two ranks of the new job on one core; sbatch prefers `SBATCH_PARTITION` to the directive
of the script. `outside` is the one place that removes them: from every submission, from shells in running
jobs, from runs on this machine, and from commands that query a scheduler.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from bareboat.model import Scheduling
from bareboat_base.expressions import expression

#: What describes an allocation, a step of it, or a rank of an MPI program, by whole names.
_ALLOCATION = expression(
    # https://slurm.schedmd.com/sbatch.html, srun.html and salloc.html: input and output variables
    r"(SLURM|SLURMD|SBATCH|SRUN|SALLOC)_\w+"
    # https://github.com/openpbs/openpbs/blob/master/doc/man1/qsub.1B
    r"|PBS_\w+"
    # https://manpages.debian.org/gridengine-client/qsub.1.en.html#ENVIRONMENTAL_VARIABLES
    r"|SGE_\w+|PE_\w+"
    # https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=reference-environment-variables
    r"|LSB_\w+|LS_(JOBPID|EXECCWD|SUBCWD)"
    # https://flux-framework.readthedocs.io/projects/flux-core/en/latest/man7/flux-environment.html
    r"|FLUX_\w+"
    # PMI, and the launchers of Hydra and of OpenMPI
    r"|PMI2?_\w+|PMIX_\w+|PRTE_\w+|OMPI_\w+|HYDRA_\w+|HYDI_\w+|MPI_LOCAL\w+|MPIEXEC_\w+"
)
#: A user's settings of what Slurm's commands print or select: with `SQUEUE_PARTITION`, squeue omits jobs, and
#: with `SCANCEL_STATE`, scancel cancels none.
_OUTPUT = expression(r"(SQUEUE|SINFO|SCANCEL|SACCT|SPRIO)_\w+")
#: What names the cluster, or how its commands reach it.
_CLUSTER = expression(
    r"SLURM_(CONF|CONF_SERVER|CLUSTERS|JWT)|SBATCH_CLUSTERS"
    r"|PBS_(EXEC|SERVER|CONF_FILE|DEFAULT|HOME|PRIMARY|SECONDARY)"
    r"|SGE_(ROOT|CELL|CLUSTER_NAME|ARCH|QMASTER_PORT|EXECD_PORT)"
    # The default queue and project, which an option replaces.
    r"|LSB_(DEFAULTQUEUE|DEFAULTPROJECT)"
    # FLUX_URI: the instance to which jobs are submitted.
    r"|FLUX_(URI|CONF_DIR|EXEC_PATH|MODULE_PATH|CONNECTOR_PATH|PMI_LIBRARY_PATH)"
)
#: A user's settings of an MPI, which a rank's launcher extends by its own.
_SETTINGS = expression(r"(OMPI|PMIX|PRTE)_MCA_\w+|HYDRA_\w+")
_RANK = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PMI_ID")
#: Names of Grid Engine's that others use, too; its jobs have all of them and SGE_TASK_ID.
GRID_ENGINE = frozenset({
    "ARC", "ENVIRONMENT", "JOB_ID", "JOB_NAME", "JOB_SCRIPT", "NHOSTS", "NQUEUES", "NSLOTS", "PE", "QUEUE",
    "REQUEST", "RESTARTED",
})  # fmt: skip
#: What a scheduler tells a job about the whole of it, and about its element of an array.
_OF_JOB = expression(
    r"SLURM_(JOBID|JOB_(ID|NAME|PARTITION|ACCOUNT|QOS|USER)|ARRAY_\w+|(CPUS|GPUS|MEM)_(PER|ON)_\w+|SUBMIT_DIR)"
    r"|SLURM_(CLUSTER_NAME|RESTART_COUNT)|PBS_(JOBID|JOBNAME|QUEUE|O_WORKDIR|ARRAY\w+)|FLUX_JOB_ID"
    r"|LSB_JOB(ID|NAME|INDEX)|JOB_(ID|NAME)|NSLOTS|SGE_TASK_\w+"
)
_OF_ELEMENT = expression(r"SLURM_ARRAY_TASK_\w+|PBS_ARRAY(ID|_INDEX)|SGE_TASK_\w+|LSB_JOBINDEX")
#: sbatch prefers these to the script's directives. Many users set them once, as their defaults: they stay
#: where the job has no value of its own. -> attributes of `Scheduling`, and the option's short form.
_DEFAULTS = {
    "SBATCH_ACCOUNT": ("account", "-A"),
    "SBATCH_PARTITION": ("partition", "-p"),
    "SBATCH_QOS": ("qos", "-q"),
    "SBATCH_RESERVATION": ("reservation", "--reservation"),
    "SBATCH_CONSTRAINT": ("constraint", "-C"),
}


def of_job(names: Iterable[str]) -> tuple[str, ...]:
    """The variables that a scheduler sets for a whole job, or for an element of an array."""
    return tuple(filter(_OF_JOB.fullmatch, names))


def of_element(name: str) -> bool:
    """Whether it is a number of an array job: in Bareboat's own, not that of the user's old script."""
    return _OF_ELEMENT.fullmatch(name) is not None


def for_submission(environment: Mapping[str, str], scheduling: Scheduling) -> dict[str, str]:
    """The environment in which a job is submitted."""
    kept = [
        name
        for name, (key, short) in _DEFAULTS.items()
        if getattr(scheduling, key) is None
        and not any(option.startswith((f"--{key}", short)) for option in scheduling.options)
    ]
    return outside(environment, keep=kept)


def for_queries(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a scheduler is queried, or cancels a job: no setting of the user's changes
    what its commands print."""
    return {name: value for name, value in outside(environment).items() if not _OUTPUT.fullmatch(name)}


def outside(environment: Mapping[str, str], *, keep: Collection[str] = ()) -> dict[str, str]:
    """The environment as it would be outside of every allocation. `keep`: names that stay."""
    is_rank = any(name in environment for name in _RANK)
    gone = GRID_ENGINE if "SGE_TASK_ID" in environment and "JOB_ID" in environment else frozenset()

    def stays(name: str) -> bool:
        return bool(_CLUSTER.fullmatch(name) or (not is_rank and _SETTINGS.fullmatch(name)))

    return {
        name: value
        for name, value in environment.items()
        if name in keep or not (name in gone or (_ALLOCATION.fullmatch(name) and not stays(name)))
    }
