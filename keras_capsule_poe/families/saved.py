"""A trained model as a run leaves it, and as it is loaded from there."""

import keras

from keras_capsule_poe.io.files import beside
from keras_capsule_poe.serving.saved_model import export_saved_model, versions


def save_whole(run, model):
    """Writes the model of a run for Keras and, as the next version, as a SavedModel.

    An export that was killed and is begun again writes the version that it was writing.

    Args:
        run: `Run`, in its stage `export`.
        model: Built `GenerativeModel` or `CapsuleClassifier`.

    Returns:
        str, the version.
    """
    folder = run.folder.path
    version = run.once("export", "version", lambda: max(versions(folder), default=0) + 1)
    with beside(run.path("model.keras"), suffix=".keras") as temporary:
        model.save(temporary)
    return export_saved_model(model, folder, run.folder.card(run.config), version=version).name


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
