"""Data-parallel training over several devices and machines.

Every process has the whole model. Each device computes the gradients of its shard of the batch,
`tf.distribute` sums them, and all processes make the same update. Only the chief, worker 0, writes.
"""

import contextlib
import json
import threading

import numpy as np

from keras_capsule_poe.data.mapping import CHUNK, map_batches
from keras_capsule_poe.errors import BadUse, RunFailed


class Distribution:
    """Devices of a run; by default the one device of this process."""

    def __init__(self, strategy=None, worker=0, workers=1):
        self.strategy, self.worker, self.workers = strategy, worker, workers
        self.replicas = 1 if strategy is None else strategy.num_replicas_in_sync

    @property
    def is_chief(self):
        """True if this process writes files."""
        return self.worker == 0

    def share_out(self, function, data):
        """Run `function(shard, offset, total, share)` on all devices; return the first result."""
        import tensorflow as tf

        # `share` is the weight of a shard in a mean, and `function` sums over the devices itself.
        # A batch with fewer rows than devices goes to every device whole.
        total, number = tf.shape(tf.nest.flatten(data)[0])[0], self.replicas

        def replica():
            i = tf.distribute.get_replica_context().replica_id_in_sync_group
            is_enough = total >= number
            start = tf.where(is_enough, i * total // number, 0)
            end = tf.where(is_enough, (i + 1) * total // number, total)
            with tf.device("CPU:0"):
                part = tf.nest.map_structure(lambda x: None if x is None else x[start:end], data)
            share = tf.where(is_enough, (end - start) / total, 1 / number)
            return function(part, start, total, share)

        found = self.strategy.run(replica)
        return tf.nest.map_structure(
            lambda x: self.strategy.experimental_local_results(x)[0], found
        )

    @contextlib.contextmanager
    def sharing_out(self, model):
        """Context in which a model's training steps are sharded over the devices."""
        if self.strategy is None:
            yield
            return
        if not hasattr(model, "share_out"):
            raise RunFailed(
                f"A {type(model).__name__} cannot be trained on several replicas, since it has no "
                "`share_out`. Train it on one."
            )
        model.share_out = self.share_out
        try:
            with self.reported():
                yield
        finally:
            model.share_out = None

    @property
    def devices(self):
        """Number of replicas in this process."""
        return max(1, self.replicas // self.workers)

    def map(self, function, rows):
        """Return `map_batches(function, rows)` (N, ...), computed by all processes together."""
        graph, chunk = self.on_devices(function), CHUNK * self.devices
        return self.gathered(lambda own: map_batches(graph, rows[own], chunk=chunk), len(rows))

    def gathered(self, compute, n):
        """Return an array (N, ...) of which each process computes one slice with `compute`."""
        bounds = [n * worker // self.workers for worker in range(self.workers + 1)]
        found = compute(slice(bounds[self.worker], bounds[self.worker + 1]))
        if self.workers == 1:
            return found
        whole = np.empty((n, *found.shape[1:]), found.dtype)
        for worker, (start, end) in enumerate(zip(bounds, bounds[1:])):
            if start < end:
                own = found if worker == self.worker else whole[start:end]
                whole[start:end] = self._from(worker, [own])[0]
        return whole

    def on_devices(self, function):
        """Return a version of `function` that shards its rows over the devices of this process."""
        if self.devices == 1:
            return function
        import tensorflow as tf

        @tf.function(reduce_retracing=True, autograph=False)
        def mapped(rows):
            total, local = tf.shape(rows)[0], self.devices

            def replica():
                i = tf.distribute.get_replica_context().replica_id_in_sync_group % local
                return function(rows[i * total // local : (i + 1) * total // local])

            found = self.strategy.run(replica)
            return tf.concat(self.strategy.experimental_local_results(found), axis=0)

        return mapped

    # Communication between processes

    def from_chief(self, value):
        """Return the chief's JSON value in every process; this is also a barrier."""
        if self.workers == 1:
            return value
        text = np.frombuffer(json.dumps(value).encode(), "uint8")
        (length,) = self._from(0, [np.array([len(text)])])
        (text,) = self._from(0, [text if self.is_chief else np.zeros(length[0], "uint8")])
        return json.loads(text.tobytes())

    def give_variables(self, variables):
        """Assign the chief's values to the variables of every process."""
        if self.workers == 1:
            return
        for variable, value in zip(variables, self._from(0, [np.array(v) for v in variables])):
            variable.assign(value)

    def _from(self, worker, arrays):
        """Return one worker's arrays, bit for bit; all processes pass arrays of these shapes."""
        # The other processes add zeros, and sums of integers are exact.
        data = b"".join(array.tobytes() for array in arrays)
        words = np.frombuffer(data + bytes(-len(data) % 8), "int64")
        words = self._summed(words if worker == self.worker else np.zeros_like(words))
        data, found = words.tobytes(), []
        for array in arrays:
            values = np.frombuffer(data[: array.nbytes], array.dtype)
            found.append(values.reshape(array.shape))
            data = data[array.nbytes :]
        return found

    def _summed(self, words):
        import tensorflow as tf

        if not hasattr(self, "_sum"):
            local = self.devices

            def replica(words):
                context = tf.distribute.get_replica_context()
                is_first = context.replica_id_in_sync_group % local == 0
                return context.all_reduce("SUM", tf.where(is_first, words, 0))

            self._sum = tf.function(
                lambda words: self.strategy.run(replica, args=(words,)),
                input_signature=[tf.TensorSpec((None,), "int64")],
                autograph=False,
            )
        with self.reported():
            found = self._sum(tf.constant(words))
            return self.strategy.experimental_local_results(found)[0].numpy()

    @contextlib.contextmanager
    def reported(self):
        """Context that replaces the error of a lost process by a one-line `RunFailed`."""
        try:
            yield
        except Exception as error:
            if self.workers > 1 and type(error).__name__ in _LOST:
                said = stopped(self.worker, self.workers)
                raise RunFailed(said, hint="all_workers") from error
            raise


class WholeBatches:
    """Stand-in for a strategy of Keras that gives each step of a model its whole batch.

    The step shares its batch out itself, as in the training engine.
    """

    num_replicas_in_sync = 1

    def __init__(self, strategy, model):
        self.strategy, self.model, self.name = strategy, model, type(model).__name__
        self.share_out = Distribution(strategy).share_out

    def scope(self):
        """Return the context in which variables of the strategy are made."""
        return self.strategy.scope()

    def run(self, step, args=()):
        """Return `step(*args)`, computed outside of the scope of any strategy."""
        with outside_of_strategies():
            return step(*args)

    def experimental_distribute_dataset(self, dataset):
        """Return the dataset as it is."""
        self.check()
        optimizer = getattr(self.model, "optimizer", None)
        self.check_variables(optimizer.variables if optimizer else ())
        at_once = getattr(self.model, "steps_per_execution", 1)
        if at_once != 1:
            raise BadUse(
                f"`steps_per_execution` must be 1 for {self.name} on several replicas. "
                f"Received: steps_per_execution={at_once}"
            )
        return dataset

    def reduce(self, *_, **__):
        """Raise `BadUse`: Keras reduces the batches of a distributed dataset alone."""
        raise BadUse(
            f"{self.name} shares its batches out itself: give it a dataset that is not "
            "distributed. Received: a distributed dataset"
        )

    def check(self):
        """Raise `BadUse` unless the strategy is of one machine."""
        import tensorflow as tf

        if not isinstance(self.strategy, tf.distribute.MirroredStrategy):
            raise BadUse(
                f"{self.name} must be used under a MirroredStrategy, or trained by `capspoe train` "
                f"on several machines. Received: a {type(self.strategy).__name__}"
            )

    def check_variables(self, variables):
        """Raise `BadUse` unless variables were made in the scope of the strategy."""
        import tensorflow as tf

        if not all(isinstance(v.value, tf.distribute.DistributedValues) for v in variables):
            raise BadUse(
                f"{self.name} must be made and compiled, or loaded, inside of `strategy.scope()`. "
                "Received: weights or an optimizer of one device"
            )


def distribution_of(model):
    """Return the `Distribution` of the strategy under which a Keras model was made."""
    strategy = getattr(model, "distribute_strategy", None)
    strategy = getattr(strategy, "strategy", strategy)
    if strategy is None or strategy.num_replicas_in_sync == 1:
        return Distribution()
    WholeBatches(strategy, model).check()
    return Distribution(strategy)


def outside_of_strategies():
    """Return a context without a strategy of TensorFlow, for use in the scope of one."""
    import tensorflow as tf

    if not tf.distribute.has_strategy():
        return contextlib.nullcontext()
    # Another thread is in no scope.
    found = []
    thread = threading.Thread(target=lambda: found.append(tf.distribute.get_replica_context()))
    thread.start()
    thread.join()
    return found[0]


# Errors that TensorFlow raises when another process is gone.
_LOST = ("UnavailableError", "AbortedError", "CancelledError", "FailedPreconditionError",
         "DeadlineExceededError", "InternalError")  # fmt: skip


def stopped(worker, workers):
    """Return the message of a worker that stops because another one is gone."""
    return f"Worker {worker} of {workers} has stopped because another one did."
