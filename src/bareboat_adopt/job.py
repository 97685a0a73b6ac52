"""The keys of the job file that follow from a script that was read: nodes and ranks, and what each rank gets;
the program and its container. Pure. What does not follow is refused."""

from __future__ import annotations

import posixpath
import re

from bareboat.model.job import KEYS
from bareboat.model.variables import looks_secret
from bareboat_adopt.layers import IMAGES_COMMAND, TOOLS, Launch
from bareboat_adopt.reading import Note, Reading, Request, Value
from bareboat_adopt.values import ELEMENT, GAPS, Unclear, gap

#: The name of an array's elements in a sweep.
_ELEMENT = "element"
_NUMBERS = {"slurm": ("SLURM_ARRAY_TASK_ID",), "pbs": ("PBS_ARRAY_INDEX", "PBS_ARRAYID")}
_SHELLS = frozenset({"bash", "sh", "dash", "ksh", "zsh", "csh", "tcsh"})
_ORDER = ("name", "image", "entrypoint", "command", "workdir", "writable", "walltime_s", "environment_from")
#: More ranks than a node is sure to have cores for.
_MOST_ON_A_NODE = 64


def _shown(path: str, target: str) -> str:
    """A path in the job file, whose paths are relative to its directory `target`."""
    if path == target:
        return "."
    return f"./{path[len(target) + 1 :]}" if path.startswith(f"{target}/") else path


def complete(launch: Launch, line: int, reading: Reading, target: str) -> None:
    """Write the keys of the program and its container. `target`: the directory of the job file."""
    values, lines, starts = reading.values, reading.request.lines, reading.scope.directory
    _program(launch, line, reading)
    _container(launch, line, reading, target)
    if "workdir" not in values and starts != target:
        reading.set("workdir", starts, lines.get("workdir", lines.get("starts_in", 0)))
    if reading.array:
        _sweep(reading)
    if "capture.python" in values:
        path, at, *_ = values["capture.python"]
        reading.set("capture.python", _shown(path, target), at)
    _check_environment(reading)
    if "modules" in values and launch.image:
        old = values.pop("modules")
        for name, at in zip(old.value, old.more, strict=True):
            if name.lower().startswith(TOOLS):
                reading.differ(at, f"module {name} is not loaded: Bareboat starts the container")
            else:
                reading.add("modules", [name], at)
    elif "modules" in values:
        text = "modules: load them also before bareboat submit, which captures the active environment"
        reading.differ(values["modules"].line, text)
    _leave_open(launch.request or reading.request, reading)
    order = [*_ORDER, *KEYS, f"sweep.{_ELEMENT}"]
    reading.values = dict(sorted(values.items(), key=lambda item: order.index(item[0])))


def _leave_open(request: Request, reading: Reading) -> None:
    """Give keys that are open a value that `bareboat plan` refuses; leave out what depends on them."""
    values = reading.values
    if "topology.ranks_per_node" in reading.open:
        of_ranks = ("topology.cpus_per_rank", "topology.gpus_per_rank", "scheduling.mem_per_node_bytes")
        for key in of_ranks[: 2 + (not request["memory_per_node"])]:
            values.pop(key, None)
    for key, line in reading.open.items():
        values[key] = Value("?", line) if key != "command" else values.get(key, Value([], line))


def _program(launch: Launch, line: int, reading: Reading) -> None:
    program = [GAPS.sub("?", word) for word in launch.program]
    if launch.is_read and (not program or program == ["python"]):
        reading.refuse("the command", line, "no program is given")
    elif program and program != [IMAGES_COMMAND]:
        reading.set("command", program, line)
        words = program[posixpath.basename(program[0]) in _SHELLS :]
        script = next((each for each in words if not each.startswith("-")), "")
        if re.search(r"\.(sh|bash|csh|slurm|sbatch)$", script):
            reading.skip(line, f"{script} is a script that was not read: whether it starts ranks is unknown")


def _container(launch: Launch, line: int, reading: Reading, target: str) -> None:
    """Write image, working directory and mounts."""
    if not launch.image:
        if not launch.is_read:
            return
        text = 'no container: image = "capture" takes the environment that is active when you submit'
        reading.different.insert(0, Note(line, text, line))
        return
    image = launch.image
    if gap((image, launch.mounts)) is not None:
        reading.open["image"] = line
        return
    if image.startswith(("./", "../")):
        image = _shown(posixpath.normpath(posixpath.join(reading.scope.directory, image)), target)
    reading.set("image", image, line)
    if launch.entrypoint and not (launch.entrypoint is True and "command" not in reading.values):
        reading.set("entrypoint", launch.entrypoint, line)
    if launch.writable:
        reading.set("writable", True, line)
    workdir = _workdir(launch, line, reading, target)
    for source, inside, is_writable in launch.mounts:
        if source != inside or source != workdir:
            shown = _shown(source, target)
            text = (shown if shown == inside else f"{shown}:{inside}") + (":rw" if is_writable else "")
            reading.add("mounts", [text], line)


