"""Fit a curve with JAX: the batch is sharded over all devices of all processes."""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def make_batch(generator, size):
    x = generator.uniform(-2, 2, (size, 1)).astype(np.float32)
    return x, np.sin(3 * x)


def make_weights(key, sizes=(1, 64, 64, 1)):
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(k, (m, n)) / np.sqrt(m), jnp.zeros(n))
        for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def predict(weights, x):
    for matrix, bias in weights[:-1]:
        x = jnp.tanh(x @ matrix + bias)
    matrix, bias = weights[-1]
    return x @ matrix + bias


def loss_of(weights, x, y):
    return jnp.mean((predict(weights, x) - y) ** 2)


@jax.jit
def step(weights, momentum, x, y, lr):
    """One step of gradient descent with momentum. The mean runs over the batch of all processes."""
    loss, gradient = jax.value_and_grad(loss_of)(weights, x, y)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradient)
    return jax.tree.map(lambda w, m: w - lr * m, weights, momentum), momentum, loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch-size", type=int, default=256, help="samples per process and step")
    parser.add_argument("--lr", type=float, default=0.03, help="learning rate")
    options = parser.parse_args()

    jax.distributed.initialize()  # finds the coordinator and its rank by itself
    rank = jax.process_index()
    if rank == 0:
        print(f"training on {jax.process_count()} processes, {jax.device_count()} devices", flush=True)

    mesh = Mesh(np.array(jax.devices()), ("data",))
    sharded, replicated = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    weights = make_weights(jax.random.key(0))  # the same on every process
    weights = jax.tree.map(
        lambda w: jax.make_array_from_callback(w.shape, replicated, lambda at, w=w: w[at]), weights
    )
    momentum = jax.tree.map(jnp.zeros_like, weights)

    generator = np.random.default_rng(rank)
    for number in range(options.steps):
        x, y = make_batch(generator, options.batch_size)
        x, y = (jax.make_array_from_process_local_data(sharded, part) for part in (x, y))
        weights, momentum, loss = step(weights, momentum, x, y, options.lr)
        if rank == 0 and (number + 1) % 200 == 0:
            print(f"step {number + 1}: loss {float(loss):.5f}", flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
