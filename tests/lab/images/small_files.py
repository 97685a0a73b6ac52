"""Write 200,000 small files (0 to 16 kB, median about 1 kB) below a folder; equal at each run."""

import random
import sys
from pathlib import Path

FILES = 200_000
PER_FOLDER = 100

target = Path(sys.argv[1])
rng = random.Random(1)
words = [bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz_", k=rng.randint(2, 11))) for _ in range(2000)]
text = b" ".join(rng.choices(words, k=400_000))
for number in range(FILES):
    folder = target / f"{number // PER_FOLDER // 50:03d}" / f"package_{number // PER_FOLDER:05d}"
    if number % PER_FOLDER == 0:
        folder.mkdir(parents=True)
    size = min(int(rng.lognormvariate(7, 1.2)), 16384)
    begin = rng.randrange(len(text) - size)
    (folder / f"module_{number:06d}.py").write_bytes(text[begin : begin + size])
