"""Commands that measure a model: `evaluate`, `report` and `likelihood`."""

import dataclasses
import functools
import shutil
from pathlib import Path

import click

from keras_capsule_poe.cli import options
from keras_capsule_poe.cli.options import NamedPath, option
from keras_capsule_poe.cli.terminal import echo, guarded, working
from keras_capsule_poe.errors import RunFailed

# Options of the metrics of generative models.
OF_SAMPLES = ("samples", "baselines", "vae_seconds", "probe_images")


class BaselinesType(click.Choice):
    """Choice of baselines that also takes the former name `plain` of `simple`."""

    def convert(self, value, parameter, context):
        if value == "plain":
            echo("`plain` is a former name: use `simple`.", err=True)
            value = "simple"
        return super().convert(value, parameter, context)


# The choice of the test images.
image_options = options.together(
    option("--limit", type=click.IntRange(min=10), help="Use the first N test images."),
    option(
        "--crops",
        is_flag=True,
        help="Classifiers that crop their images: average the probabilities over 13 crops of each "
        "image, the central one and those 1, 2 and 3 pixels towards each corner.",
    ),
    option(
        "--pairs",
        is_flag=True,
        help="Classifiers of images of any size, such as those of the recipe `shared`: show two "
        "test images of different classes side by side.",
    ),
)
metric_options = options.together(
    option(
        "--samples",
        type=click.IntRange(min=0),
        default=10_000,
        help="Images of each kind for the sample metrics. The evaluation classifier is trained "
        "once and cached. 0 leaves the sample metrics out.",
    ),
    option(
        "--baselines",
        "--controls",
        "baselines",
        type=BaselinesType(["none", "simple", "trained"]),
        default="none",
        help="Baselines for the samples. `simple`: Gaussians and a Gaussian mixture of the "
        "features. `trained`: also a Boltzmann machine and a variational autoencoder with as many "
        "parameters as the model.",
    ),
    option(
        "--vae-seconds",
        type=click.FloatRange(min=0),
        help="Maximum training time of the variational autoencoder of `--baselines trained`. 0 "
        "leaves it out.  [default: the training time of the model]",
    ),
    option(
        "--probe-images",
        type=click.IntRange(min=20),
        help="Training images of the linear probes.  [default: 20,000]",
    ),
)


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
    data = options.load_run_data(folder, **places)
    if limit:
        data = ImageData(data.train, data.test.head(limit))
    model = options.load_model(folder)
    return Subject(folder, model, _side_by_side(model, data, folder) if pairs else data, crops)


def _side_by_side(model, data, folder):
    """Return `ImageData` whose test images are fixed pairs (H, 2 W, C); raise if not possible."""
    from keras_capsule_poe.data import ComposedSet, ImageData
    from keras_capsule_poe.data.composed import SideBySide
    from keras_capsule_poe.evaluation.classification import shows_several
    from keras_capsule_poe.serving import takes_any_size

    why = None
    if not takes_any_size(model):
        size = "x".join(map(str, model.image_shape))
        why = f"the model in {folder} takes images of {size} only. One of the recipe shared takes "
        why += "any size."
    elif shows_several(data.test):
        why = f"{data.test.name or 'the data set'} already has several classes per image."
    if why:
        raise click.BadParameter(why, param_hint="--pairs")
    train, test = (ComposedSet(images, SideBySide()) for images in (data.train, data.test))
    return ImageData(train, test.fixed())


def own_seconds(folder):
    """Return the training seconds of the stages after those of features, which models share."""
    from keras_capsule_poe.models.base.settings import FeatureSettings
    from keras_capsule_poe.training import RunFolder

    seconds, settings = 0, options.load_settings(folder)
    for stage in settings.stages:
        if settings.STAGES[stage] and stage not in FeatureSettings.STAGES:
            done = RunFolder(folder).done(stage)
            if done is None:
                raise RunFailed(
                    f"{folder / stage} contains no finished stage.", hint=f"stage_fresh:{stage}"
                )
            seconds += done["seconds"]
    return seconds


