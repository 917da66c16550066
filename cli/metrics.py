"""Models with their test images, and their metrics, for `evaluate`, `compare` and `report`."""

import contextlib
import dataclasses
import functools
from pathlib import Path

import click
from click.core import ParameterSource

from keras_capsule_poe.cli.models import load_config, load_model, load_run_data, own_seconds
from keras_capsule_poe.cli.options import NamedPath, place_checker
from keras_capsule_poe.cli.terminal import Working
from keras_capsule_poe.errors import CapspoeError


def image_options(function):
    """Add the options that choose and change the test images."""
    for option in (
        click.option("--limit", type=click.IntRange(min=10), help="Use the first N test images."),
        click.option(
            "--crops",
            is_flag=True,
            help="Classifiers that crop their images: average the probabilities over 13 crops of "
            "each image, the central one and those 1, 2 and 3 pixels towards each corner.",
        ),
        click.option(
            "--pairs",
            is_flag=True,
            help="Classifiers of images of any size, such as those of the recipe `shared`: show "
            "two test images of different classes side by side.",
        ),
    ):
        function = option(function)
    return function


def metric_options(function):
    """Add the options of the metrics of generative models."""
    for option in (
        click.option(
            "--samples",
            type=click.IntRange(min=0),
            default=10_000,
            show_default=True,
            help="Images of each kind for the sample metrics. The evaluation classifier is "
            "trained once and cached. 0 leaves the sample metrics out.",
        ),
        click.option(
            "--baselines",
            "--controls",
            "baselines",
            type=BaselinesType(["none", "simple", "trained"]),
            default="simple",
            show_default=True,
            help="Baselines for the samples. `simple`: Gaussians and a Gaussian mixture of the "
            "features. `trained`: also a Boltzmann machine and a variational autoencoder with as "
            "many parameters as the model.",
        ),
        click.option(
            "--vae-seconds",
            type=click.FloatRange(min=0),
            help="Maximum training time of the variational autoencoder of `--baselines trained`. "
            "0 leaves it out.  [default: the training time of the model]",
        ),
        click.option(
            "--probe-images",
            type=click.IntRange(min=20),
            help="Training images of the linear probes.  [default: all; 20,000 of more than "
            "60,000]",
        ),
    ):
        function = option(function)
    return function


def json_option(function):
    return click.option(
        "--json",
        "json_path",
        callback=place_checker,
        type=NamedPath(dir_okay=False, path_type=Path),
        help="Write the metrics to a JSON file.",
    )(function)


class BaselinesType(click.Choice):
    """Choice of baselines that also takes the former name `plain` of `simple`."""

    def convert(self, value, parameter, context):
        if value == "plain":
            click.echo("`plain` is a former name: use `simple`.", err=True)
            value = "simple"
        return super().convert(value, parameter, context)


@dataclasses.dataclass
class Subject:
    """A trained model with its images."""

    folder: Path
    model: object
    data: object
    crops: bool = False

    @functools.cached_property
    def predictions(self):
        """Predictions for the test images, a dict; raises BadUse if there are none."""
        from keras_capsule_poe.evaluation.classification import classified, classified_crops

        return (classified_crops if self.crops else classified)(self.model, self.data.test)

    @property
    def predictions_if_any(self):
        """`predictions`, or None for models that are not evaluated as classifiers."""
        from keras_capsule_poe.evaluation.report import is_labelled_classifier

        needed = self.crops or is_labelled_classifier(self.model, self.data.test)
        return self.predictions if needed else None


def load_subject(folder, limit, crops, pairs, places):
    """Return the `Subject` of a model folder."""
    from keras_capsule_poe.data import ImageData

    # The test images may depend on the model's seed.
    data = load_run_data(folder, **places)
    if limit:
        data = ImageData(data.train, data.test.head(limit))
    model = load_model(folder)
    return Subject(folder, model, _side_by_side(model, data, folder) if pairs else data, crops)


def measured(subject, seed, samples, baselines, vae_seconds, probe_images, pairs=False):
    """Return all metrics that a model allows, a dict of dicts."""
    from keras_capsule_poe.evaluation.classification import OFFSETS
    from keras_capsule_poe.evaluation.report import is_generative, measure

    if not is_generative(subject.model):
        why = f"needs a model that generates images. Received: {subject.model.TITLE}"
        refuse_given(why, "samples", "baselines", "vae_seconds", "probe_images")
    seconds = 0
    if baselines == "trained":
        longest = float("inf") if vae_seconds is None else vae_seconds
        # This also detects damaged folders before the slow computations.
        seconds = min(longest, own_seconds(subject.folder))
    elif vae_seconds:
        raise click.UsageError(
            f"--vae-seconds needs --baselines trained. Received: --baselines {baselines}"
        )
    options = {"baselines": baselines, "vae_seconds": seconds, "found": subject.predictions_if_any}
    notes = {"crops": {"of_each_image": len(OFFSETS)}} if subject.crops else {}
    notes |= {"side_by_side": {"images_a_pair": 2}} if pairs else {}
    with Working() as progress:
        options["progress"] = progress
        found = measure(subject.model, subject.data, samples, probe_images, seed, **options)
    return notes | found


