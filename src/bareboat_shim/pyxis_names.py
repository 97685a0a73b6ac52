"""Containers of Pyxis that are kept or saved: one for each node, which all tasks on it share."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bareboat_shim.table import Mistake

if TYPE_CHECKING:
    from bareboat.api.instances import Instance

_COUNT = re.compile(r"([0-9]+)(?:\(x([0-9]+)\))?")


class Place(NamedTuple):
    """Where a task runs. `subject`: the image or container; `environment`: what its image sets; `mounts`: of
    the task, or of the running container that it joins."""

    subject: str | Instance
    environment: Mapping[str, str]
    mounts: Sequence[str]


@contextlib.contextmanager
def entered(values: Mapping[str, Any], outside: Mapping[str, str]) -> Iterator[Place]:
    """The place of a task while its command runs. Raises Mistake and BareboatError."""
    from bareboat.api import instances
    from bareboat.api.container import prepare

    if not values["name"] and not values["save"]:
        yield Place(values["tree"], prepare(values["tree"]).environment, values["mounts"])
        return
    step = _step(values, outside)
    instance = _provided(values, step, outside)
    others = [settings for what, settings in instances.users(instance) if what != step]
    mounts = _mounts(values, others)
    settings = {"mounts": json.dumps(mounts), "unshare": ",".join(values["unshare"])}
    with instances.used(instance, step, settings):
        yield Place(instance, instance.image.environment, mounts)


def _step(values: Mapping[str, Any], outside: Mapping[str, str]) -> str:
    number = "batch" if values["tool"] == "sbatch" else outside.get("SLURM_STEP_ID", "0")
    return f"{outside.get('SLURM_JOB_ID', '0')}.{number}"


def _name(values: Mapping[str, Any], step: str, outside: Mapping[str, str]) -> str:
    """The name in the store, which all nodes see."""
    node = outside.get("SLURMD_NODENAME") or os.uname().nodename
    return f"pyxis_{values['name'] or step}.{node}"


def _provided(values: Mapping[str, Any], step: str, outside: Mapping[str, str]) -> Instance:
    from bareboat.api import instances

    name, flag = _name(values, step, outside), values["name_flag"]
    found = instances.find(name)
    if found is None and not values["tree"]:
        raise Mistake(
            f'a container with name "{values["name"]}" does not exist, and --container-image is not set',
            "--container-image=REFERENCE",
        )
    if found is None and flag != "exec":
        found = instances.provide(values["tree"], name=name, origin=step, temporary=not values["name"])
    if found is None:
        raise _not_running(values)
    if flag == "create" and found.origin != step:
        raise Mistake(
            f'the flag create was passed, but the container "{values["name"]}" already exists',
            f"--container-name={values['name']}, or udocker rm {name}",
        )
    return found


def _not_running(values: Mapping[str, Any]) -> Mistake:
    return Mistake(
        f'the flag exec was passed, but the container "{values["name"]}" is not running',
        f"--container-name={values['name']}",
    )


def _mounts(values: Mapping[str, Any], others: Sequence[Mapping[str, str]]) -> list[str]:
    """`others`: the settings of other steps that run in the container."""
    own: list[str] = list(values["mounts"])
    if not others and values["name_flag"] == "exec":
        raise _not_running(values)
    if not others or values["name_flag"] == "no_exec":
        return own
    if values["unshare"] or any(each["unshare"] for each in others):
        raise Mistake(
            f'the container "{values["name"]}" runs, and its namespaces cannot be joined: '
            "--container-unshare is not supported there",
            f"--container-name={values['name']}:no_exec",
        )
    if own:
        print(
            f"{values['tool']}: warning: --container-mounts is ignored: the container "
            f'"{values["name"]}" runs, and keeps its mounts; --container-name={values["name"]}:no_exec',
            file=sys.stderr,
        )
    mounts: list[str] = json.loads(others[0]["mounts"])
    return mounts


def check_save(values: Mapping[str, Any], outside: Mapping[str, str]) -> None:
    """Raises Mistake for a step on several nodes."""
    if values["save"] and values["tool"] != "sbatch" and outside.get("SLURM_STEP_NUM_NODES", "1") != "1":
        raise Mistake(
            "--container-save is not supported on several nodes: each has a container of its own",
            "srun -N1 …",
        )


def save(values: Mapping[str, Any], instance: str | Instance, outside: Mapping[str, str]) -> None:
    """Save the container when the last task of the step on this node has ended. Raises BareboatError."""
    from bareboat.api import instances

    if isinstance(instance, str):
        return
    step = _step(values, outside)
    folder = os.path.join(os.path.dirname(instance.tree), f"ended-{step}")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, outside.get("SLURM_PROCID", "0")), "w", encoding="ascii"):
        pass
    count = 1 if values["tool"] == "sbatch" else _tasks(outside)
    if len(os.listdir(folder)) < count:
        return
    try:
        os.mkdir(f"{folder}.saved")
    except FileExistsError:  # another task ended in the same moment
        return
    target = os.path.abspath(values["save"])
    instances.save_squashfs(instance, target)
    print(f"{values['tool']}: saved the container to {target}", file=sys.stderr)
    if instance.temporary:
        instances.remove(instance)


def _tasks(outside: Mapping[str, str]) -> int:
    """The tasks of the step on this node: `2(x3),1` lists those of four nodes."""
    counts = _COUNT.findall(outside.get("SLURM_STEP_TASKS_PER_NODE", "1"))
    each = [int(number) for number, times in counts for _ in range(int(times or 1))]
    node = int(outside.get("SLURM_NODEID", "0"))
    return each[node] if node < len(each) else 1
