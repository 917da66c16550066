"""Options and trained models that the commands share."""

import functools
import os
from pathlib import Path

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from keras_capsule_poe.cli.terminal import echo, import_tensorflow
from keras_capsule_poe.core.arguments import LARGEST_SEED
from keras_capsule_poe.errors import BadUse, RunFailed, meant
from keras_capsule_poe.io.marks import is_output, marked_output
from keras_capsule_poe.io.records import has_record
from keras_capsule_poe.pretrained import is_pretrained, pretrained_folder, pretrained_names

SAVED_MODELS = Path("saved_models")
# Data sets that the shell completes, beside prepared ones.
BUILT_IN = ("digits", "mnist", "fashion_mnist", "viewpoints", "multimnist", "affnist")
PICTURES = (".png", ".jpg", ".jpeg", ".webp")
FIGURES = (*PICTURES, ".pdf", ".svg")
COUNT, INDEX = click.IntRange(min=1), click.IntRange(min=0)
option = functools.partial(click.option, show_default=True)


class NamedPath(click.Path):
    """Path type that rejects the empty path, for instance from an unset shell variable."""

    def convert(self, value, parameter, context):
        if value == "":
            self.fail("a path must not be empty. Received: ''", parameter, context)
        return super().convert(value, parameter, context)


FILE = NamedPath(dir_okay=False, path_type=Path)
FOLDER = NamedPath(file_okay=False)


class ModelPath(NamedPath):
    """Path of a trained model, or the name of a pretrained one, completed by the shell."""

    def shell_complete(self, context, parameter, incomplete):
        found = _completed(_known_models(), incomplete)
        return found or super().shell_complete(context, parameter, incomplete)


class DatasetName(click.ParamType):
    """Name or path of a data set, completed by the shell."""

    name = "text"

    def shell_complete(self, context, parameter, incomplete):
        prepared = Path(os.environ.get("TFDS_DATA_DIR", "~/tensorflow_datasets")).expanduser()
        folders = [path.name for path in prepared.glob("*") if path.is_dir()]
        found = _completed(dict.fromkeys([*BUILT_IN, *sorted(folders)]), incomplete)
        return found or [CompletionItem(incomplete, type="file")]


def _completed(known, incomplete):
    return [CompletionItem(name) for name in known if name.startswith(incomplete)]


def together(*options):
    """Return a decorator that adds several options, in this order."""
    return lambda function: functools.reduce(lambda f, add: add(f), reversed(options), function)


def place_checker(context, parameter, path):
    """Reject a path that cannot be written, before a computation of minutes."""
    if path is None:
        return path
    try:
        place = path.absolute().parent
        while not place.exists():
            place = place.parent
    except OSError as error:
        # A name is too long, or the working folder is gone.
        raise click.BadParameter(f"{error.strerror}. Received: {str(path):.200}") from error
    if not place.is_dir():
        raise click.BadParameter(f"{place} is not a folder. Received: {path}")
    if not os.access(place, os.W_OK):
        raise click.BadParameter(f"{place} cannot be written to. Received: {path}")
    return path


_FORCED = "keras_capsule_poe.force"
force_option = option(
    "--force",
    is_flag=True,
    expose_value=False,
    callback=lambda context, parameter, value: context.meta.update({_FORCED: value}),
    help="Replace an existing file that is no earlier output of this command.",
)


def out_option(default, kinds, text="File to write."):
    """Return the option of the file to write, whose name ends in one of `kinds`."""

    def check(context, parameter, path):
        if path is not None and path.suffix.lower() not in kinds:
            raise click.BadParameter(f"must end in {' or '.join(kinds)}. Received: {path}")
        return place_checker(context, parameter, path)

    out = option("--out", type=FILE, default=default, callback=check, help=text)
    return together(out, force_option)


