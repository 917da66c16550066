"""A model of images: its constructor takes settings, its `fit` trains one part after the other."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import keras

from keras_capsule_poe.data.arrays import image_array, image_data
from keras_capsule_poe.data.image_set import ImageData
from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.distributed.distribution import distribution_of
from keras_capsule_poe.errors import BadUse, TrainingWarning
from keras_capsule_poe.former_names import Metrics
from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.keras_private import unlocked
from keras_capsule_poe.models.base.features import SHOWN
from keras_capsule_poe.models.base.new_images import know_images
from keras_capsule_poe.models.base.protocols import deserialized
from keras_capsule_poe.plotting import reconstruction_rows, sample_rows
from keras_capsule_poe.serving import export_saved_model, versions
from keras_capsule_poe.training.progress import Reporter, quiet
from keras_capsule_poe.training.run import train

# Arguments of `keras.Model`.
OF_KERAS = ("name", "trainable", "dtype")


class TrainedModel:
    """Mixin for a `keras.Model` of images that is made of settings or of trained parts.

    `fit` and `capspoe train` train the parts alike, so that equal settings, images and seeds give
    equal weights. A subclass has a page `train_parts(run)` that says which part is trained on what.

    Attributes:
        SETTINGS: Class of the `Settings`.
        PARTS: Constructor arguments that are Keras objects.
        NEEDED: Those without which there is no trained model.
        WHOLE: Name of the stage in which the model is whole while it is trained, for callbacks
            that write it; None: only after its training.
        settings: `Settings` of the model.
    """

    SETTINGS: Any = None
    PARTS: tuple[str, ...] = ()
    NEEDED: tuple[str, ...] = ()
    WHOLE: str | None = None
    settings: Any = None

    @classmethod
    def of(cls, settings):
        """Return a model with these `Settings` that is not trained yet."""
        model = cls()
        model.settings = settings
        return model

    def start(self, parts, preset, settings):
        """Initialize the model from its constructor's arguments; return whether it has parts."""
        settings = dict(settings)
        super().__init__(**{name: settings.pop(name) for name in OF_KERAS if name in settings})
        saved, former = settings.pop("settings", None), settings.pop("recipe", None)
        preset = preset or former
        for name, part in parts.items():
            # A serialized part has a class; other dicts are settings of the part.
            if isinstance(part, dict) and "class_name" not in part:
                settings[name], part = part, None
            setattr(self, name, deserialized(part))
        lacking = [name for name in self.NEEDED if getattr(self, name) is None]
        is_given = settings or preset
        if len(lacking) < len(self.NEEDED) and (lacking or is_given):
            received = f"no {', '.join(lacking)}" if lacking else f"settings {', '.join(settings)}"
            raise TypeError(
                f"{type(self).__name__} takes all of its trained parts {', '.join(self.NEEDED)}, "
                f"or settings. Received: {received}."
            )
        self._set_settings(saved, preset, settings)
        return not lacking

    def _set_settings(self, saved, preset, settings):
        found = self.SETTINGS.from_dict(saved) if saved else self.SETTINGS(preset)
        found.update(settings)
        self.settings = found

    @property
    def is_fitted(self):
        """True if the model has its parts."""
        return getattr(self, self.NEEDED[0], None) is not None

    def get_config(self):
        parts = {name: getattr(self, name) for name in self.PARTS}
        kept = {name: keras.saving.serialize_keras_object(part) for name, part in parts.items()}
        return {**super().get_config(), **kept, "settings": self.settings.to_dict()}

    def build(self, input_shape=None):
        self.check_fitted()
        self.build_parts(input_shape)
        self.built = True

    def build_parts(self, input_shape):
        """Build the parts and create the model's own weights."""
        raise NotImplementedError

    def assemble(self):
        """Set the attributes that follow from the parts."""

    def check_fitted(self):
        """Raise `BadUse` unless the model has its parts."""
        if not self.is_fitted:
            raise BadUse(
                f"This {type(self).__name__} is not trained yet. Call `fit(images)` first, or load "
                "a trained model with `keras_capsule_poe.load`."
            )

    def train_parts(self, run):
        """Train each part in turn: `run.part(stage, function of the run)`."""
        raise NotImplementedError

    @classmethod
    def from_parts(cls, run):
        """Return the model of a `Run` whose parts are trained."""
        raise NotImplementedError

    @classmethod
    def outline(cls, settings, image_shape):
        """Return two dicts for display: shapes of one image's data, and parameter counts."""
        return {"image": tuple(image_shape)}, {}

    @staticmethod
    def verdict(metrics):
        """Return sentences on the metrics of the finished stages, a dict by stage."""
        return []

    def fit(
        self,
        x: Any,
        y: Any = None,
        *,
        epochs: int | None = None,
        batch_size: int | None = None,
        verbose: int | str = "auto",
        callbacks: Any = (),
        validation_split: float | None = None,
        validation_data: Any = None,
        groups: Any = None,
        folder: str | Path | None = None,
    ) -> dict[str, Any]:
        """Train all parts of the model on images. A fitted model is trained from scratch.

        Args:
            x: Images: array (N, H, W) or (N, H, W, C), uint8 or floats in [0, 1]; or a
                `tf.data.Dataset`, `PyDataset` or generator that ends, which is read into memory.
            y: Labels, or None: integers or strings (N,), zeros and ones with a column for each
                class, or K labels an image, (N, K). Only classifiers use them. The labels that
                occur are numbered in their order.
            epochs: int, epochs of every part. None: as the settings say.
            batch_size: int, batch size of every part. None: as the settings say.
            verbose: `0` silent, `1` or `"auto"` one line for each part, `2` one line per epoch.
            callbacks: List of Keras callbacks. Each part calls them with its own model.
            validation_split: float in (0, 1), fraction of the images that only monitors training.
                None: 5%, at most 1000. Without labels these are the last images, as in Keras. With
                labels they are drawn by class, unlike in Keras, so that no class is left out.
            validation_data: Images that only monitor training, in place of `validation_split`; or
                a pair (images, labels).
            groups: Integers or strings (N,), or None. All images of a group are for training, or
                all are held out, for instance those of one patient.
            folder: Path for checkpoints and all results, as those of `capspoe train`. The same call
                resumes an interrupted training. None: a temporary folder.

        Returns:
            Dict of `keras.callbacks.History` by stage, also kept as `histories`.

        Raises:
            DataError: If the images have a wrong shape, type or range.
            ConfigError: If settings do not go together.
            RunFailed: If training diverges, or the folder belongs to another training.
        """
        untrained = type(self).of(self.settings.model_copy(deep=True))
        settings = untrained.settings
        settings.set_all(epochs=epochs, batch_size=batch_size)
        settings.set("dataset", x.name if isinstance(x, ImageData) else "x")
        given = (x, y, validation_data, validation_split, groups)

        def images():
            # Read when the run in the folder, if there is one, has said by which rules.
            return image_data(*given, data_version=settings.data_version)

        devices = distribution_of(self)
        trained, histories = trained_model(untrained, images, folder, verbose, callbacks, devices)
        self.adopt(trained)
        self.histories = histories
        return histories

    def adopt(self, trained):
        """Take over the parts and weights of a trained model of this class."""
        with unlocked(self) as forget:
            was_built, self.built = self.built, False
            for name in self.PARTS:
                for part in keras.tree.flatten(getattr(self, name)):
                    forget(part)
                setattr(self, name, getattr(trained, name))
            self.assemble()
            self.built = was_built
        self.preparation, self.class_names = trained.preparation, trained.class_names
        if not was_built:
            self.build()
        for mine, theirs in zip(self.variables, trained.variables):
            mine.assign(theirs)
        for name in ("_graphs", "modes"):
            self.__dict__.pop(name, None)

    def predict(self, x, *args, **kwargs):
        """Return the reconstructed images (N, H, W, C) of images, as `keras.Model.predict`."""
        self.check_fitted()
        if hasattr(x, "__array__") and not keras.ops.is_tensor(x):
            x = to_pixels(image_array(self.resized(x), self.image_shape))
        return super().predict(x, *args, **kwargs)


