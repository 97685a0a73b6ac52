"""Apply a model to many files, in parallel: each rank takes its share, and skips what is done already."""

import argparse
import os
import pathlib

import numpy as np


def make_inputs(folder, files, samples=2000):
    """Synthetic inputs, for the example only."""
    folder.mkdir(exist_ok=True)
    for number in range(files):
        path = folder / f"part{number:03}.npy"
        if not path.exists():
            write(path, np.random.default_rng(number).normal(size=(samples, 64)).astype("float32"))


def write(path, array):
    """Write the file completely, or not at all: an interrupted run leaves no partial result."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    with part.open("wb") as file:
        np.save(file, array)
    part.replace(path)


class Model:
    """A small network with fixed weights; load your own here."""

    def __init__(self):
        generator = np.random.default_rng(0)
        self.hidden = generator.normal(size=(64, 256)).astype("float32") / 8
        self.output = generator.normal(size=(256, 10)).astype("float32") / 16

    def predict(self, x):
        return (np.maximum(x @ self.hidden, 0) @ self.output).argmax(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=pathlib.Path, default="input", help="directory of the inputs")
    parser.add_argument("--output", type=pathlib.Path, default="output", help="directory of the results")
    parser.add_argument(
        "--make-inputs", type=int, default=0, metavar="N", help="first write N synthetic inputs"
    )
    options = parser.parse_args()

    rank = int(os.environ.get("RANK", 0))
    size = int(os.environ.get("WORLD_SIZE", 1))
    if options.make_inputs:
        make_inputs(options.input, options.make_inputs)
    options.output.mkdir(exist_ok=True)
    model = Model()
    mine = sorted(options.input.glob("*.npy"))[rank::size]
    done = 0
    for path in mine:
        result = options.output / path.name
        if not result.exists():
            write(result, model.predict(np.load(path)))
            done += 1
    print(
        f"rank {rank} of {size}: {done} of {len(mine)} files predicted, {len(mine) - done} done before",
        flush=True,
    )


if __name__ == "__main__":
    main()
