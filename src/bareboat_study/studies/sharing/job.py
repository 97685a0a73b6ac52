"""One of several jobs that share a device: train a small network for a number of steps.

    python job.py --steps 50                        one job, which has the device alone
    RANK=0 WORLD_SIZE=2 … python job.py             one of two; they start together

Each job is a program of its own: they train separate networks, and meet only to start at the same time and to
collect what each measured. The first one prints the numbers of all.

--share: how a job gets its part:
    slices     every job sees the whole device, and the driver or the kernel gives it time slices
    affinity   every job gets processor cores of its own (or a part of one, with others on it)
    mps        CUDA's MPS: every job may use its percentage of the GPU's threads; start the daemon first:
               nvidia-cuda-mps-control -d
    mig        every job gets a MIG instance; create them first:
               nvidia-smi mig -cgi 19,19,19,19 -C
"""

import argparse
import json
import os
import random
import resource
import subprocess
import time
from datetime import timedelta

#: Where the daemon of MPS is reached, unless CUDA_MPS_PIPE_DIRECTORY is set.
MPS = "/tmp/nvidia-mps"


def take_share(share, index, jobs):
    """Restrict this process to its part of the device, before any library reads what there is."""
    if share == "affinity":
        cores = sorted(os.sched_getaffinity(0))
        if jobs <= len(cores):
            own = cores[index * len(cores) // jobs : (index + 1) * len(cores) // jobs]
        else:
            own = [cores[index % len(cores)]]
        os.sched_setaffinity(0, own)
        return f"cores {','.join(map(str, own))}"
    if share == "mps":
        if not os.path.exists(os.path.join(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", MPS), "control")):
            raise SystemExit("the daemon of MPS is not running: nvidia-cuda-mps-control -d")
        os.environ["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = str(100 // jobs)
        return f"{100 // jobs} % of the threads"
    if share == "mig":
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True).stdout
        instances = [line.split("UUID:")[1].strip(" )") for line in listed.splitlines() if "MIG" in line]
        if len(instances) < jobs:
            raise SystemExit(f"{jobs} jobs need {jobs} MIG instances; there are {len(instances)}")
        os.environ["CUDA_VISIBLE_DEVICES"] = instances[index]
        return instances[index]
    if share == "slices":  # a job that found MPS's daemon would use it
        os.environ["CUDA_MPS_PIPE_DIRECTORY"] = "/nonexistent"
    return "time slices"


def fill_memory(torch, device):
    """Allocate until there is no more, as a job with a mistake does; the device, or what a limit allows."""
    if device.type == "cpu":
        limit = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + (1 << 32)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    kept = []
    try:
        while True:
            kept.append(torch.ones(1 << 26, device=device))  # 256 MiB
    except (RuntimeError, MemoryError):
        return len(kept) / 4


def train(torch, device, steps, warm_up, batch, meet):
    """Images per second, and seconds until the last step, from the common start."""
    torch.manual_seed(0)
    nn = torch.nn
    layers, before = [], 3
    for channels in (32, 64, 128):
        layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        before = channels
    model = nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(10)).to(device)
    images = torch.randn(batch, 3, 32, 32, device=device)
    labels = torch.randint(10, (batch,), device=device)
    model(images)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    began = 0.0
    for step in range(-warm_up, steps):
        if step == 0:
            meet()
            began = time.perf_counter()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()  # waits for the device
    seconds = time.perf_counter() - began
    return steps * batch / seconds, seconds


def report(results, images):
    """Print each job's result, and those of all; `images`: of each job."""
    for each in results:
        if "filled_gib" in each:
            print(f"job {each['job']} on {each['part']}: out of memory after {each['filled_gib']:.2f} GiB")
        else:
            speed, seconds = each["images_per_s"], each["seconds"]
            print(f"job {each['job']} on {each['part']}: {speed:.1f} images/s in {seconds:.2f} s")
    trained = [each for each in results if "seconds" in each]
    speeds = [each["images_per_s"] for each in trained]
    last = max(each["seconds"] for each in trained)
    print(f"completed jobs: {len(trained)}")
    print(f"total images/s: {len(trained) * images / last:.2f}")
    print(f"first job completed after {min(each['seconds'] for each in trained):.3f} s")
    print(f"last job completed after {last:.3f} s")
    print(f"fairness: {sum(speeds) ** 2 / len(speeds) / sum(speed**2 for speed in speeds):.5f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--share", choices=("slices", "affinity", "mps", "mig"), default="slices")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument(
        "--neighbour", choices=("none", "oom"), default="none", help="the last job: fills the memory"
    )
    args = parser.parse_args()

    rank, jobs = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    store = None
    index = rank
    if jobs > 1:
        from torch.distributed import TCPStore

        address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = TCPStore(address, port, jobs, is_master=rank == 0, timeout=timedelta(minutes=30))
        if rank == 0:  # which job gets which part is drawn for every run
            store.set("order", json.dumps(random.SystemRandom().sample(range(jobs), jobs)))
        index = json.loads(store.get("order"))[rank]
    part = take_share(args.share, index, jobs)

    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        torch.set_num_threads(len(os.sched_getaffinity(0)))

    def meet():
        """Wait until all jobs are ready."""
        if store is not None:
            store.add("ready", 1)
            while store.add("ready", 0) < jobs:
                time.sleep(0.01)

    if args.neighbour == "oom" and rank == jobs - 1 and jobs > 1:
        meet()
        result = {"job": rank, "part": part, "filled_gib": fill_memory(torch, device)}
    else:
        speed, seconds = train(torch, device, args.steps, args.warm_up, args.batch_size, meet)
        result = {"job": rank, "part": part, "images_per_s": speed, "seconds": seconds}
    results = [result]
    if store is not None:
        store.set(f"result {rank}", json.dumps(result))
        if rank:
            store.wait(["printed"])
            return
        results = [json.loads(store.get(f"result {each}")) for each in range(jobs)]
    report(results, args.steps * args.batch_size)
    if store is not None:
        store.set("printed", "")
        time.sleep(0.5)  # the others read it before the store goes


if __name__ == "__main__":
    main()
