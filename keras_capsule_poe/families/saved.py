"""The trained model of a file."""

import keras


def load_as(kind, path):
    """The model of a `model.keras`, which must be of a class.

    Args:
        kind: class, registered with Keras, or a tuple of such.
        path: str or Path.

    Raises:
        ValueError: If the file holds another kind of model.
    """
    model = keras.models.load_model(path, compile=False)
    if not isinstance(model, kind):
        raise ValueError(f"it holds a {type(model).__name__}")
    return model
