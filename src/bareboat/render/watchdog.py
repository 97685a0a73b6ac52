"""The watchdog, in bash: a part of the job scripts of jobs that ask for one (`scheduling.watchdog_s`).

Each part of the script that starts ranks (a node's, or under mpirun and srun a rank's: a unit) looks at what
its own ranks print and report, and says by a file of the run's folder when that has stood still for too long.
Only when all say so does the first of them ask for the stacks, and when they are kept, end the run: while a
rank evaluates for an hour and says so, those that wait for it do not hang. As long as there is something
to see the run's folder is left alone.

    watch/quiet.UNIT   its ranks have said nothing for so long
    watch/asked        all units are quiet: where do their ranks stand?
    watch/stacks.UNIT  it has kept that, and they are quiet still
    watch/verdict      the run hangs, and ends
    watch/stopped.UNIT those of its ranks that must tell their stacks themselves are ready to
    watch/over.UNIT    nothing more is to be learned from its ranks
"""

from __future__ import annotations

from bareboat.model import Plan, Start
from bareboat.model.end import HUNG
from bareboat.render import words
from bareboat.render.pieces import piece

#: The longest time between two looks. It adds to the time that a hang is noticed after.
_LONGEST_LOOK_S = 10

#: After the ranks here. The end of one ends the others: not before all have kept what is to be learned.
BARRIER = """\
[ ! -e "$silence/verdict" ] || wait_for over
"""

_AT_ONCE_END = """\
if [ -e "$silence/verdict" ]; then
  end_run
  tell_hang
  trap - EXIT # a folder of this script's own stays, with the stacks
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
    """What stands around the command where the watchdog must keep what it prints, since the launcher does
    not: as in `render._around`."""
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
    """In the first part, when the ranks are over."""
    if not is_on(plan):
        return ""
    return (_AT_ONCE_END if at_once else _CLUSTER_END).format(code=HUNG)
