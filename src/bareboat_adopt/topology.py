"""How many nodes and ranks an old job has, and what each rank gets. Pure. What does not follow is refused."""

from __future__ import annotations

import re

from bareboat_adopt.layers import Launch
from bareboat_adopt.reading import Reading, Request
from bareboat_adopt.values import ELEMENT, Unclear

#: More ranks than a node is sure to have cores for.
_MOST_ON_A_NODE = 64


def variables(reading: Reading, folder: str) -> dict[str, str]:
    """What the scheduler sets in the script, as far as the request decides it."""
    request = reading.request
    tasks = request.tasks
    if tasks is None and request.tasks_per_node:
        tasks = request.tasks_per_node * (request.nodes or 1)
    name = reading.values["name"].value if "name" in reading.values else None
    element = ELEMENT if reading.array else None
    of_schedulers: dict[str, dict[str, int | str | None]] = {
        "slurm": {
            "SLURM_NNODES": request.nodes, "SLURM_JOB_NUM_NODES": request.nodes, "SLURM_NTASKS": tasks,
            "SLURM_NPROCS": tasks, "SLURM_NTASKS_PER_NODE": request.tasks_per_node,
            "SLURM_CPUS_PER_TASK": request.cpus_per_task, "SLURM_GPUS_ON_NODE": request.gpus_per_node,
            "SLURM_JOB_NAME": name, "SLURM_SUBMIT_DIR": folder, "SLURM_ARRAY_TASK_ID": element,
        },
        "pbs": {"PBS_O_WORKDIR": folder, "PBS_JOBNAME": name, "PBS_ARRAY_INDEX": element,
                "PBS_ARRAYID": element, "PBS_NUM_NODES": request.nodes},
    }  # fmt: skip
    found = of_schedulers.get(request.scheduler, {})
    return {key: str(value) for key, value in found.items() if value is not None}


