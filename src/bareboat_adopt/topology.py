"""How many nodes and ranks an old job has, and what each rank gets. Pure. What does not follow is refused."""

from __future__ import annotations

import re

from bareboat_adopt.layers import Launch
from bareboat_adopt.reading import Reading, Request
from bareboat_adopt.values import ELEMENT

#: More ranks than a node is sure to have cores for.
_MOST_ON_A_NODE = 64


class _Uneven(Exception):
    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(reason)
        self.subject = subject
        self.reason = reason


def variables(reading: Reading, folder: str) -> dict[str, str]:
    """What the scheduler sets in the script, as far as the request decides it."""
    request = reading.request
    tasks = request.tasks
    if tasks is None and request.tasks_per_node:
        tasks = request.tasks_per_node * (request.nodes or 1)
    name = reading.values["name"].value if "name" in reading.values else None
    given: dict[str, int | str | None] = {
        "SLURM_NNODES": request.nodes, "SLURM_JOB_NUM_NODES": request.nodes, "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks, "SLURM_NTASKS_PER_NODE": request.tasks_per_node,
        "SLURM_CPUS_PER_TASK": request.cpus_per_task, "SLURM_GPUS_ON_NODE": request.gpus_per_node,
        "SLURM_GPUS_PER_NODE": request.gpus_per_node, "SLURM_GPUS": request.gpus,
        "SLURM_GPUS_PER_TASK": request.gpus_per_task, "SLURM_JOB_NAME": name, "SLURM_SUBMIT_DIR": folder,
        "PBS_O_WORKDIR": folder, "PBS_JOBNAME": name, "SGE_O_WORKDIR": folder, "NSLOTS": request.tasks,
        "LS_SUBCWD": folder, "LSB_DJOB_NUMPROC": request.tasks, "PBS_NUM_NODES": request.nodes,
        "PBS_NCPUS": request.tasks,
    }  # fmt: skip
    prefix = {"slurm": "SLURM", "pbs": "PBS", "gridengine": "SGE", "lsf": "LS", "flux": "FLUX"}
    own = prefix.get(request.scheduler, "")
    found = {
        key: str(value)
        for key, value in given.items()
        if value is not None and (key.startswith(own) or (own == "SGE" and key == "NSLOTS"))
    }
    if reading.array:
        for element in (
            "SLURM_ARRAY_TASK_ID",
            "PBS_ARRAY_INDEX",
            "PBS_ARRAYID",
            "SGE_TASK_ID",
            "LSB_JOBINDEX",
        ):
            if own and element.startswith(own):
                found[element] = ELEMENT
    return found if own else {}


