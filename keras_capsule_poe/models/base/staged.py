"""Image models that `fit` trains from images without labels, stage by stage."""

import tempfile
import warnings
from pathlib import Path
from typing import Any

import keras

from keras_capsule_poe.data.arrays import image_array, image_data
from keras_capsule_poe.data.image_set import ImageData
from keras_capsule_poe.data.mapping import to_pixels
from keras_capsule_poe.errors import BadUse, ConfigError, TrainingWarning
from keras_capsule_poe.models.base.protocols import deserialized
from keras_capsule_poe.training.config import RunConfig
from keras_capsule_poe.training.progress import Reporter, quiet
from keras_capsule_poe.training.run import train

# Arguments of `keras.Model`.
_OF_KERAS = ("name", "trainable", "dtype")


class StagedModel:
    """Mixin for a `keras.Model` whose parts are trained one after another.

    A model that is made without parts holds settings. `fit` trains the parts with the engine of
    `capspoe train`, so that equal settings, images and seeds give equal weights.
    """

    # The `Family` whose stages train the model.
    FAMILY: Any = None
    # Constructor arguments that are Keras objects; a model with any of NEEDED has all of these.
    PARTS: tuple[str, ...] = ()
    NEEDED: tuple[str, ...] = ()
    recipe: str | None = None
    settings: dict[str, Any] = {}

    def start(self, parts, recipe, settings):
        """Initialize the model from its constructor's arguments; return whether it has parts."""
        settings = dict(settings)
        of_keras = {name: settings.pop(name) for name in _OF_KERAS if name in settings}
        super().__init__(**of_keras)
        for name, part in parts.items():
            # A serialized part has a class; other dicts are settings of the section.
            if isinstance(part, dict) and "class_name" not in part:
                settings[name], part = part, None
            setattr(self, name, deserialized(part))
        lacking = [name for name in self.NEEDED if parts[name] is None or name in settings]
        if not lacking:
            if settings or recipe:
                raise TypeError(
                    f"{type(self).__name__} takes settings or trained parts. Received: both, "
                    f"{', '.join([*(['recipe'] if recipe else []), *settings])}."
                )
            return True
        if any(isinstance(getattr(self, name), keras.layers.Layer) for name in self.NEEDED):
            raise TypeError(
                f"{type(self).__name__} needs all of its parts {', '.join(self.NEEDED)}, or none. "
                f"Received: no {', '.join(lacking)}."
            )
        self.recipe, self.settings = recipe, settings
        # Names and types are checked here, values by `fit`.
        run_config(self.FAMILY, recipe, settings)
        return False

    @property
    def is_fitted(self):
        """True if the model has its parts."""
        return getattr(self, self.NEEDED[0], None) is not None

    def get_config(self):
        parts = {name: getattr(self, name) for name in self.PARTS}
        kept = {name: keras.saving.serialize_keras_object(part) for name, part in parts.items()}
        if self.is_fitted:
            return {**super().get_config(), **kept}
        return {**super().get_config(), **kept, **self.settings, "recipe": self.recipe}

    def build(self, input_shape=None):
        self.check_fitted()
        self.build_parts(input_shape)
        self.built = True

    def check_fitted(self):
        """Raise `BadUse` unless the model has its parts."""
        if not self.is_fitted:
            name = type(self).__name__
            raise BadUse(
                f"This {name} is not trained yet. Call `fit(images)` first, or load a trained "
                "model with `keras_capsule_poe.load`."
            )

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
        folder: str | Path | None = None,
    ) -> dict[str, Any]:
        """Train all stages of the model on images. A fitted model is trained from scratch.

        Args:
            x: Images: array (N, H, W) or (N, H, W, C), uint8 or floats in [0, 1], or a
                `tf.data.Dataset` of images, which is read into memory.
            y: Labels (N,), or None. Training does not use them.
            epochs: int, epochs of every stage. None: as the recipe says.
            batch_size: int, batch size of every stage. None: as the recipe says.
            verbose: `0` silent, `1` one line of progress, `2` one line per epoch, `"auto"`: 1 in a
                terminal or a notebook, else 2.
            callbacks: List of Keras callbacks. Each stage calls them with its own model.
            validation_split: float in (0, 1), fraction of the images, the last ones, that only
                monitors training. None: 5%, at most 1000.
            validation_data: Images that only monitor training, in place of `validation_split`.
            folder: Path for checkpoints and all results, as those of `capspoe train`. The same call
                resumes an interrupted training. None: a temporary folder.

        Returns:
            Dict of `keras.callbacks.History` by stage, also kept as `histories`.

        Raises:
            DataError: If the images have a wrong shape, type or range.
            ConfigError: If a setting is out of range.
            RunFailed: If training diverges, or the folder belongs to another training.
        """
        data = x if isinstance(x, ImageData) else None
        if data is None:
            data = image_data(x, y, validation_data, validation_split)
        of_all = {"epochs": epochs, "batch_size": batch_size}
        config = run_config(self.FAMILY, self.recipe, self.settings, of_all)
        config.set("dataset", data.name)
        trained, histories = train_model(config, lambda: data, folder, verbose, callbacks)
        self.adopt(trained)
        self.histories = histories
        return histories

    def adopt(self, trained):
        """Become a trained model of this class, under the name and settings of this one."""
        kept = {name: getattr(self, name) for name in ("name", "recipe", "settings")}
        # Keras allows no new parts in a built model, so the state of the trained one is shared.
        object.__setattr__(self, "__dict__", trained.__dict__)
        self._name, self.recipe, self.settings = kept.values()

    def predict(self, x, *args, **kwargs):
        """Return the reconstructed images (N, H, W, C) of images, as `keras.Model.predict`."""
        self.check_fitted()
        if hasattr(x, "__array__") and not keras.ops.is_tensor(x):
            x = to_pixels(image_array(x, self.image_shape))
        return super().predict(x, *args, **kwargs)


