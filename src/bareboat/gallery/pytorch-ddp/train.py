"""Classify points on two spirals with PyTorch's DistributedDataParallel (DDP).

Each rank trains on its own share of every epoch; DDP averages the gradients.
"""

import argparse
import gc
import math
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_spirals(samples, seed):
    """Points on two spirals with noise, and the number of each point's spiral."""
    generator = torch.Generator().manual_seed(seed)
    label = torch.randint(2, (samples,), generator=generator)
    radius = torch.rand(samples, generator=generator).sqrt()
    angle = 3 * math.pi * radius + math.pi * label
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    return TensorDataset(points + 0.01 * torch.randn(samples, 2, generator=generator), label)


def make_model():
    return nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))


@torch.no_grad()
def accuracy(model, dataset, device):
    points, labels = (tensor.to(device) for tensor in dataset.tensors)
    return (model(points).argmax(1) == labels).float().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=64, help="samples per rank and step")
    parser.add_argument("--lr", type=float, default=5e-3, help="learning rate")
    parser.add_argument("--output", default="model.pt", help="file of the trained weights")
    options = parser.parse_args()

    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cpu")
    if on_gpu:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    if rank == 0:
        print(f"training on {world_size} ranks, device {device.type}", flush=True)

    torch.manual_seed(0)
    train_set, test_set = make_spirals(4096, seed=1), make_spirals(1024, seed=2)
    sampler = DistributedSampler(train_set)
    loader = DataLoader(train_set, batch_size=options.batch_size, sampler=sampler)
    model = DistributedDataParallel(make_model().to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=options.lr)

    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(2, device=device)
        for points, labels in loader:
            loss = nn.functional.cross_entropy(model(points.to(device)), labels.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += torch.stack([loss.detach(), torch.ones_like(loss)])
        dist.all_reduce(total)
        if rank == 0 and (epoch + 1) % 10 == 0:
            print(f"epoch {epoch + 1}: loss {total[0] / total[1]:.4f}", flush=True)

    if rank == 0:
        print(f"test accuracy {accuracy(model.module, test_set, device):.4f}", flush=True)
        torch.save(model.module.state_dict(), options.output)
        print(f"saved {options.output}", flush=True)
    # DDP must be freed before its process group.
    del model, loss
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
