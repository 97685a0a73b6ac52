"""Statistical downscaling of daily precipitation with a convolutional network.

    python train.py --epochs 10
    torchrun --nproc-per-node=4 train.py
    python train.py --predictors erainterim.nc --predictand ewembi.nc

Predictors: a NetCDF file of 20 variables (or fewer, with levels) on 30 x 53 points, such as ERA-Interim at
2 degrees over North America. Predictand: a NetCDF file with daily precipitation in mm on 117 x 209 points,
such as EWEMBI at 0.5 degrees; NaN where there is none. Without them, fields of the same shapes are made and
kept in data/.
The network predicts, for each point, the three parameters of a Bernoulli-gamma distribution.
"""

import argparse
import gc
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import xarray
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

COARSE, FINE, CHANNELS = (30, 53), (117, 209), 20
WET = 1.0  # mm: days with less are dry


class Network(nn.Module):
    """20 x 30 x 53 -> 3 x 117 x 209: the logit of rain, and the logarithms of the gamma's shape and scale."""

    def __init__(self):
        super().__init__()
        layers, before = [], CHANNELS
        for channels in (100, 128, 256, 256, 256):
            layers += [nn.Conv2d(before, channels, 3, padding=1), nn.ReLU(inplace=True)]
            before = channels
        self.features = nn.Sequential(*layers)
        self.head = nn.Conv2d(before, 3, 3, padding=1)

    def forward(self, x):
        fine = functional.interpolate(self.features(x), size=FINE, mode="bilinear", align_corners=False)
        return self.head(fine)


def bernoulli_gamma(output, rain):
    """The mean negative log-likelihood of the rain in mm; points without an observation do not count."""
    logit, shape, scale = output[:, 0], output[:, 1].clamp(-6, 6).exp(), output[:, 2].clamp(-6, 6).exp()
    known = torch.isfinite(rain)
    rain = torch.where(known, rain, torch.zeros_like(rain))
    wet = rain >= WET
    amount = torch.where(wet, rain, torch.ones_like(rain))  # no logarithm of 0
    gamma = (shape - 1) * amount.log() - amount / scale - torch.lgamma(shape) - shape * scale.log()
    occurs = functional.logsigmoid(logit)
    likelihood = torch.where(wet, occurs + gamma, occurs - logit)
    return -(likelihood * known).sum() / known.sum().clamp(min=1)


def smooth(random, days, shape, scales):
    """Random fields of a few waves, which move from day to day."""
    y, x = np.mgrid[0 : shape[0], 0 : shape[1]]
    y, x = y / shape[0], x / shape[1]
    field = np.zeros((days, *shape), np.float32)
    for scale in scales:
        a, b = random.normal(0, scale, 2)
        start, speed = random.uniform(0, 7), random.normal()
        phase = start + speed * np.arange(days) + random.normal(0, 0.5, days)
        field += np.sin(2 * np.pi * (a * y + b * x) + phase[:, None, None]) / len(scales) ** 0.5
    return field


def make_data(folder, days):
    """Synthetic predictors, and rain whose chance and amount follow two of them."""
    random = np.random.default_rng(1)
    fine = [smooth(random, days, FINE, (1, 2, 3)) for _ in range(2)]
    rows, columns = (np.linspace(0, n - 1, m).round().astype(int) for n, m in zip(FINE, COARSE, strict=True))
    predictors = {}
    for number in range(CHANNELS):
        noise = smooth(random, days, COARSE, (1, 2, 4))
        share = fine[number % 2][:, rows][:, :, columns]
        predictors[f"x{number:02}"] = (("time", "lat", "lon"), (share + 0.5 * noise).astype(np.float32))
    chance = 1 / (1 + np.exp(-2 * fine[0] + 0.5))
    amount = random.gamma(0.8, 4 * np.exp(0.5 * fine[1])) + WET
    rain = np.where(random.random(chance.shape) < chance, amount, 0).astype(np.float32)
    fields = {"predictors": predictors, "predictand": {"pr": (("time", "lat", "lon"), rain)}}
    for name, values in fields.items():
        rows, columns = next(iter(values.values()))[1].shape[1:]
        axes = {
            "time": np.datetime64("1979-01-01") + np.arange(days),
            "lat": np.linspace(15, 74, rows),
            "lon": np.linspace(-165, -61, columns),
        }
        data = xarray.Dataset(values, axes)
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".nc")
        os.close(handle)
        data.to_netcdf(temporary)
        os.replace(temporary, folder / f"{name}-{days}.nc")  # never half a file


