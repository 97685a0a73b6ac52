"""Write 4 GB in 16 files below a folder, half random as weights are, half text; equal at each run."""

import random
import sys
from pathlib import Path

FILES = 16
CHUNKS = 64
CHUNK_BYTES = 4_000_000

target = Path(sys.argv[1])
target.mkdir(parents=True)
rng = random.Random(1)
words = [
    bytes(rng.choices(b"0123456789abcdefghijklmnopqrstuvwxyz", k=rng.randint(1, 9))) for _ in range(5000)
]
for number in range(FILES):
    kind = "bin" if number % 2 else "txt"
    with open(target / f"part{number:02d}.{kind}", "wb") as stream:
        for _ in range(CHUNKS):
            if kind == "bin":
                stream.write(rng.randbytes(CHUNK_BYTES))
            else:
                begin = b" ".join(rng.choices(words, k=CHUNK_BYTES // 8))
                stream.write((begin * 3)[:CHUNK_BYTES])
