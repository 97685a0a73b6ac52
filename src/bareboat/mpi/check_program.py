"""The MPI check: whether N started ranks are one world of N. A program: one file without dependencies, for
the Python 3.6 or newer of any image.

    python check_program.py --size 2 [--timeout 60] [--library /path/libmpi.so.40]
        [--tell NAME=VALUE]…

NAME=VALUE: variables with which the library reports its transport to other nodes; one rank per node sets
them. Every rank prints one line, `bareboat-mpi-check {"rank": 0, "size": 2, …}`, and exits with 0 when the
world has the expected size and a message of a mebibyte reached all ranks. It exits with 3 when the world has
another size: the silent failure, in which every rank is a singleton, trains a model of its own and exits with
0. With 4 when MPI fails, is not installed, or does not work with the installed mpi4py; with 1 when it hangs.
"""

import argparse
import array
import ctypes
import faulthandler
import importlib.util
import json
import os
import sys

RIGHT, WRONG_SIZE, BROKEN = 0, 3, 4
MARK = "bareboat-mpi-check "

#: Large enough for the transport of large messages: single-copy between processes, rendezvous on a network.
_WORDS = 2**18

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Measured = tuple[int, int, int, str, str]


def main(arguments: "list[str] | None" = None) -> int:
    parser = argparse.ArgumentParser(description="check that the ranks are one world")
    parser.add_argument("--size", type=int, required=True, help="how many ranks were started")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds until a hang is called one")
    parser.add_argument("--library", help="the libmpi to load; otherwise mpi4py's, or what the loader finds")
    parser.add_argument("--tell", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args(arguments)
    if _speaks_for_node():
        # Before the library is loaded: UCX reads its settings then.
        os.environ.update(pair.split("=", 1) for pair in options.tell)
    # In C and without Python's lock: it also ends a rank that spins in MPI_Init.
    faulthandler.dump_traceback_later(options.timeout, exit=True)
    try:
        rank, size, total, library, way = _measure(options.library)
    except Exception as error:
        _say(error=str(error))
        sys.stderr.write(f"bareboat: MPI cannot be used: {error}\n")
        return BROKEN
    finally:
        faulthandler.cancel_dump_traceback_later()
    _say(rank=rank, size=size, host=os.uname().nodename, library=library, way=way)
    if size != options.size:
        sys.stderr.write(wrong_size(size, options.size, library) + "\n")
        return WRONG_SIZE
    if total != size * (size + 1) // 2:
        sys.stderr.write(f"bareboat: a sum over the ranks gave {total}: the messages are not right\n")
        return BROKEN
    return RIGHT


def _speaks_for_node() -> bool:
    """Whether this rank reports for its node, according to the launchers' local ranks: thousands of ranks
    would all print the same."""
    names = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID")
    return next((os.environ[name] for name in names if os.environ.get(name)), "0") == "0"


def wrong_size(size: int, wanted: int, library: str) -> str:
    what = f"{wanted} ranks were started, and each is alone" if size == 1 else f"{wanted} ranks were started"
    return (
        f"bareboat: the MPI world has size {size}, not {wanted}: {what}. "
        f"Their launcher does not support {library}."
    )


def _say(**facts: "Any") -> None:
    # One write: the lines of several ranks must not mix.
    sys.stdout.flush()
    os.write(1, (MARK + json.dumps(facts, sort_keys=True) + "\n").encode())


def _measure(path: "str | None") -> "Measured":
    """Rank, size, the sum of rank + 1 over a mebibyte, the library's version text, and the interface used."""
    found = None if path else importlib.util.find_spec("mpi4py")
    if found is not None and found.has_location:  # not just a directory of that name
        return _by_mpi4py(_mpi4py())
    return _by_ctypes(_load(path))


def _mpi4py() -> "Any":
    """mpi4py's MPI. If it is installed, the job imports it: a check by other means would not test it."""
    try:
        from mpi4py import MPI
    except Exception as error:  # mpi4py's wheels, which search for libmpi themselves, raise RuntimeError
        said = " ".join(str(error).split())
        raise RuntimeError(
            f"mpi4py is installed, but cannot be imported: {said}. Either its libmpi is not installed, "
            "or it was built for another one; try: python -m pip install --force-reinstall "
            "--no-binary=mpi4py mpi4py, or uninstall it, if nothing imports it"
        ) from error
    return MPI


def _by_mpi4py(MPI: "Any") -> "Measured":
    world = MPI.COMM_WORLD
    given = array.array("i", [world.Get_rank() + 1]) * _WORDS
    taken = array.array("i", [0]) * _WORDS
    world.Allreduce([given, _WORDS, MPI.INT], [taken, _WORDS, MPI.INT])
    library = MPI.Get_library_version()
    found = world.Get_rank(), world.Get_size(), taken[-1], _shortened(library), "mpi4py"
    MPI.Finalize()
    return found


def _load(path: "str | None") -> ctypes.CDLL:
    names = [path] if path else ["libmpi.so.40", "libmpi.so.12", "libmpich.so.12", "libmpi.so"]
    reasons = []
    for name in names:
        try:
            # OpenMPI's plugins need its symbols.
            return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            reasons.append(str(error))
    raise RuntimeError("no libmpi can be loaded: " + "; ".join(reasons))


def _by_ctypes(mpi: ctypes.CDLL) -> "Measured":
    """OpenMPI's handles are addresses of exported variables; those of MPICH's kind are numbers (mpi.h)."""
    if hasattr(mpi, "ompi_mpi_comm_world"):

        def handle(name: str) -> "Any":
            return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))

        handles = [handle(name) for name in ("ompi_mpi_comm_world", "ompi_mpi_int", "ompi_mpi_op_sum")]
    else:
        handles = [ctypes.c_int(number) for number in (0x44000000, 0x4C000405, 0x58000003)]
    world, integer, plus = handles

    def call(name: str, *values: "Any") -> None:
        code = getattr(mpi, name)(*values)
        if code:
            raise RuntimeError(f"{name} returned {code}")

    call("MPI_Init", None, None)
    rank, size, length = ctypes.c_int(-1), ctypes.c_int(-1), ctypes.c_int(0)
    call("MPI_Comm_rank", world, ctypes.byref(rank))
    call("MPI_Comm_size", world, ctypes.byref(size))
    given = (ctypes.c_int * _WORDS).from_buffer(array.array("i", [rank.value + 1]) * _WORDS)
    taken = (ctypes.c_int * _WORDS)()
    call("MPI_Allreduce", given, taken, ctypes.c_int(_WORDS), integer, plus, world)
    text = ctypes.create_string_buffer(65536)
    call("MPI_Get_library_version", text, ctypes.byref(length))
    call("MPI_Finalize")
    return (
        rank.value,
        size.value,
        taken[_WORDS - 1],
        _shortened(text.value.decode("utf-8", "replace")),
        "ctypes",
    )


def _shortened(library: str) -> str:
    return " ".join(library.split(",")[0].split("\n")[0].split())


if __name__ == "__main__":
    sys.exit(main())
