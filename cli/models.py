"""How the commands find a trained model, its configuration and its images."""

from pathlib import Path

import click

from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.records import has_record

SAVED_MODELS = Path("saved_models")


def find_model(model_dir):
    """Folder of a finished model: `model_dir`, or the newest below saved_models/.

    Raises:
        RunFailed: If there is none.
    """
    if model_dir is not None:
        if not (model_dir / "model.keras").exists():
            if has_record(model_dir / "run.json"):
                raise RunFailed(
                    f"{model_dir} has no model.keras: its training has not finished, or the file "
                    "was removed.",
                    mend="go_on",
                )
            raise RunFailed(f"{model_dir} holds no finished model.", mend="train")
        return model_dir
    found = sorted(SAVED_MODELS.glob("*/model.keras"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise RunFailed(f"There is no trained model in {SAVED_MODELS}/.", mend="train")
    return found[-1].parent


def load_config(folder):
    """The `RunConfig` that a model folder was trained with.

    Raises:
        RunFailed: If the folder holds no run, or one that this version does not read.
    """
    from keras_capsule_poe.families import get
    from keras_capsule_poe.training import RunConfig, RunFolder

    saved = RunFolder(folder).readable()["config"]
    return RunConfig.from_dict(get(saved["model"]), saved)


def load_model(folder):
    """The trained model of a folder, as its family loads it.

    Raises:
        RunFailed: If its file is damaged, of another kind, or not what training wrote.
    """
    from keras_capsule_poe.training import RunFolder

    family, run = load_config(folder).family, RunFolder(folder)
    last = family.stages[-1]
    if run.done(last.name) is None:
        raise RunFailed(f"{folder} holds no finished model.", mend="train")
    run.check(last)
    path = run.path / "model.keras"
    try:
        return family.load(path)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise RunFailed(
            f"Cannot load {path} ({reason}).", mend=f"stage_fresh:{last.name}"
        ) from error


def own_seconds(folder):
    """How long what a family puts on its features was trained, in seconds.

    Raises:
        RunFailed: If a stage of it is not done any more.
    """
    from keras_capsule_poe.families import features
    from keras_capsule_poe.training import RunFolder

    stages = [stage for stage in load_config(folder).stages if stage.section]
    own = [stage.name for stage in stages if stage.section not in features.SECTIONS]
    found = {name: RunFolder(folder).done(name) for name in own}
    for name, done in found.items():
        if done is None:
            raise RunFailed(f"{folder / name} holds no finished stage.", mend=f"stage_fresh:{name}")
    return sum(done["seconds"] for done in found.values())


def load_history(folder, model):
    """What was measured after each epoch of a classifier's training; of another model nothing.

    Raises:
        RunFailed: If it is damaged, or of another run.
    """
    from keras_capsule_poe.evaluation.classified import is_classifier
    from keras_capsule_poe.training import RunFolder

    stages = [stage for stage in load_config(folder).stages if stage.section]
    return RunFolder(folder).history(stages[-1]) if is_classifier(model) else []


def load_run_data(folder, **places):
    """The `ImageData` that a model was trained on; `places` are those of `data_options`.

    Raises:
        RunFailed: If the images are others now.
    """
    from keras_capsule_poe.training import RunFolder, changed, load_data

    config = load_config(folder)
    data = load_data(config, **places, report=lambda line: click.echo(line, err=True))
    if other := changed(data, config, RunFolder(folder).readable()["fingerprint"]):
        raise RunFailed(
            f"The {other} of {config.dataset} are not those that {folder} was trained on: "
            "what is held out for testing may have been trained on."
        )
    return data


def first_images(images, n):
    """The first `n` of an `ImageSet` of test images; if there are fewer, a line says so."""
    if len(images) < n:
        click.echo(f"There are {len(images)} test images, not {n}.")
    return images.head(n)


def load_generative(folder):
    """The model of a folder, which generates images.

    Raises:
        RunFailed: If it cannot be loaded, or only names classes.
    """
    return _loaded(folder, lambda model: callable(getattr(model, "draw", None)), "generates")


def load_reconstructing(folder):
    """The model of a folder, which makes images of codes.

    Raises:
        RunFailed: If it cannot be loaded, or makes none.
    """
    return _loaded(folder, lambda model: "reconstruct" in model.ENDPOINTS, "reconstructs")


def load_naming(folder):
    """The model of a folder, which names classes and makes images of their codes.

    Raises:
        RunFailed: If it cannot be loaded, or does not.
    """

    from keras_capsule_poe.evaluation.classified import is_classifier

    def can(model):
        return "reconstruct" in model.ENDPOINTS and is_classifier(model)

    return _loaded(folder, can, "names and decodes")


def load_routed(folder):
    """The model of a folder, which names classes and routes in iterations.

    Raises:
        RunFailed: If it cannot be loaded, or does not.
    """
    from keras_capsule_poe.evaluation.classified import is_classifier

    model = load_model(folder)
    if not (is_classifier(model) and getattr(model, "iterations", 0)):
        raise RunFailed(
            f"The model in {folder} has no couplings that change: it names no classes, or does so "
            f"with uniform coefficients or routing in one pass. It is a {model.TITLE}."
        )
    return model


def _loaded(folder, can, verb):
    model = load_model(folder)
    if not can(model):
        config, why = load_config(folder), ""
        section = config.family.stages[0].section
        if getattr(model, "decoder", model) is None:
            why = f", trained without a decoder: --set {section}.decoder=dense"
        raise RunFailed(f"The model in {folder} {verb} no images. It is a {model.TITLE}{why}.")
    return model