def resolve(launch: Launch, line: int, reading: Reading) -> None:
    """Write nodes, ranks, processors, GPUs and memory into the reading. Raises Unclear where they are not
    clear."""
    request = launch.request or reading.request
    nodes, ranks = _ranks(launch, request, line, reading)
    if (job := reading.request.nodes) and job > nodes:
        reading.differ(line, f"only {nodes} of {job} nodes have ranks: the job requests no others")
    tasks = request.tasks_per_node or -(-(request.tasks or 1) // (request.nodes or nodes))
    gpus = _gpus(launch, request, nodes, tasks, reading)
    if not launch.inner and not gpus:
        raise Unclear(f"{launch.inner_starter} starts a rank for each GPU: their number is open", "the ranks")
    ranks = ranks if launch.inner else gpus
    if gpus % ranks:
        raise Unclear(f"{gpus} GPUs on a node for {ranks} ranks", "the GPUs")
    reading.set("topology.nodes", nodes, request.line("nodes", line))
    reading.set("topology.ranks_per_node", ranks, line)
    if gpus:
        reading.set("topology.gpus_per_rank", gpus // ranks, request.line("gpus", line))
    cpus = request.cpus_per_node
    if cpus is None and (request.cpus_per_task or (not launch.starter and tasks > 1)):
        cpus = (request.cpus_per_task or 1) * tasks
    if cpus is None and request.cpus_per_gpu:
        cpus = request.cpus_per_gpu * gpus
    at = request.line("cpus", request.line("tasks", line))
    if cpus and cpus < ranks:
        reading.skip(at, f"{cpus} processors on a node for {ranks} ranks: fewer than one each")
    elif cpus:
        reading.set("topology.cpus_per_rank", cpus // ranks, at)
        if cpus % ranks and not launch.starter:
            reading.differ(at, f"{cpus} processors for {ranks} ranks: {cpus // ranks} for each")
    memory = (
        request.memory_per_node
        or (request.memory_per_cpu or 0) * (cpus or tasks)
        or (request.memory_per_gpu or 0) * gpus
        or (request.memory_per_task or 0) * tasks
    )
    if memory:
        reading.set("scheduling.mem_per_node_bytes", memory, request.line("memory", line))


def _ranks(launch: Launch, request: Request, line: int, reading: Reading) -> tuple[int, int]:
    """Nodes, and ranks on each."""
    nodes, tasks, per_node = request.nodes, request.tasks, request.tasks_per_node
    if not launch.starter:
        nodes = nodes or (not request.scheduler and launch.inner_nodes) or 1
        tasks, what = nodes, launch.inner_starter or "the program"
        if nodes > 1 and request.scheduler and (what != "deepspeed" or launch.inner_nodes != nodes):
            raise Unclear(f"{nodes} nodes, and {what} starts on the first one only", "the ranks")
    else:
        if nodes is None and tasks and per_node:
            nodes = -(-tasks // per_node)
        tasks = tasks or (per_node or 1) * (nodes or 1)
        if launch.starter != "srun":
            nodes, tasks = _of_mpirun(launch, request, nodes, tasks, line, reading)
    if nodes is None and tasks > _MOST_ON_A_NODE and request.scheduler:
        raise Unclear(f"{tasks} ranks, and no number of nodes", "the nodes")
    if nodes is None and tasks > 1 and request.scheduler:
        reading.differ(line, f"the scheduler may spread the {tasks} ranks; here they are on one node")
    nodes = nodes or 1
    if tasks % nodes:
        raise Unclear(f"{tasks} ranks on {nodes} nodes", "the ranks")
    if launch.inner_starter and tasks != nodes:
        each = f"{tasks // nodes} times {launch.inner_starter}"
        raise Unclear(f"{launch.starter} starts {each} on a node", "the ranks")
    if (named := launch.inner_nodes) not in (None, nodes):
        raise Unclear(f"{launch.inner_starter} names {named} nodes, the request {nodes}", "the nodes")
    return nodes, launch.inner if launch.inner_starter else tasks // nodes


def _of_mpirun(
    launch: Launch, request: Request, nodes: int | None, slots: int, line: int, reading: Reading
) -> tuple[int | None, int]:
    """Nodes, if they are known, and ranks on all of them. `slots`: those of the request."""
    total, per_node = launch.tasks, launch.per_node
    if not total and not per_node and not request.scheduler and request.tasks is None:
        raise Unclear(f"{launch.starter} without a number of ranks", "the ranks")
    total = total or (per_node or 0) * (nodes or 1) or slots
    if per_node:
        if total % per_node or nodes not in (None, total // per_node):
            raise Unclear(f"{total} ranks, {per_node} on each of {nodes} nodes", "the ranks")
        return total // per_node, total
    if nodes is not None and nodes > 1 and total < slots:
        raise Unclear(f"{total} ranks in {slots} slots on {nodes} nodes: which is not clear", "the ranks")
    if nodes is not None and nodes > 1 and total > slots:
        reading.differ(line, f"{total} ranks on {nodes} nodes: the same number on each")
    return nodes, total


def _gpus(launch: Launch, request: Request, nodes: int, tasks: int, reading: Reading) -> int:
    """GPUs on each node. `tasks`: of the request on each node."""
    found = request.gpus_per_node
    if request.gpus_per_task is not None:
        found = request.gpus_per_task * tasks
    elif request.gpus is not None and found is None:
        job_nodes = reading.request.nodes or nodes
        if request.gpus % job_nodes:
            raise Unclear(f"{request.gpus} GPUs on {job_nodes} nodes", "the GPUs")
        found = request.gpus // job_nodes
    visible = reading.environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and re.fullmatch(r"\d+(,\d+)*", visible.value):
        listed = len(set(visible.value.split(",")))
        found = listed if found is None and not request.scheduler else found
        if found != listed:
            raise Unclear(
                "the GPUs", f"CUDA_VISIBLE_DEVICES={visible.value}, and {found or 0} GPUs requested"
            )
        del reading.environment["CUDA_VISIBLE_DEVICES"]
        reading.differ(visible.line, "CUDA_VISIBLE_DEVICES is set for each rank")
    if launch.container is not None and launch.container.gpus and not found:
        raise Unclear("the container shows GPUs, and their number is not given", "the GPUs")
    if found is None and launch.inner_starter:
        raise Unclear(f"{launch.inner_starter} without GPUs: it usually has one for each rank", "the GPUs")
    return found or 0
