"""A data-parallel training for tests: it keeps its curve, its state, and which samples it was shown.

    training.py FOLDER [--epochs N] [--wait-at STEP] [--slow RANK] [--hang RANK --hang-at STEP]

Ranks decide together whether to go on: one that was told by SIGUSR1 to save its state tells the others in the
next step. All end with exit code 75 when the state is on disk. Each reports the seconds of its own work in
every step: what it does before it waits for the others.
"""

import argparse
import gc
import json
import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SAMPLES = 240
BATCH = 8
SAVE_EVERY = 4


def save(path, model, optimizer, state):
    if dist.get_rank() == 0:
        kept = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "state": state}
        torch.save(kept, path.with_suffix(".part"))
        os.replace(path.with_suffix(".part"), path)
    dist.barrier()  # nobody ends before it is on disk


def report(step, own_s):
    """Tell Bareboat how long this rank itself worked on a step; without Bareboat nothing is told."""
    folder = os.environ.get("BAREBOAT_RUN_DIR")
    if folder:
        os.makedirs(f"{folder}/progress", exist_ok=True)
        with open(f"{folder}/progress/{os.environ['RANK']}", "a") as file:
            file.write(f"{step} {own_s:.6f}\n")


def read_for_ever():
    time.sleep(3600)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--wait-at", type=int, help="in its first start it waits there to be told or killed")
    parser.add_argument("--slow", type=int, help="this rank works longer than the others")
    parser.add_argument("--hang", type=int, help="this rank stops in the middle of a step")
    parser.add_argument("--hang-at", type=int, help="which one")
    options = parser.parse_args()
    told = []
    signal.signal(signal.SIGUSR1, lambda *_: told.append(1))

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    print(json.dumps([rank, world_size, os.uname().nodename]), flush=True)
    inputs = torch.randn(SAMPLES, 16, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(torch.arange(SAMPLES), inputs, inputs.sum(1, keepdim=True).sin())
    sampler = DistributedSampler(data, seed=0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    path = options.folder / "state.pt"
    state = {"step": 0, "losses": [], "shown": [0] * SAMPLES, "from": []}
    if path.exists():
        kept = torch.load(path, weights_only=True)
        model.module.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        state = kept["state"]
    first = state["step"]
    state["from"].append(first)

    step = 0
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for numbers, batch, target in DataLoader(data, batch_size=BATCH, sampler=sampler):
            step += 1
            if step <= first:
                continue
            began = time.perf_counter()
            loss = nn.functional.mse_loss(model(batch), target)
            optimizer.zero_grad()
            if rank == options.slow:
                time.sleep(0.1)
            report(step, time.perf_counter() - began)
            if rank == options.hang and step == options.hang_at:
                read_for_ever()
            loss.backward()
            optimizer.step()
            shown = torch.zeros(SAMPLES + 1)
            shown[numbers] = 1.0
            shown[-1] = loss.item() / world_size
            dist.all_reduce(shown)
            state["losses"].append(shown[-1].item())
            state["shown"] = [a + int(b) for a, b in zip(state["shown"], shown[:-1].tolist(), strict=True)]
            state["step"] = step
            if step % SAVE_EVERY == 0:
                save(path, model, optimizer, state)
            if step == options.wait_at and first == 0:
                print("waits", flush=True)
                while not told:
                    time.sleep(0.05)
            stop = torch.tensor([len(told)])
            dist.all_reduce(stop)
            if stop.item():
                save(path, model, optimizer, state)
                print(f"saved at step {step}", flush=True)
                # The model before its process group: otherwise a run in fifty aborts here.
                del model, optimizer, loss
                gc.collect()
                dist.destroy_process_group()
                sys.exit(75)
    if rank == 0:
        (options.folder / "result.json").write_text(json.dumps(state))
        print(f"trained: world size {world_size}, loss {state['losses'][-1]:.6f}", flush=True)
    del model, optimizer, loss
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
