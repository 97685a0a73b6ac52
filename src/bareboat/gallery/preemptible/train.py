"""A long training that can be interrupted at any time: it saves checkpoints, and continues from the last one.

Before the time limit, or when the scheduler needs the nodes, the job gets SIGUSR1. It then saves a checkpoint
and exits with code 75: Bareboat requeues the job, and the next start continues.
"""

import argparse
import os
import signal
import sys
import time

import torch
from torch import nn

REQUEUE = 75  # the exit code that requests another start


def save(path, **state):
    """Write the checkpoint completely, or keep the last one."""
    torch.save(state, path + ".part")
    os.replace(path + ".part", path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--checkpoint", default="checkpoint.pt", help="file of the checkpoints")
    parser.add_argument("--every", type=int, default=500, help="steps between two checkpoints")
    parser.add_argument("--pause", type=float, default=0, help="seconds that each step takes longer")
    options = parser.parse_args()

    interrupted = []
    signal.signal(signal.SIGUSR1, lambda *_: interrupted.append(True))

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    first = 0
    if os.path.exists(options.checkpoint):
        state = torch.load(options.checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"])
        first = state["step"]
        if first >= options.steps:
            print(f"all {options.steps} steps are done; remove {options.checkpoint} to start again")
            return
        print(f"continuing at step {first}", flush=True)
    else:
        print("starting at step 0", flush=True)

    def checkpoint(step):
        random = torch.get_rng_state()
        save(
            options.checkpoint,
            step=step,
            random=random,
            model=model.state_dict(),
            optimizer=optimizer.state_dict(),
        )

    for step in range(first, options.steps):
        x = torch.randn(64, 8)
        loss = nn.functional.mse_loss(model(x), x.pow(2).sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(options.pause)
        if (step + 1) % 200 == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
        if interrupted:
            checkpoint(step + 1)
            print(f"interrupted: saved a checkpoint at step {step + 1}", flush=True)
            sys.exit(REQUEUE)
        if (step + 1) % options.every == 0:
            checkpoint(step + 1)
    checkpoint(options.steps)
    print(f"finished {options.steps} steps, loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
