"""Heat flow on a plate, in parallel with mpi4py: each rank computes a strip, and exchanges its edges."""

import argparse

import numpy as np
from mpi4py import MPI


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=128, help="points in each direction")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--output", default="plate.npy", help="file of the result")
    options = parser.parse_args()

    comm = MPI.COMM_WORLD
    rank, size = comm.Get_rank(), comm.Get_size()
    rows = options.size // size + (rank < options.size % size)
    if rank == 0:
        print(f"{options.size} x {options.size} points on {size} ranks", flush=True)

    # One row above and one below the strip belong to its neighbours. The plate's top edge is hot.
    plate = np.zeros((rows + 2, options.size))
    if rank == 0:
        plate[0] = 100.0
    above = rank - 1 if rank > 0 else MPI.PROC_NULL
    below = rank + 1 if rank < size - 1 else MPI.PROC_NULL

    for step in range(1, options.steps + 1):
        comm.Sendrecv(plate[1], dest=above, recvbuf=plate[-1], source=below)
        comm.Sendrecv(plate[-2], dest=below, recvbuf=plate[0], source=above)
        new = (plate[:-2, 1:-1] + plate[2:, 1:-1] + plate[1:-1, :-2] + plate[1:-1, 2:]) / 4
        change = np.abs(new - plate[1:-1, 1:-1]).max()
        plate[1:-1, 1:-1] = new
        if step % 1000 == 0:
            largest = comm.reduce(change, op=MPI.MAX)
            if rank == 0:
                print(f"step {step}: largest change {largest:.6f}", flush=True)

    strips = comm.gather(plate[1:-1])
    if rank == 0:
        whole = np.concatenate(strips)
        np.save(options.output, whole)
        print(f"mean temperature {whole.mean():.4f}, saved {options.output}", flush=True)


if __name__ == "__main__":
    main()
