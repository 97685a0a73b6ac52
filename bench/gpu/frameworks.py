"""Does what frameworks do with a GPU work in the container as on bare metal?

    python bench/gpu/frameworks.py [--engine NAME] [--only WORD ...] [--output FILE]

Each program below runs on bare metal and in the container, with this Python's environment and this machine's
compiler (`capture.compiler`), by `bareboat run`.
They take ways to the kernel that a container can close: memory of another process (CUDA's IPC), shared
memory (workers that load data), compilers (Triton, NVRTC), locked memory, collectives (NCCL). What is not
installed is skipped. Exit code 0 when all of it ends as on bare metal, 1 when not, 3 where there is no GPU.
"""

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

_SHARED = """
import torch, torch.multiprocessing as processes
def add(given, done):
    tensor = given.get(); tensor.add_(1); torch.cuda.synchronize(); done.set(); given.get()
if __name__ == "__main__":
    processes.set_start_method("spawn")
    given, done = processes.Queue(), processes.Event()
    child = processes.Process(target=add, args=(given, done)); child.start()
    tensor = torch.zeros(1000, device="cuda"); given.put(tensor); done.wait(60); given.put(None); child.join()
    print(float(tensor.sum()))
"""
#: Memory that two processes share by file descriptors (pidfd_getfd), as NCCL and symmetric memory do.
_EXPANDABLE = 'import os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"\n' + _SHARED

PROGRAMS: dict[str, tuple[str, str]] = {
    "torch: matrix product": ("torch", """
import torch
x = torch.arange(64, device="cuda", dtype=torch.float32).reshape(8, 8)
print(torch.cuda.get_device_name(0), float((x @ x).sum()))
"""),
    "torch: pinned memory, streams, a graph": ("torch", """
import torch
given = torch.arange(1 << 20, dtype=torch.float32).pin_memory().cuda(non_blocking=True)
made = torch.zeros_like(given)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    made.copy_(given * 2)
graph.replay(); torch.cuda.synchronize()
print(float(made.double().sum()))
"""),
    "torch: workers that load data": ("torch", """
import torch
from torch.utils.data import DataLoader, TensorDataset
if __name__ == "__main__":
    data = TensorDataset(torch.arange(4096, dtype=torch.float32).reshape(512, 8))
    loader = DataLoader(data, batch_size=32, num_workers=4, pin_memory=True)
    print(sum(float(each[0].cuda(non_blocking=True).sum()) for each in loader))
"""),
    "torch: a tensor shared with another process": ("torch", _SHARED),
    "torch: the same, by descriptors": ("torch", _EXPANDABLE),
    "torch: NCCL": ("torch", """
import torch, torch.distributed as dist
dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29533", rank=0, world_size=1)
x = torch.ones(1 << 20, device="cuda"); dist.all_reduce(x); torch.cuda.synchronize()
print(float(x.sum())); dist.destroy_process_group()
"""),
    "torch: compile": ("torch", """
import torch
f = torch.compile(lambda x: (x.sin() ** 2 + x.cos() ** 2).sum())
print(round(float(f(torch.ones(1000, device="cuda")))))
"""),
    "torch: profiler": ("torch", """
import torch
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CUDA]) as found:
    x = torch.ones(512, 512, device="cuda"); x @ x; torch.cuda.synchronize()
print(len(found.events()) > 0)
"""),
    "triton: a kernel": ("triton", """
import torch, triton, triton.language as tl
@triton.jit
def add(x, y, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
x = torch.zeros(1000, device="cuda"); y = torch.empty_like(x)
add[(4,)](x, y, 1000, B=256)
print(float(y.sum()))
"""),
    "jax: jit": ("jax", """
import jax, jax.numpy as jnp
print(jax.devices()[0].platform, float(jax.jit(lambda x: (x @ x).sum())(jnp.ones((256, 256)))))
"""),
    "cupy: a kernel by NVRTC": ("cupy", """
import cupy
twice = cupy.ElementwiseKernel("float32 x", "float32 y", "y = 2 * x", "twice")
print(float(twice(cupy.ones(1000, "f")).sum()))
"""),
    "pynvml": ("pynvml", """
import pynvml
pynvml.nvmlInit()
print(pynvml.nvmlDeviceGetCount(), pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)))
"""),
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--engine", default="bubblewrap")
    parser.add_argument(
        "--only", nargs="*", default=[""], help="programs that have one of these in their name"
    )
    parser.add_argument("--output", type=Path, help="what each program printed, as JSON")
    options = parser.parse_args()
    found: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (package, text)) in enumerate(PROGRAMS.items()):
            if not any(word in name for word in options.only):
                continue
            if importlib.util.find_spec(package) is None:
                print(f"{name:<42} not tried: {package} is not installed")
                continue
            work = Path(folder) / str(number)
            work.mkdir()
            (work / "program.py").write_text(text)
            bare, contained = (_run(work, engine) for engine in ("native", options.engine))
            same = bare[:2] == contained[:2]
            found[name] = {"bare": bare, options.engine: contained, "same": same}
            verdict = (
                ("as on bare metal" if bare[0] == 0 else "fails on bare metal, too") if same else "DIFFERS"
            )
            print(f"{name:<42} {verdict}   {bare[1]!r:.60}", flush=True)
            if not same:
                print(f"  bare metal: {bare}\n  {options.engine}: {contained}", flush=True)
    if options.output is not None:
        options.output.write_text(json.dumps(found, indent=1))
    if not any(each["bare"][0] == 0 for each in found.values()):  # type: ignore[index]
        print("nothing works on bare metal: is there a GPU?", file=sys.stderr)
        return 3
    return int(not all(each["same"] for each in found.values()))


def _run(work: Path, engine: str) -> tuple[int, str, str]:
    """Exit code, what it printed, and the end of what it said on standard error."""
    job = work / "job.toml"
    job.write_text(
        'name = "gpu"\ncommand = ["python", "program.py"]\n[topology]\ngpus_per_rank = 1\n'
        "[capture]\ncompiler = true\n"
    )
    words = [sys.executable, "-m", "bareboat", "run", "-q", str(job)]
    words += ["--engine", engine, "--python", sys.executable]
    done = subprocess.run(
        words, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=400, check=False
    )
    return done.returncode, done.stdout.strip(), done.stderr.strip()[-1500:]


if __name__ == "__main__":
    sys.exit(main())