def run_config(family, recipe, settings, of_all=None):
    """Return the `RunConfig` of settings by name.

    A name is that of a run setting (`seed`), of a section (`encoder={"steps": 450}`), or of a
    setting that only one section has (`routing_iterations=2` if no other section has it).
    """
    config = RunConfig(family, recipe)
    places = {}
    for section, values in config.sections.items():
        for key in vars(values):
            places.setdefault(key, []).append(f"{section}.{key}")
    short = {name.replace("-", "_"): place for name, place in family.options.items()}
    for name, value in settings.items():
        known = [short[name]] if name in short else places.get(name, [])
        if name in vars(config.settings) or name in config.sections or "." in name:
            config.set(name, value)
        elif len(known) == 1:
            config.set(known[0], value)
        elif known:
            listed = ", ".join(f"{place.split('.')[0]}={{{name!r}: ...}}" for place in known)
            raise ConfigError(f"`{name}` is a setting of several parts. Give one of {listed}.")
        else:
            listed = ", ".join([*vars(config.settings), *short, *config.sections])
            raise ConfigError(f"There is no setting `{name}`. Known are: {listed}.")
    for key, value in (of_all or {}).items():
        if value is None:
            continue
        for section in dict.fromkeys(stage.section for stage in config.stages if stage.section):
            if hasattr(config[section], key):
                config.set(f"{section}.{key}", value)
    return config


def train_model(config, load_data, folder=None, verbose="auto", callbacks=()):
    """Train a model and return it with a dict of `keras.callbacks.History` by stage.

    Without a folder nothing is exported, and all files are temporary.
    """
    reporter = Reporter(verbose, callbacks=callbacks or (), notes=False)
    family = config.family

    with tempfile.TemporaryDirectory(prefix="keras-capsule-poe-") as temporary:
        # The last stage exports files that nobody reads from a temporary folder.
        last = None if folder or family.assemble is None else config.stages[-2].name
        with reporter, quiet():
            run = train(config, folder or temporary, load_data, reporter, stage=last)
        trained = family.load(run.path("model.keras")) if last is None else family.assemble(run)
        stages = [stage for stage in config.stages if stage.section]
        histories = {stage.name: _history(run.folder.history(stage)) for stage in stages}
        for stage in stages:
            for line in run.folder.done(stage.name)["metrics"].get("complaints", ()):
                warnings.warn(f"{stage.name}: {line}", TrainingWarning, stacklevel=3)
    return trained, {name: found for name, found in histories.items() if found.epoch}


def _history(epochs):
    """Return the `History` of a list of metrics per epoch."""
    history = keras.callbacks.History()
    history.epoch = [epoch["epoch"] - 1 for epoch in epochs]
    names = dict.fromkeys(name for epoch in epochs for name in epoch if name != "epoch")
    history.history = {name: [epoch.get(name) for epoch in epochs] for name in names}
    return history
