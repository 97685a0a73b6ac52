"""Training throughput of convolutional networks on synthetic ImageNet.

    python cnn_benchmark.py --model=resnet50 --batch_size=32
    torchrun --nproc-per-node=4 cnn_benchmark.py --model=vgg16 --batch_size=64

The layers are those of TensorFlow's tf_cnn_benchmarks; the last line has the same form as its last line.
"""

import argparse
import gc
import os
import statistics
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

CLASSES = 1000


class Conv(nn.Sequential):
    """Convolution and ReLU, with batch normalization or a bias."""

    def __init__(self, channels, size, stride=1, padding=None, norm=False, relu=True, eps=1e-5):
        size = size if isinstance(size, tuple) else (size, size)
        if padding is None:
            padding = tuple(each // 2 for each in size)
        layers = [nn.LazyConv2d(channels, size, stride, padding, bias=not norm)]
        if norm:
            layers.append(nn.LazyBatchNorm2d(eps=eps))
        if relu:
            layers.append(nn.ReLU(inplace=True))
        super().__init__(*layers)


class Branches(nn.Module):
    """Branches whose outputs are joined along the channels."""

    def __init__(self, *branches):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class Bottleneck(nn.Module):
    """The residual block of ResNet v1: the stride is in the first 1x1 convolution."""

    def __init__(self, channels, inner, stride, project):
        super().__init__()
        self.inner = nn.Sequential(
            Conv(inner, 1, stride, norm=True),
            Conv(inner, 3, norm=True),
            Conv(channels, 1, norm=True, relu=False),
        )
        self.shortcut = Conv(channels, 1, stride, norm=True, relu=False) if project else nn.Identity()

    def forward(self, x):
        return torch.relu(self.inner(x) + self.shortcut(x))


def classifier(*widths):
    layers = [nn.Flatten()]
    for width in widths:
        layers += [nn.LazyLinear(width), nn.ReLU(inplace=True), nn.Dropout(0.5)]
    return [*layers, nn.LazyLinear(CLASSES)]


def alexnet():
    return nn.Sequential(
        Conv(64, 11, 4, padding=0),
        nn.MaxPool2d(3, 2),
        Conv(192, 5),
        nn.MaxPool2d(3, 2),
        Conv(384, 3),
        Conv(384, 3),
        Conv(256, 3),
        nn.MaxPool2d(3, 2),
        *classifier(4096, 4096),
    )


def vgg16():
    layers = []
    for count, channels in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        layers += [Conv(channels, 3) for _ in range(count)]
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, *classifier(4096, 4096))


def googlenet():
    def module(a, b1, b3, c1, c5, d):
        return Branches(
            Conv(a, 1),
            nn.Sequential(Conv(b1, 1), Conv(b3, 3)),
            nn.Sequential(Conv(c1, 1), Conv(c5, 5)),
            nn.Sequential(nn.MaxPool2d(3, 1, padding=1), Conv(d, 1)),
        )

    def halve():
        return nn.MaxPool2d(3, 2, ceil_mode=True)

    return nn.Sequential(
        Conv(64, 7, 2),
        halve(),
        Conv(64, 1),
        Conv(192, 3),
        halve(),
        module(64, 96, 128, 16, 32, 32),
        module(128, 128, 192, 32, 96, 64),
        halve(),
        module(192, 96, 208, 16, 48, 64),
        module(160, 112, 224, 24, 64, 64),
        module(128, 128, 256, 24, 64, 64),
        module(112, 144, 288, 32, 64, 64),
        module(256, 160, 320, 32, 128, 128),
        halve(),
        module(256, 160, 320, 32, 128, 128),
        module(384, 192, 384, 48, 128, 128),
        nn.AdaptiveAvgPool2d(1),
        *classifier(),
    )


def resnet50():
    layers = [Conv(64, 7, 2, norm=True), nn.MaxPool2d(3, 2, padding=1)]
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            layers.append(Bottleneck(256 << stage, 64 << stage, stride, project=block == 0))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), *classifier())


