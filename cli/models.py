"""Loading of trained models, their configurations and their images for the commands."""

from pathlib import Path

import click

from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.records import has_record
from keras_capsule_poe.pretrained import pretrained_folder

SAVED_MODELS = Path("saved_models")


def find_model(model_dir):
    """Return the folder of a path or a pretrained name, by default the newest in saved_models/.

    Raise if the command would write over files of the run or of its data set.
    """
    folder = _found(model_dir)
    check_outputs(folder)
    click.echo(f"Model: {folder}{'' if model_dir else ', the newest'}", err=True)
    return folder


def _found(model_dir):
    if model_dir is not None:
        model_dir = pretrained_folder(model_dir) or model_dir
        if not (model_dir / "model.keras").exists():
            if has_record(model_dir / "run.json"):
                raise RunFailed(
                    f"{model_dir} has no model.keras: its training has not finished, or the file "
                    "was removed.",
                    hint="go_on",
                )
            raise RunFailed(f"{model_dir} contains no trained model.", hint="train")
        return model_dir
    found = sorted(SAVED_MODELS.glob("*/model.keras"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise RunFailed(f"There is no trained model in {SAVED_MODELS}/.", hint="train")
    return found[-1].parent


# Parameters of commands that name a file to write.
_OUTPUTS = ("out", "json_path", "page")
_RESERVED = {"run.json", "model.keras"}


def check_outputs(folder):
    """Raise if a file that the current command writes is one of a run, or of its images."""
    context = click.get_current_context(silent=True)
    paths = [context.params.get(name) for name in _OUTPUTS] if context else []
    for path in filter(None, paths):
        real = Path(path).resolve()
        home = next((above for above in real.parents if has_record(above / "run.json")), None)
        if home is not None:
            inside = real.relative_to(home).parts
            is_own = inside[0].startswith(".") or inside[0] in _RESERVED
            if is_own or len(inside) > 1 and inside[0] != "pictures":
                raise RunFailed(f"{path} is a file of the run in {home}: choose another path.")
        elif has_record(folder / "run.json") and (data := _data_path(folder)):
            _check_data(path, real, data, folder)


def _data_path(folder):
    """Return the path of a run's images if they are files, or None for a data set by name."""
    from keras_capsule_poe.training import RunFolder

    saved = RunFolder(folder).readable()
    # Runs of earlier versions have no `data_path`.
    dataset = saved.get("data_path") or saved["config"]["dataset"]
    is_path = "data_path" in saved or dataset.endswith(".npz") or Path(dataset).is_absolute()
    return Path(dataset) if is_path and Path(dataset).exists() else None


def _check_data(path, real, data, folder):
    """Raise if a path is, or would become, a part of the images of a run."""
    is_picture = real.suffix.lower() not in (".json", ".html", ".npz")
    if data.is_file() and data.resolve() == real:
        raise RunFailed(f"{path} is the data set of {folder}: choose another path.")
    if data.is_dir() and is_picture and data.resolve() in real.parents:
        raise RunFailed(
            f"{path} would become one of the images of the data set {data}: choose another path "
            "with --out."
        )


def load_config(folder):
    """Return the `RunConfig` of a model folder."""
    from keras_capsule_poe.families import get
    from keras_capsule_poe.training import RunConfig, RunFolder

    saved = RunFolder(folder).readable()["config"]
    return RunConfig.from_dict(get(saved["model"]), saved)


def load_model(folder):
    """Return the trained model of a folder, after a check of its file."""
    from keras_capsule_poe.training import RunFolder

    family, run = load_config(folder).family, RunFolder(folder)
    last = family.stages[-1]
    if run.done(last.name) is None:
        raise RunFailed(f"{folder} contains no trained model.", hint="train")
    run.check(last)
    path = run.path / "model.keras"
    try:
        return family.load(path)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise RunFailed(
            f"Cannot load {path} ({reason}).", hint=f"stage_fresh:{last.name}"
        ) from error


def own_seconds(folder):
    """Return the training seconds of the stages after the family's shared features."""
    from keras_capsule_poe.models.base import feature_config as features
    from keras_capsule_poe.training import RunFolder

    stages = [stage for stage in load_config(folder).stages if stage.section]
    own = [stage.name for stage in stages if stage.section not in features.SECTIONS]
    found = {name: RunFolder(folder).done(name) for name in own}
    for name, done in found.items():
        if done is None:
            raise RunFailed(
                f"{folder / name} contains no finished stage.", hint=f"stage_fresh:{name}"
            )
    return sum(done["seconds"] for done in found.values())


def load_history(folder, model):
    """Return the metrics of each epoch of a classifier's training; empty for other models."""
    from keras_capsule_poe.evaluation.accuracy import is_classifier
    from keras_capsule_poe.training import RunFolder

    stages = [stage for stage in load_config(folder).stages if stage.section]
    return RunFolder(folder).history(stages[-1]) if is_classifier(model) else []


def load_run_data(folder, **places):
    """Return the `ImageData` of a model folder; raise if the images have changed."""
    from keras_capsule_poe.training import RunFolder, changed, load_data

    config = load_config(folder)
    if path := _data_path(folder):
        # A relative path would depend on the working folder.
        config.settings.dataset = str(path)
    data = load_data(config, **places, report=lambda line: click.echo(line, err=True))
    if other := changed(data, config, RunFolder(folder).readable()["fingerprint"]):
        raise RunFailed(
            f"The {other} of {config.dataset} are not those that {folder} was trained on. Test "
            "images may have been training images."
        )
    return data


def first_images(images, n):
    """Return the first `n` images of an `ImageSet`, with a message if there are fewer."""
    if len(images) < n:
        click.echo(f"There are {len(images)} test images, not {n}.")
    return images.head(n)


def load_generative(folder):
    """Return the model of a folder, or raise if it does not generate images."""
    return _loaded(folder, lambda model: callable(getattr(model, "draw", None)), "generates")


def load_reconstructing(folder):
    """Return the model of a folder, or raise if it does not reconstruct images."""
    return _loaded(folder, lambda model: "reconstruct" in model.ENDPOINTS, "reconstructs")


def load_naming(folder):
    """Return the model of a folder, or raise if it is not a classifier with a decoder."""

    from keras_capsule_poe.evaluation.accuracy import is_classifier

    def can(model):
        return "reconstruct" in model.ENDPOINTS and is_classifier(model)

    return _loaded(folder, can, "names and decodes")


def load_routed(folder):
    """Return the model of a folder, or raise if it is not a classifier with iterative routing."""
    from keras_capsule_poe.evaluation.accuracy import is_classifier

    model = load_model(folder)
    if not (is_classifier(model) and getattr(model, "routing_iterations", 1) > 1):
        raise RunFailed(
            f"The model in {folder} has no routing iterations to show: it is no classifier, or its "
            f"coupling coefficients are uniform or computed in one pass. It is a {model.TITLE}."
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
