"""The pieces of a job script that check the transport between nodes, as the ranks' libraries report it, and
what happens to ranks that fell back to TCP."""

from __future__ import annotations

from msgspec import UNSET

from bareboat.fabric import transport_logs
from bareboat.model import Plan
from bareboat.model.fabric import FabricWatch
from bareboat.render import words
from bareboat.render.pieces import piece


def values(plan: Plan, watch: FabricWatch) -> str:
    """For the script's head."""
    if not _looks(watch):
        return ""
    # In the MPI check one log is for all ranks; with NCCL each process has a file.
    tellers = plan.job.topology.world_size if watch.nccl else 1
    return words.values(
        by_sockets=transport_logs.SOCKETS,
        by_fabric=transport_logs.FABRIC,
        fabric_there=watch.there,
        fabric_tellers=tellers,
    )


def _looks(watch: FabricWatch) -> bool:
    return bool(watch.there) and (watch.mpi_check or watch.nccl)


def before(plan: Plan) -> list[str]:
    """The lines before the job runs, on the first node."""
    watch = plan.fabric
    if watch is UNSET:
        return []
    found = []
    if watch.nccl or watch.there:
        found.append('rm -f "$BAREBOAT_CONTROL/no_fabric" # of an earlier start\n')
    if not _looks(watch):
        return found
    found += [piece("fabric"), piece("fabric_require" if watch.required else "fabric_mark")]
    if watch.mpi_check and watch.program and plan.mpi_check is not None:
        found.append("judge_check\n")
    if places := _watched(watch):
        found.append(f"fabric_words=({places})\n" + piece("fabric_watch"))
    return found


def after(plan: Plan) -> list[str]:
    """The lines after the job."""
    watch = plan.fabric
    if watch is UNSET or not watch.there or not _watched(watch):
        return []
    return [piece("fabric_require_end" if watch.required else "fabric_mark_end")]


def _watched(watch: FabricWatch) -> str:
    """The files that a watcher reads; "" when the MPI check, which the script runs itself, reports
    everything."""
    found = []
    if watch.mpi_check and not watch.program:  # the image's own mpirun checks its ranks itself
        found.append('"$BAREBOAT_RUN_DIR/mpi_check.log"')
    if watch.nccl:
        found.append(f'"$BAREBOAT_RUN_DIR/{transport_logs.NCCL_FOLDER}"')
    return " ".join(found)
