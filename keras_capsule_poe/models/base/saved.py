"""Export of a run's trained model, and loading of the exported file."""

import keras

from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.serving import export_saved_model, versions


def save_whole(run, model):
    """Write the model as `model.keras` and as the next SavedModel version; return the version."""
    folder = run.folder.path
    # An interrupted export continues with the same version number.
    version = run.once("export", "version", lambda: max(versions(folder), default=0) + 1)
    with atomic_write(run.path("model.keras"), suffix=".keras") as temporary:
        model.save(temporary)
    return export_saved_model(model, folder, run.folder.card(run.config), version=version).name


def load_as(kind, path):
    """Load a `model.keras`; raise `ValueError` if it is not an instance of `kind`."""
    model = keras.models.load_model(path, compile=False)
    if not isinstance(model, kind):
        raise ValueError(f"it holds a {type(model).__name__}")
    return model
