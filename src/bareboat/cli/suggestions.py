"""What other tools call the flags of a job."""

from __future__ import annotations

_MOUNTS = "bareboat run --set mounts=SOURCE:TARGET:rw …"
_VARIABLES = "bareboat run --set environment.NAME=VALUE …, or --env-from NAME for one of this shell"
#: A flag of another tool -> what to write.
OTHER_FLAGS = {
    **dict.fromkeys(("--mount", "--bind", "--volume", "-B", "-v"), _MOUNTS),
    **dict.fromkeys(("-e", "--env"), _VARIABLES),
    **dict.fromkeys(("--ntasks-per-node", "--tasks-per-node", "--ppn"), "--ranks-per-node N"),
    **dict.fromkeys(("--cpus-per-task", "-c"), "--cpus-per-rank N"),
    "--gpus-per-task": "--gpus-per-rank N",
    "--np": "--ntasks N",
    **dict.fromkeys(("--walltime", "--walltime-s"), "--time 2h"),
    **dict.fromkeys(("--memory", "--mem-per-node", "--mem-per-node-bytes"), "--mem 8GB"),
    **dict.fromkeys(("--scheduler", "--qos", "--reservation", "--constraint"), "bareboat submit …"),
    "--queue": "--partition NAME",
    "--project": "--account NAME",
    **dict.fromkeys(
        ("--exclusive", "--requeue", "--after", "--options"), "a key below [scheduling] in the job file"
    ),
}