def _workdir(launch: Launch, line: int, reading: Reading, target: str) -> str:
    """The working directory on the machine; "" for the image's."""
    inside = launch.workdir
    if inside is None:
        reading.set("workdir", "image", line)
        return ""
    if inside == ".":
        return reading.scope.directory
    around = [each for each in launch.mounts if f"{inside}/".startswith(each[1].rstrip("/") + "/")]
    if not around:
        reading.refuse("the working directory", line, f"{inside} is a directory of the image")
        return ""
    source, mounted, _ = max(around, key=lambda each: len(each[1]))
    found = posixpath.normpath(source + inside[len(mounted.rstrip("/")) :])
    if found != target:
        reading.set("workdir", found, line)
    return found


def _sweep(reading: Reading) -> None:
    """An array is a sweep over its numbers."""
    line = reading.request.lines["array"]
    old = reading.values.pop("command", Value([], line))
    for key in [key for key, value in reading.values.items() if repr(ELEMENT)[1:-1] in repr(value)]:
        reading.refuse("the command", line, "the array's number is in a path")
        reading.open[key] = line
    reading.set("command", [_of_point(word) for word in old.value], old.line)
    # The program may read it, too: the elements of Bareboat's array have numbers of their own.
    numbers = dict.fromkeys(_NUMBERS[reading.scheduler], Value(ELEMENT, line))
    for name, each in (numbers | reading.environment).items():
        reading.environment[name] = each._replace(value=_of_point(each.value))
    reading.set(f"sweep.{_ELEMENT}", list(reading.array), line)
    if reading.array != tuple(range(len(reading.array))):
        text = f"the array's numbers {reading.array[0]} to {reading.array[-1]} are the points"
        reading.differ(line, f"{text} .0 to .{len(reading.array) - 1}")


def _of_point(text: str) -> str:
    return re.sub(r"([{}])", r"\1\1", text).replace(ELEMENT, f"{{{_ELEMENT}}}")


def _check_environment(reading: Reading) -> None:
    """Pass variables whose values may be secrets on from the shell that submits."""
    passed = reading.environment_from
    for name, (text, line, *_) in list(reading.environment.items()):
        if looks_secret(name):
            passed[name] = line
        if gap(text) is not None or name in passed:
            del reading.environment[name]
    if passed:
        reading.set("environment_from", sorted(passed), min(passed.values()))


def variables(reading: Reading, folder: str) -> dict[str, str]:
    """What the scheduler sets in the script, as far as the request decides it."""
    request = reading.request
    tasks = request["tasks"] or (request["tasks_per_node"] or 0) * (request["nodes"] or 1) or None
    name = reading.values["name"].value if "name" in reading.values else None
    found = {
        "SLURM_NNODES": request["nodes"], "SLURM_JOB_NUM_NODES": request["nodes"], "SLURM_NTASKS": tasks,
        "SLURM_NPROCS": tasks, "SLURM_NTASKS_PER_NODE": request["tasks_per_node"],
        "SLURM_CPUS_PER_TASK": request["cpus_per_task"], "SLURM_GPUS_ON_NODE": request["gpus_per_node"],
        "SLURM_JOB_NAME": name, "SLURM_SUBMIT_DIR": folder, "PBS_O_WORKDIR": folder, "PBS_JOBNAME": name,
        **dict.fromkeys(_NUMBERS.get(reading.scheduler, ()) if reading.array else (), ELEMENT),
    }  # fmt: skip
    own = f"{reading.scheduler.upper()}_"
    return {key: str(value) for key, value in found.items() if value is not None and key.startswith(own)}


