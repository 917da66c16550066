"""What a model reports of inputs that it is not trained on."""

from keras_capsule_poe.data.batching import sequential_batches


def figures(model, x, at_once):
    """Means of what `evaluate` reports, over all of some inputs.

    Where these are few no pipeline is set up, which takes longer than small models; of more it is
    ours, since at the end of Keras' own one waits for the thread that tunes it, see `AHEAD`.

    Args:
        model: Compiled Keras model that is tested on inputs alone.
        x: Array (N, ...).
        at_once: int, inputs that are taken at a time.

    Returns:
        dict of floats.

    Examples:

    >>> import keras
    >>> import numpy as np
    >>> class Sums(keras.Model):
    ...     def test_step(self, data):
    ...         x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
    ...         return {"sum": keras.ops.sum(x)}
    >>> model = Sums()
    >>> model.compile(jit_compile=False)
    >>> float(figures(model, np.ones((3, 2), "float32"), at_once=4)["sum"])
    6.0
    """
    if len(x) <= at_once:
        return model.test_on_batch(x, return_dict=True)
    return model.evaluate(sequential_batches(x, at_once), verbose=0, return_dict=True)
