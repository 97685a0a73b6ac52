"""What the ranks of MPI need in containers of their own on one machine."""

from __future__ import annotations

import os
from collections.abc import Mapping

#: Of OpenMPI before 5: ranks in several user namespaces cannot read each other's memory, and may hang.
_SINGLE_COPY = "OMPI_MCA_btl_vader_single_copy_mechanism"


def folders(outside: Mapping[str, str]) -> list[str]:
    """The directory of the PMIx server of srun or mpirun, which is a node's own."""
    path = outside.get("PMIX_SERVER_TMPDIR", "")
    return [path] if os.path.isdir(path) else []


def settings(outside: Mapping[str, str]) -> dict[str, str]:
    """Variables for a rank, below those of the image and the user."""
    return {_SINGLE_COPY: "none"} if "PMIX_RANK" in outside else {}
