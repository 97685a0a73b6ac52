"""Train a small or a large network to classify images, then time the inference.

    python train.py --network snn
    KERAS_BACKEND=tensorflow python train.py --network lnn --images 1526 --size 256 --batch 301

The images are made here: gratings of five orientations with noise, in two channels.
"""

import argparse
import os
import time

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
import numpy as np
from keras import layers

CLASSES = 5


def snn(size):
    """Ten layers."""
    return keras.Sequential(
        [
            keras.Input((size, size, 2)),
            layers.Conv2D(16, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(4),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(4),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dropout(0.25),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


def lnn(size):
    """28 layers: six blocks of four, and four more."""
    model = keras.Sequential([keras.Input((size, size, 2))])
    for channels in (32, 64, 128, 128, 256, 256):
        model.add(layers.Conv2D(channels, 3, padding="same", use_bias=False))
        model.add(layers.BatchNormalization())
        model.add(layers.ReLU())
        model.add(layers.MaxPooling2D(2))
    model.add(layers.Flatten())
    model.add(layers.Dense(256, activation="relu"))
    model.add(layers.Dropout(0.25))
    model.add(layers.Dense(CLASSES, activation="softmax"))
    return model


NETWORKS = {"snn": snn, "lnn": lnn}


def make_images(count, size):
    """Gratings with noise, and the class of each: its orientation."""
    random = np.random.default_rng(1)
    classes = random.integers(CLASSES, size=count)
    y, x = np.mgrid[0:size, 0:size].astype(np.float32)
    images = random.standard_normal((count, size, size, 2), dtype=np.float32)
    for image, kind in zip(images, classes, strict=True):
        angle = np.pi * kind / CLASSES + random.normal(0, 0.05)
        along = x * np.cos(angle) + y * np.sin(angle)
        wave = 2 * np.pi / random.uniform(6, 10)
        image[..., 0] += np.sin(wave * along + random.uniform(0, 2 * np.pi))
        image[..., 1] += np.cos(wave * along + random.uniform(0, 2 * np.pi))
    return images, classes


def timed_inference(model, images, batch):
    model.predict(images[:batch], batch_size=batch, verbose=0)
    began = time.perf_counter()
    found = model.predict(images, batch_size=batch, verbose=0)
    return time.perf_counter() - began, found.argmax(axis=1)


def has_gpu():
    if keras.backend.backend() == "torch":
        import torch

        return torch.cuda.is_available()
    import tensorflow

    return bool(tensorflow.config.list_physical_devices("GPU"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--network", choices=NETWORKS, default="snn")
    parser.add_argument("--images", type=int, default=1526)
    parser.add_argument("--size", type=int, default=256, help="height and width")
    parser.add_argument("--batch", type=int, default=301)
    parser.add_argument("--epochs", type=int, default=20)
    args = parser.parse_args()

    images, classes = make_images(args.images, args.size)
    train = args.images * 4 // 5
    model = NETWORKS[args.network](args.size)
    print(f"{args.network}: {len(model.layers)} layers, {model.count_params()} parameters")
    model.compile(keras.optimizers.Adam(1e-3), "sparse_categorical_crossentropy", metrics=["accuracy"])

    began = time.perf_counter()
    history = model.fit(images[:train], classes[:train], batch_size=args.batch, epochs=args.epochs, verbose=0)
    print(f"training: {time.perf_counter() - began:.3f} s")
    for epoch, loss in enumerate(history.history["loss"], 1):
        print(f"epoch {epoch} loss {loss:.5f}")

    seconds, found = timed_inference(model, images, args.batch)
    if has_gpu():
        print(f"inference on the GPU: {seconds:.3f} s")
        on_cpu = NETWORKS[args.network](args.size)
        on_cpu.set_weights(model.get_weights())
        if keras.backend.backend() == "torch":
            on_cpu.to("cpu")
        with keras.device("cpu"):
            seconds, found = timed_inference(on_cpu, images, args.batch)
    print(f"inference on the CPU: {seconds:.3f} s")
    print(f"accuracy: {100 * np.mean(found[train:] == classes[train:]):.2f} %")


if __name__ == "__main__":
    main()
