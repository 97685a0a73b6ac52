"""Classify synthetic points with Hugging Face Accelerate, data-parallel over all ranks."""

import argparse
import gc

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES, CLASSES = 16, 4


def make_data(samples, seed):
    """Points around one centre for each class."""
    centres = 2 * torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (samples,), generator=generator)
    points = centres[labels] + 2 * torch.randn(samples, FEATURES, generator=generator)
    return TensorDataset(points, labels)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64, help="samples per rank and step")
    parser.add_argument("--lr", type=float, default=3e-3, help="learning rate")
    parser.add_argument("--output", default="model", help="directory of the trained model")
    options = parser.parse_args()

    accelerator = Accelerator()
    accelerator.print(
        f"training on {accelerator.num_processes} ranks, device {accelerator.device.type}", flush=True
    )

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    train = DataLoader(make_data(8192, seed=1), batch_size=options.batch_size, shuffle=True)
    test = DataLoader(make_data(2048, seed=2), batch_size=256)
    model, optimizer, train, test = accelerator.prepare(model, optimizer, train, test)

    for epoch in range(options.epochs):
        model.train()
        for points, labels in train:
            loss = nn.functional.cross_entropy(model(points), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        model.eval()
        right = count = 0
        for points, labels in test:
            with torch.no_grad():
                found = model(points).argmax(1)
            found, labels = accelerator.gather_for_metrics((found, labels))
            right += (found == labels).sum().item()
            count += len(labels)
        accelerator.print(
            f"epoch {epoch + 1}: loss {loss.item():.4f}, accuracy {right / count:.4f}", flush=True
        )

    accelerator.save_model(model, options.output)
    # The wrapped model must be freed before its process group.
    accelerator.free_memory()
    del model, optimizer, train, test, loss
    gc.collect()
    accelerator.end_training()


if __name__ == "__main__":
    main()