model_option = option(
    "--model-dir",
    "--model",
    "model_dir",
    type=ModelPath(file_okay=False, path_type=Path),
    help="Folder of the trained model, or the name of a pretrained one: mnist, fashion_mnist.  "
    "[default: the newest in saved_models/]",
)
seed_option = option("--seed", type=click.IntRange(0, LARGEST_SEED), default=0, help="Random seed.")
images_option = option("--n", type=COUNT, default=16, help="Number of test images.")
json_option = together(
    option(
        "--json",
        "json_path",
        callback=place_checker,
        type=FILE,
        help="Write the metrics to a JSON file.",
    ),
    force_option,
)
_look_options = together(
    option(
        "--cell",
        type=click.FloatRange(0.05, 20),
        help="Width of each image in inches.  [default: 0.6]",
    ),
    option(
        "--width",
        type=click.FloatRange(0.5, 200),
        help="Width of the figure in inches, in place of --cell.",
    ),
    option(
        "--columns",
        type=click.IntRange(min=1),
        help="Most images side by side; further ones go below.  [default: all]",
    ),
    option(
        "--theme",
        type=click.Choice(["light", "dark"]),
        default="light",
        help="Colours of the figure.",
    ),
    option("--title/--no-title", default=True, help="Whether the figure has a title."),
    option(
        "--plain", is_flag=True, help="Write the images alone, without labels. Not for PDF and SVG."
    ),
)


def figure_options(command):
    """Add the options of a figure: `plain`, and `look` for `image_figure`."""

    @functools.wraps(command)
    def with_look(*args, cell, width, columns, theme, title, **options):
        if cell is not None and width is not None:
            raise click.UsageError("--cell and --width exclude each other.")
        look = {"cell": cell, "width": width, "columns": columns, "theme": theme, "title": title}
        return command(*args, look=look, **options)

    return _look_options(with_look)


# The location of the images.
data_options = together(
    option(
        "--data-dir",
        type=FOLDER,
        help="Folder of prepared tensorflow-datasets data.  [default: TFDS_DATA_DIR]",
    ),
    option(
        "--manual-dir",
        type=NamedPath(exists=True, file_okay=False),
        help="Folder of archives downloaded by hand, or of the affNIST files.",
    ),
    option(
        "--store",
        metavar="DIR",
        type=FOLDER,
        help="Copy the images to DIR once and read them from there. Use it for more images than "
        "fit into memory.  [default: in memory]",
    ),
)


def refuse_given(why, *names):
    """Raise for the first of these parameters of the current command that the user gave."""
    context = click.get_current_context()
    flags = {parameter.name: parameter.opts[0] for parameter in context.command.params}
    for name in names:
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            raise click.UsageError(f"{flags[name]} {why}")


def check_plain(out, plain):
    """Raise if a picture without labels is to be a vector file."""
    if plain and out.suffix.lower() not in PICTURES:
        raise click.UsageError(f"--plain needs {' or '.join(PICTURES)}. Received: {out}")


def _trained():
    """Return the files of trained models in saved_models/, and in sweeps there."""
    # A model folder has exports, which are no runs.
    of_sweeps = SAVED_MODELS.glob("*/*/model.keras")
    runs = (path for path in of_sweeps if has_record(path.parent / "run.json"))
    return [*SAVED_MODELS.glob("*/model.keras"), *runs]


def _known_models():
    """Return the names of pretrained models, and the folders of others as text."""
    return [*pretrained_names(), *sorted(str(path.parent) for path in _trained())]


def called(folder):
    """Return the name of a pretrained model, or the folder of another one."""
    return folder.name if is_pretrained(folder) else folder


