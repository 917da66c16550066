"""Several devices, and several machines, that train as one.

Every process has the whole model. In each step every device finds means over its own images of
the batch, `tf.distribute` adds them up over devices and machines, and each process makes the
same move. The chief, the first worker, is the only one that writes.
"""

import contextlib
import json

import numpy as np

from keras_capsule_poe.data.mapping import CHUNK, map_batches
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.training.rendezvous import stopped


class Distribution:
    """The devices of a run: by default the one that this process has.

    Args:
        strategy: `tf.distribute.Strategy`; or None: one device.
        worker: int, the number of this process, from 0, the chief.
        workers: int, how many there are.

    Examples:

    >>> one = Distribution()
    >>> one.replicas, one.is_chief, one.from_chief({"step": 3})
    (1, True, {'step': 3})
    """

    def __init__(self, strategy=None, worker=0, workers=1):
        self.strategy, self.worker, self.workers = strategy, worker, workers
        self.replicas = 1 if strategy is None else strategy.num_replicas_in_sync

    @property
    def is_chief(self):
        """Whether this process writes."""
        return self.worker == 0

    def share_out(self, function, data):
        """What a function gives where every device has its own rows of a batch.

        A batch of fewer rows than there are devices goes to each of them whole.

        Args:
            function: Of the rows, where they begin, how many there are in all, and the device's
                share of a mean over all; it adds up over the devices itself.
            data: Tensor (B, ...), or a nest of them: the whole batch, the same in every process.

        Returns:
            What the function gives on the first device here.
        """
        import tensorflow as tf

        total, number = tf.shape(tf.nest.flatten(data)[0])[0], self.replicas

        def replica():
            i = tf.distribute.get_replica_context().replica_id_in_sync_group
            is_enough = total >= number
            start = tf.where(is_enough, i * total // number, 0)
            end = tf.where(is_enough, (i + 1) * total // number, total)
            with tf.device("CPU:0"):
                part = tf.nest.map_structure(lambda rows: rows[start:end], data)
            share = tf.where(is_enough, (end - start) / total, 1 / number)
            return function(part, start, total, share)

        found = self.strategy.run(replica)
        return tf.nest.map_structure(
            lambda x: self.strategy.experimental_local_results(x)[0], found
        )

    @contextlib.contextmanager
    def sharing_out(self, model):
        """While open, a model's training steps are shared out.

        Raises:
            RunFailed: If the model cannot, or another process has stopped.
        """
        if self.strategy is None:
            yield
            return
        if not hasattr(model, "share_out"):
            raise RunFailed(f"The training of a {type(model).__name__} cannot be shared out.")
        model.share_out = self.share_out
        try:
            with self.told():
                yield
        finally:
            model.share_out = None

    @property
    def devices(self):
        """How many replicas this process has."""
        return max(1, self.replicas // self.workers)

    def map(self, function, rows):
        """`map_batches`, shared out among the processes and their devices.

        Args:
            function, rows: See `map_batches`; the function gives one tensor.

        Returns:
            Array (N, ...), in every process.
        """
        graph, chunk = self.on_devices(function), CHUNK * self.devices
        return self.gathered(lambda own: map_batches(graph, rows[own], chunk=chunk), len(rows))

    def gathered(self, compute, n):
        """Rows of which each process computes its share.

        Args:
            compute: Function of a slice of the rows to an array of these.
            n: int, N, how many rows there are.

        Returns:
            Array (N, ...), in every process.
        """
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
        """The same function of rows, each device of this process computing it for some of them."""
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

    # Among processes

    def from_chief(self, value):
        """The chief's plain value, in every process; all wait until each has come here.

        Args:
            value: What JSON can hold; only the chief's counts.

        Raises:
            RunFailed: If another process has stopped.
        """
        if self.workers == 1:
            return value
        text = np.frombuffer(json.dumps(value).encode(), "uint8")
        (length,) = self._from(0, [np.array([len(text)])])
        (text,) = self._from(0, [text if self.is_chief else np.zeros(length[0], "uint8")])
        return json.loads(text.tobytes())

    def give_variables(self, variables):
        """Gives variables the values that the chief's have.

        Raises:
            RunFailed: If another process has stopped.
        """
        if self.workers == 1:
            return
        for variable, value in zip(variables, self._from(0, [np.array(v) for v in variables])):
            variable.assign(value)

    def _from(self, worker, arrays):
        """Arrays as a worker has them, bit for bit; every process gives some of these shapes."""
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
        with self.told():
            found = self._sum(tf.constant(words))
            return self.strategy.experimental_local_results(found)[0].numpy()

    @contextlib.contextmanager
    def told(self):
        """Says in one line that another process has stopped, where TensorFlow says it in many."""
        try:
            yield
        except Exception as error:
            if self.workers > 1 and type(error).__name__ in _LOST:
                said = stopped(self.worker, self.workers)
                raise RunFailed(said, mend="all_workers") from error
            raise


# What TensorFlow raises where the process at the other end is gone.
_LOST = ("UnavailableError", "AbortedError", "CancelledError", "FailedPreconditionError",
         "DeadlineExceededError", "InternalError")  # fmt: skip
