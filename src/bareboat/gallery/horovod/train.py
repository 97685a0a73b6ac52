"""Fit a linear model with Horovod and PyTorch: every rank has data of its own, and all train one model."""

import argparse

import horovod.torch as hvd
import torch
from torch import nn

FEATURES = 16


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64, help="samples per rank and step")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    options = parser.parse_args()

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", hvd.local_rank())
        torch.cuda.set_device(device)
    if rank == 0:
        print(f"training on {size} ranks", flush=True)

    truth = torch.randn(FEATURES, 1, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1 + rank)
    torch.manual_seed(rank)
    model = nn.Linear(FEATURES, 1, bias=False).to(device)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=options.lr), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

    for step in range(options.steps):
        x = torch.randn(options.batch_size, FEATURES, generator=generator)
        y = x @ truth + 0.1 * torch.randn(options.batch_size, 1, generator=generator)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        if (step + 1) % 50 == 0:
            mean = hvd.allreduce(loss.detach(), name="loss")
            if rank == 0:
                print(f"step {step + 1}: loss {mean:.4f}", flush=True)

    error = (model.weight.detach().cpu().T - truth).abs().max()
    if rank == 0:
        print(f"largest error of a weight {error:.4f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
