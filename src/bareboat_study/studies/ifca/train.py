"""Data-parallel training of a Keras network on synthetic ImageNet.

    python train.py --model ResNet50 --batch-size 32 --steps 20
    torchrun --nproc-per-node=2 train.py --model InceptionV3
    horovodrun -np 2 python train.py --model ResNet101

With Horovod, if it started the program; otherwise with PyTorch's DistributedDataParallel.
"""

import argparse
import gc
import os
import time

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import torch

# Height and width of the images of each network, and the publication's number of them in a step of a worker.
MODELS = {"InceptionV3": (299, 256), "ResNet50": (224, 256), "ResNet101": (224, 128)}


def build(name, size=None):
    """The network of Keras applications, without trained weights. The number of parameters does not depend on
    the size of the images."""
    shape = (size or MODELS[name][0],) * 2 + (3,)
    return getattr(keras.applications, name)(weights=None, input_shape=shape, classifier_activation=None)


class Alone:
    """One worker."""

    rank, size, local_rank = 0, 1, 0

    def wrap(self, model, optimizer):
        return model, optimizer

    def close(self):
        pass


class Torch(Alone):
    """PyTorch's process group; torchrun and others name the ranks."""

    def __init__(self):
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.local_rank = int(os.environ.get("LOCAL_RANK", 0))
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

    def wrap(self, model, optimizer):
        return torch.nn.parallel.DistributedDataParallel(model), optimizer

    def close(self):
        gc.collect()  # the model and its gradients, which use threads of the process group
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


class Horovod(Alone):
    def __init__(self):
        import horovod.torch as hvd

        hvd.init()
        self.hvd = hvd
        self.rank, self.size, self.local_rank = hvd.rank(), hvd.size(), hvd.local_rank()

    def wrap(self, model, optimizer):
        self.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return model, self.hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    def close(self):
        self.hvd.shutdown()


def join():
    """The workers: Horovod's, PyTorch's, or one alone."""
    if "HOROVOD_RANK" in os.environ or "OMPI_COMM_WORLD_SIZE" in os.environ:
        return Horovod()
    return Torch() if int(os.environ.get("WORLD_SIZE", 1)) > 1 else Alone()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, default="ResNet50")
    parser.add_argument(
        "--batch-size", type=int, help="images of each worker in a step; default: as published"
    )
    parser.add_argument("--size", type=int, help="height and width of the images; default: the network's own")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--warm-up", type=int, default=5)
    args = parser.parse_args()

    workers = join()
    if torch.cuda.is_available():
        torch.cuda.set_device(workers.local_rank % torch.cuda.device_count())
    keras.utils.set_random_seed(1)
    size, batch = args.size or MODELS[args.model][0], args.batch_size or MODELS[args.model][1]
    model = build(args.model, size)
    device = next(model.parameters()).device
    if workers.rank == 0:
        print(f"{args.model}: {model.count_params()} parameters; {workers.size} x {batch} images")
    optimizer = torch.optim.SGD((each for each in model.parameters() if each.requires_grad), lr=0.01)
    trained, optimizer = workers.wrap(model, optimizer)
    loss_function = torch.nn.CrossEntropyLoss()

    generator = torch.Generator().manual_seed(workers.rank)
    images = torch.randn((batch, size, size, 3), generator=generator).to(device)
    labels = torch.randint(1000, (batch,), generator=generator).to(device)
    seconds = 0.0
    for step in range(-args.warm_up, args.steps):
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = loss_function(trained(images, training=True), labels)
        loss.backward()
        optimizer.step()
        value = loss.item()  # waits for the device
        if step >= 0:
            seconds += time.perf_counter() - began
            if workers.rank == 0:
                print(f"step {step + 1} loss {value:.4f} at {seconds:.3f} s")
    if workers.rank == 0:
        print(f"images/s: {workers.size * batch * args.steps / seconds:.3f}")
        print(f"training time: {seconds:.3f} s")
    return workers


if __name__ == "__main__":
    main().close()
