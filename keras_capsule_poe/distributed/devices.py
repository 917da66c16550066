"""Devices and machines of a run, from the number of replicas and `TF_CONFIG`."""

import contextlib
import json
import math
import os

from keras_capsule_poe.distributed.distribution import Distribution
from keras_capsule_poe.distributed.rendezvous import PATIENCE, barrier, host_and_port
from keras_capsule_poe.errors import BadUse, RunFailed


def start(replicas=1, note=print):
    """Return this process's `Distribution`; call it before TensorFlow computes anything."""
    worker, workers = cluster()
    if workers == 1 and replicas == 1:
        return Distribution()
    import tensorflow as tf

    number, gpus = count(replicas), tf.config.list_physical_devices("GPU")
    with contextlib.ExitStack() as stack:
        if workers > 1:
            # Otherwise gRPC waits forever for a worker that is gone.
            os.environ.setdefault("GRPC_FAIL_FAST", "true")
            stack.enter_context(barrier(_addresses(), worker, _patience(), note))
        try:
            strategy = _strategy(number, workers, gpus, note)
        except RuntimeError as error:
            raise RunFailed(
                "Replicas must be set up before TensorFlow computes anything: start a new process."
            ) from error
    return Distribution() if strategy is None else Distribution(strategy, worker, workers)


def _strategy(number, workers, gpus, note):
    """Return the strategy for these devices and workers, or None for one device."""
    import tensorflow as tf

    if gpus:
        tf.config.set_visible_devices(gpus[:number], "GPU")
    elif number > 1:
        note(f"No GPU is here: {number} replicas share the processor, which makes none faster.")
        device = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration()] * number
        tf.config.set_logical_device_configuration(device, parts)
    if workers > 1:
        return tf.distribute.MultiWorkerMirroredStrategy()
    kind = "GPU" if gpus else "CPU"
    names = [f"{kind}:{i}" for i in range(number)]
    return None if number == 1 else tf.distribute.MirroredStrategy(names)


def count(replicas):
    """Return the number of replicas of one process, from an int or `"auto"`."""
    if replicas == 1:
        return 1
    import tensorflow as tf

    gpus, (_, workers) = len(tf.config.list_physical_devices("GPU")), cluster()
    if replicas == "auto":
        return max(1, gpus)
    if replicas < 1 or replicas > gpus > 0:
        raise BadUse(f"`replicas` must be between 1 and the {gpus} GPUs. Received: {replicas}")
    if workers > 1 and not gpus:
        raise BadUse(
            "Without GPUs each worker is one replica: start more workers. "
            f"Received: replicas={replicas}"
        )
    return replicas


def cluster():
    """Return this worker's index (0 is the chief) and the number of workers, from `TF_CONFIG`."""
    text = os.environ.get("TF_CONFIG") or "{}"
    try:
        values = json.loads(text)
        jobs, task = values.get("cluster", {}), values.get("task", {})
        sizes = {job: len(addresses) for job, addresses in jobs.items()}
        if not jobs:
            return 0, 1
        kind, index = task["type"], int(task["index"])
        if set(sizes) - {"chief", "worker"} or not 0 <= index < sizes[kind]:
            raise ValueError
        for address in _addresses():
            host_and_port(address)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadUse(
            "TF_CONFIG must be JSON with a `cluster` of `chief` and `worker` addresses, host:port, "
            f"and the `task`, `type` and `index`, of this process. Received: {text[:200]}"
        ) from error
    return index + (sizes.get("chief", 0) if kind == "worker" else 0), sum(sizes.values())


def _addresses():
    """Return `host:port` of all workers, the chief first."""
    jobs = json.loads(os.environ["TF_CONFIG"])["cluster"]
    return [*jobs.get("chief", ()), *jobs.get("worker", ())]


def _patience():
    """Return how many seconds workers wait for each other, from `CAPSPOE_PATIENCE`."""
    text = os.environ.get("CAPSPOE_PATIENCE") or str(PATIENCE)
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise BadUse(f"CAPSPOE_PATIENCE must be seconds. Received: {text[:200]}")
    return seconds
