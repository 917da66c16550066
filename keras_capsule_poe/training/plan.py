"""What a run would take: shapes, parameters, memory and time, without training."""

import time

from keras_capsule_poe.training.images import watched

# What TensorFlow itself takes once it runs.
RUNTIME_BYTES = 700e6


def plan(config, data):
    """Estimates a run.

    Args:
        config: `RunConfig`.
        data: `ImageData`.

    Returns:
        dict: `shapes` and `parameters`, each {name: value}; `stages`, {name: dict with epochs,
        steps, gflop, seconds and note}; `peak_bytes`, `disk_bytes` and `seconds`. The times are
        FLOPs over this machine's measured rate and the share of it usually reached.
    """
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
        # What is stored is mapped, which counts as memory while it is read.
        "peak_bytes": int(RUNTIME_BYTES + images + disk + memory),
        "disk_bytes": int(disk),
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
