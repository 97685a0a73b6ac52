"""Train a small convolutional network on synthetic images: plain PyTorch, from 1.13 on."""

import bareboat_meter

import argparse

import torch
from torch import nn


def make_data(size):
    """Noise in which one quarter of the image, the label, is brighter."""
    labels = torch.randint(4, (size,))
    images = torch.randn(size, 1, 16, 16)
    for image, label in zip(images, labels, strict=True):
        row, column = divmod(int(label), 2)
        image[0, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] += 0.4
    return images, labels


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()

    meter = bareboat_meter.Meter(samples_per_step=options.batch)
    torch.manual_seed(0)
    images, labels = make_data(2048)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 4),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)

    meter.start()
    for _ in range(options.steps):
        chosen = torch.randint(len(images), (options.batch,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
        loss.backward()
        optimizer.step()
        meter.step()
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(images), labels).item()
    meter.result(loss=loss)
    print(f"PyTorch {torch.__version__}, loss {loss:.4f}")
    meter.close()


if __name__ == "__main__":
    main()
