"""`capspoe train`, whose options depend on the model and the preset."""

import contextlib
import functools
import importlib.util
import shlex
import typing
from pathlib import Path

import click

from keras_capsule_poe import registry
from keras_capsule_poe.cli import options
from keras_capsule_poe.cli.options import FOLDER, NamedPath, option
from keras_capsule_poe.cli.terminal import echo, import_tensorflow, resumable
from keras_capsule_poe.errors import ConfigError, listing
from keras_capsule_poe.former_names import SETTINGS as FORMER
from keras_capsule_poe.training.settings import read_toml

# Settings of the run with their types, or words for their values, and texts.
_OF_RUN = {
    "limit": (int, "Use only the first N training images."),
    "split": (
        "azimuth|elevation",
        "Data with viewpoints (`viewpoints`, `smallnorb`): train on familiar viewpoints only. "
        "`capspoe evaluate` then shows the errors on familiar and on novel viewpoints.",
    ),
    "held_out": (
        int,
        "Hold out N training images for validation.  [default: 5%, at most 1000]",
    ),
    "image_size": ("N|HxW", "Resize images."),
    "train_dir": (
        FOLDER,
        "Folder of training images, whose sub-folders are the classes, for a folder without the "
        "usual train and test sub-folders.",
    ),
    "test_dir": (FOLDER, "Folder of test images, with --train-dir."),
    "background": (
        "black|white",
        "Colour behind transparent pixels.  [default: the one with more contrast]",
    ),
    "max_value": (
        int,
        "Value that is white in images of more than 8 bits and of floats above 1.  [default: the "
        "smallest of 255, 1023, 4095, 16383 and 65535 that no value exceeds]",
    ),
    "groups": (
        "folder|REGEX",
        "Keep the images of a group together, all for training or all for testing. Groups are the "
        "sub-folders of the classes, or what a regular expression matches in a path, such as "
        "'case-[0-9]+'. Of an .npz file: the name of an array.",
    ),
    "grey": (bool, "Convert images to grey."),
    "labels": (
        "FILE",
        "CSV file with the labels of a folder of images: a column of file names and one of labels.",
    ),
    "column": ("NAME", "Name of the feature or array that holds the images."),
    "label_column": ("NAME", "Name of the column, feature or array that holds the labels."),
    "skip_broken": (bool, "Leave out images that cannot be read."),
    "seed": (int, "Random seed.  [default: 0]"),
    "deterministic": (bool, "Give bit-equal numbers on the same machine. Slower."),
    "checkpoint_seconds": (
        float,
        "Maximum seconds of training lost on interruption.  [default: 60]",
    ),
}
# Settings that each trained part has as options of its own: type, text, text of the default None.
_OF_A_PART = {
    "epochs": (int, "epochs", "enough for {0.steps} steps"),
    "batch_size": (int, "batch size", ""),
    "learning_rate": (float, "initial learning rate", "{0.first_rate:g}"),
}
OF_ALL = ("epochs", "batch_size")
# Names of the preset on the command line and in files.
PRESET = ("recipe", "preset")


class TrainCommand(click.Command):
    """Command with the options of the model and preset that the arguments or the file name."""

    # More text on `--set`.
    of_set = ""

    def parse_args(self, context, args):
        known = registry.names()
        # Read once: it may be a pipe.
        values, context.meta["config_error"] = _read(_peek(args, "--config"))
        context.meta["config"] = values
        named = values.get("model") if values.get("model") in known else None
        model = _peek(args, "--model") or named or registry.DEFAULT
        presets = list(registry.settings_class(model).PRESETS) if model in known else []
        context.meta["model"] = model
        named = [values[name] for name in PRESET if values.get(name) in presets]
        asked = _peek(args, *(f"--{name}" for name in PRESET))
        context.meta["preset"] = asked or next(iter(named), None)
        return super().parse_args(context, args)

    def get_params(self, context):
        # The documentation builds a context without parsing arguments.
        model, preset = context.meta.get("model", registry.DEFAULT), context.meta.get("preset")
        known = registry.names()
        shown = model if model in known else registry.DEFAULT
        text = "Model. The options below belong to it."
        model_option = click.Option(
            ["--model"], type=click.Choice(known), default=shown, show_default=True, help=text
        )
        of_model = []
        if model in known:
            kind = registry.settings_class(model)
            of_model = _model_options(kind, preset if preset in kind.PRESETS else None, self.of_set)
        of_run = [_run_option(name, *values) for name, values in _OF_RUN.items()]
        dataset, folder, *more = super().get_params(context)
        return [dataset, model_option, *of_model, folder, *of_run, *more]


