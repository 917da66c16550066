"""What a run would take: shapes, parameters, memory and time, without training."""

import time

import numpy as np

from keras_capsule_poe.training.config import schedule
from keras_capsule_poe.training.precision import best_precision

# Share of the machine's large float32 product rate that each stage was seen to reach on two cores,
# what comes between the steps included; convolutions in bfloat16 exceed it.
EFFICIENCY = {"autoencoder": 0.6, "features": 0.6, "encoder": 0.14, "decoder": 0.2}
BFLOAT16_EFFICIENCY = {"autoencoder": 0.9, "features": 1.3}
BYTES = 4
# What TensorFlow itself takes once it runs.
RUNTIME_BYTES = 700e6


def plan(config, data):
    """Estimates a run.

    Args:
        config: `RunConfig`.
        data: `ImageData`.

    Returns:
        dict: `shapes` and `parameters`, each {name: value}; `stages`, {name: dict with epochs,
        steps, gflop and seconds}; `peak_bytes`, `disk_bytes` and `seconds`. The times are
        FLOPs over this machine's measured rate and the share of it usually reached.
    """
    height, width, channels = data.image_shape
    filters, kernel = config.autoencoder.filters, 9
    inner = (height - kernel + 1, width - kernel + 1)
    reduced = tuple((size - kernel) // 2 + 1 for size in inner)
    features = int(np.prod(reduced)) * filters
    dim, capsules, size = config.primary.dim, config.encoder.capsules, config.encoder.dim
    if features % dim:
        raise ValueError(
            f"primary.dim must divide the {features} features of an image. Received: {dim}"
        )
    inputs = features // dim
    outer = kernel**2 * channels * filters
    reduction = kernel**2 * filters**2
    maps = inputs * capsules * dim * size
    n = len(data.train)
    forward = 4 * (np.prod(inner) * outer + np.prod(reduced) * reduction)
    precision, efficiency = config.autoencoder.precision, dict(EFFICIENCY)
    if (best_precision() if precision == "auto" else precision) == "mixed_bfloat16":
        efficiency |= BFLOAT16_EFFICIENCY
    measured_rate, stages = product_rate(), {}
    for name, flops, options in (
        ("autoencoder", 3 * forward, config.autoencoder),
        ("features", forward / 2, None),
        ("encoder", _step_flops(maps, config.encoder), config.encoder),
        ("decoder", _step_flops(maps, config.decoder), config.decoder),
    ):
        epochs, steps = schedule(options, n) if options else (1, -(-n // 256))
        work = flops * n * epochs
        rate = measured_rate * efficiency[name]
        stages[name] = {
            "epochs": epochs,
            "steps": epochs * steps,
            "gflop": work / 1e9,
            "seconds": work / rate,
        }
    activations = 6 * config.autoencoder.batch_size * int(np.prod(inner)) * filters * BYTES
    images = data.train.images.nbytes + data.test.images.nbytes
    stored = 2 * features * (n + len(data.test))
    return {
        "shapes": {
            "image": (height, width, channels),
            "feature map": (*reduced, filters),
            "primary capsules": (inputs, dim),
            "expert capsules": (capsules, size),
        },
        "parameters": {
            "autoencoder": 2 * outer + 2 * reduction + 3 * filters + channels,
            "encoder": maps,
            "decoder": inputs * capsules * dim * (size + config.decoder.offset),
        },
        "stages": stages,
        "seconds": sum(stage["seconds"] for stage in stages.values()),
        # The stored features are mapped, which counts as memory while they are read.
        "peak_bytes": int(RUNTIME_BYTES + images + stored + activations + 8 * maps * BYTES),
        "disk_bytes": stored,
    }


def product_rate():
    """FLOP/s of a large float32 matrix product here, the best of three."""
    import tensorflow as tf

    a = tf.ones((1024, 1024))
    best = 0.0
    for _ in range(4):
        start = time.perf_counter()
        tf.linalg.matmul(a, a).numpy()
        best = max(best, 2 * 1024**3 / (time.perf_counter() - start))
    return best


def _step_flops(maps, options):
    """Products of routing, reconstruction and the two correlations, per image."""
    return 2 * maps * (2 * options.iterations + 1 + 4)
