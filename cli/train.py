"""`capspoe train`."""

import importlib.util
from pathlib import Path

import click

from keras_capsule_poe import families as registry
from keras_capsule_poe.cli.options import SAVED_MODELS, DatasetName, NamedPath, data_options
from keras_capsule_poe.cli.terminal import import_tensorflow, resumable
from keras_capsule_poe.cli.train_options import (
    OF_ALL,
    RECIPE,
    ReplicasType,
    TrainCommand,
    trained_sections,
)
from keras_capsule_poe.errors import ConfigError
from keras_capsule_poe.training import RunConfig, load_data
from keras_capsule_poe.training.config import read_toml
from keras_capsule_poe.training.run import fix_threads


@click.command(cls=TrainCommand)
@click.option(
    "--dataset",
    type=DatasetName(),
    help="`digits`, a tensorflow-datasets name, a folder of images or an .npz file; also "
    "`multimnist`, `affnist` and `viewpoints`. The suffixes `_multi`, `_translated` and `_affine` "
    "change the images of a data set.  [default: fashion_mnist]",
)
@click.option(
    "--model-dir",
    type=NamedPath(file_okay=False, path_type=Path),
    help="Folder for the model.  [default: saved_models/DATASET, or DATASET-MODEL]",
)
@click.option("--limit", type=int, help="Use only the first N training images.")
@click.option(
    "--split",
    metavar="azimuth|elevation",
    help="Data with viewpoints (`viewpoints`, `smallnorb`): train on familiar viewpoints only. "
    "`capspoe evaluate` then shows the errors on familiar and on novel viewpoints.",
)
@click.option(
    "--held-out",
    type=int,
    help="Hold out the last N training images for validation.  [default: 5%, at most 1000]",
)
@click.option("--image-size", metavar="N|HxW", help="Resize images.")
@click.option(
    "--train-dir",
    type=NamedPath(file_okay=False),
    help="Folder of training images, whose sub-folders are the classes, for a folder without the "
    "usual train and test sub-folders.",
)
@click.option(
    "--test-dir", type=NamedPath(file_okay=False), help="Folder of test images, with --train-dir."
)
@click.option(
    "--background",
    metavar="black|white",
    help="Colour behind transparent pixels.  [default: the one with more contrast]",
)
@click.option(
    "--max-value",
    type=int,
    help="Integer that is white in images of more than 8 bits.  [default: the smallest of 255, "
    "1023, 4095, 16383 and 65535 that no value exceeds]",
)
@click.option("--grey", is_flag=True, default=None, help="Convert images to grey.")
@click.option("--column", help="Name of the feature or array that holds the images.")
@click.option(
    "--skip-broken", is_flag=True, default=None, help="Leave out images that cannot be read."
)
@data_options
@click.option(
    "--config",
    type=NamedPath(exists=True, dir_okay=False),
    help="TOML file with settings, and maybe `model` and `recipe`. Options override it.",
)
@click.option("--seed", type=int, help="Random seed.  [default: 0]")
@click.option(
    "--deterministic",
    is_flag=True,
    default=None,
    help="Give bit-equal numbers on the same machine. Slower.",
)
@click.option(
    "--checkpoint-seconds",
    type=float,
    help="Maximum seconds of training lost on interruption.  [default: 60]",
)
@click.option(
    "--replicas",
    type=ReplicasType(),
    default=1,
    show_default=True,
    help="Number of devices that share each batch: GPUs, `auto` for all GPUs, or parts of the "
    "processor for a trial. For several machines set TF_CONFIG.",
)
@click.option("-v", "--verbose", is_flag=True, help="Show all metrics, with a line per epoch.")
@click.option("--fresh", is_flag=True, help="Start over instead of resuming.")
@click.option("--tensorboard", is_flag=True, help="Write TensorBoard logs to MODEL_DIR/logs.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Show shapes and parameters, and estimate the time from a few measured steps. Nothing is "
    "written into the model folder.",
)
@resumable
def train(
    model,
    recipe,
    model_dir,
    settings,
    config,
    data_dir,
    manual_dir,
    store,
    stage,
    replicas,
    fresh,
    tensorboard,
    dry_run,
    verbose,
    **flags,
):
    """Train a model on images, stage by stage.

    Training writes checkpoints. After an interruption, the same command resumes from the
    last checkpoint and skips finished stages.
    """
    run_config = _configuration(registry.get(model), recipe, config, settings, flags)
    folder = model_dir or SAVED_MODELS / _folder_name(run_config)
    if tensorboard:
        _check_tensorboard()
    import_tensorflow()
    from keras_capsule_poe.distributed import devices

    if dry_run:
        from keras_capsule_poe.cli.views import show_plan
        from keras_capsule_poe.training import images

        run_config.check()
        data = load_data(run_config, data_dir, manual_dir, store, click.echo)
        data = images.watched(data, run_config)
        images.check(data, run_config, run_config.stages)
        return show_plan(run_config, data, devices.count(replicas))
    from keras_capsule_poe import training

    if run_config.deterministic:
        # Before TensorFlow starts its threads.
        fix_threads(click.echo)
    together = devices.start(replicas, click.echo)
    log_dir = folder / "logs" if tensorboard else None
    shown = training.Reporter(2 if verbose else 1, log_dir=log_dir)

    def load():
        return load_data(run_config, data_dir, manual_dir, store, shown.note)

    with shown:
        training.train(
            run_config, folder, load, shown, stage=stage, fresh=fresh, distribution=together
        )
    if not together.is_chief:
        return
    if stage not in (None, run_config.family.stages[-1].name):
        return click.echo(f"Stopped after {stage}; the same command without --stage goes on.")
    from keras_capsule_poe.cli.export import show_results

    show_results(folder, run_config.family, verbose)