def _run_option(name, kind, text):
    """Return the option of a setting of the run; None: it was not given."""
    more = {"metavar": kind} if isinstance(kind, str) else {"type": kind}
    more = {"is_flag": True} if kind is bool else more
    return click.Option([f"--{name}".replace("_", "-")], default=None, help=text, **more)


def _model_options(kind, preset, more):
    """Return the options of a model's settings, with the defaults of a preset."""
    settings = kind(preset)
    texts = "; ".join(f"`{name}`: {found.text}" for name, found in kind.PRESETS.items())
    part, first = next(iter(settings.parts.items()))
    # The last one is the part's own.
    key, value = list(first.model_dump().items())[-1]
    return [
        click.Option(
            [f"--{name}" for name in PRESET] + ["preset"],
            type=click.Choice(list(kind.PRESETS)),
            default=settings.preset,
            show_default=True,
            help=f"Settings for {kind.MODEL}. {texts}.",
        ),
        *_part_options(settings),
        *_short_options(settings),
        click.Option(
            ["--set", "settings"],
            multiple=True,
            metavar="PART.KEY=VALUE",
            help=f"Change any setting, for instance {part}.{key}={value}.{more}",
        ),
        click.Option(
            ["--stage"],
            type=click.Choice(list(kind.STAGES)),
            help="Stop after this stage. With --fresh, start over from it.",
        ),
    ]


def _part_options(settings):
    """Return the options of all trained parts, and those of each."""
    made = []
    used = {name for parts in settings.stages.values() for name in parts}
    parts = {name: part for name, part in settings.parts.items() if name in used}
    trained = {name: part for name, part in parts.items() if hasattr(part, "schedule")}
    for name, part in trained.items():
        for key, (kind, text, if_none) in _OF_A_PART.items():
            default = getattr(part, key)
            shown = if_none.format(part) if default is None else f"{default:g}"
            text = f"{name.capitalize()}: {text}.  [default: {shown}]"
            flag = f"--{name}-{key}".replace("_", "-")
            made.append(click.Option([flag, f"{name}__{key}"], type=kind, help=text))
    for key in OF_ALL:
        kind, text, _ = _OF_A_PART[key]
        flag = f"--{key}".replace("_", "-")
        made.append(click.Option([flag], type=kind, help=f"All stages: {text}."))
    return made


def _short_options(settings):
    """Return the options that stand for `--set`, and hidden ones for their former names."""
    made = []
    for name, place in settings.OPTIONS.items():
        part, _, key = place.partition(".")
        found = getattr(settings, part)
        default = getattr(found, key)
        shown = str(default).lower() if default is None or default is True else default
        shown = "those of the images" if key == "classes" else shown
        words = typing.get_args(type(found).model_fields[key].annotation)
        metavar = "|".join(word for word in words if isinstance(word, str)) or "VALUE"
        text = f"Short for --set {place}=VALUE.  [default: {shown}]"
        made.append(click.Option([f"--{name}", f"{part}__{key}"], metavar=metavar, help=text))
        for former, new in FORMER.get(part, {}).items():
            if (new[0] if isinstance(new, tuple) else new) == key:
                flag = f"--{former}".replace("_", "-")
                made.append(click.Option([flag, f"{part}__{former}"], hidden=True))
    return made


def _peek(args, *options):
    """Return the value of an option in arguments that are not parsed yet, or None."""
    value = None
    for i, argument in enumerate(args):
        name, equals, text = argument.partition("=")
        if name in options and equals:
            value = text
        elif argument in options and i + 1 < len(args):
            value = args[i + 1]
    return value


def _read(path):
    """Return the values of a TOML file and None, or no values and the error."""
    try:
        return (read_toml(path) if path else {}), None
    except ConfigError as error:
        # It is raised by the command, which turns it into one line.
        return {}, error


