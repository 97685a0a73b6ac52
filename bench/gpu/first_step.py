"""Why is a program's first step on a GPU slower in a container? Times it with each cache and loading mode.

    python bench/gpu/first_step.py [--engine NAME] [--rounds N] [--device cpu] [--output FILE]

PyTorch is imported once on bare metal and once in the container; each trial is a fork of that process, so
that the driver starts anew. The two sides take turns, trial by trial, through files in the working directory.
A trial is the start of CUDA, the first forward and backward pass, and the second; bench/gpu/train.py's model.
What CUDA then has in its cache is counted. --device cpu tries the bench itself without a GPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

#: Name, and the environment of a trial. {empty}: a new directory; {kept}: one for all trials of this variant.
VARIANTS: dict[str, dict[str, str]] = {
    "as it is": {},
    "empty cache": {"CUDA_CACHE_PATH": "{empty}"},
    "kept cache": {"CUDA_CACHE_PATH": "{kept}"},
    "no cache": {"CUDA_CACHE_DISABLE": "1"},
    "kept cache, eager": {"CUDA_CACHE_PATH": "{kept}", "CUDA_MODULE_LOADING": "EAGER"},
}

_PROGRAM = r"""
import json, os, sys, time
from pathlib import Path
side, device, rounds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
variants = json.loads(Path("variants.json").read_text())
import torch
from torch import nn

def step(model, given):
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = model(given).float().square().mean()
    torch.autograd.backward(loss)
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()

def trial(environment):
    os.environ.update(environment)
    torch.manual_seed(0)
    began = time.perf_counter()
    if device == "cuda":
        torch.zeros(1, device=device); torch.cuda.synchronize()
    started = time.perf_counter()
    layer = nn.TransformerEncoderLayer(1024, nhead=8, dim_feedforward=4096, dropout=0.0, batch_first=True)
    small = device == "cpu"
    model = nn.TransformerEncoder(layer, 1 if small else 8, enable_nested_tensor=False).to(device)
    given = torch.randn(1 if small else 32, 8 if small else 512, 1024, device=device)
    if not small:
        torch.cuda.synchronize()
    made = time.perf_counter()
    first = step(model, given)
    second = step(model, given)
    cache = Path(os.environ.get("CUDA_CACHE_PATH") or os.path.expanduser("~/.nv/ComputeCache"))
    files = [each.stat().st_size for each in cache.rglob("*") if each.is_file()]
    return {"start_s": started - began, "model_s": made - started, "first_s": first - made,
            "second_s": second - first, "cache_files": len(files), "cache_bytes": sum(files)}

for turn in range(rounds * len(variants) * 2):
    while not Path(f"turn-{turn}").exists():
        time.sleep(0.005)
    number, ours = divmod(turn, 2)
    if ours == side:
        name, given = variants[number % len(variants)]
        places = {"empty": f"{os.getcwd()}/empty-{turn}",
                  "kept": f"{os.getcwd()}/kept-{side}-{number % len(variants)}"}
        environment = {key: value.format(**places) for key, value in given.items()}
        if "CUDA_CACHE_PATH" in environment:
            os.makedirs(environment["CUDA_CACHE_PATH"], exist_ok=True)
        child = os.fork()
        if not child:
            try:
                result = trial(environment)
            except BaseException as error:
                result = {"failed": repr(error)}
            with open("results.jsonl", "a") as file:
                line = {"side": side, "variant": name, "round": number // len(variants), **result}
                file.write(json.dumps(line) + "\n")
            os._exit(0)
        os.waitpid(child, 0)
        Path(f"turn-{turn + 1}").touch()
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", default="bubblewrap")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--output", type=Path, help="every trial, as JSON lines")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "program.py").write_text(_PROGRAM)
        (work / "variants.json").write_text(json.dumps(list(VARIANTS.items())))
        results = work / "results.jsonl"
        results.touch()
        (work / "turn-0").touch()
        sides = [
            subprocess.Popen(_words(work, engine, side, options), cwd=work)
            for side, engine in enumerate(("native", options.engine))
        ]
        try:
            codes = [each.wait() for each in sides]
        finally:
            for each in sides:
                each.terminate()
            rows = [json.loads(line) for line in results.read_text().splitlines()]
            if options.output is not None:
                options.output.write_text(results.read_text())
            _show(rows, options.engine)
    return int(any(codes) or any("failed" in row for row in rows))


def _words(work: Path, engine: str, side: int, options: argparse.Namespace) -> list[str]:
    job = work / f"job-{side}.toml"
    command = ["python", "program.py", str(side), options.device, str(options.rounds)]
    gpus = int(options.device == "cuda")
    job.write_text(
        f'name = "first-step"\ncommand = {json.dumps(command)}\n[topology]\ngpus_per_rank = {gpus}\n'
    )
    words = [sys.executable, "-m", "bareboat", "run", "-q", str(job), "--engine", engine]
    return [*words, "--python", sys.executable]


def _show(rows: list[dict[str, object]], engine: str) -> None:
    """Medians of each variant and side. The first round fills the kept caches and is not counted."""
    found: dict[tuple[str, object], list[dict[str, object]]] = defaultdict(list)
    for row in rows:
        if "failed" in row:
            print(row)
        elif row["round"]:
            found[str(row["variant"]), row["side"]].append(row)
    keys = ("start_s", "model_s", "first_s", "second_s", "cache_files", "cache_bytes")
    print(f"{'':<30} {'n':>3} " + " ".join(f"{key:>12}" for key in keys))
    for (variant, side), trials in sorted(found.items(), key=lambda each: str(each[0])):
        name = f"{variant}, {engine if side else 'bare metal'}"
        medians = [statistics.median(float(str(each[key])) for each in trials) for key in keys]
        print(f"{name:<30} {len(trials):>3} " + " ".join(f"{median:>12.3f}" for median in medians))


if __name__ == "__main__":
    sys.exit(main())