def find_folder(model_dir, is_finished=True):
    """Return the folder of a path or a pretrained name, by default the newest in saved_models/."""
    pretrained = f"Pretrained models are {', '.join(pretrained_names())}."
    if model_dir is None:
        if found := _trained():
            return max(found, key=lambda path: path.stat().st_mtime).parent
        raise RunFailed(f"There is no trained model in {SAVED_MODELS}/. {pretrained}", hint="train")
    folder = pretrained_folder(model_dir) or model_dir
    is_run = has_record(folder / "run.json")
    if (folder / "model.keras").exists() or (is_run and not is_finished):
        return folder
    if is_run:
        raise RunFailed(
            f"{folder} has no model.keras: its training has not finished, or the file was removed.",
            hint="go_on",
        )
    near = meant(folder, _known_models())
    raise RunFailed(f"{folder} contains no trained model.{near} {pretrained}", hint="train")


def find_model(model_dir):
    """Return the folder of a model that the command uses, and import TensorFlow.

    Raise if the command would write over files of the run or of its data set.
    """
    folder = find_folder(model_dir)
    check_outputs(folder)
    echo(f"Model: {called(folder)}{'' if model_dir else ', the newest'}", err=True, dim=True)
    import_tensorflow()
    return folder


def check_outputs(folder):
    """Raise if what the current command writes would replace or join files that are not its own.

    These are files of a run, images of this run, stores, and files of other programs or commands.
    """
    context = click.get_current_context(silent=True)
    given = context.params if context else {}
    for name in ("out_dir", "hub_dir", "static"):
        if given.get(name):
            _check_place(Path(given[name]), folder, is_folder=True)
    for path in filter(None, (given.get(name) for name in ("out", "json_path"))):
        _check_place(Path(path), folder, is_folder=False)
        is_forced = context.meta.get(_FORCED)
        if Path(path).is_file() and not (is_forced or is_output(path, context.info_name)):
            raise BadUse(
                f"{path} must be a new file, or an earlier output of capspoe {context.info_name}. "
                "Received: another file. Choose another path, or replace it with --force."
            )
        marked_output(path, context.info_name)


def _check_place(path, folder, is_folder):
    """Raise if a file or folder to write lies among those of a run, a store or the run's images."""
    real = path.resolve()
    inside_of = (real, *real.parents) if is_folder else real.parents
    home = next((above for above in inside_of if has_record(above / "run.json")), None)
    inside = real.relative_to(home).parts if home else ()
    if inside and _is_of_run(home, inside, is_folder):
        raise RunFailed(f"{path} is a file of the run in {home}: choose another path.")
    if home is not None:
        return
    if store := next((above for above in inside_of if has_record(above / "store.json")), None):
        raise RunFailed(f"{path} lies in the prepared images {store}: choose another path.")
    is_image = is_folder or real.suffix.lower() not in (".json", ".html")
    for data in image_places(folder) if has_record(folder / "run.json") else ():
        if data.is_file() and data == real:
            raise RunFailed(f"{path} is the data set of {folder}: choose another path.")
        if data.is_dir() and is_image and data in inside_of:
            raise RunFailed(
                f"{path} would become one of the images of the data set {data}: choose another "
                "path."
            )


def _is_of_run(home, inside, is_folder):
    """Return whether a path inside a run's folder is one of the files that the run needs."""
    first = inside[0]
    if first.startswith(".") or first in ("run.json", "model.keras"):
        return True
    if is_folder:
        is_stage = has_record(home / first / "done.json")
        return first == "pictures" or first.isdigit() or is_stage
    return len(inside) > 1 and first != "pictures"


def image_places(folder):
    """Return the files and folders of the images and labels of a run, as a list of real paths."""
    from keras_capsule_poe.training import RunFolder

    named = RunFolder(folder).readable().get("paths", {}).values()
    found = [data_path(folder), *(Path(path) for path in named)]
    return [path.resolve() for path in found if path is not None]


def data_path(folder):
    """Return the path of a run's images if they are files, or None for a data set by name."""
    from keras_capsule_poe.training import RunFolder

    saved = RunFolder(folder).readable()
    # Runs of earlier versions have no `data_path`.
    dataset = saved.get("data_path") or saved["config"]["dataset"]
    is_path = "data_path" in saved or dataset.endswith(".npz") or Path(dataset).is_absolute()
    return Path(dataset) if is_path and Path(dataset).exists() else None