class ReplicasType(click.ParamType):
    """A whole number of at least 1, or `auto`."""

    name = "N|auto"

    def convert(self, value, parameter, context):
        if value == "auto":
            return value
        if not str(value).isdecimal() or int(value) < 1:
            rule = "must be a whole number of at least 1, or auto"
            self.fail(f"{rule}. Received: {value}", parameter, context)
        return int(value)


train_options = options.together(
    option(
        "--dataset",
        type=options.DatasetName(),
        help="`digits`, a tensorflow-datasets name, a folder of images, a .zip file of one, arrays "
        "(.npz, .npy, idx) or .parquet files; also `multimnist`, `affnist` and `viewpoints`. The "
        "suffixes `_multi`, `_translated` and `_affine` change the images of a data set.  "
        "[default: fashion_mnist]",
    ),
    option(
        "--model-dir",
        type=NamedPath(file_okay=False, path_type=Path),
        help="Folder for the model.  [default: saved_models/DATASET, or DATASET-MODEL]",
    ),
    options.data_options,
    option(
        "--config",
        type=NamedPath(exists=True, dir_okay=False),
        help="TOML file with settings, and maybe `model` and `preset`. Options override it.",
    ),
    option(
        "--replicas",
        type=ReplicasType(),
        default=1,
        help="Number of devices that share each batch: GPUs, `auto` for all GPUs, or parts of the "
        "processor for a trial. For several machines set TF_CONFIG.",
    ),
    option("-v", "--verbose", is_flag=True, help="Show all metrics, with a line per epoch."),
    option("--fresh", is_flag=True, help="Start over instead of resuming."),
    option("--tensorboard", is_flag=True, help="Write TensorBoard logs to MODEL_DIR/logs."),
    option(
        "--dry-run",
        is_flag=True,
        help="Show shapes and parameters, and estimate the time from a few measured steps. Nothing "
        "is written into the model folder.",
    ),
)


@click.command(cls=TrainCommand)
@train_options
@resumable
def train(model, preset, model_dir, settings, config, **flags):
    """Train a model on images, stage by stage.

    Training writes checkpoints. After an interruption, the same command resumes from the
    last checkpoint and skips finished stages.
    """
    flags, how = split_flags(flags)
    wanted = wanted_settings(model, preset, config, settings, flags)
    folder = model_dir or options.SAVED_MODELS / folder_name(wanted)
    if not train_all({folder: wanted}, **how):
        return
    stage, verdict = how["stage"], registry.model_class(model).verdict
    if stage not in (None, list(wanted.STAGES)[-1]):
        return echo(f"Stopped after {stage}; the same command without --stage goes on.")
    from keras_capsule_poe.cli.export import show_results

    show_results(folder, wanted, verdict, how["verbose"])
    place = shlex.quote(str(folder))
    echo(
        f"Next: capspoe explore {place}\n"
        f"      capspoe evaluate --model-dir {place}\n"
        f"      capspoe report --model-dir {place}"
    )


def split_flags(flags):
    """Return the flags that are settings, and those that say how to train."""
    names = (
        "data_dir", "manual_dir", "store", "stage", "replicas", "fresh", "tensorboard", "dry_run",
        "verbose",
    )  # fmt: skip
    how = {name: flags[name] for name in names}
    return {name: value for name, value in flags.items() if name not in names}, how


def train_all(
    wanted, data_dir, manual_dir, store, stage, replicas, fresh, tensorboard, dry_run, verbose,
    around=None,
):  # fmt: skip
    """Train the model of each of the `Settings`, a dict by folder; return if this is the chief.

    A dry run returns False. `around` is a function of a folder and its settings that gives a
    context for its training, whose value says whether its lines are shown.
    """
    if tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise click.UsageError(
            "--tensorboard needs TensorBoard: pip install 'keras-capsule-poe[tensorboard]'"
        )
    for settings in wanted.values():
        settings.check()
    # The import of TensorFlow takes seconds.
    echo(
        f"{listing(wanted, 1)}: model {settings.MODEL}, preset {settings.preset}, data set "
        f"{settings.dataset}"
    )
    import_tensorflow()
    from keras_capsule_poe import training
    from keras_capsule_poe.distributed import devices

    places = {"data_dir": data_dir, "manual_dir": manual_dir, "store": store}
    together = None
    for folder, settings in wanted.items():
        untrained = registry.model_class(settings.MODEL).of(settings)
        with around(folder, settings) if around else contextlib.nullcontext(True) as is_shown:
            if dry_run:
                data = training.load_data(settings, **places, report=echo)
                training.images.check(data, settings, list(settings.stages))
                _show_plan(untrained, data, devices.count(replicas))
                continue
            if settings.deterministic:
                # Before TensorFlow starts its threads.
                training.run.fix_threads(echo)
            together = together or devices.start(replicas, echo)
            logs = folder / "logs" if tensorboard else None
            shown = training.Reporter((2 if verbose else 1) if is_shown else 0, log_dir=logs)
            load = functools.partial(training.load_data, settings, **places, report=shown.note)
            with shown:
                training.train(untrained, folder, load, shown, stage, fresh, together)
    return together is not None and together.is_chief


