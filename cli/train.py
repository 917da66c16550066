"""`capspoe train`."""

from pathlib import Path

import click
from keras_capsule_poe.cli.models import SAVED_MODELS, load_data
from keras_capsule_poe.cli.options import data_options
from keras_capsule_poe.cli.terminal import import_tensorflow, resumable

from keras_capsule_poe.training import RECIPES, STAGES, ConfigError, RunConfig
from keras_capsule_poe.training.settings import read_toml

_POSITIVE = click.IntRange(min=1)
_TRAINED = ("autoencoder", "encoder", "decoder")
_PER_STAGE = {
    "epochs": (_POSITIVE, "passes over the images"),
    "batch_size": (_POSITIVE, "images a step"),
    "learning_rate": (click.FloatRange(min=0, min_open=True), "learning rate at the start"),
}


def _stage_options(function):
    for stage in reversed(_TRAINED):
        for key, (kind, text) in reversed(_PER_STAGE.items()):
            default = getattr(getattr(RunConfig(), stage), key)
            shown = "enough for 900 steps" if default is None else f"{default:g}"
            function = click.option(
                f"--{stage}-{key.replace('_', '-')}",
                type=kind,
                help=f"{stage.capitalize()}: {text}.  [default: {shown}]",
            )(function)
    for key, (kind, text) in reversed(_PER_STAGE.items()):
        if key != "learning_rate":
            function = click.option(
                f"--{key.replace('_', '-')}", type=kind, help=f"All stages: {text}."
            )(function)
    return function


def _image_size(context, parameter, value):
    if value is None:
        return None
    try:
        sizes = [int(part) for part in value.lower().split("x")]
    except ValueError:
        sizes = []
    if len(sizes) == 1:
        sizes *= 2
    if len(sizes) != 2 or min(sizes) < 1:
        raise click.BadParameter(f"must be N or HxW, for instance 28x28. Received: {value}")
    return tuple(sizes)


@click.command(short_help="Train a model, stage by stage; the same command again resumes.")
@click.option(
    "--dataset",
    help="A tensorflow-datasets name, `digits`, a folder of images, or an .npz.  [default: fashion_mnist]",
)
@click.option(
    "--model-dir",
    type=click.Path(path_type=Path),
    help="Where the model goes.  [default: saved_models/DATASET]",
)
@click.option(
    "--recipe",
    type=click.Choice(list(RECIPES)),
    default="generation",
    show_default=True,
    help="`representation`: all capsules code every image, for reconstruction and classification; `paper`: its plain form, without centring, competition and frames.",
)
@click.option("--limit", type=_POSITIVE, help="Use only the first N training images.")
@click.option("--image-size", callback=_image_size, metavar="N|HxW", help="Resize images.")
@click.option("--grey", is_flag=True, default=None, help="Make images grey.")
@click.option("--column", help="Which feature or array holds the images.")
@click.option(
    "--skip-broken", is_flag=True, default=None, help="Leave out images that cannot be read."
)
@data_options
@_stage_options
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="Any other setting, for instance encoder.capsules=10.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help="TOML file of settings; flags win.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**31 - 1),
    help="What every random choice derives from.  [default: 0]",
)
@click.option(
    "--deterministic",
    is_flag=True,
    default=None,
    help="Same numbers bit for bit on the same machine; slower.",
)
@click.option(
    "--stage",
    type=click.Choice(list(STAGES)),
    help="Stop after this stage; with --fresh, start over from it.",
)
@click.option("--fresh", is_flag=True, help="Start over instead of resuming.")
@click.option("--tensorboard", is_flag=True, help="Write TensorBoard logs to MODEL_DIR/logs.")
@click.option(
    "--dry-run", is_flag=True, help="Show shapes, parameters, memory and time; train nothing."
)
@resumable
def train(
    model_dir,
    recipe,
    settings,
    config,
    data_dir,
    manual_dir,
    stage,
    fresh,
    tensorboard,
    dry_run,
    **flags,
):
    """Train a product of expert capsules on images, without labels.

    Stages: autoencoder, features, encoder (W), decoder (U), export. Each leaves
    checkpoints; the same command again goes on where it stopped and skips what is done.
    """
    run_config = _configuration(recipe, config, settings, flags)
    folder = model_dir or SAVED_MODELS / _folder_name(run_config.dataset)
    if tensorboard:
        _check_tensorboard()
    import_tensorflow()
    if dry_run:
        from keras_capsule_poe.cli.views.plan import show_plan

        return show_plan(run_config, load_data(run_config, data_dir, manual_dir))
    from keras_capsule_poe.cli.views.progress import reporter

    from keras_capsule_poe.training import train as train_stages

    with reporter(folder / "logs" if tensorboard else None) as shown:
        train_stages(
            run_config,
            folder,
            lambda: load_data(run_config, data_dir, manual_dir),
            shown,
            stage=stage,
            fresh=fresh,
        )
    if stage in (None, "export"):
        from keras_capsule_poe.cli.views.summary import show_results

        show_results(folder)


def _configuration(recipe, path, settings, flags):
    """Defaults, then the recipe, the TOML file, `--set`, and the named flags; the last wins."""
    config = RunConfig.from_dict(RECIPES[recipe])
    for name, value in (read_toml(path) if path else {}).items():
        config.set(name, value)
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set takes SECTION.KEY=VALUE. Received: {setting!r}")
        config.set(name.strip(), value.strip())
    for key in ("epochs", "batch_size"):
        value = flags.pop(key)
        for stage in _TRAINED if value is not None else ():
            config.set(f"{stage}.{key}", value)
    for name, value in flags.items():
        if value is not None:
            stage, _, key = name.partition("_")
            config.set(f"{stage}.{key}" if stage in _TRAINED else name, value)
    config.check()
    return config


def _folder_name(dataset):
    path = Path(dataset)
    return (
        path.stem if path.suffix == ".npz" else path.resolve().name if path.is_dir() else path.name
    )


def _check_tensorboard():
    import importlib.util

    if importlib.util.find_spec("tensorboard") is None:
        raise click.UsageError(
            "--tensorboard needs TensorBoard: pip install 'keras-capsule-poe[tensorboard]'"
        )
