"""A model of images: its constructor takes settings, its `fit` trains one part after the other."""

import math
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_capsule_poe.data.arrays import image_array, image_data
from keras_capsule_poe.data.image_set import ImageData
from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.distributed.distribution import distribution_of
from keras_capsule_poe.errors import BadUse, ConfigError, DataError
from keras_capsule_poe.io.atomic import atomic_write
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.keras_private import own_variables, unlocked
from keras_capsule_poe.models.base import fitting
from keras_capsule_poe.models.base.features import SHOWN, copy_trainable, load_part
from keras_capsule_poe.models.base.inputs import (
    checked_dataset,
    checked_pixels,
    is_tf_dataset,
    plain_errors,
)
from keras_capsule_poe.models.base.new_images import TakesFiles, know_images
from keras_capsule_poe.models.base.protocols import deserialized
from keras_capsule_poe.plotting import reconstruction_rows, sample_rows
from keras_capsule_poe.serving import export_saved_model, versions

# Arguments of `keras.Model`.
OF_KERAS = ("name", "trainable", "dtype")


class TrainedModel(TakesFiles):
    """Mixin for a `keras.Model` of images that is made of settings or of trained parts.

    `fit` and `capspoe train` train the parts alike, so that equal settings, images and seeds give
    equal weights. A subclass has a page `train_parts(run)` that says which part is trained on what.

    Attributes:
        SETTINGS: Class of the `Settings`.
        PARTS: Constructor arguments that are Keras objects.
        NEEDED: Those without which there is no trained model, in the order of training.
        PART_OF: Dict from a stage to the part that it trains, if its name is another one.
        WHOLE: Name of the stage in which the model is whole while it is trained, for callbacks
            that write it; None: only after its training.
        settings: `Settings` of the model.
        history: Dict of `keras.callbacks.History` by stage, of the last training. Empty before.
    """

    SETTINGS: Any = None
    PARTS: tuple[str, ...] = ()
    NEEDED: tuple[str, ...] = ()
    PART_OF: dict[str, str] = {}
    WHOLE: str | None = None
    settings: Any = None
    history: dict[str, Any] = {}
    # Name that the constructor was given, or None.
    given_name: str | None = None
    # False while the parts have random weights, as those of `keras.models.clone_model`.
    has_weights = True
    # True if the settings were given, or came with a file.
    has_settings = False

    @classmethod
    def of(cls, settings):
        """Return a model with these `Settings` that is not trained yet."""
        model = cls()
        model.settings = settings
        return model

    @classmethod
    def made(cls, run, *parts):
        """Return the model of a run and its trained parts."""
        model = cls.base()(*parts, name=run.name or "product")
        model.settings, model.has_settings = run.settings, True
        return model

    @classmethod
    def base(cls):
        """Return the class to make models of parts: a subclass may have another constructor."""
        base = next(each for each in cls.__mro__ if "SETTINGS" in vars(each))
        return cls if cls.__init__ is base.__init__ else base

    def start(self, parts, preset, settings):
        """Initialize the model from its constructor's arguments; return whether it has all parts.

        Parts without those that are trained after them are kept by `fit`.
        """
        settings = dict(settings)
        needed = [parts.get(name) for name in self.NEEDED]
        is_trained = not any(part is None or is_settings(part) for part in needed)
        self._start_keras(settings, any_dtype=is_trained)
        saved, former = settings.pop("settings", None), settings.pop("recipe", None)
        preset, given = preset or former, {}
        for name, part in parts.items():
            if is_settings(part):
                settings[name] = part
            elif part is not None:
                given[name] = part
        lacking = [name for name in self.NEEDED if name not in given]
        first = next((self.NEEDED.index(name) for name in lacking), len(self.NEEDED))
        late = [name for name in self.NEEDED[first:] if name in given]
        if late:
            raise TypeError(
                f"{type(self).__name__} takes a trained part with all parts before it, of "
                f"{', '.join(self.NEEDED)}. Received: {late[0]} without {lacking[0]}."
            )
        self.has_weights = not any(isinstance(part, dict) for part in given.values())
        for name in parts:
            part = deserialized(given.get(name))
            is_kept = lacking and part is not None and self.has_weights
            setattr(self, name, kept_copy(name, part) if is_kept else part)
        self._set_settings(saved, preset, settings)
        return not lacking

    def _start_keras(self, settings, any_dtype=False):
        """Call the constructor of Keras with its arguments among those of the model."""
        of_keras = {name: settings.pop(name) for name in OF_KERAS if name in settings}
        self.given_name = of_keras.get("name")
        super().__init__(**of_keras)
        if not any_dtype and self.dtype_policy.name != "float32" and "dtype" in of_keras:
            raise ConfigError(
                "`dtype` must be float32: `compute={'precision': ...}` says how training computes. "
                f"Received: dtype={self.dtype_policy.name!r}"
            )

    def _set_settings(self, saved, preset, settings):
        found = self.SETTINGS.from_dict(saved) if saved else self.SETTINGS(preset)
        if not saved:
            self.describe_parts(found)
        found.update(settings)
        self.settings, self.has_settings = found, bool(saved or preset or settings)

    def describe_parts(self, settings):
        """Set the settings of the parts that the model has to what these say of themselves."""
        given = set(settings.given)
        for stage, part in self.stage_parts(settings).items():
            name = settings.STAGES[stage][0]
            known, values = type(settings.parts[name]).model_fields, self.values_of(stage, part)
            settings.set(name, {key: values[key] for key in known if key in values})
        settings.given.intersection_update(given)

    def values_of(self, stage, part):
        """Return the settings of a part that is given, by name, and other values."""
        return flat_config(part)

    @property
    def is_fitted(self):
        """True if the model has all parts, with trained weights."""
        return self.has_weights and self.has_parts

    @property
    def has_parts(self):
        """True if the model has all parts, maybe with random weights."""
        return all(getattr(self, name, None) is not None for name in self.NEEDED)

    def get_config(self):
        # Weights that are random are not worth a copy.
        parts = {name: getattr(self, name) if self.has_weights else None for name in self.PARTS}
        kept = {name: keras.saving.serialize_keras_object(part) for name, part in parts.items()}
        return {**super().get_config(), **kept, "settings": self.saved_settings()}

    def saved_settings(self):
        """Return the settings as a dict; without a training also which of them were given."""
        given = {} if self.is_fitted else {"given": sorted(self.settings.given)}
        return {**self.settings.to_dict(), **given}

    def get_build_config(self):
        return super().get_build_config() if self.is_fitted else None

    def build(self, input_shape=None):
        self.need_parts()
        self.build_parts(input_shape)
        self.built = True

    def __call__(self, images, *args, **kwargs):
        self.check_fitted()
        return super().__call__(checked_pixels(images), *args, **kwargs)

    def export(self, filepath, *args, **kwargs):
        """Write the model for serving, as `keras.Model.export`; it gives reconstructed images."""
        # Keras exports what was called once.
        self(np.zeros((1, *self.image_shape), "float32"))
        super().export(filepath, *args, **kwargs)

    def set_weights(self, weights):
        """Set all weights from a list of arrays, as `keras.Model.set_weights`."""
        self.need_parts()
        super().set_weights(weights)
        self.has_weights = True

    def load_own_variables(self, store):
        super().load_own_variables(store)
        # Keras calls this when it loads a file, and the weights of all parts with it.
        self.has_weights = True

    def build_parts(self, input_shape):
        """Build the parts and create the model's own weights."""
        raise NotImplementedError

    def assemble(self):
        """Set the attributes that follow from the parts."""

    def need_parts(self):
        """Raise `BadUse` unless the model has all parts."""
        self.check_fitted(self.has_parts)

    def check_fitted(self, is_fitted=None):
        """Raise `BadUse` unless the model has trained parts."""
        if not (self.is_fitted if is_fitted is None else is_fitted):
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

    def stage_parts(self, settings=None):
        """Return the parts that the model has, in a dict by the stage that trains each."""
        names = {stage: self.PART_OF.get(stage, stage) for stage in self.SETTINGS.STAGES}
        found = {stage: getattr(self, name, None) for stage, name in names.items()}
        return {
            stage: part
            for stage, part in found.items()
            if names[stage] in self.PARTS and part is not None
        }

    def starts(self):
        """Return the parts that training goes on from, in a dict by stage."""
        return self.stage_parts() if self.has_weights else {}

    @classmethod
    def part_of(cls, run, stage):
        """Return the part that a finished stage of a run has trained."""
        return load_part(run, stage)

    def has_part_of(self, run, stage):
        """Return whether the part of a finished stage has the weights of the model's own part."""
        mine = self.stage_parts().get(stage)
        if mine is None:
            return False
        pairs = zip(mine.get_weights(), self.part_of(run, stage).get_weights())
        return all(np.array_equal(*pair) for pair in pairs)

    def take_finished(self, run):
        """Take the parts that the finished stages of a run have trained."""
        names = {stage: self.PART_OF.get(stage, stage) for stage in run.stages}
        self._take(
            {
                name: self.part_of(run, stage)
                for stage, name in names.items()
                if name in self.PARTS and run.folder.done(stage)
            }
        )

    def _take(self, parts):
        """Replace parts, a dict by name; parts that were frozen stay so."""
        with unlocked(self) as forget:
            was_built, self.built = self.built, False
            for name, new in parts.items():
                former = keras.tree.flatten(getattr(self, name))
                for part in former:
                    forget(part)
                setattr(self, name, new)
                for one, other in zip(former, keras.tree.flatten(new)):
                    if one is not None and type(one) is type(other):
                        copy_trainable(one, other)
            self.built = was_built

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
        """Train all parts of the model on images, from their present weights.

        A model without trained parts starts anew, and `reset` makes it so. Parts with `trainable`
        set to False, and those that the constructor was given, stay as they are. An interrupted
        training goes on if the same call is repeated.

        Args:
            x: Images: array (N, H, W) or (N, H, W, C), uint8 or floats in [0, 1]; or a
                `tf.data.Dataset`, `PyDataset` or generator that ends, which is read into memory.
            y: Labels, or None: integers or strings (N,), zeros and ones with a column for each
                class, or K labels an image, (N, K). Only classifiers use them. The labels that
                occur are numbered in their order.
            epochs: int, epochs of every part. None: as the settings say. In a folder with a
                finished training, more epochs go on from there.
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
                resumes an interrupted training, also in another process. None: a temporary folder.

        Returns:
            Dict of `keras.callbacks.History` by stage, also kept as `model.history`.

        Raises:
            DataError: If the images have a wrong shape, type or range.
            ConfigError: If settings do not go together.
            RunFailed: If training diverges, or the folder belongs to another training.
        """
        settings = self.settings_of_fit(x.name if isinstance(x, ImageData) else "x")
        settings.set_all(epochs=epochs, batch_size=batch_size)
        given = (x, y, validation_data, validation_split, groups)

        def images():
            # Read when the run in the folder, if there is one, has said by which rules.
            data = image_data(*given, data_version=settings.data_version)
            return self.images_of_fit(data, settings)

        trained = fitting.Fit(self, settings)
        if not self.has_weights:
            self.reset()
        with trained.keeping_parts():
            run = trained.in_folder(folder, images, verbose, callbacks, distribution_of(self))
            found = type(self).from_parts(run)
            know_images(found, run.folder)
            self.adopt(found)
        self.history = fitting.histories(run)
        self._drop_unfinished()
        return self.history

    @property
    def histories(self):
        """Former name of `history`."""
        return self.history

    def settings_of_fit(self, name):
        """Return the settings of a training on images of a name; raise if there is none to do."""
        settings = self.settings.model_copy(deep=True)
        settings.take_images(name, ("image_size",))
        frozen = [stage for stage, part in self.stage_parts().items() if not part.trainable]
        if frozen and not self.has_weights:
            raise BadUse(
                f"The weights of {frozen[0]} are random, and its `trainable` is False: set its "
                "weights, or `trainable` to True."
            )
        starts, trained = self.starts(), [s for s in settings.stages if settings.trained(s)]
        if all(s in starts and not starts[s].trainable_variables for s in trained):
            raise BadUse("Nothing is left to train: `trainable` is False for all parts.")
        return settings

    def images_of_fit(self, data, settings):
        """Return `ImageData` for the training; raise if its images do not fit the model's parts."""
        shape = getattr(self, "image_shape", None)
        if shape is None and getattr(self, "autoencoder", None) is not None:
            shape = self.autoencoder.image_shape
        if not self.starts() or getattr(self, "any_size", False):
            return data
        if getattr(self.preparation, "resized_from", None) == data.image_shape[:2]:
            settings.image_size = shape[:2]
        size = settings.image_size or data.image_shape[:2]
        if shape != (*size, data.image_shape[2]):
            raise DataError(
                f"`x` must be images of the shape of this model's, {shape}. Received: "
                f"{data.image_shape}. After `reset()` it takes any."
            )
        return data

    def reset(self) -> None:
        """Forget all weights: the next `fit` starts anew, with the same settings.

        Example:

        >>> import keras_capsule_poe as kcp
        >>> model = kcp.load("mnist")
        >>> model.reset()
        >>> model.is_fitted, model.settings.encoder.capsules
        (False, 20)
        """
        self._unbuild()
        self._take(dict.fromkeys(self.PARTS))
        self.has_weights, self.preparation, self.class_names = True, None, None
        vars(self).pop("_graphs", None)
        self._drop_unfinished()

    def _unbuild(self):
        """Forget the variables that `build_parts` makes."""
        with unlocked(self) as forget:
            for variable in own_variables(self):
                forget(variable)
            self.built = False

    def _drop_unfinished(self):
        unfinished = vars(self).pop("_unfinished", None)
        if unfinished:
            unfinished.delete()

    def adopt(self, trained):
        """Take over the parts and weights of a trained model of this class."""
        is_new = not (self.is_fitted and self.built)
        if is_new:
            self._unbuild()
        self._take({name: getattr(trained, name) for name in self.PARTS})
        with unlocked(self):
            was_built, self.built = self.built, False
            self.assemble()
            self.built = was_built
        self.preparation, self.class_names = trained.preparation, trained.class_names
        if is_new:
            # Keras' own `export` reads the shape.
            self.build((None, *trained.image_shape))
        for mine, theirs in zip(self.variables, trained.variables):
            mine.assign(theirs)
        self.has_weights = True
        for name in ("_graphs", "modes"):
            vars(self).pop(name, None)

    def predict(self, x, *args, **kwargs):
        """Return the reconstructed images (N, H, W, C) of images, as `keras.Model.predict`."""
        self.check_fitted()
        if hasattr(x, "__array__") and not keras.ops.is_tensor(x):
            x = to_pixels(image_array(self.resized(x), self.image_shape))
        if is_tf_dataset(x):
            x = checked_dataset(x, bytes_too=True)
        with plain_errors(bytes_too=True):
            return super().predict(x, *args, **kwargs)


