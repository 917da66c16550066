"""Commands on the files of a model: `info` and `export`."""

import json
import re
from pathlib import Path

import click

from keras_capsule_poe import registry
from keras_capsule_poe.cli import options
from keras_capsule_poe.cli.options import NamedPath, option
from keras_capsule_poe.cli.terminal import guarded, import_tensorflow
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

    folder = pretrained_folder(model_dir) or model_dir or options.find_folder(None)
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
    click.echo(
        f"{folder}: model {settings.MODEL}, preset {settings.preset}, data set "
        f"{settings.dataset}{split}, seed {settings.seed}{''.join(other)}"
    )
    if run.class_names:
        click.echo(f"classes: {', '.join(printable(name, NAME) for name in run.class_names)}")
    if preparation := run.readable().get("preparation"):
        from keras_capsule_poe.data.preparation import Preparation

        click.echo(f"new images: {Preparation.from_dict(preparation).describe()}")
    idle = settings.idle()
    for part in settings.parts:
        pairs = values[part].items()
        shown = [f"{key} {value}" for key, value in pairs if f"{part}.{key}" not in idle]
        if shown:
            click.echo(f"{part}: {', '.join(shown)}")

    def verdict(metrics):
        import_tensorflow()
        return registry.model_class(settings.MODEL).verdict(metrics)

    show_results(folder, settings, verdict)
    if problem:
        click.echo(problem)


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
            click.echo(f"{stage:12} {done['seconds']:7.0f} s  {', '.join(numbers)}")
    for line in verdict({name: done["metrics"] for name, done in stages.items()}):
        click.echo(line)
    for stage, done in stages.items():
        for complaint in done["metrics"].get("complaints", ()):
            click.echo(f"{stage}: {complaint}")
    for stage in settings.STAGES:
        names = [path.name for path in (folder / stage).glob("checkpoints/step-*")]
        steps = [int(found[1]) for name in names if (found := re.fullmatch("step-([0-9]+)", name))]
        if steps:
            click.echo(f"{stage}: not finished; its last checkpoint is of step {max(steps)}")
    for path in sorted(folder.glob("*.png")):
        click.echo(f"Look at {path}")
    version = newest_version(folder)
    if version and not (version / "saved_model.pb").exists():
        click.echo(f"{version} is incomplete: its saved_model.pb is missing")
    elif version:
        # An earlier SavedModel stays until the next one is complete.
        is_own = list(settings.STAGES)[-1] in stages
        click.echo(f"SavedModel{'' if is_own else ' of an earlier training'}: {version}")


@click.command()
@options.model_option
@option(
    "--format",
    "kind",
    type=click.Choice(["saved_model", "onnx", "litert"]),
    default="saved_model",
    help="`saved_model` is for TensorFlow, `onnx` for ONNX Runtime, `litert` for phones and small "
    "devices (formerly TensorFlow Lite).",
)
@option(
    "--out",
    "out_dir",
    type=NamedPath(file_okay=False, path_type=Path),
    help="Folder to write to.  [default: the model folder; for a pretrained model ./NAME]",
)
@option(
    "--domain",
    metavar="NAME",
    help="Domain of its sample endpoints, see `capspoe sample`.  [default: the model's first]",
)
@guarded
def export(model_dir, kind, out_dir, domain):
    """Write the model in a form that needs no code of this package.

    A SavedModel becomes the next version in the folder, such as `MODEL_DIR/2`. ONNX and LiteRT
    files, one for each endpoint, go to `MODEL_DIR/onnx` and `MODEL_DIR/litert`. A README.md beside
    the files says how to call them.
    """
    folder = options.find_model(model_dir)
    from keras_capsule_poe.portable import export_portable
    from keras_capsule_poe.serving import export_saved_model
    from keras_capsule_poe.training import RunFolder

    settings, model = options.load_settings(folder), options.load_model(folder)
    more = {}
    if domain is not None:
        if not hasattr(model, "resolve_mode"):
            raise click.UsageError("--domain needs a model that generates images.")
        more["domain"] = model.resolve_mode(domain=domain)[1]
    card = RunFolder(folder).card(settings)
    # The folder of a pretrained model is that of the package.
    place = out_dir or (Path(model_dir.name) if pretrained_folder(model_dir) else folder)
    if kind == "saved_model":
        click.echo(f"Wrote {export_saved_model(model, place, card, more)}")
        return
    path, left_out = export_portable(model, place, kind, card, more)
    click.echo(f"Wrote {path}: {', '.join(sorted(file.name for file in path.iterdir()))}")
    for name, why in left_out.items():
        click.echo(f"{name} is left out: {why}.")
