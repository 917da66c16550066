"""Devices and machines of a run, from the number of replicas and `TF_CONFIG`."""

import contextlib
import json
import math
import os
import signal
import socket
import sys
import threading
import time

from keras_capsule_poe.distributed.distribution import Distribution, stopped
from keras_capsule_poe.errors import BadUse, RunFailed, first_line

# Seconds that workers wait for each other.
PATIENCE = 600.0


def start(replicas=1, note=print):
    """Return this process's `Distribution`; call it before TensorFlow computes anything."""
    worker, workers = cluster()
    if workers == 1 and replicas == 1:
        return Distribution()
    import tensorflow as tf

    number, gpus = count(replicas), tf.config.list_physical_devices("GPU")
    together = _joining(worker, workers, note) if workers > 1 else contextlib.nullcontext()
    try:
        with together:
            strategy = _strategy(number, workers, gpus, note)
    except RunFailed:
        raise
    except RuntimeError as error:
        raise RunFailed(
            "Replicas must be set up before TensorFlow computes anything: start a new process."
        ) from error
    return Distribution() if strategy is None else Distribution(strategy, worker, workers)


@contextlib.contextmanager
def _joining(worker, workers, note):
    """Context in which TensorFlow waits for all workers; it ends the process if one is missing."""
    import tensorflow as tf

    # Otherwise gRPC waits forever for a worker that is gone.
    os.environ.setdefault("GRPC_FAIL_FAST", "true")
    seconds = _patience()
    note(f"Waiting for all {workers} workers; worker 0 is at {_addresses()[0]}.")

    def give_up():
        said = f"Worker {worker} waited {seconds:g} seconds for all {workers} workers."
        advice = "Start the same command on each, all within this time, or correct TF_CONFIG."
        print(f"Error: {said} {advice}", file=sys.stderr, flush=True)
        # The main thread waits inside TensorFlow, for an hour; no training has begun.
        os._exit(1)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    # Python's handlers run after TensorFlow returns, so the system's end the process.
    kinds = (signal.SIGINT, signal.SIGTERM)
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {kind: signal.signal(kind, signal.SIG_DFL) for kind in kinds if is_main}
    try:
        if worker:
            _wait_for(_addresses()[0])
        yield
    except tf.errors.OpError as error:
        said = f"{stopped(worker, workers)} Start the same command on all of them again"
        raise RunFailed(f"{said} ({first_line(error)}).") from error
    finally:
        timer.cancel()
        for kind, handler in handlers.items():
            signal.signal(kind, handler)


def _wait_for(address):
    """Wait until a process listens at `address`; TensorFlow fails if the chief starts later."""
    host, _, port = address.rpartition(":")
    while True:
        # UnicodeError: invalid host name.
        with contextlib.suppress(OSError, UnicodeError):
            socket.create_connection((host.strip("[]"), int(port)), timeout=1).close()
            return
        time.sleep(0.2)


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
        if not all(_is_address(address) for address in _addresses()):
            raise ValueError
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


def _is_address(address):
    host, _, port = address.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 2**16


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
