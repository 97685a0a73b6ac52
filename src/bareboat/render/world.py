"""Whether the ranks are one world, in bash: part of the scripts of jobs with several ranks.

Ranks that do not find each other each train a model and exit with code 0. With any library, the processes of
one world have connections to each other. So each node polls the TCP connections of the run's processes,
several times in the first ten minutes, until all ranks are one group. A group is a guess where ranks use a
transport that cannot be observed: it ends no job, and the script only warns.

    world/looks.UNIT   what one node saw: `seen RANK SECONDS`, `RANK END OTHER-END`, `unknown`
    world/one          all ranks are one group: polling stops
    world/apart        the groups, after a minute or at the job's end
"""

from __future__ import annotations

from bareboat.model import Plan, Start
from bareboat.render import words
from bareboat.render.pieces import piece

#: Seconds between two polls. A program may load its libraries for minutes.
_PAUSES_S = (2, 2, 2, 2, 2, 5, 5, 10, 15, 15, 30, 30, 60, 120, 300)

#: After the ranks here: otherwise the script's leftover processes would count as the command's.
STOP = """\
[ -z "${world_watch:-}" ] || { kill -KILL "$world_watch"; wait "$world_watch"; } 2> /dev/null
"""


def is_watched(plan: Plan) -> bool:
    return plan.watches_world is True


def values(plan: Plan) -> str:
    """For the script's head."""
    return words.values(world_pauses_s=tuple(map(str, _PAUSES_S))) if is_watched(plan) else ""


def functions(plan: Plan) -> list[str]:
    """For every part of the script."""
    if not is_watched(plan):
        return []
    names = ["world"]
    if plan.start is Start.PROGRAM:
        names.append("world_unchecked" if plan.mpi_check is None else "world_checked")
    return [piece(name) for name in names]


def begin(plan: Plan) -> str:
    """Before the ranks are started, once."""
    return piece("world_begin") if is_watched(plan) else ""


def start(plan: Plan, *, node: str) -> str:
    """Beside the ranks. `node`: bash for the node's number; where a program starts the ranks, the first rank
    of each node polls."""
    if not is_watched(plan):
        return ""
    if plan.start is not Start.PROGRAM:
        return f"unit={node}\nstart_watching_world\n"
    names = "rank_names; " if plan.prelude else ""
    return (
        f'read -r unit local_rank < <({names}echo "${{RANK:-0}} ${{LOCAL_RANK:-0}}")\n'
        '[ "$what" = check ] || [ "$local_rank" -ne 0 ] || start_watching_world\n'
    )


def end(plan: Plan) -> str:
    """In the first part, when the ranks have ended."""
    return piece("world_end") if is_watched(plan) else ""
