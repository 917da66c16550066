"""Commands on the files of a model: `info` and `export`."""

import json
import re
import tempfile
from pathlib import Path

import click

from keras_capsule_poe import registry
from keras_capsule_poe.cli import options
from keras_capsule_poe.cli.options import NamedPath, option
from keras_capsule_poe.cli.terminal import echo, guarded, import_tensorflow
from keras_capsule_poe.errors import RunFailed
from keras_capsule_poe.io.text import NAME, printable
from keras_capsule_poe.pretrained import pretrained_folder

# Run settings that `info` always shows.
_SAID = ("model", "preset", "dataset", "split", "seed")


@click.command()
@options.model_option
@option("--json", "as_json", is_flag=True, help="Print JSON.")
@guarded
def info(model_dir, as_json):
    """Show a model's configuration, stages and results.

    The text leaves out settings that have no effect; --json shows all of them.
    """
    from keras_capsule_poe.training import RunFolder

    folder = options.find_folder(model_dir, is_finished=False)
    settings, run = options.load_settings(folder), RunFolder(folder)
    values, problem = settings.to_dict(), _problem(run, settings)
    if as_json:
        stages = run.metrics(settings.STAGES)
        shown = {"folder": str(folder), "config": values, "stages": stages, "problem": problem}
        shown["preparation"] = run.readable().get("preparation")
        return click.echo(json.dumps(shown, indent=2))
    split = f" split by {settings.split}" if settings.split else ""
    usual = type(settings)(settings.preset).to_dict()
    other = [
        f", {name} {value}"
        for name, value in values.items()
        if name not in (*_SAID, *settings.parts) and value != usual[name]
    ]
    echo(
        f"{options.called(folder)}: model {settings.MODEL}, preset {settings.preset}, data set "
        f"{settings.dataset}{split}, seed {settings.seed}{''.join(other)}"
    )
    if run.class_names:
        echo(f"classes: {', '.join(printable(name, NAME) for name in run.class_names)}")
    if preparation := run.readable().get("preparation"):
        from keras_capsule_poe.data.preparation import Preparation

        echo(f"new images: {Preparation.from_dict(preparation).describe()}")
    idle = settings.idle()
    for part in settings.parts:
        pairs = values[part].items()
        shown = [f"{key} {value}" for key, value in pairs if f"{part}.{key}" not in idle]
        if shown:
            echo(f"{part}: {', '.join(shown)}")

    def verdict(metrics):
        import_tensorflow()
        return registry.model_class(settings.MODEL).verdict(metrics)

    show_results(folder, settings, verdict)
    if problem:
        echo(problem)


def _problem(run, settings):
    """Return why a finished model cannot be loaded, or None."""
    if run.done(list(settings.STAGES)[-1]) is None:
        return None
    import_tensorflow()
    try:
        options.load_model(run.path)
    except RunFailed as error:
        return str(error)
    return None


def show_results(folder, settings, verdict, verbose=True):
    """Print a verdict in words, and the files to look at; if verbose, all metrics as well."""
    from keras_capsule_poe.serving import newest_version
    from keras_capsule_poe.training import RunFolder

    run = RunFolder(folder)
    stages = {stage: run.done(stage) for stage in settings.STAGES}
    stages = {name: done for name, done in stages.items() if done}
    if verbose:
        for stage, done in stages.items():
            numbers = [
                f"{name} {value:.4g}"
                for name, value in done["metrics"].items()
                if isinstance(value, (int, float)) and name not in ("seconds", "epoch")
            ]
            echo(f"{stage:12} {done['seconds']:7.0f} s  {', '.join(numbers)}")
    for line in verdict({name: done["metrics"] for name, done in stages.items()}):
        echo(line, bold=True)
    for stage, done in stages.items():
        for complaint in done["metrics"].get("complaints", ()):
            echo(f"{stage}: {complaint}")
    for stage in settings.STAGES:
        names = [path.name for path in (folder / stage).glob("checkpoints/step-*")]
        steps = [int(found[1]) for name in names if (found := re.fullmatch("step-([0-9]+)", name))]
        if steps:
            echo(f"{stage}: not finished; its last checkpoint is of step {max(steps)}")
    for path in sorted(folder.glob("*.png")):
        echo(f"Look at {path}", dim=True)
    version = newest_version(folder)
    if version and not (version / "saved_model.pb").exists():
        echo(f"{version} is incomplete: its saved_model.pb is missing")
    elif version:
        # An earlier SavedModel stays until the next one is complete.
        is_own = list(settings.STAGES)[-1] in stages
        echo(f"SavedModel{'' if is_own else ' of an earlier training'}: {version}", dim=True)