def measured(subject, seed, samples, baselines, vae_seconds, probe_images, pairs=False):
    """Return all metrics that a model allows, a dict of dicts."""
    from keras_capsule_poe.evaluation.classification import OFFSETS
    from keras_capsule_poe.evaluation.report import is_generative, measure

    if not is_generative(subject.model):
        why = f"needs a model that generates images. Received: {subject.model.TITLE}"
        options.refuse_given(why, *OF_SAMPLES)
    seconds = 0
    if baselines == "trained":
        longest = float("inf") if vae_seconds is None else vae_seconds
        # This also detects damaged folders before the slow computations.
        seconds = min(longest, own_seconds(subject.folder))
    elif vae_seconds:
        raise click.UsageError(
            f"--vae-seconds needs --baselines trained. Received: --baselines {baselines}"
        )
    given = {"baselines": baselines, "vae_seconds": seconds, "found": subject.predictions_if_any}
    notes = {"crops": {"of_each_image": len(OFFSETS)}} if subject.crops else {}
    notes |= {"side_by_side": {"images_a_pair": 2}} if pairs else {}
    of_model = subject.model, subject.data, samples, probe_images, seed
    with working() as progress:
        return notes | measure(*of_model, progress=progress, **given)


def show(metrics):
    """Print the metrics of a model in tables."""
    from keras_capsule_poe.evaluation.report import tables, text_table

    width = shutil.get_terminal_size().columns
    for heading, note, columns, rows in tables(metrics):
        echo(heading, bold=True)
        if note:
            echo(f"{note}\n")
        echo(text_table(columns, rows, width) + "\n" if rows else "")


def write(path, metrics):
    """Write metrics to a JSON file if a path is given."""
    from keras_capsule_poe.io.records import write_json

    if path:
        write_json(path, metrics)
        echo(f"Wrote {path}")


@click.command()
@options.model_option
@metric_options
@image_options
@options.json_option
@options.data_options
@options.seed_option
@guarded
def evaluate(
    model_dir, limit, crops, pairs, json_path, seed, samples, baselines, vae_seconds, probe_images,
    **places,
):  # fmt: skip
    """Measure a trained model on its test images.

    For a classifier: accuracy, errors of each class and calibration. If it was trained on
    familiar viewpoints only, errors on familiar and on novel viewpoints are shown separately.

    For a model that generates images: reconstruction, linear probes, clustering and samples. A
    small classifier of the same data set evaluates the samples, and those of baselines that are
    decoded in the same way (see --baselines). It is cached in CAPSPOE_CACHE, or in
    ~/.cache/keras_capsule_poe.

    `capspoe compare` compares several models, `capspoe report` writes a page with pictures.
    """
    subject = load_subject(options.find_model(model_dir), limit, crops, pairs, places)
    from keras_capsule_poe.runs import keep

    given = seed, samples, baselines, vae_seconds, probe_images
    found = measured(subject, *given, pairs)
    show(found)
    if not (limit or crops or pairs):
        keep(subject.folder, found, list(given))
    write(json_path, found)


@click.command()
@options.out_option("report.html", (".html",))
@options.model_option
@option(
    "--metrics",
    "metrics_path",
    type=NamedPath(exists=True, dir_okay=False, path_type=Path),
    help="JSON file of `capspoe evaluate --json`, whose tables the page then shows.  [default: "
    "those of the last `capspoe evaluate` of the model]",
)
@image_options
@options.data_options
@options.seed_option
@guarded
def report(out, model_dir, metrics_path, limit, crops, pairs, seed, **places):
    """Write a page that shows a trained model: samples, reconstructions and each capsule.

    The page is one HTML file that needs no internet connection. For a classifier it shows
    accuracy, calibration and the most confident errors. If `capspoe evaluate` has measured the
    model, which takes minutes, the page has its tables as well.
    """
    subject = load_subject(options.find_model(model_dir), limit, crops, pairs, places)
    from keras_capsule_poe.evaluation.page import write_report
    from keras_capsule_poe.evaluation.report import is_generative, measure, tables
    from keras_capsule_poe.former_names import current_metrics
    from keras_capsule_poe.io.records import read_json
    from keras_capsule_poe.models.base.protocols import is_classifier
    from keras_capsule_poe.runs import kept
    from keras_capsule_poe.training import RunFolder

    folder, model, data = subject.folder, subject.model, subject.data
    found = current_metrics(read_json(metrics_path)) if metrics_path else kept(folder)
    if not found and not is_generative(model):
        found = measure(model, data, found=subject.predictions_if_any)
    try:
        found.pop("written_by", None)
        shown = tables(found)
    except (KeyError, AttributeError, TypeError) as error:
        raise click.BadParameter(
            f"{metrics_path} does not hold the metrics of one model. Write it with `capspoe "
            "evaluate --json`.",
            param_hint="--metrics",
        ) from error
    settings = options.load_settings(folder)
    trained = [stage for stage in settings.stages if settings.trained(stage)]
    history = RunFolder(folder).history(trained[-1]) if is_classifier(model) else []
    path = options.data_path(folder)
    # Others read the page: of a path of this machine they need the end alone.
    name = path.name if path else settings.dataset
    about = _facts(subject, settings, name), _summary(subject, settings, found)
    with working("drawing the page"):
        write_report(
            out, model, data, name, shown, seed, subject.predictions_if_any, history, *about
        )
    echo(f"Wrote {out}")


