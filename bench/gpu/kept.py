"""Is the first step on a GPU as fast in a container as on bare metal, once the compiled kernels are kept?

    python bench/gpu/kept.py [--engine NAME] [--pairs N] [--device cpu] [--output FILE]

A program that trains ResNet-50, then a transformer, then calls a function of torch.compile runs by `bareboat
run` on bare metal and in the container in turns; the side that is first changes. On bare metal the tools keep
their kernels in their own directories, in the container Bareboat keeps them. The first pair fills both and is
shown alone. Printed: the geometric means of the other pairs, and their ratio with its 95 % interval.
--device cpu tries the bench itself without a GPU.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bareboat_study.statistics import estimate, mean_of

SIDES = ("native", "container")
_PROGRAM = r"""
import json, sys, time
began = time.perf_counter()
import torch, torchvision
from torch import nn
device, path, compiles = sys.argv[1], sys.argv[2], sys.argv[3] == "1"
times = {"import": time.perf_counter() - began}

def took(name, call):
    began = time.perf_counter()
    found = call()
    if device == "cuda":
        torch.cuda.synchronize()
    times[name] = time.perf_counter() - began
    return found

took("start of CUDA", lambda: torch.zeros(1, device=device))
small = device == "cpu"
torch.manual_seed(0)

def train(model, given):
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = model(given).float().square().mean()
    loss.backward()

model = torchvision.models.resnet50().to(device)
images = torch.randn(2 if small else 64, 3, 64 if small else 224, 64 if small else 224, device=device)
took("ResNet-50, first step", lambda: train(model, images))
took("ResNet-50, second step", lambda: train(model, images))
layer = nn.TransformerEncoderLayer(1024, nhead=8, dim_feedforward=4096, dropout=0.0, batch_first=True)
model = nn.TransformerEncoder(layer, 1 if small else 8, enable_nested_tensor=False).to(device)
words = torch.randn(2 if small else 32, 8 if small else 512, 1024, device=device)
took("transformer, first step", lambda: train(model, words))
took("transformer, second step", lambda: train(model, words))
if compiles:
    compiled = torch.compile(lambda x: torch.softmax(x * 2 + 1, -1).sum(0))
    took("torch.compile, first call", lambda: compiled(words[0]))
    took("torch.compile, second call", lambda: compiled(words[0]))
with open(path, "w") as file:
    json.dump(times, file)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", default="bubblewrap")
    parser.add_argument("--pairs", type=int, default=8)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--without-compiler", action="store_true", help="leave out torch.compile")
    parser.add_argument("--output", type=Path, help="every run, as JSON lines")
    options = parser.parse_args()
    rows: list[dict[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "program.py").write_text(_PROGRAM)
        for number in range(options.pairs + 1):
            order = SIDES if number % 2 else SIDES[::-1]
            rows.append({side: _run(work, side, options) for side in order})
            line = json.dumps({"pair": number, **rows[-1]})
            print(line, file=sys.stderr, flush=True)
            if options.output is not None:
                with options.output.open("a") as file:
                    file.write(line + "\n")
    _show(rows)
    return 0


def _run(work: Path, side: str, options: argparse.Namespace) -> dict[str, float]:
    engine = "native" if side == "native" else options.engine
    compiles = not options.without_compiler
    job = work / f"{side}.toml"
    # One path in both, so that the caches of both have one key.
    result = work / "times.json"
    command = ["python", "program.py", options.device, "times.json", str(int(compiles))]
    gpus = int(options.device == "cuda")
    job.write_text(
        f'name = "kept"\ncommand = {json.dumps(command)}\n[topology]\ngpus_per_rank = {gpus}\n'
        f"[capture]\ncompiler = {json.dumps(compiles)}\n"
    )
    words = [sys.executable, "-m", "bareboat", "run", "-q", str(job), "--engine", engine]
    subprocess.run([*words, "--python", sys.executable], cwd=work, check=True, stdout=subprocess.DEVNULL)
    found: dict[str, float] = json.loads(result.read_text())
    result.unlink()
    return found


def _show(rows: list[dict[str, dict[str, float]]]) -> None:
    print(f"{'':<28} {'empty caches':^19}   {'kept caches':^40}")
    print(f"{'seconds':<28} {'bare':>9} {'container':>9}   {'bare':>9} {'container':>9}  ratio [95 %]")
    for name in rows[0]["native"]:
        first = [rows[0][side][name] for side in SIDES]
        kept = [[row[side][name] for row in rows[1:]] for side in SIDES]
        means = [statistics.geometric_mean(values) for values in kept]
        ratio = ""
        if len(rows) > 2:
            logs = [math.log(theirs / bare) for bare, theirs in zip(*kept, strict=True)]
            found = estimate(mean_of(logs), confidence=0.95)
            ratio = f"{found.ratio:.3f} [{found.low:.3f}, {found.high:.3f}]"
        cells = " ".join(f"{value:>9.3f}" for value in first) + "   "
        print(f"{name:<28} {cells}{means[0]:>9.3f} {means[1]:>9.3f}  {ratio}")


if __name__ == "__main__":
    sys.exit(main())