@click.command()
@options.model_option
@option(
    "--format",
    "kind",
    type=click.Choice(["saved_model", "keras", "onnx", "litert"]),
    default="saved_model",
    help="`saved_model` is for TensorFlow, `keras` for Keras, `onnx` for ONNX Runtime, `litert` "
    "for phones and small devices (formerly TensorFlow Lite).",
)
@option(
    "--quantize",
    type=click.Choice(["float16", "int8"]),
    help="Smaller numbers in ONNX and LiteRT files. Training images calibrate `int8`. The "
    "differences on held-out images are printed.",
)
@option(
    "--batch-size",
    type=options.COUNT,
    help="Fixed number of rows of each call of ONNX and LiteRT files.  [default: any]",
)
@option(
    "--hub",
    "hub_dir",
    metavar="DIR",
    type=NamedPath(file_okay=False, path_type=Path),
    help="Write all forms, pictures and a README.md to DIR, which can be pushed to a model hub.",
)
@option(
    "--out",
    "out_dir",
    type=NamedPath(file_okay=False, path_type=Path),
    help="Folder to write to.  [default: the model folder; for a pretrained model ./NAME]",
)
@option("--license", "licence", metavar="NAME", help="Licence of the model, for its card: mit.")
@option(
    "--domain",
    metavar="NAME",
    help="Domain of its sample endpoints, see `capspoe sample`.  [default: the model's first]",
)
@options.data_options
@guarded
def export(
    model_dir, kind, quantize, batch_size, hub_dir, out_dir, licence, domain, data_dir, manual_dir,
    store,
):  # fmt: skip
    """Write the model in a form that other programs read, with a README.md that says how.

    A SavedModel becomes the next version in the folder, such as `MODEL_DIR/2`. The other formats
    go to `MODEL_DIR/keras`, `MODEL_DIR/onnx` and `MODEL_DIR/litert`, quantised ones to a folder
    such as `MODEL_DIR/litert-int8`. ONNX and LiteRT have one file for each endpoint. A folder of
    another origin is never replaced.
    """
    _check_words(kind, quantize, hub_dir)
    folder = options.find_model(model_dir)
    settings, model = options.load_settings(folder), options.load_model(folder)
    more = {}
    if domain is not None:
        if not hasattr(model, "resolve_mode"):
            raise click.UsageError("--domain needs a model that generates images.")
        more["domain"] = model.resolve_mode(domain=domain)[1]
    is_pretrained = pretrained_folder(model_dir) is not None
    card = _card(folder, settings, licence or ("mit" if is_pretrained else None))
    # The folder of a pretrained model is that of the package.
    place = hub_dir or out_dir or (Path(model_dir.name) if is_pretrained else folder)
    images = None
    if quantize:
        from keras_capsule_poe.quantization import Images

        places = {"data_dir": data_dir, "manual_dir": manual_dir, "store": store}
        images = Images.of(options.load_run_data(folder, **places))
    with tempfile.TemporaryDirectory() as temporary:
        shown = {"card": card, "pictures": _pictures(folder, model, settings, Path(temporary))}
        if hub_dir or kind in ("saved_model", "keras"):
            return _write_whole(model, place, "hub" if hub_dir else kind, more, shown)
        from keras_capsule_poe.portable import export_portable

        how = {"batch_size": batch_size, "quantize": quantize, "images": images}
        if images is not None:
            echo(f"Differences on {len(images.held_out)} held-out images:")
        path, left_out = export_portable(
            model, place, kind, options=more, report=echo, **how, **shown
        )
    endings = (".onnx", ".tflite")
    names = sorted(file.name for file in path.iterdir() if file.suffix in endings)
    echo(f"Wrote {path}: {', '.join(names)}")
    for name, why in left_out.items():
        echo(f"{name} is left out: {why}.")


def _check_words(kind, quantize, hub_dir):
    """Raise if options of the current command do not go together."""
    if hub_dir:
        options.refuse_given("does not go with --hub.", "out_dir", "kind", "quantize", "batch_size")
    elif kind not in ("onnx", "litert"):
        options.refuse_given("needs --format onnx or litert.", "quantize", "batch_size")
    if not quantize:
        names = "data_dir", "manual_dir", "store"
        options.refuse_given("needs --quantize, which reads images.", *names)


def _write_whole(model, place, kind, more, shown):
    """Write a form of the whole model and say where."""
    from keras_capsule_poe.hub import export_hub, export_keras
    from keras_capsule_poe.serving import export_saved_model

    if kind == "keras":
        echo(f"Wrote {export_keras(model, place, **shown)}")
    elif kind == "saved_model":
        echo(f"Wrote {export_saved_model(model, place, options=more, **shown)}")
    else:
        path, left_out = export_hub(model, place, options=more, **shown)
        echo(f"Wrote {path}: {', '.join(sorted(file.name for file in path.iterdir()))}")
        for name, why in left_out.items():
            echo(f"{name} is left out: {why.rstrip('.')}.")
        if not shown["card"]["license"]:
            echo("README.md names no licence: give it with --license.")


def _card(folder, settings, licence):
    """Return the run's part of a model card."""
    from keras_capsule_poe.data.tfds import is_known
    from keras_capsule_poe.training import RunFolder

    card = RunFolder(folder).card(settings)
    name = settings.dataset
    return {**card, "license": licence, "datasets": [name] if is_known(name) else []}


def _pictures(folder, model, settings, temporary):
    """Return the pictures that the last stage of a run wrote, or a new one of samples, as paths."""
    domains = [name for mode in getattr(model, "modes", {}).values() for name in mode.domains]
    names = "samples", *(f"samples-{name}" for name in domains), "reconstructions", "traverse"
    found = [path for name in names if (path := folder / f"{name}.png").exists()]
    if not found and callable(getattr(model, "draw", None)):
        from keras_capsule_poe.io.pictures import save_grid
        from keras_capsule_poe.plotting import sample_rows

        save_grid(temporary / "samples.png", sample_rows(model, 4, settings.seed))
        found = [temporary / "samples.png"]
    return found