def resolve(launch: Launch, line: int, reading: Reading) -> None:
    """Write nodes, ranks, processors, GPUs and memory into the reading, or why they are not clear."""
    request = launch.request or reading.request
    try:
        nodes, ranks = _ranks(launch, request, line, reading)
    except _Uneven as fault:
        reading.refuse(fault.subject, line, fault.reason)
        return
    if (job := reading.request.nodes) and job > nodes:
        reading.differ(line, f"only {nodes} of {job} nodes have ranks: the job requests no others")
    try:
        gpus = _gpus(launch, request, nodes, reading)
        if launch.inner == "gpus":
            if not gpus:
                raise _Uneven(
                    "the ranks", f"{launch.inner_starter} starts a rank for each GPU: their number is open"
                )
            ranks = gpus
        if gpus % ranks:
            raise _Uneven("the GPUs", f"{gpus} GPUs on a node for {ranks} ranks")
    except _Uneven as fault:
        reading.refuse(fault.subject, line, fault.reason)
        return
    reading.set("topology.nodes", nodes, request.lines.get("nodes", line))
    reading.set("topology.ranks_per_node", ranks, line)
    if gpus:
        at = next((request.lines[each] for each in request.lines if each.startswith("gpus")), line)
        reading.set("topology.gpus_per_rank", gpus // ranks, at)
    _cpus_and_memory(launch, request, (nodes, ranks, gpus), line, reading)


def _ranks(launch: Launch, request: Request, line: int, reading: Reading) -> tuple[int, int]:
    """Nodes, and ranks on each; one for `launch.inner` that is not known yet."""
    if launch.starter == "srun":
        nodes, ranks = _of_srun(request, line, reading)
    elif launch.starter:
        nodes, ranks = _of_mpirun(launch, request, line, reading)
    else:
        nodes, ranks = request.nodes or 1, 1
        if not request.scheduler and launch.inner_nodes:
            nodes = launch.inner_nodes
        elif nodes > 1 and not (launch.inner_starter == "deepspeed" and launch.inner_nodes == nodes):
            what = launch.inner_starter or "the program"
            raise _Uneven(
                "the ranks", f"{nodes} nodes are requested, and {what} starts on the first one only"
            )
    if not launch.inner_starter:
        return nodes, ranks
    if ranks != 1:
        raise _Uneven("the ranks", f"{launch.starter} starts {ranks} times {launch.inner_starter} on a node")
    if launch.inner_nodes not in (None, nodes):
        raise _Uneven(
            "the nodes", f"{launch.inner_starter} names {launch.inner_nodes} nodes, the request {nodes}"
        )
    return nodes, launch.inner if isinstance(launch.inner, int) else 1


def _of_srun(request: Request, line: int, reading: Reading) -> tuple[int, int]:
    nodes, tasks, per_node = request.nodes, request.tasks, request.tasks_per_node
    if nodes is None:
        if tasks and per_node:
            nodes = -(-tasks // per_node)
        else:
            tasks = tasks or per_node or 1
            nodes = _one_node(tasks, line, reading)
    tasks = tasks or nodes * (per_node or 1)
    if tasks % nodes:
        raise _Uneven("the ranks", f"{tasks} ranks on {nodes} nodes")
    return nodes, tasks // nodes


def _one_node(tasks: int, line: int, reading: Reading) -> int:
    if tasks > _MOST_ON_A_NODE:
        raise _Uneven("the nodes", f"{tasks} ranks, and no number of nodes")
    if tasks > 1:
        reading.differ(line, f"the scheduler may spread the {tasks} ranks; here they are on one node")
    return 1


def _of_mpirun(launch: Launch, request: Request, line: int, reading: Reading) -> tuple[int, int]:
    nodes = request.nodes or launch.nodes
    slots = request.tasks
    if slots is None and request.tasks_per_node:
        slots = request.tasks_per_node * (nodes or 1)
    if slots is None and request.scheduler:
        slots = nodes or 1
    if nodes is None and request.scheduler and slots and request.tasks_per_node:
        nodes = -(-slots // request.tasks_per_node)
    total = launch.tasks or (launch.per_node * (nodes or 1) if launch.per_node else None) or slots
    if total is None:
        raise _Uneven("the ranks", f"{launch.starter} without a number of ranks")
    if launch.per_node:
        if total % launch.per_node or nodes not in (None, total // launch.per_node):
            raise _Uneven("the ranks", f"{total} ranks, {launch.per_node} on each of {nodes} nodes")
        return total // launch.per_node, launch.per_node
    if nodes is None:
        nodes = _one_node(total, line, reading) if request.scheduler else 1
    if nodes > 1 and slots and total < slots:
        raise _Uneven(
            "the ranks", f"{total} ranks in {slots} slots on {nodes} nodes: where they lie is not clear"
        )
    if total % nodes:
        raise _Uneven("the ranks", f"{total} ranks on {nodes} nodes")
    if nodes > 1 and slots and total > slots:
        reading.differ(line, f"{total} ranks on {nodes} nodes: the same number on each")
    return nodes, total // nodes


def _gpus(launch: Launch, request: Request, nodes: int, reading: Reading) -> int:
    """GPUs on each node."""
    per_task_nodes = _tasks_on_a_node(request, nodes)
    found = request.gpus_per_node
    if request.gpus_per_task is not None:
        found = request.gpus_per_task * per_task_nodes
    elif request.gpus is not None and found is None:
        if request.scheduler == "gridengine" and (request.tasks or 1) > 1:
            raise _Uneven("the GPUs", f"{request.gpus} GPUs for the job or for each slot: your site decides")
        job_nodes = reading.request.nodes or nodes
        if request.gpus % job_nodes:
            raise _Uneven("the GPUs", f"{request.gpus} GPUs on {job_nodes} nodes")
        found = request.gpus // job_nodes
    visible = reading.environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and re.fullmatch(r"\d+(,\d+)*", visible.value):
        listed = len(set(visible.value.split(",")))
        if found is None and not request.scheduler:
            found = listed
        if found != listed:
            raise _Uneven(
                "the GPUs", f"CUDA_VISIBLE_DEVICES={visible.value}, and {found or 'no'} GPUs are requested"
            )
        del reading.environment["CUDA_VISIBLE_DEVICES"]
        reading.differ(visible.line, "CUDA_VISIBLE_DEVICES is set for each rank")
    shown = launch.container.gpus if launch.container is not None else False
    if found is None and not request.scheduler and not isinstance(shown, bool):
        found = shown
    if shown and not found:
        raise _Uneven("the GPUs", "the container shows GPUs, and their number is not given")
    if found is None and launch.inner_starter:
        raise _Uneven(
            "the GPUs", f"{launch.inner_starter} usually has a GPU for each rank, and none are requested"
        )
    return found or 0


def _tasks_on_a_node(request: Request, nodes: int) -> int:
    if request.tasks_per_node:
        return request.tasks_per_node
    return -(-request.tasks // (request.nodes or nodes)) if request.tasks else 1


def _cpus_and_memory(
    launch: Launch, request: Request, counts: tuple[int, int, int], line: int, reading: Reading
) -> None:
    nodes, ranks, gpus = counts
    tasks = _tasks_on_a_node(request, nodes)
    cpus = request.cpus_per_node
    if cpus is None and (request.cpus_per_task or (not launch.starter and tasks > 1)):
        cpus = (request.cpus_per_task or 1) * tasks
    if cpus is None and request.cpus_per_gpu:
        cpus = request.cpus_per_gpu * gpus
    at = next(
        (
            request.lines[each]
            for each in ("cpus_per_node", "cpus_per_task", "tasks")
            if each in request.lines
        ),
        line,
    )
    each = cpus // ranks if cpus else None
    if each == 0:
        reading.skip(at, f"{cpus} processors on a node for {ranks} ranks: fewer than one each")
    if each:
        reading.set("topology.cpus_per_rank", each, at)
        if cpus and each * ranks < cpus and not launch.starter:
            reading.differ(at, f"{cpus} processors for {ranks} ranks: {each} for each")
    memory = request.memory_per_node
    if memory is None and request.memory_per_cpu:
        memory = request.memory_per_cpu * (cpus or tasks)
    elif memory is None and request.memory_per_gpu and gpus:
        memory = request.memory_per_gpu * gpus
    elif memory is None and request.memory_per_task:
        memory = request.memory_per_task * tasks
    if memory:
        at = next(request.lines[each] for each in request.lines if each.startswith("memory"))
        reading.set("scheduling.mem_per_node_bytes", memory, at)