def read(predictors, predictand, days=None):
    """Standardized predictors (day, 20, 30, 53) and rain (day, 117, 209), for the days that both have."""
    with xarray.open_dataset(predictors) as coarse, xarray.open_dataset(predictand) as fine:
        name = "pr" if "pr" in fine else next(iter(fine.data_vars))
        others = [d for d in coarse.dims if d != "time"]
        coarse, rain = xarray.align(coarse, fine[name], join="inner", exclude=others)
        fields = []
        for each in coarse.data_vars.values():
            values = each.transpose("time", ..., *each.dims[-2:]).values  # a level is a channel of its own
            fields.append(values.reshape(len(values), -1, *values.shape[-2:]))
        x = np.concatenate(fields, axis=1)[:days].astype(np.float32)
        seconds = 86400 if rain.attrs.get("units") in ("kg m-2 s-1", "kg m**-2 s**-1") else 1
        y = rain.values[:days].astype(np.float32) * seconds
    if x.shape[1:] != (CHANNELS, *COARSE) or y.shape[1:] != FINE:
        raise SystemExit(
            f"the files have {x.shape[1:]} and {y.shape[1:]}; needed: {(CHANNELS, *COARSE)} and {FINE}"
        )
    x = (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-6)
    return torch.from_numpy(x), torch.from_numpy(y)


def read_or_make(args, rank, size):
    """The days of the files; without files, of synthetic data, which rank 0 makes."""
    files, days = (args.predictors, args.predictand), args.days
    if None in files:
        days = days or 3650
        folder = Path("data")
        files = tuple(folder / f"{name}-{days}.nc" for name in ("predictors", "predictand"))
        if rank == 0 and not all(path.exists() for path in files):
            folder.mkdir(exist_ok=True)
            make_data(folder, days)
        if size > 1:
            distributed.barrier()
    return read(*files, days)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--predictors")
    parser.add_argument("--predictand")
    parser.add_argument("--days", type=int, help="use the first days only; of synthetic data: their number")
    parser.add_argument("--batch-size", type=int, default=32, help="days of each worker in a step")
    parser.add_argument("--epochs", type=int, default=100)
    run(parser.parse_args())


def run(args):
    """Train the network on this rank's share of the days."""
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
        torch.cuda.set_device(device)
    if size > 1:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    x, y = read_or_make(args, rank, size)

    torch.manual_seed(1)
    model = Network().to(device)
    if rank == 0:
        parameters = sum(each.numel() for each in model.parameters())
        print(f"{parameters} parameters, {len(x)} days, {size} x {args.batch_size} days in a step")
    if size > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4 * size)
    order = torch.Generator().manual_seed(2)
    steps = len(x) // (size * args.batch_size)
    if not steps:
        raise SystemExit(f"{len(x)} days are fewer than a step's {size * args.batch_size}")
    seconds, mean = 0.0, 0.0
    start = time.perf_counter()
    for epoch in range(args.epochs):
        shuffled = torch.randperm(len(x), generator=order)
        total = torch.zeros(1, device=device)
        began = time.perf_counter()
        for step in range(steps):
            first = (step * size + rank) * args.batch_size
            chosen = shuffled[first : first + args.batch_size]
            optimizer.zero_grad()
            loss = bernoulli_gamma(model(x[chosen].to(device)), y[chosen].to(device))
            loss.backward()
            optimizer.step()
            total += loss.detach()
        if size > 1:
            distributed.all_reduce(total)
        mean = total.item() / steps / size
        took = time.perf_counter() - began
        seconds += took if epoch else 0.0  # the first epoch warms up
        if rank == 0:
            print(f"epoch {epoch + 1} loss {mean:.5f} at {time.perf_counter() - start:.2f} s")
    if rank == 0:
        print(f"final loss: {mean:.5f}")
        print(f"images/s: {steps * size * args.batch_size * (args.epochs - 1) / max(seconds, 1e-9):.3f}")


if __name__ == "__main__":
    main()
    if distributed.is_initialized():
        gc.collect()  # the model and its gradients, which use threads of the process group
        distributed.barrier()
        distributed.destroy_process_group()
