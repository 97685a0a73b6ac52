"""Classify synthetic images with Keras and TensorFlow's MultiWorkerMirroredStrategy."""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before the import

import numpy as np
import tensorflow as tf


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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64, help="samples per worker and step")
    options = parser.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # reads TF_CONFIG
    replicas = strategy.num_replicas_in_sync
    is_first = strategy.cluster_resolver.task_id in (None, 0)
    if is_first:
        print(f"training on {replicas} replicas", flush=True)

    tf.keras.utils.set_random_seed(0)
    with strategy.scope():
        model = tf.keras.Sequential(
            [
                tf.keras.layers.Conv2D(8, 5, activation="relu", input_shape=(16, 16, 1)),
                tf.keras.layers.GlobalMaxPooling2D(),
                tf.keras.layers.Dense(16, activation="relu"),
                tf.keras.layers.Dense(1),
            ]
        )
        loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(
            tf.keras.optimizers.Adam(5e-3), loss, metrics=[tf.keras.metrics.BinaryAccuracy(threshold=0.0)]
        )

    size = options.batch_size * replicas
    train = (
        tf.data.Dataset.from_tensor_slices(make_images(8192, seed=1))
        .shuffle(8192, seed=1)
        .batch(size)
        .repeat()
    )
    report = tf.keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: (
            is_first
            and print(
                f"epoch {epoch + 1}: loss {logs['loss']:.4f}, accuracy {logs['binary_accuracy']:.4f}",
                flush=True,
            )
        )
    )
    model.fit(train, epochs=options.epochs, steps_per_epoch=8192 // size, verbose=0, callbacks=[report])


if __name__ == "__main__":
    main()