def _configuration(family, recipe, path, settings, flags):
    """Return the `RunConfig`: recipe, `suits`, TOML file, `--set` and flags, the last one wins."""
    config = RunConfig(family, recipe)
    context = click.get_current_context(silent=True)
    if context is None:
        values = read_toml(path) if path else {}
    elif context.meta["config_error"]:
        raise context.meta["config_error"]
    else:
        values = dict(context.meta["config"])
    recipes = ((name, recipe, tuple(family.recipes)) for name in RECIPE)
    for name, wanted, known in (("model", family.name, registry.names()), *recipes):
        found = values.pop(name, wanted)
        if found not in known and wanted != found:
            listed = ", ".join(known)
            raise ConfigError(f"{path}: {name} must be one of {listed}. Received: {found!r}")
        if found != wanted:
            raise ConfigError(f"{path} is for the {name} {found!r}. Received: --{name} {wanted}")
    config.update(values)
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set takes SECTION.KEY=VALUE. Received: {setting!r}")
        config.set(name.strip(), value.strip())
    of_all = {key: flags.pop(key, None) for key in OF_ALL}
    flags = {name: value for name, value in flags.items() if value is not None}
    for name, value in flags.items():
        config.set(name.replace("__", "."), value)
    for key, value in of_all.items():
        for section, section_settings in trained_sections(config).items():
            is_own = f"{section}__{key}" in flags
            if value is not None and hasattr(section_settings, key) and not is_own:
                config.set(f"{section}.{key}", value)
    if config.train_dir is not None and "dataset" not in config.given:
        config.set("dataset", config.train_dir)
    config.suit()
    return config


def _folder_name(config):
    path = Path(config.dataset)
    # The settings of a data set are part of the folder's name.
    name = path.resolve().name if path.is_dir() else config.dataset.replace("/", "-")
    name = path.stem if path.suffix == ".npz" else name
    model = config.family.name
    return name if model == registry.DEFAULT else f"{name}-{model}"


def _check_tensorboard():
    if importlib.util.find_spec("tensorboard") is None:
        raise click.UsageError(
            "--tensorboard needs TensorBoard: pip install 'keras-capsule-poe[tensorboard]'"
        )
