"""Metrics of a model on inputs that it is not trained on."""

from keras_capsule_poe.data.batching import sequential_batches


def figures(model, x, at_once):
    """Return a compiled model's metrics, a dict of floats, averaged over inputs x (N, ...)."""
    # For few inputs a pipeline takes longer than the model. Keras' own pipeline may wait at its end
    # for the thread that tunes it, see `AHEAD`.
    if len(x) <= at_once:
        return model.test_on_batch(x, return_dict=True)
    return model.evaluate(sequential_batches(x, at_once), verbose=0, return_dict=True)