def trained_model(model, load_data, folder=None, verbose="auto", callbacks=(), distribution=None):
    """Train a model and return it with a dict of `keras.callbacks.History` by stage.

    Without a folder nothing is exported, and all files are temporary.
    """
    settings = model.settings
    stages = list(settings.stages)
    reporter = Reporter(verbose, callbacks=() if callbacks is None else callbacks, notes=False)
    with tempfile.TemporaryDirectory(prefix="keras-capsule-poe-") as temporary:
        # The last stage exports files that nobody reads from a temporary folder.
        last = None if folder else stages[-2]
        with reporter, quiet():
            run = train(
                model,
                folder or temporary,
                load_data,
                reporter,
                stage=last,
                distribution=distribution,
            )
        trained = type(model).from_parts(run)
        know_images(trained, run.folder)
        histories = {}
        for stage in stages:
            if settings.trained(stage):
                histories[stage] = _history(run.folder.history(stage))
                for line in run.folder.done(stage)["metrics"].get("complaints", ()):
                    warnings.warn(f"{stage}: {line}", TrainingWarning, stacklevel=3)
    return trained, {name: found for name, found in histories.items() if found.epoch}


def save_whole(run, model):
    """Write the model as `model.keras` and as the next SavedModel version; return the version."""
    folder = run.folder.path
    # An interrupted export continues with the same version number.
    version = run.once("export", "version", lambda: max(versions(folder), default=0) + 1)
    know_images(model, run.folder)
    with atomic_write(run.path("model.keras"), suffix=".keras") as temporary:
        model.save(temporary)
    card = run.folder.card(run.settings)
    return export_saved_model(model, folder, card, version=version).name