def load_settings(folder):
    """Return the `Settings` of a model folder."""
    from keras_capsule_poe import registry
    from keras_capsule_poe.training import RunFolder

    saved = RunFolder(folder).readable()["config"]
    return registry.settings_class(saved["model"]).from_dict(saved)


def load_model(folder):
    """Return the trained model of a folder, after a check of its file."""
    from keras_capsule_poe.pretrained import load
    from keras_capsule_poe.training import RunFolder

    run, last = RunFolder(folder), list(load_settings(folder).STAGES)[-1]
    if run.done(last) is None:
        raise RunFailed(f"{folder} contains no trained model.", hint="train")
    run.check(last)
    path = run.path / "model.keras"
    # It is the file that was written: to write it again would not help.
    model = load(path)
    if not hasattr(model, "ENDPOINTS"):
        raise RunFailed(f"{path} holds a {type(model).__name__}.", hint=f"stage_fresh:{last}")
    return model


def load_able(folder, verb):
    """Return the model of a folder, or raise unless it `generates`, `classifies` ... images."""
    from keras_capsule_poe.models.base.protocols import is_classifier

    model = load_model(folder)
    decodes = "reconstruct" in model.ENDPOINTS
    can = {
        "generates": callable(getattr(model, "draw", None)),
        "reconstructs": decodes,
        "names and decodes": decodes and is_classifier(model),
        "classifies": hasattr(model, "classify"),
        "encodes": hasattr(model, "encode"),
    }
    other = {"classifies": "encode", "encodes": "classify"}.get(verb)
    cannot = f"The model in {called(folder)} {verb} no images"
    if other and not can[verb]:
        raise RunFailed(f"{cannot}: use capspoe {other}. It is a {model.TITLE}.")
    if not can[verb]:
        part, why = next(iter(load_settings(folder).STAGES)), ""
        if getattr(model, "decoder", model) is None:
            why = f", trained without a decoder: --set {part}.decoder=dense"
        raise RunFailed(f"{cannot}. It is a {model.TITLE}{why}.")
    return model


def load_routed(folder):
    """Return the model of a folder, or raise if it is not a classifier with iterative routing."""
    from keras_capsule_poe.models.base.protocols import is_classifier

    model = load_model(folder)
    if not (is_classifier(model) and getattr(model, "routing_iterations", 1) > 1):
        raise RunFailed(
            f"The model in {called(folder)} has no routing iterations to show: it is no "
            "classifier, or its coupling coefficients are uniform or computed in one pass. It is a "
            f"{model.TITLE}."
        )
    return model


def load_run_data(folder, **places):
    """Return the `ImageData` of a model folder; raise if the images have changed."""
    from keras_capsule_poe.training import RunFolder, changed, load_data

    settings = load_settings(folder)
    if path := data_path(folder):
        # A relative path would depend on the working folder.
        settings.dataset = str(path)
    for name, path in RunFolder(folder).readable().get("paths", {}).items():
        setattr(settings, name, path)
    data = load_data(settings, **places, report=lambda line: echo(line, err=True))
    if other := changed(data, settings, RunFolder(folder).readable()["fingerprint"]):
        raise RunFailed(
            f"The {other} of {settings.dataset} are not those that {called(folder)} was trained "
            "on. Test images may have been training images."
        )
    return data


def first_images(images, n):
    """Return the first `n` images of an `ImageSet`, with a message if there are fewer."""
    if len(images) < n:
        echo(f"There are {len(images)} test images, not {n}.")
    return images.head(n)


def write_arrays(out, arrays):
    """Write a dict of arrays as .npz."""
    import numpy as np

    from keras_capsule_poe.io.atomic import atomic_write

    with atomic_write(out, suffix=".npz") as temporary:
        np.savez_compressed(temporary, **arrays)