def is_settings(part):
    """Return whether the argument of a part is a dict of settings, not a part or its config."""
    return isinstance(part, dict) and "class_name" not in part


def kept_copy(name, part):
    """Return a copy of a trained part that `fit` keeps as it is."""
    if not part.built:
        raise BadUse(f"`{name}` must be a trained part. Received: {part.name!r}, without weights.")
    copy = deserialized(keras.saving.serialize_keras_object(part))
    copy.set_weights(part.get_weights())
    copy_trainable(part, copy)
    copy.trainable = False
    return copy


def flat_config(part):
    """Return the config of a Keras object and of those in it as one dict."""
    found = {}
    for name, value in part.get_config().items():
        if isinstance(value, dict) and "class_name" in value:
            found = {**value["config"], **found}
        else:
            found[name] = value
    return found


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
    explained = max(0.0, 1 - error)
    judged = ", hardly more than their mean does" if explained < 0.1 else ""
    return [f"{what} explain {explained:.0%} of the variance of held-out images{judged}."]


def accuracy_verdict(found):
    """Return a sentence on the accuracy in metrics, which may be that of guesses.

    >>> accuracy_verdict({"val_accuracy": 0.2, "val_images": 15, "val_guessing": 0.1})
    '20.0% of 15 held-out images are classified correctly, no more than guesses may be (10%).'
    """
    text, images = f"{found['val_accuracy']:.1%} of ", found.get("val_images")
    if images is None:
        # Runs of earlier versions.
        return f"{text}the held-out images are classified correctly."
    text, guess = (
        f"{text}{images:,} held-out images are classified correctly",
        found["val_guessing"],
    )
    if found["val_accuracy"] > guess + 2 * math.sqrt(guess * (1 - guess) / images):
        return f"{text}."
    return f"{text}, no more than guesses may be ({guess:.0%})."


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
    judged = ", hardly more than by chance" if found["purity"] < 1.5 / found["classes"] else ""
    return [
        f"{found['class_coverage']} of {found['classes']} classes are the most frequent class of a "
        f"capsule. {found['purity']:.0%} of a capsule's images are of one class on average{judged}."
    ]