def inception3():
    def conv(channels, size, stride=1, padding=None):
        return Conv(channels, size, stride, padding, norm=True, eps=1e-3)

    def average():
        return nn.AvgPool2d(3, 1, padding=1)

    def a(pooled):
        return Branches(
            conv(64, 1),
            nn.Sequential(conv(48, 1), conv(64, 5)),
            nn.Sequential(conv(64, 1), conv(96, 3), conv(96, 3)),
            nn.Sequential(average(), conv(pooled, 1)),
        )

    def b():
        return Branches(
            conv(384, 3, 2, padding=0),
            nn.Sequential(conv(64, 1), conv(96, 3), conv(96, 3, 2, padding=0)),
            nn.MaxPool2d(3, 2),
        )

    def c(n):
        return Branches(
            conv(192, 1),
            nn.Sequential(conv(n, 1), conv(n, (1, 7)), conv(192, (7, 1))),
            nn.Sequential(conv(n, 1), conv(n, (7, 1)), conv(n, (1, 7)), conv(n, (7, 1)), conv(192, (1, 7))),
            nn.Sequential(average(), conv(192, 1)),
        )

    def d():
        return Branches(
            nn.Sequential(conv(192, 1), conv(320, 3, 2, padding=0)),
            nn.Sequential(conv(192, 1), conv(192, (1, 7)), conv(192, (7, 1)), conv(192, 3, 2, padding=0)),
            nn.MaxPool2d(3, 2),
        )

    def e(pool):
        return Branches(
            conv(320, 1),
            nn.Sequential(conv(384, 1), Branches(conv(384, (1, 3)), conv(384, (3, 1)))),
            nn.Sequential(conv(448, 1), conv(384, 3), Branches(conv(384, (1, 3)), conv(384, (3, 1)))),
            nn.Sequential(pool, conv(192, 1)),
        )

    return nn.Sequential(
        conv(32, 3, 2, padding=0),
        conv(32, 3, padding=0),
        conv(64, 3),
        nn.MaxPool2d(3, 2),
        conv(80, 1),
        conv(192, 3, padding=0),
        nn.MaxPool2d(3, 2),
        *(a(32), a(64), a(64), b(), c(128), c(160), c(160), c(192), d()),
        e(average()),
        e(nn.MaxPool2d(3, 1, padding=1)),
        nn.AdaptiveAvgPool2d(1),
        *classifier(),
    )


# The network, and the height and width of its images.
MODELS = {
    "alexnet": (alexnet, 227),
    "googlenet": (googlenet, 224),
    "resnet50": (resnet50, 224),
    "vgg16": (vgg16, 224),
    "inception3": (inception3, 299),
}


def build(name, size, device):
    model = MODELS[name][0]().to(device)
    with torch.no_grad():
        model.eval()(torch.zeros(1, 3, size, size, device=device))  # the sizes of the lazy layers
    return model.train()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, default="resnet50")
    parser.add_argument("--batch_size", type=int, default=32, help="images of each rank in a step")
    parser.add_argument("--image_size", type=int, help="height and width; default: the network's own")
    parser.add_argument("--num_batches", type=int, default=100)
    parser.add_argument("--num_warmup_batches", type=int, default=10)
    args = parser.parse_args()

    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)) % torch.cuda.device_count())
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    if size > 1:
        distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")

    torch.manual_seed(1234)
    image_size = args.image_size or MODELS[args.model][1]
    model = build(args.model, image_size, device)
    if rank == 0:
        parameters = sum(each.numel() for each in model.parameters())
        print(f"model {args.model}, {parameters:,} parameters, {size} x {args.batch_size} images on {device}")
    if size > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005)
    loss_function = nn.CrossEntropyLoss()
    generator = torch.Generator().manual_seed(rank)
    shape = (args.batch_size, 3, image_size, image_size)
    images = torch.randn(shape, generator=generator).to(device)
    labels = torch.randint(CLASSES, (args.batch_size,), generator=generator).to(device)

    step_s = []
    for step in range(-args.num_warmup_batches, args.num_batches):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = loss_function(model(images), labels)
        loss.backward()
        optimizer.step()
        value = loss.item()  # waits for the device
        if step >= 0:
            step_s.append(time.perf_counter() - began)
            if rank == 0 and (step == 0 or (step + 1) % 10 == 0):
                print(f"{step + 1}\timages/sec: {size * args.batch_size / step_s[-1]:.1f}\t{value:.3f}")
    if rank == 0:
        print("-" * 64)
        print(f"median step: {1000 * statistics.median(step_s):.2f} ms")
        print(f"total images/sec: {size * args.batch_size * len(step_s) / sum(step_s):.2f}")


if __name__ == "__main__":
    main()
    if distributed.is_initialized():
        gc.collect()  # the model and its gradients, which use threads of the process group
        distributed.barrier()
        distributed.destroy_process_group()
