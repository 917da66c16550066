"""`capspoe evaluate`."""

from pathlib import Path

import click
from click.core import ParameterSource

from keras_capsule_poe.cli.models import (
    find_model,
    load_config,
    load_history,
    load_model,
    load_run_data,
    own_seconds,
)
from keras_capsule_poe.cli.options import (
    NamedPath,
    data_options,
    model_option,
    place_checker,
    seed_option,
    suffix_checker,
)
from keras_capsule_poe.cli.terminal import guarded, with_tensorflow


@click.command()
@model_option
@click.option(
    "--also",
    multiple=True,
    type=NamedPath(file_okay=False, exists=True, path_type=Path),
    help="A further model of the same data set, for instance of another seed; the tables then "
    "show mean and standard deviation.",
)
@click.option(
    "--against",
    type=NamedPath(file_okay=False, exists=True, path_type=Path),
    help="Another classifier of the same test images, for instance the control without routing: "
    "McNemar's test of the two.",
)
@click.option(
    "--ensemble",
    multiple=True,
    type=NamedPath(file_okay=False, exists=True, path_type=Path),
    help="A further classifier of the same test images, which votes with the first: the mean of "
    "their capsules' lengths, or of what else both give. May be given several times.",
)
@click.option(
    "--crops",
    is_flag=True,
    help="Of classifiers that see a window of an image: average what they say of 13 windows of "
    "each, the middle one and those 1, 2 and 3 pixels towards each corner.",
)
@click.option(
    "--pairs",
    is_flag=True,
    help="Of classifiers that take images of any size, such as those of the recipe `shared`: two "
    "test images of different classes side by side, in the place of single ones.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=0),
    default=10_000,
    show_default=True,
    help="Images of each kind, judged by a classifier that is trained once and cached; 0: none.",
)
@click.option(
    "--controls",
    type=click.Choice(["none", "plain", "trained"]),
    default="plain",
    show_default=True,
    help="What samples are compared with: `none`, no controls; `plain`, Gaussians of the features "
    "and a mixture of them; `trained`, besides these a Boltzmann machine and a variational "
    "autoencoder of as many parameters.",
)
@click.option(
    "--vae-seconds",
    type=click.FloatRange(min=0),
    help="Of `--controls trained` the variational autoencoder is trained for as long as the "
    "model's own parameters were, at most this; 0: it is left out.  [default: as long]",
)
@click.option(
    "--probe-images",
    type=click.IntRange(min=20),
    help="Training images that probes learn from.  [default: all; of more than 60,000, 20,000]",
)
@click.option("--limit", type=click.IntRange(min=10), help="Use only the first N test images.")
@click.option(
    "--json",
    "json_path",
    callback=place_checker,
    type=NamedPath(dir_okay=False, path_type=Path),
    help="Write the figures to a file as well.",
)
@click.option(
    "--page",
    "page_path",
    callback=suffix_checker((".html",)),
    type=NamedPath(dir_okay=False, path_type=Path),
    help="Write a page with tables, pictures and what each capsule means (.html).",
)
@data_options
@seed_option
@guarded
@with_tensorflow
def evaluate(
    model_dir,
    also,
    against,
    ensemble,
    crops,
    pairs,
    samples,
    controls,
    vae_seconds,
    probe_images,
    limit,
    json_path,
    page_path,
    seed,
    **places,
):
    """Measure a trained model on its test images.

    For a classifier: the accuracy, and the errors of each class. If it was trained on familiar
    viewpoints only, errors on familiar and on novel viewpoints are shown separately.

    For a model that generates images: reconstruction, representation and samples. A small
    classifier of the same data set judges the samples, and those of baselines that are decoded
    in the same way (see --controls). It is cached in CAPSPOE_CACHE, or
    ~/.cache/keras_capsule_poe.
    """
    if also and (against or ensemble):
        flag = "--against" if against else "--ensemble"
        raise click.UsageError(f"{flag} goes with one model. Received: --also")
    folders = [find_model(model_dir), *(find_model(folder) for folder in also)]
    config = load_config(folders[0])
    dataset = config.dataset
    compared = [("--against", find_model(against))] if against else []
    compared += [("--ensemble", find_model(folder)) for folder in ensemble]
    if json_path and page_path and json_path.resolve() == page_path.resolve():
        raise click.BadParameter(f"--json writes {json_path}, too.", param_hint="--page")
    for flag, more, why in (
        ("--ensemble", ensemble, "each model has one vote"),
        ("--against", [against] if against else [], "a model does not differ from itself"),
        ("--also", folders[1:], "a mean of one model with itself says nothing"),
    ):
        asked = [folder.resolve() for folder in (folders[0], *more)]
        if twice := [folder for folder in asked if asked.count(folder) > 1]:
            raise click.BadParameter(f"{twice[0]} is given twice: {why}.", param_hint=flag)
    for flag, folder in [*(("--also", folder) for folder in folders[1:]), *compared]:
        name = load_config(folder).dataset
        if name != dataset:
            raise click.BadParameter(
                f"{folder} was trained on {name}, not {dataset}.", param_hint=flag
            )
    for folder in folders[1:]:
        other = load_config(folder)
        if other.family.name != config.family.name:
            raise click.BadParameter(
                f"{folder} holds a model {other.family.name!r}, the first one is "
                f"{config.family.name!r}: means are of models of one kind.",
                param_hint="--also",
            )
        if (split := other.split) != config.split:
            raise click.BadParameter(
                f"{folder} has the split {split or 'none'}, not {config.split or 'none'}.",
                param_hint="--also",
            )
    from keras_capsule_poe.data import ImageData
    from keras_capsule_poe.evaluation.accuracy import classified
    from keras_capsule_poe.evaluation.ensemble import OFFSETS, classified_crops
    from keras_capsule_poe.evaluation.model_page import write_report
    from keras_capsule_poe.evaluation.page import text_table
    from keras_capsule_poe.evaluation.report import is_generative, is_judged, measure, tables

    def load(folder):
        # The test images may depend on the model's seed.
        data = load_run_data(folder, **places)
        if limit:
            data = ImageData(data.train, data.test.head(limit))
        model = load_model(folder)
        return model, _side_by_side(model, data, folder) if pairs else data

    ask = classified_crops if crops else classified

    def said(model, data):
        # Classify the test images once, for all results.
        return ask(model, data.test) if crops or compared or is_judged(model, data.test) else None

    def figures(folder, model, data, found):
        options = {"controls": controls, "vae_seconds": seconds.get(folder, 0)}
        measured = measure(model, data, samples, probe_images, seed, found=found, **options)
        notes = {"crops": {"of_each_image": len(OFFSETS)}} if crops else {}
        notes |= {"side_by_side": {"images_a_pair": 2}} if pairs else {}
        return notes | measured

    # Detect damaged folders before the slow computations.
    seconds = {}
    if controls == "trained":
        longest = float("inf") if vae_seconds is None else vae_seconds
        seconds = {folder: min(longest, own_seconds(folder)) for folder in folders}
    model, data = load(folders[0])
    history = load_history(folders[0], model) if page_path else ()
    if not is_generative(model):
        _refuse_given("samples", "controls", "vae_seconds", "probe_images", title=model.TITLE)
    if vae_seconds and controls != "trained":
        raise click.UsageError(
            f"--vae-seconds goes with --controls trained. Received: --controls {controls}"
        )
    found = said(model, data)
    others = [_other(flag, folder, load, model, data, ask) for flag, folder in compared]
    beside = {}
    if against:
        beside["against"] = _against(against, found, others.pop(0), data.test.labels)
    if ensemble:
        beside |= _vote(folders[0], found, dict(zip(ensemble, others)), data.test.labels)
    runs = [figures(folders[0], model, data, found) | beside]
    for folder in folders[1:]:
        other, theirs = load(folder)
        runs.append(figures(folder, other, theirs, said(other, theirs)))
    shown = tables(runs)
    for heading, note, columns, rows in shown:
        click.echo(f"{heading}\n{note}\n" if note else heading)
        click.echo(text_table(columns, rows) + "\n" if rows else "")
    if json_path:
        from keras_capsule_poe.io.records import write_json

        write_json(json_path, runs[0] if len(runs) == 1 else {"runs": runs})
        click.echo(f"Wrote {json_path}")
    if page_path:
        write_report(page_path, model, data, dataset, shown, seed, found, history)
        click.echo(f"Wrote {page_path}")


