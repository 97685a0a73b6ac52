"""Train a small convolutional network on scikit-learn's handwritten digits, data-parallel.

    torchrun --nproc-per-node 2 digits.py --epochs 30

Every rank trains on its own share of each epoch. DistributedDataParallel averages the gradients over
gloo, so the script runs on any CPU. scikit-learn contains the data: nothing is downloaded.
"""

import bareboat_meter

import argparse
import gc

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def load_data():
    images, labels = load_digits(return_X_y=True)
    train_x, test_x, train_y, test_y = train_test_split(
        images / 16.0, labels, test_size=0.2, random_state=0, stratify=labels
    )

    def as_dataset(x, y):
        return TensorDataset(torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8), torch.tensor(y))

    return as_dataset(train_x, train_y), as_dataset(test_x, test_y)


def build_model():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Dropout(0.25),
        nn.Linear(128, 10),
    )


def accuracy(model, dataset):
    images, labels = dataset.tensors
    model.eval()
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def train(options, meter):
    """Return the trained model without its DistributedDataParallel wrapper."""
    torch.manual_seed(0)
    dataset, test = load_data()
    sampler = DistributedSampler(dataset, seed=0, drop_last=True)
    loader = DataLoader(dataset, batch_size=options.batch, sampler=sampler, drop_last=True)
    model = DistributedDataParallel(build_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    meter.start()
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            meter.step()
    return model.module, test


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--batch", type=int, default=32, help="samples per rank and step")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    meter = bareboat_meter.Meter(samples_per_step=options.batch * world_size)
    model, test = train(options, meter)
    if rank == 0:
        test_accuracy = accuracy(model, test)
        print(f"world size {world_size}, test accuracy {test_accuracy:.4f}", flush=True)
        meter.result(test_accuracy=test_accuracy)
    meter.close()
    # DistributedDataParallel is in a reference cycle and must be freed before its process group: otherwise
    # one run in about fifty aborts here ("terminate called without an active exception").
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
