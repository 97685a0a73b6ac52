"""The watchdog, in bash: part of the scripts of jobs that request it (`scheduling.watchdog_s`).

Each part of the script that starts ranks (a node's, or under mpirun and srun a rank's: a unit) polls the
output and reports of its own ranks, and creates a file in the run's directory when they have not changed for
too long. Only when all units have, the first one requests the stacks and, when they are kept, ends the run:
if one rank evaluates for an hour and reports it, the ranks that wait for it do not hang. While there is
output, nothing is written to the run's directory.

    watch/quiet.UNIT   its ranks have reported nothing for the limit
    watch/asked        all units are quiet: keep the stacks
    watch/stacks.UNIT  it has kept them, and its ranks are still quiet
    watch/verdict      the run hangs and ends
    watch/stopped.UNIT its ranks that must print their own stacks are stopped
    watch/over.UNIT    nothing more can be learned from its ranks
"""

from __future__ import annotations

from bareboat.model import Plan, Start
from bareboat.model.end import HUNG
from bareboat.render import words
from bareboat.render.pieces import piece

#: Maximum seconds between two polls. It adds to the time until a hang is noticed.
_LONGEST_LOOK_S = 10

#: After the ranks here. The end of one ends the others: wait until all units have kept their findings.
BARRIER = """\
[ ! -e "$silence/verdict" ] || wait_for over
"""

_AT_ONCE_END = """\
if [ -e "$silence/verdict" ]; then
  end_run
  tell_hang
  trap - EXIT # keep this script's own directory, with the stacks
  exit {code}
fi
"""

_CLUSTER_END = """\
if [ -e "$silence/verdict" ]; then
  tell_hang
  trap '' TERM INT HUP
  finish {code}
fi
"""


def is_on(plan: Plan) -> bool:
    return bool(plan.job.scheduling.watchdog_s)


def output(plan: Plan) -> tuple[str, str, tuple[str, str]]:
    """The lines around the command where the watchdog must keep its output, because the launcher does not;
    like `render._around`."""
    if not is_on(plan) or plan.keeps_output:
        return "", "", ("", "")
    return (
        'keep_output "$silence/$unit"\n',
        "  exec >&3 2>&4 3>&- 4>&-\n",
        ("exec 3>&- 4>&-\n", "output_kept\n"),
    )


def values(plan: Plan) -> str:
    """For the script's head."""
    if not is_on(plan):
        return ""
    topology, limit_s = plan.job.topology, plan.job.scheduling.watchdog_s or 0
    by_rank = plan.start is Start.PROGRAM
    mixed = not plan.keeps_output and not by_rank and topology.world_size > 1
    return words.values(
        quiet_limit_s=limit_s,
        look_s=max(1, min(_LONGEST_LOOK_S, limit_s // 10)),
        units=topology.world_size if by_rank else topology.nodes,
        unit_ranks=1 if by_rank else topology.ranks_per_node,
        mixed_output=1 if mixed else "",
        by_lines=1 if by_rank else "",
        py_spy=plan.py_spy or "",
    )


def functions(plan: Plan) -> list[str]:
    """For every part of the script; BAREBOAT_CONTROL, BAREBOAT_RUN_DIR and BAREBOAT_HOST are known."""
    if not is_on(plan):
        return []
    names = ["watchdog"] if plan.keeps_output else ["watchdog", "keep_output"]
    return [piece(name) for name in names]


def begin(plan: Plan) -> str:
    """Before the ranks are started, once."""
    return piece("watchdog_begin") if is_on(plan) else ""


def start(plan: Plan, *, node: str) -> str:
    """Beside the ranks: in each part of the script that starts some. `node`: bash for the node's number."""
    if not is_on(plan):
        return ""
    if plan.start is not Start.PROGRAM:
        return f"unit={node}\nstart_watchdog\n"
    names = "rank_names; " if plan.prelude else ""
    return f'unit=$({names}echo "${{RANK:-0}}")\n[ "$what" = check ] || start_watchdog\n'


def end(plan: Plan, *, at_once: bool) -> str:
    """In the first part, when the ranks have ended."""
    if not is_on(plan):
        return ""
    return (_AT_ONCE_END if at_once else _CLUSTER_END).format(code=HUNG)