def _side_by_side(model, data, folder):
    """Return `ImageData` whose test images are fixed pairs (H, 2 W, C); raise if not possible."""
    from keras_capsule_poe.data import ComposedSet, ImageData
    from keras_capsule_poe.data.composed import SideBySide
    from keras_capsule_poe.evaluation.accuracy import shows_several
    from keras_capsule_poe.serving import takes_any_size

    if not takes_any_size(model):
        size = "x".join(map(str, model.image_shape))
        raise click.BadParameter(
            f"the model in {folder} takes images of {size} only; one of the recipe shared takes "
            "any size.",
            param_hint="--pairs",
        )
    if shows_several(data.test):
        raise click.BadParameter(
            f"{data.test.name or 'the data set'} shows several classes an image already.",
            param_hint="--pairs",
        )
    train, test = (ComposedSet(images, SideBySide()) for images in (data.train, data.test))
    return ImageData(train, test.fixed())


def _refuse_given(*names, title):
    """Raise for options of generative models, if the model does not generate images."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(
                f"{flag} is for a model that generates images. Received: a {title}"
            )


def _other(flag, folder, load, model, data, ask):
    """Return another model's classification of the same test images."""
    from keras_capsule_poe.evaluation.accuracy import measure_of

    other, theirs = load(folder)
    sizes = ["x".join(map(str, shown.image_shape)) for shown in (other, model)]
    if sizes[0] != sizes[1]:
        raise click.BadParameter(
            f"{folder} takes images of {sizes[0]}, not {sizes[1]}.", param_hint=flag
        )
    # `ask` raises for a model that is not a classifier.
    kinds = [measure_of(each) for each in (other, model)]
    if flag == "--ensemble" and kinds[0] != kinds[1]:
        raise click.BadParameter(
            f"{folder} gives each class {_article(kinds[0])}, the first model "
            f"{_article(kinds[1])}: there is no mean of the two.",
            param_hint=flag,
        )
    if theirs.test.fingerprint != data.test.fingerprint:
        raise click.BadParameter(f"{folder} has other test images.", param_hint=flag)
    return ask(other, data.test)


def _article(noun):
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _against(folder, found, other, labels):
    from keras_capsule_poe.evaluation.accuracy import are_right
    from keras_capsule_poe.evaluation.ensemble import mcnemar

    return {"other": str(folder)} | mcnemar(are_right(found, labels), are_right(other, labels))


def _vote(first, found, others, labels):
    from keras_capsule_poe.evaluation.ensemble import ensemble_figures

    members = {str(folder): said for folder, said in {first: found, **others}.items()}
    return ensemble_figures(members, labels)
