"""`capspoe export`."""

from pathlib import Path

import click

from keras_capsule_poe.cli.models import find_model, load_config, load_model
from keras_capsule_poe.cli.options import NamedPath, model_option
from keras_capsule_poe.cli.terminal import guarded, with_tensorflow
from keras_capsule_poe.pretrained import pretrained_folder


@click.command()
@model_option
@click.option(
    "--format",
    "kind",
    type=click.Choice(["saved_model", "onnx", "litert"]),
    default="saved_model",
    show_default=True,
    help="`saved_model` is for TensorFlow, `onnx` for ONNX Runtime, `litert` for phones and small "
    "devices (formerly TensorFlow Lite).",
)
@click.option(
    "--out",
    "out_dir",
    type=NamedPath(file_okay=False, path_type=Path),
    help="Folder to write to.  [default: the model folder; for a pretrained model ./NAME]",
)
@click.option(
    "--domain",
    metavar="NAME",
    help="Domain of its sample endpoints, see `capspoe sample`.  [default: the model's first]",
)
@guarded
@with_tensorflow
def export(model_dir, kind, out_dir, domain):
    """Write the model in a form that needs no code of this package.

    A SavedModel becomes the next version in the folder, such as `MODEL_DIR/2`. ONNX and LiteRT
    files, one for each endpoint, go to `MODEL_DIR/onnx` and `MODEL_DIR/litert`. A README.md beside
    the files says how to call them.
    """
    from keras_capsule_poe.portable import export_portable
    from keras_capsule_poe.serving import export_saved_model
    from keras_capsule_poe.training import RunFolder

    folder = find_model(model_dir)
    config, model = load_config(folder), load_model(folder)
    options = {}
    if domain is not None:
        if not hasattr(model, "resolve_mode"):
            raise click.UsageError("--domain needs a model that generates images.")
        options["domain"] = model.resolve_mode(domain=domain)[1]
    card = RunFolder(folder).card(config)
    # The folder of a pretrained model is that of the package.
    place = out_dir or (Path(model_dir.name) if pretrained_folder(model_dir) else folder)
    if kind == "saved_model":
        click.echo(f"Wrote {export_saved_model(model, place, card, options)}")
        return
    path, left_out = export_portable(model, place, kind, card, options)
    click.echo(f"Wrote {path}: {', '.join(sorted(file.name for file in path.iterdir()))}")
    for name, why in left_out.items():
        click.echo(f"{name} is left out: {why}.")