def wanted_settings(model, preset, path, assignments, flags):
    """Return the `Settings`: preset, data set, TOML file, `--set`, options; the last one wins."""
    settings = registry.settings(model, preset)
    context = click.get_current_context(silent=True)
    if context is None:
        values = read_toml(path) if path else {}
    elif context.meta["config_error"]:
        raise context.meta["config_error"]
    else:
        values = dict(context.meta["config"])
    if all(name in values for name in PRESET):
        raise ConfigError(f"{path}: recipe and preset are one setting. Received: both")
    presets = ((name, settings.preset, list(settings.PRESETS)) for name in PRESET)
    for name, wanted, known in (("model", model, registry.names()), *presets):
        found = values.pop(name, wanted)
        if found not in known and wanted != found:
            listed = ", ".join(known)
            raise ConfigError(f"{path}: {name} must be one of {listed}. Received: {found!r}")
        if found != wanted:
            raise ConfigError(f"{path} is for the {name} {found!r}. Received: --{name} {wanted}")
    settings.update(values)
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise ConfigError(f"--set takes PART.KEY=VALUE. Received: {assignment!r}")
        settings.set(name.strip(), value.strip())
    settings.set_all(**{key: flags.pop(key, None) for key in OF_ALL})
    for name, value in flags.items():
        if value is not None:
            settings.set(name.replace("__", "."), value)
    if settings.train_dir is not None and "dataset" not in settings.given:
        settings.set("dataset", settings.train_dir)
    settings.suit()
    return settings


def folder_name(settings):
    """Return the name of the folder of a model by default."""
    from keras_capsule_poe.data.array_names import stem

    path = Path(settings.dataset)
    # The settings of a data set are part of the folder's name.
    name = path.resolve().name if path.is_dir() else settings.dataset.replace("/", "-")
    if path.is_file() or path.suffix == ".npz":
        name = stem(path.name) if stem(path.name) != path.name else path.stem
    return name if settings.MODEL == registry.DEFAULT else f"{name}-{settings.MODEL}"


def _show_plan(model, data, replicas):
    """Print the shapes, parameter counts, memory and time of a run."""
    from keras_capsule_poe.training.images import described
    from keras_capsule_poe.training.plan import plan
    from keras_capsule_poe.training.progress import duration

    planned, settings = plan(model, data), model.settings
    views = f", familiar {settings.split}s" if settings.split else ""
    summary, *notes = described(data)
    echo(f"{settings.dataset}{views}: {summary}")
    for line in notes:
        echo(f"  {line}")
    for name, shape in planned["shapes"].items():
        echo(f"  {name:18} {' x '.join(map(str, shape))}")
    for name, count in planned["parameters"].items():
        echo(f"  {name:18} {count:,} parameters")
    for name, stage in planned["stages"].items():
        line = f"  {name:18} {stage['epochs']} epochs, {stage['steps']} steps"
        if "seconds" in stage:
            line += f" of {1000 * stage['step_seconds']:,.0f} ms: {duration(stage['seconds'])}"
        echo(line)
    if replicas > 1:
        echo(f"{replicas} replicas share each batch; the times are those of one.")
    echo(
        f"About {duration(planned['seconds'])} of training steps, measured on a few images; "
        "encoding the images and exporting come on top. "
        f"Memory so far: {planned['peak_bytes'] / 1e9:.1f} GB."
    )