def _history(epochs):
    """Return the `History` of a list of metrics per epoch."""
    history = keras.callbacks.History()
    history.epoch = [epoch["epoch"] - 1 for epoch in epochs]
    names = dict.fromkeys(name for epoch in epochs for name in epoch if name != "epoch")
    history.history = Metrics({name: [epoch.get(name) for epoch in epochs] for name in names})
    return history


def export_images(run, model):
    """Write a trained model for Keras and as a SavedModel, and draw its images."""
    # Parts that do not fit together fail here, before any file is replaced.
    shown = reconstruction_rows(model, run.data.test.images[:SHOWN])
    version = save_whole(run, model)
    save_grid(run.path("reconstructions.png"), list(shown.values()))
    domains = model.modes["single"].domains if "single" in model.modes else ()
    for domain in domains or (None,):
        name = f"samples-{domain}.png" if domain else "samples.png"
        save_grid(run.path(name), sample_rows(model, 4, run.settings.seed, domain=domain))
    return {"saved_model": version}


def error_verdict(error, what):
    """Return a sentence on a relative error, or none.

    >>> error_verdict(0.15, "Whole codes")
    ['Whole codes explain 85% of the variance of held-out images.']
    """
    if error is None:
        return []
    return [f"{what} explain {max(0.0, 1 - error):.0%} of the variance of held-out images."]


def usage_verdict(won):
    """Return a sentence on the shares of the images that capsules win, or none."""
    if not won:
        return []
    used = sum(share > 0 for share in won)
    return [f"{used} of {len(won)} capsules win images, the most frequent one {max(won):.0%}."]


def classes_verdict(found):
    """Return a sentence on the classes of the images that capsules win, or none."""
    if "class_coverage" not in found:
        return []
    return [
        f"{found['class_coverage']} of {found['classes']} classes are the most frequent class of "
        f"a capsule. {found['purity']:.0%} of a capsule's images are of one class on average."
    ]
