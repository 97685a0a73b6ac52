"""Classify synthetic images with Keras 3 on JAX, data-parallel over all processes."""

import argparse
import os

os.environ.setdefault("KERAS_BACKEND", "jax")  # before the import

import keras
import numpy as np


def make_images(samples, seed):
    """Images of 16 x 16 pixels with a bright bar, horizontal (0) or vertical (1), and noise."""
    generator = np.random.default_rng(seed)
    images = generator.normal(0, 0.5, (samples, 16, 16, 1)).astype("float32")
    labels = generator.integers(2, size=samples)
    for image, label, at in zip(images, labels, generator.integers(16, size=samples)):
        if label:
            image[:, at] += 1
        else:
            image[at] += 1
    return images, labels


class Report(keras.callbacks.Callback):
    """Prints the metrics of each epoch."""

    def on_epoch_end(self, epoch, logs=None):
        metrics = ", ".join(f"{name} {value:.4f}" for name, value in logs.items())
        print(f"epoch {epoch + 1}: {metrics}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64, help="samples per process and step")
    parser.add_argument("--output", default="weights.npz", help="file of the trained weights")
    options = parser.parse_args()

    keras.distribution.initialize()  # finds the coordinator and its rank by itself
    import jax

    rank, size = jax.process_index(), jax.process_count()
    # Each process reads its own data, so Keras must not shard it once more.
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    if rank == 0:
        print(f"training on {size} processes, {jax.device_count()} devices", flush=True)

    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((16, 16, 1)),
            keras.layers.Conv2D(8, 5, activation="relu"),
            keras.layers.GlobalMaxPooling2D(),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(2),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(5e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    images, labels = make_images(8192, seed=1)
    model.fit(
        images[rank::size],
        labels[rank::size],
        batch_size=options.batch_size,
        epochs=options.epochs,
        verbose=0,
        callbacks=[Report()] if rank == 0 else [],
    )
    weights = model.get_weights()  # on every process
    if rank == 0:
        np.savez(options.output, *weights)
        print(f"saved {options.output}", flush=True)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
