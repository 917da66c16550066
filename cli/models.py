"""How the commands find a trained model, its configuration and its images."""

from pathlib import Path

SAVED_MODELS = Path("saved_models")


def find_model(model_dir):
    """Folder of a finished model: `model_dir`, or the newest below saved_models/.

    Raises:
        RunFailed: If there is none.
    """
    from keras_capsule_poe.errors import RunFailed

    if model_dir is not None:
        if not (model_dir / "model.keras").exists():
            raise RunFailed(
                f"{model_dir} holds no finished model. "
                f"Train one: capspoe train --model-dir {model_dir}"
            )
        return model_dir
    found = sorted(SAVED_MODELS.glob("*/model.keras"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise RunFailed(
            "There is no trained model in saved_models/. Train one: capspoe train --dataset "
            "digits (no network needed), or name another folder with --model-dir."
        )
    return found[-1].parent


def load_model(folder):
    """The trained model of a model folder.

    Raises:
        RunFailed: If the file is damaged or of another kind.
    """
    import keras

    import keras_capsule_poe.models  # registers the classes  # noqa: F401
    from keras_capsule_poe.errors import RunFailed

    path = Path(folder) / "model.keras"
    try:
        return keras.models.load_model(path, compile=False)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise RunFailed(
            f"Cannot load {path} ({reason}). Write it anew: capspoe export --model-dir {folder}"
        ) from error


def load_config(folder):
    """The `RunConfig` that a model folder was trained with."""
    from keras_capsule_poe.io.files import read_json
    from keras_capsule_poe.training.config import RunConfig

    return RunConfig.from_dict(read_json(Path(folder) / "run.json")["config"])


def load_data(config, data_dir=None, manual_dir=None):
    """The `ImageData` that a configuration names."""
    from keras_capsule_poe.data import load_images

    return load_images(
        config.dataset,
        data_dir=data_dir,
        manual_dir=manual_dir,
        column=config.column,
        image_size=config.image_size,
        grey=config.grey,
        limit=config.limit,
        skip_broken=config.skip_broken,
        seed=config.seed,
    )


def load_run_data(folder, data_dir=None, manual_dir=None):
    """The `ImageData` that the model of a folder was trained and tested with.

    Raises:
        RunFailed: If the data set has other images by now.
    """
    from keras_capsule_poe.errors import RunFailed
    from keras_capsule_poe.io.files import read_json

    config = load_config(folder)
    data = load_data(config, data_dir, manual_dir)
    expected = read_json(Path(folder) / "run.json").get("fingerprint")
    found = {"train": data.train.fingerprint, "test": data.test.fingerprint}
    if expected and expected != found:
        raise RunFailed(
            f"The images of {config.dataset} are not those that {folder} was trained on: "
            "what is held out for testing may have been trained on."
        )
    return data


def load_generative(folder):
    """The model of a folder, which generates images.

    Raises:
        RunFailed: If it cannot be loaded, or only names classes.
    """
    from keras_capsule_poe.errors import RunFailed

    model = load_model(folder)
    if not callable(getattr(model, "draw", None)):
        raise RunFailed(f"The model in {folder} generates no images. It is a {model.TITLE}.")
    return model