def set_topology(launch: Launch, line: int, reading: Reading) -> None:
    """Write nodes, ranks, processors, GPUs and memory into the reading, and refuse what is not clear."""
    request = launch.request or reading.request
    nodes, gpus, ranks = request["nodes"] or 0, 0, None
    if launch.is_read:
        with reading.refusing(line):
            nodes, ranks = _ranks(launch, request, line, reading)
    else:
        reading.open.update({"command": line, "topology.ranks_per_node": line})
    if nodes:
        reading.set("topology.nodes", nodes, *request.at("nodes", line))
    else:
        reading.open["topology.nodes"] = line
    if (job := reading.request["nodes"]) and job > nodes > 0:
        reading.differ(line, f"only {nodes} of {job} nodes have ranks: the job requests no others")
    tasks = request["tasks_per_node"] or -(-(request["tasks"] or 1) // (request["nodes"] or nodes or 1))
    with reading.refusing(line):
        gpus = _gpus(launch, request, nodes or 1, tasks, reading) if launch.is_read else 0
        if not launch.inner and not gpus:
            reason = f"{launch.inner_starter} starts a rank for each GPU: their number is open"
            raise Unclear(reason, "the ranks")
        ranks = gpus if ranks == 0 else ranks
        if ranks and gpus % ranks:
            raise Unclear(f"{gpus} GPUs on a node for {ranks} ranks", "the GPUs")
    if ranks:
        reading.set("topology.ranks_per_node", ranks, *request.at("tasks"), line)
    if gpus and ranks:
        reading.set("topology.gpus_per_rank", gpus // ranks, *request.at("gpus", line))
    cpus = request["cpus_per_node"]
    if cpus is None and (request["cpus_per_task"] or (not launch.starter and tasks > 1)):
        cpus = (request["cpus_per_task"] or 1) * tasks
    if cpus is None and request["cpus_per_gpu"]:
        cpus = request["cpus_per_gpu"] * gpus
    at = request.at("cpus", *request.at("tasks", line))
    if cpus and cpus < (ranks or 0):
        reading.skip(at[0], f"{cpus} processors on a node for {ranks} ranks: fewer than one each")
    elif cpus and ranks:
        reading.set("topology.cpus_per_rank", cpus // ranks, *at)
    memory = request["memory_per_node"] or (request["memory_per_cpu"] or 0) * (cpus or tasks)
    if memory := memory or (request["memory_per_gpu"] or 0) * gpus:
        reading.set("scheduling.mem_per_node_bytes", memory, *request.at("memory", line))


def _ranks(launch: Launch, request: Request, line: int, reading: Reading) -> tuple[int, int]:
    """Nodes, and ranks on each."""
    nodes, tasks, per_node = request["nodes"], request["tasks"], request["tasks_per_node"]
    starter, inner = launch.starter, launch.inner_starter
    if nodes is None and tasks and per_node:
        nodes = -(-tasks // per_node)
    slots = tasks or (per_node or 1) * (nodes or 1)
    if not starter:
        nodes = nodes or (not reading.scheduler and launch.inner_nodes) or 1
        slots = nodes
        if nodes > 1 and reading.scheduler:
            raise Unclear(f"{nodes} nodes, and the program starts on the first one only", "the ranks")
    elif starter != "srun":
        if reading.scheduler != "slurm" and not (tasks or per_node or launch.tasks or launch.per_node):
            raise Unclear(f"{starter} without a number of ranks", "the ranks")
        total = launch.tasks or (launch.per_node or 0) * (nodes or 1) or slots
        if launch.per_node and nodes is None:
            nodes = total // launch.per_node
        if launch.per_node and launch.per_node * (nodes or 1) != total:
            raise Unclear(f"{total} ranks, {launch.per_node} on each of {nodes} nodes", "the ranks")
        if (nodes or 1) > 1 and total < slots:
            raise Unclear(f"{total} ranks in {slots} slots on {nodes} nodes: which is not clear", "the ranks")
        if (nodes or 1) > 1 and total > slots:
            reading.differ(line, f"{total} ranks on {nodes} nodes: the same number on each")
        slots = total
    if nodes is None and reading.scheduler and slots > _MOST_ON_A_NODE:
        raise Unclear(f"{slots} ranks, and no number of nodes", "the nodes")
    if nodes is None and reading.scheduler and slots > 1:
        reading.differ(line, f"the scheduler may spread the {slots} ranks; here they are on one node")
    nodes = nodes or 1
    if slots % nodes or (inner and slots != nodes):
        raise Unclear(f"{slots} times {inner or 'the program'} on {nodes} nodes", "the ranks")
    if launch.inner_nodes not in (None, nodes):
        raise Unclear(f"{inner} names {launch.inner_nodes} nodes, the request {nodes}", "the nodes")
    return nodes, launch.inner if inner else slots // nodes


def _gpus(launch: Launch, request: Request, nodes: int, tasks: int, reading: Reading) -> int:
    """GPUs on each node. `tasks`: of the request on each node."""
    found = request["gpus_per_node"]
    if request["gpus_per_task"] is not None:
        found = request["gpus_per_task"] * tasks
    elif request["gpus"] is not None and found is None:
        job_nodes = reading.request["nodes"] or nodes
        if request["gpus"] % job_nodes:
            raise Unclear(f"{request['gpus']} GPUs on {job_nodes} nodes", "the GPUs")
        found = request["gpus"] // job_nodes
    visible = reading.environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and re.fullmatch(r"\d+(,\d+)*", visible.value):
        listed = len(set(visible.value.split(",")))
        found = listed if found is None and not reading.scheduler else found or 0
        if found != listed:
            raise Unclear(f"CUDA_VISIBLE_DEVICES={visible.value}, and {found} GPUs requested", "the GPUs")
        del reading.environment["CUDA_VISIBLE_DEVICES"]
        reading.differ(visible.line, "CUDA_VISIBLE_DEVICES is set for each rank")
    if launch.gpus and not found:
        raise Unclear("the container shows GPUs, and their number is not given", "the GPUs")
    if found is None and launch.inner_starter:
        raise Unclear(f"{launch.inner_starter} without GPUs: it usually has one for each rank", "the GPUs")
    return found or 0