def compared(subjects):
    """Return the accuracies of classifiers and McNemar's tests, see `ensemble.comparison`."""
    from keras_capsule_poe.evaluation.classification import comparison, measure_of

    first, *others = subjects
    for other in others:
        sizes = ["x".join(map(str, each.model.image_shape)) for each in (other, first)]
        if sizes[0] != sizes[1]:
            raise click.UsageError(f"{other.folder} takes images of {sizes[0]}, not {sizes[1]}.")
        if other.data.test.fingerprint != first.data.test.fingerprint:
            raise click.UsageError(f"{other.folder} has other test images than {first.folder}.")
    members = {str(each.folder): each.predictions for each in subjects}
    measures = [measure_of(each.model) for each in subjects]
    if len(set(measures)) > 1:
        listed = ", ".join(f"{name}: {kind}" for name, kind in zip(members, measures))
        click.echo(f"There is no ensemble, since the outputs differ in kind ({listed}).", err=True)
    return comparison(members, first.data.test.labels, measures)


def check_folders(folders, option=None, one_kind=False):
    """Raise unless the model folders differ and belong to one data set, maybe to one family."""

    def refuse(text):
        error = click.UsageError if option is None else click.BadParameter
        raise error(text) if option is None else error(text, param_hint=option)

    places = [folder.resolve() for folder in folders]
    if twice := [folder for folder in places if places.count(folder) > 1]:
        refuse(f"{twice[0]} is given twice. Give different models.")
    first, *others = (load_config(folder) for folder in folders)
    for folder, other in zip(folders[1:], others):
        if other.dataset != first.dataset:
            refuse(f"{folder} was trained on {other.dataset}, not {first.dataset}.")
        if one_kind and other.family.name != first.family.name:
            refuse(
                f"{folder} holds a model of the family {other.family.name!r}, the first one is of "
                f"{first.family.name!r}. A mean needs models of one family."
            )
        if one_kind and other.split != first.split:
            refuse(f"{folder} has the split {other.split or 'none'}, not {first.split or 'none'}.")


def show(runs):
    """Print the metrics of one model, or of several as means, and return the tables."""
    from keras_capsule_poe.evaluation.report import tables, text_table

    shown = tables(runs)
    for heading, note, columns, rows in shown:
        click.echo(f"{heading}\n{note}\n" if note else heading)
        click.echo(text_table(columns, rows) + "\n" if rows else "")
    return shown


def write(path, metrics):
    """Write metrics to a JSON file if a path is given."""
    from keras_capsule_poe.io.records import write_json

    if path:
        write_json(path, metrics)
        click.echo(f"Wrote {path}")


KEPT = "evaluation.json"


def keep(folder, metrics):
    """Keep the metrics of a model in its folder, for `capspoe report`."""
    from keras_capsule_poe.io.records import digest, write_json
    from keras_capsule_poe.pretrained import is_pretrained

    if not is_pretrained(folder):
        model = digest(folder / "model.keras")
        # The metrics were shown, and a folder that cannot be written to is no error.
        with contextlib.suppress(OSError, CapspoeError):
            write_json(folder / KEPT, {"model": model, "metrics": metrics})


def kept(folder):
    """Return the metrics that were kept of the model of a folder, or {}."""
    from keras_capsule_poe.io.records import digest, read_json

    path = folder / KEPT
    found = read_json(path) if path.exists() else {}
    is_own = found.get("model") == digest(folder / "model.keras")
    return found["metrics"] if is_own else {}


def _side_by_side(model, data, folder):
    """Return `ImageData` whose test images are fixed pairs (H, 2 W, C); raise if not possible."""
    from keras_capsule_poe.data import ComposedSet, ImageData
    from keras_capsule_poe.data.composed import SideBySide
    from keras_capsule_poe.evaluation.classification import shows_several
    from keras_capsule_poe.serving import takes_any_size

    if not takes_any_size(model):
        size = "x".join(map(str, model.image_shape))
        raise click.BadParameter(
            f"the model in {folder} takes images of {size} only. One of the recipe shared takes "
            "any size.",
            param_hint="--pairs",
        )
    if shows_several(data.test):
        raise click.BadParameter(
            f"{data.test.name or 'the data set'} already has several classes per image.",
            param_hint="--pairs",
        )
    train, test = (ComposedSet(images, SideBySide()) for images in (data.train, data.test))
    return ImageData(train, test.fixed())


def refuse_given(why, *names):
    """Raise for the first of these options that was given."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--{name.replace('_', '-')} {why}")