def _facts(subject, settings, dataset):
    """Return pairs of name and value for the header of the page."""
    from keras_capsule_poe import __version__

    data, model = subject.data, subject.model
    size = "x".join(map(str, model.image_shape))
    return [
        ("model", f"{model.TITLE}, {model.count_params():,} parameters"),
        ("preset", settings.preset),
        ("data", f"{dataset}: {len(data.train):,} training images of {size}"),
        ("version", __version__),
    ]


def _summary(subject, settings, metrics):
    """Return sentences on a training and on how good its model is."""
    from keras_capsule_poe.runs import flat_metrics
    from keras_capsule_poe.training import RunFolder
    from keras_capsule_poe.training.progress import duration

    done = [RunFolder(subject.folder).done(stage) for stage in settings.stages]
    took = duration(sum(each["seconds"] for each in done if each))
    numbers = flat_metrics(metrics)
    known = {
        "accuracy": "{:.1%} of them are classified correctly.",
        "probe.capsules": "A linear classifier of the codes is right for {:.1%} of them.",
    }
    tested = f"{len(subject.data.test):,} images"
    return [
        f"Trained in {took} with seed {settings.seed}, tested on {tested}.",
        *(text.format(numbers[name]) for name, text in known.items() if name in numbers),
    ]


@click.command()
@options.model_option
@option(
    "--base",
    metavar="NAME",
    help="Capsules: the reference distribution, required: ball, isotropic or gaussian.",
)
@option(
    "--routing",
    metavar="NAME",
    help="Capsules: `fixed` coupling coefficients (their mean over training images), or `routed` "
    "ones.  [default: fixed]",
)
@option(
    "--temperatures",
    type=click.IntRange(min=2),
    help="Annealing temperatures.  [default: 14500, capsules 20]",
)
@option(
    "--chains", type=click.IntRange(min=2), help="Annealed chains.  [default: 100, capsules 512]"
)
@option("--images", type=click.IntRange(min=2), help="Use the first N test images.")
@options.json_option
@options.data_options
@options.seed_option
@guarded
def likelihood(model_dir, base, routing, temperatures, chains, images, json_path, seed, **places):
    """Estimate the log-likelihood of test images, in nats.

    Annealed importance sampling, forward and reverse, gives estimates of log Z from both
    sides. If a layer is small enough, log Z is also computed exactly. The result uses the
    exact value, or else the middle of the two estimates.
    """
    folder = options.find_model(model_dir)
    from keras_capsule_poe.evaluation import likelihood as measured

    model = options.load_model(folder)
    if not measured.has_likelihood(model):
        raise RunFailed(f"The model in {folder} has no likelihood. It is a {model.TITLE}.")
    # Options that some models' `density` takes.
    named = {"base": base, "routing": routing}
    named = {name: word for name, word in named.items() if word is not None}
    data = options.load_run_data(folder, **places)
    with working("annealing"):
        found = measured.likelihood(model, data, images, temperatures, chains, seed, **named)
    echo(measured.likelihood_text(found))
    write(json_path, found)
