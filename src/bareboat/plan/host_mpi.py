"""What a container gets of the host's MPI when a launcher requires it."""

from __future__ import annotations

from bareboat.model import Decision, Mount, MpiFacts, Rootfs
from bareboat.mpi import inject
from bareboat_base.errors import PlanError


def bind(mpi: MpiFacts | None, rootfs: Rootfs | None) -> tuple[tuple[Mount, ...], tuple[Decision, ...]]:
    """The mounts of the host's MPI. Raises PlanError if they were not prepared."""
    if mpi is None or rootfs is None:
        return (), ()
    tree = rootfs.host_mpis.get(mpi.library or "")
    if tree is None or mpi.runtime is None:
        raise PlanError(
            f"it is not known what {mpi.title} of the host needs",
            remedy="bareboat plan JOB   # on this machine",
        )
    mains = sorted(m.target for m in tree.over if m.target.rpartition("/")[2].startswith("libmpi"))
    over = f", {len(tree.over)} files over the image's own ({', '.join(mains)})" if tree.over else ""
    own = f"; the image's own {', '.join(tree.left_out)} serve it" if tree.left_out else ""
    decision = Decision(
        subject="host's MPI",
        choice=f"{mpi.title}, {mpi.library}",
        reason=f"{len(mpi.runtime.libraries) - len(tree.left_out)} libraries are bound in{over}{own}",
    )
    return inject.mounts(mpi.runtime, tree), (decision,)
