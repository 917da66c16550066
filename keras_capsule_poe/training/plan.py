"""Estimates of the shapes, parameters, memory and time of a run, without training."""

import time

from keras_capsule_poe.training.images import watched

# Memory of TensorFlow itself.
RUNTIME_BYTES = 700e6


def plan(config, data):
    """Return a dict of shapes, parameters, costs of stages, seconds and bytes of a run."""
    data = watched(data, config)
    shapes, parameters = config.family.outline(config, data.image_shape)
    costs = {
        stage.name: stage.cost(config, data.image_shape, len(data.train), len(data.held_out))
        for stage in config.stages
        if stage.cost
    }
    rate = product_rate()
    stages = {
        name: {
            "epochs": cost.epochs,
            "steps": cost.steps,
            "gflop": cost.flops / 1e9,
            "seconds": cost.flops / (rate * cost.share),
            "note": cost.note,
        }
        for name, cost in costs.items()
    }
    images = sum(part.nbytes for part in (data.train, data.held_out, data.test))
    disk = sum(cost.disk for cost in costs.values())
    memory = max((cost.memory for cost in costs.values()), default=0)
    return {
        "shapes": shapes,
        "parameters": parameters,
        "stages": stages,
        "seconds": sum(stage["seconds"] for stage in stages.values()),
        # Stored data are memory-mapped, and count as memory while they are read.
        "peak_bytes": int(RUNTIME_BYTES + images + disk + memory),
        "disk_bytes": int(disk),
    }


def product_rate():
    """Return the float32 matrix-product rate of this machine in FLOP/s, the best of four runs."""
    import tensorflow as tf

    a = tf.ones((1024, 1024))
    best = 0.0
    for _ in range(4):
        start = time.perf_counter()
        tf.linalg.matmul(a, a).numpy()
        best = max(best, 2 * 1024**3 / (time.perf_counter() - start))
    return best
