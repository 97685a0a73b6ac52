"""Train a logistic regression at one learning rate and one seed: a point of the sweep in job.toml."""

import argparse
import json
import os

import numpy as np


def make_data(samples, seed):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(samples, 20))
    truth = np.random.default_rng(0).normal(size=20)
    y = (x @ truth + generator.normal(size=samples) > 0).astype(float)
    return x, y


def loss_of(weights, x, y):
    score = x @ weights
    return np.mean(np.logaddexp(0, score) - y * score)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate")
    parser.add_argument("--seed", type=int, default=0, help="seed of the batches")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--output", default="results", help="directory of the results")
    options = parser.parse_args()

    x, y = make_data(4000, seed=1)
    test = make_data(1000, seed=2)
    generator = np.random.default_rng(options.seed)
    weights = np.zeros(x.shape[1])
    for step in range(options.steps):
        batch = generator.integers(len(x), size=32)
        chance = 1 / (1 + np.exp(-x[batch] @ weights))
        weights -= options.lr * x[batch].T @ (chance - y[batch]) / len(batch)
        if (step + 1) % 100 == 0:
            print(f"step {step + 1}: loss {loss_of(weights, x, y):.4f}", flush=True)

    loss = loss_of(weights, *test)
    accuracy = float(np.mean((test[0] @ weights > 0) == test[1]))
    print(f"lr {options.lr}, seed {options.seed}: test loss {loss:.4f}, accuracy {accuracy:.4f}", flush=True)
    os.makedirs(options.output, exist_ok=True)
    with open(f"{options.output}/lr{options.lr}-seed{options.seed}.json", "w") as file:
        json.dump({"lr": options.lr, "seed": options.seed, "loss": loss, "accuracy": accuracy}, file)


if __name__ == "__main__":
    main()
