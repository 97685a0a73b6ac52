"""local: run on this machine, now."""

from __future__ import annotations

from collections.abc import Sequence

from bareboat.model import Job, Refusal, SchedulerFacts, Site
from bareboat.schedulers import Array, CommandRunner, Query, Scheduler


class Local(Scheduler):
    NAME = "local"
    TITLE = "this machine"
    IS_LOCAL = True
    JOB_ID = "$$"
    ARRAY = Array(index="", job_id="$$")
    MORE_MEMORY = ("", "less memory for each rank: a smaller batch, or fewer workers")
    LIST = ""

    def snippet(self) -> str:
        return ""

    def probe(self, runner: CommandRunner) -> SchedulerFacts | None:
        return None

    def objection(self, job: Job, site: Site) -> Refusal | None:
        topology = job.topology
        if topology.nodes > 1:
            return Refusal(
                f"the topology requires {topology.nodes} nodes; this machine is one",
                _somewhere(site),
                key="topology.nodes",
            )
        if topology.cpus_per_rank is not None:
            needed = topology.cpus_per_rank * topology.ranks_per_node
            if needed > site.cpus:
                return Refusal(
                    f"{topology.ranks_per_node} ranks with {topology.cpus_per_rank} CPUs each need {needed}, "
                    f"and {site.hostname} has {site.cpus}",
                    _fewer_cpus(topology.ranks_per_node, topology.cpus_per_rank, site.cpus),
                    key="topology.cpus_per_rank",
                )
        gpus = topology.gpus_per_rank * topology.ranks_per_node
        if gpus > len(site.gpus):
            required = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
            return Refusal(
                f"the topology requires {required} per node; {site.hostname} has {len(site.gpus)}",
                "--gpus-per-rank 0, or gpus_per_rank = 0 under [topology], or a machine with GPUs",
                key="topology.gpus_per_rank",
            )
        return None

    def warnings(self, job: Job, site: Site) -> tuple[str, ...]:
        topology = job.topology
        found = []
        if topology.ranks_per_node > site.cpus:
            found.append(
                f"{topology.ranks_per_node} ranks share {site.cpus} CPUs: they will compete for CPU time"
            )
        return tuple(found)

    def directives(self, job: Job, site: Site) -> tuple[str, ...]:
        return ()

    def submit(self, script: str, log: str) -> tuple[str, ...]:
        return ("bash", script)

    def queries(self, job_ids: Sequence[str]) -> tuple[Query, ...]:
        return ()

    def cancel(self, job_id: str) -> tuple[str, ...]:
        return ()


def _fewer_cpus(ranks: int, cpus_per_rank: int, cpus: int) -> str:
    if ranks <= cpus:
        return f"set cpus_per_rank = {cpus // ranks}"
    if cpus_per_rank <= cpus:
        return f"set ranks_per_node = {cpus // cpus_per_rank} or fewer"
    return f"set cpus_per_rank = 1 and ranks_per_node = {cpus} or fewer"


def _somewhere(site: Site) -> str:
    known = [f"--scheduler {each.name} (plan, prove), or bareboat submit, or " for each in site.schedulers]
    return "".join(known[:1]) + "-N 1, or nodes = 1 under [topology]"
