"""Classifiers of capsules: networks of settings, their training, and decoded class capsules."""

import dataclasses
import functools
import math
import random
from typing import Any, TypeVar

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Tensor
from keras_capsule_poe.core.arguments import image_shape_given
from keras_capsule_poe.core.labels import are_longest, winners
from keras_capsule_poe.core.numerics import compiled, one_of, real_number, whole_number
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse, DataError, listing
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.layers.capsules import CapsuleMask
from keras_capsule_poe.metrics import weights_of_images
from keras_capsule_poe.models.base.features import SHOWN, begin, load_model, save_model
from keras_capsule_poe.models.base.looking import Looking
from keras_capsule_poe.models.base.model import TrainedModel, accuracy_verdict, save_whole
from keras_capsule_poe.models.base.networks import (
    AUGMENTATIONS,
    Starts,
    baseline,
    examples,
    has_targets,
    optimizer,
    seen_shape,
)
from keras_capsule_poe.models.base.settings import WINDOWS
from keras_capsule_poe.models.base.supervised import (
    AT_ONCE,
    ClassAccuracy,
    Supervised,
    as_layer,
    class_labels,
)
from keras_capsule_poe.plotting import moved_capsule, named_rows
from keras_capsule_poe.training.optimizers import averaged
from keras_capsule_poe.training.precision import check_global_settings, policy
from keras_capsule_poe.training.sanity import no_better_than_commonest, warn

# Held-out images on which routing is measured after each epoch.
WATCHED = 128
# Values per dimension in a traversal: -0.25 to 0.25 in steps of 0.05, as in the paper.
STEPS = 11
Network = TypeVar("Network", bound="Classifier")


class Classifier(TrainedModel, Supervised):
    """Mixin for a `keras.Model` of class capsules, made of layers or of settings.

    A subclass sets `view`, `capsules` and `dim`, and calls `set_decoder`. Its methods are those
    that raise `NotImplementedError` here.
    """

    # A traversal zeroes all other capsules and adds up to SPAN to one value.
    CODES, SPAN = "alone", 0.25
    SHARED = {"encode": ("images",)}
    LOSS = "class_loss"

    # Networks of settings

    @classmethod
    def network(cls, settings, image_shape, view, dtype, starts):
        """Return the capsule network of settings for images (H, W, C), not built."""
        raise NotImplementedError

    @classmethod
    def baseline_layers(cls, net, view, dtype, starts):
        """Return the layers from images to features (B, F) of the baseline."""
        raise NotImplementedError

    @classmethod
    def of_shape(cls, settings, image_shape, dtype=None):
        """Return the network of settings for images (H, W, C), built but not compiled.

        It is a `ConvClassifier` if the settings are those of the baseline.
        """
        settings.check(image_shape)
        net, view = settings.net, None
        if net.augmentation in WINDOWS:
            size, _ = WINDOWS[net.augmentation]
            view = keras.layers.CenterCrop(size, size, data_format="channels_last", dtype="float32")
        make = cls.network if net.network == "capsules" else functools.partial(baseline, cls)
        dtype = dtype or policy(settings.compute.precision)
        starts = Starts(net.initializer, settings.seed)
        model = make(settings, tuple(image_shape), view, dtype, starts)
        model.build()
        return model

    @classmethod
    def from_recipe(
        cls: type[Network], name: str, input_shape: tuple[int, int, int], classes: int
    ) -> Network:
        """Create the network of a preset, to be compiled and trained by Keras.

        `capspoe train` trains it with the preset's augmentation and learning rates, too.

        Args:
            name: str, a preset of capsules, such as `"small"` or `"paper"`.
            input_shape: Tuple (H, W, C), shape of the images.
            classes: int, number of classes J.

        Returns:
            Network of this class, built but not compiled.

        Raises:
            ValueError: If an argument is invalid or the images are too small.
            ConfigError: If Keras' global settings do not allow training.

        Example:

        >>> from keras_capsule_poe import CapsNet
        >>> model = CapsNet.from_recipe("small", (20, 20, 1), classes=3)
        >>> model.compile("adam")
        >>> images = np.random.default_rng(0).uniform(size=(6, 20, 20, 1))
        >>> history = model.fit(images, np.arange(6) % 3, verbose=0)
        >>> model.predict(images, verbose=0).shape
        (6, 3)
        """
        check_global_settings(policy=False)
        every = {name: cls.SETTINGS(name) for name in cls.SETTINGS.PRESETS}
        names = tuple(name for name in every if every[name].net.network == "capsules")
        settings = every[one_of("name", name, names)]
        settings.net.classes = whole_number("classes", classes)
        # As initializers of Keras do without a seed: `keras.utils.set_random_seed` repeats it.
        settings.seed = random.randint(1, 10**9)
        # As for other Keras models, the global policy decides, not the precision of settings.
        dtype = keras.config.dtype_policy().name
        return cls.of_shape(settings, image_shape_given("input_shape", input_shape), dtype)

    # Training

    def begin(self, arguments, preset, settings):
        """Initialize from the constructor's arguments; return whether they are layers.

        Without layers, arguments are settings of the same name, such as decoder="none".
        """
        settings = dict(settings)
        saved = settings.pop("settings", None)
        layers = [arguments[name] for name in self.NEEDED]
        has_layers = any(layer is not None for layer in layers)
        # Layers have a dtype of their own, and Keras' way with random weights.
        self._start_keras(settings, has_layers)
        self.has_weights = saved is None or not any(isinstance(part, dict) for part in layers)
        if not has_layers:
            given = {name: value for name, value in arguments.items() if value is not None}
            self._set_settings(saved, preset, {**given, **settings})
            for name in self.PARTS:
                setattr(self, name, None)
            self.set_decoder()
        elif preset or settings:
            raise TypeError(
                f"{type(self).__name__} takes layers or settings. Received: both, with the "
                f"settings {', '.join(settings) or preset}."
            )
        else:
            self.settings = self.SETTINGS.from_dict(saved) if saved else None
        return has_layers

    def fit(self: Any, x: Any = None, y: Any = None, *args: Any, **options: Any) -> Any:
        """Train on labelled images: by Keras if the model is made of layers, or is compiled.

        A model of settings is trained as by `capspoe train`, with the augmentation and learning
        rates of the settings, from its present weights. `reset` makes it start anew.

        Args:
            x: Images (N, H, W, C), pixels in `[0, 1]` or bytes of dtype uint8, or a
                `tf.data.Dataset` with labels.
            y: Integers (N,) or (N, 1), or for Keras also what `Supervised.fit` takes.
            *args: Further arguments of `keras.Model.fit`.
            **options: Further arguments of `keras.Model.fit`; or without `compile` those of
                `ProductOfExpertCapsules.fit`, such as `folder`, where an interrupted training goes
                on.

        Returns:
            `keras.callbacks.History`; without `compile` a dict of it by stage.

        Raises:
            ValueError: If labels are missing or images have wrong shapes or values.
            RunFailed: If training diverges, or the folder belongs to another training.
        """
        if self.settings is None or self.compiled:
            return Supervised.fit(self, x, y, *args, **options)
        if self.settings.net.network != "capsules":
            raise BadUse(
                f"A {type(self).__name__} has capsules: train the baseline by "
                "`keras_capsule_poe.training.train(model, folder)`. Received: network='cnn'"
            )
        return TrainedModel.fit(self, x, y, *args, **options)

    def compile(self, *args, **kwargs):
        """Configure training by Keras, see `Supervised.compile`."""
        self.need_parts()
        Supervised.compile(self, *args, **kwargs)

    def predict(self, x, *args, **kwargs):
        return Supervised.predict(self, x, *args, **kwargs)

    def make_train_function(self, force=False):
        # Keras trains it: its weights are no longer those of a mere copy.
        self.has_weights = True
        return super().make_train_function(force)

    def stage_parts(self, settings=None):
        return {(settings or self.settings).stage: self} if self.has_parts else {}

    @classmethod
    def part_of(cls, run, stage):
        return load_model(run, stage)

    def settings_of_fit(self, name):
        settings = super().settings_of_fit(name)
        if self.is_fitted:
            # A trained network keeps its class capsules.
            settings.given.add(f"{settings.stage}.classes")
        return settings

    def images_of_fit(self, data, settings):
        data = super().images_of_fit(data, settings)
        if not self.is_fitted:
            return data
        return with_classes(data, self.class_names, self.settings.net.classes)

    def reset(self):
        if self.settings is None:
            raise BadUse("A network of layers has no settings to start anew from. Make a new one.")
        super().reset()
        self.compiled, self.image_shape = False, (None, None, None)

    def adopt(self, trained):
        self.set_image_shape(trained.image_shape)
        self.reconstruction_weight = trained.reconstruction_weight
        self.settings.net.classes = trained.settings.net.classes
        super().adopt(trained)

    def train_parts(self, run):
        """Train the network on labelled images, then write it.

        1. The network learns by the loss of its classes and by the squared error of the image that
           its decoder makes from the capsules of the labels, by backpropagation.
        2. The model is written for Keras and as a SavedModel, in float32.
        """
        run.part(run.settings.stage, self.train_network)
        run.part("export", self.export_network)

    @classmethod
    def from_parts(cls, run):
        return cls._in_float32(run, load_model(run, run.settings.stage))

    @classmethod
    def _in_float32(cls, run, trained):
        # Also after training in bfloat16.
        model = cls.of_shape(run.settings, trained.image_shape, dtype="float32")
        model.set_weights(trained.get_weights())
        if isinstance(model, cls):
            model.settings = run.settings
        return model

    @classmethod
    def callbacks(cls, settings, model, steps):
        """Return the Keras callbacks for a training of `steps` steps."""
        return []

    @classmethod
    def train_network(cls, run):
        """Train the network of a run's settings and return the metrics of the last epoch."""
        settings, data, stage = run.settings, run.data, run.settings.stage
        net, labels = settings.net, data.held_out.labels
        keras.utils.set_random_seed(settings.seed)
        model = cls.of_shape(settings, data.image_shape)
        begin(run, stage, model)
        # XLA makes convolutions several times slower on a CPU.
        model.compile(optimizer(net, len(data.train)), jit_compile=False)
        model.microbatch = settings.compute.microbatch
        augment = AUGMENTATIONS[net.augmentation]
        if augment is not None and has_targets(data.train):
            run.reporter.note(
                "Images of several are not augmented: they are composed anew each epoch."
            )
            augment = None
        judge = _judge(model, data.held_out, labels, net.classes)
        changes = _logit_changes(model, data.held_out.head(WATCHED).images)

        def after_epoch():
            with averaged(model):
                probabilities, loss = judge()
                found = are_longest(probabilities, labels)
                accuracy = np.mean(found.reshape(len(labels), -1).all(axis=1))
                return {"val_loss": loss, "val_accuracy": accuracy, **changes()}

        def picture(path):
            with averaged(model):
                save_grid(path, _reconstructions(model, data.held_out))

        def whole():
            with averaged(model):
                return cls._in_float32(run, model)

        def is_enough(metrics):
            return metrics["val_accuracy"] >= (net.until_accuracy or math.inf)

        last = run.fit(
            stage,
            model,
            lambda **order: examples(data.train, net.classes, augment=augment, **order),
            net.schedule,
            after_epoch,
            picture if "reconstruct" in model.ENDPOINTS else None,
            until=is_enough,
            callbacks=cls.callbacks(settings, model, settings.steps(len(data.train))[stage]),
            whole=whole,
        )
        with averaged(model):
            save_model(run, stage, model)
        found = no_better_than_commonest(labels, last["val_accuracy"])
        ways = math.comb(net.classes, labels.size // len(labels))
        judged = {"val_images": len(labels), "val_guessing": 1 / ways}
        return {**last, **judged, **warn(run, stage, found)}

    @classmethod
    def export_network(cls, run):
        """Write the model for Keras and as a SavedModel, and draw reconstructions."""
        model = cls.from_parts(run)
        version = save_whole(run, model)
        if "reconstruct" in model.ENDPOINTS:
            held_out = run.data.held_out
            save_grid(run.path("reconstructions.png"), _reconstructions(model, held_out))
            moved, _, _ = moved_capsule(model, None, held_out.images[:1], span=model.SPAN)
            save_grid(run.path("traverse.png"), moved)
        return {"saved_model": version}

    @classmethod
    def outline(cls, settings, image_shape):
        model = cls.of_shape(settings, image_shape)
        shapes = {"image": tuple(image_shape)}
        if not isinstance(model, cls):
            shapes["classes"] = (settings.net.classes,)
            return shapes, {"network": model.count_params()}
        seen = seen_shape(model.view, model.image_shape)
        if model.view is not None:
            shapes["window"] = seen
        more, parts = model.described(seen)
        counts = {name: part.count_params() for name, part in parts.items() if part is not None}
        return shapes | more, counts

    def described(self, seen):
        """Return the shapes of capsules of images (H, W, C), and the layers to count, by name."""
        raise NotImplementedError

    @staticmethod
    def verdict(metrics):
        found = metrics.values()
        return [accuracy_verdict(each) for each in found if each.get("val_accuracy") is not None]

    # Class capsules

    def found(self, outputs):
        """Return capsules (B, J, E) and probabilities (B, J) from the outputs of `call`."""
        raise NotImplementedError

    def class_loss(self, labels, probabilities, sample_weight=None):
        """Return the scalar loss of probabilities (B, J) for labels (B, J)."""
        raise NotImplementedError

    def set_decoder(self, decoder=None, image_shape=None, reconstruction_weight=None):
        """Set these attributes from arguments, and create the mask and the metrics."""
        self.decoder, self.error_tracker = as_layer("decoder", decoder, optional=True), None
        if self.has_parts:
            self.set_image_shape(image_shape)
        if reconstruction_weight is None:
            reconstruction_weight = 0.0005
        self.reconstruction_weight = real_number("reconstruction_weight", reconstruction_weight)
        self.mask = CapsuleMask(dtype="float32")
        self.accuracy_tracker = ClassAccuracy(name="accuracy")
        self.loss_of_classes = keras.metrics.Mean(name=self.LOSS)
        self.assemble()

    def assemble(self):
        if self.decoder is not None and self.error_tracker is None:
            self.error_tracker = keras.metrics.Mean(name="squared_error")

    @property
    def WHOLE(self):
        """Stage in which the model is whole: it has one."""
        return self.settings.stage

    @property
    def ENDPOINTS(self):
        """SavedModel endpoints; those that return images need a decoder."""
        names = ("classify", "encode")
        more = () if self.decoder is None else ("reconstruct", "traverse")
        return {name: ("images",) for name in (*names, *more)}

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        self.check_compiled()
        capsules, probabilities = self.found(y_pred)
        labels, targets, parts = _parted(x, y, probabilities)
        loss = self.whole_loss(self.class_loss(labels, probabilities, sample_weight))
        number = ops.shape(labels)[0]
        self.loss_of_classes.update_state(loss, number)
        if self.decoder is not None:
            error = 0.0
            for part in range(targets.shape[1]):
                images = self.decoder(self.mask(capsules, parts[:, part]), training=training)
                target = self._seen(targets[:, part])
                gap = ops.cast(images, "float32") - ops.cast(target, "float32")
                squared = ops.sum(ops.square(gap), axis=(1, 2, 3))
                error = error + ops.mean(weights_of_images(sample_weight, "float32") * squared)
            self.error_tracker.update_state(error, number)
            loss = loss + self.reconstruction_weight * error
        return loss + sum(self.losses) if self.losses else loss

    def class_probabilities(self, outputs):
        return self.found(outputs)[1]

    def encode(self: Any, images: Any) -> dict[str, Tensor]:
        """Return a dict with class `capsules` (B, J, E) and their `probabilities` (B, J).

        Images may be files, see `CapsuleClassifier.classify`.
        """

        def encoded(images):
            capsules, probabilities = self.found(self(images, training=False))
            return {"capsules": capsules, "probabilities": probabilities}

        return self.in_parts(encoded, images)

    def classify(self, images: Any) -> dict[str, Any]:
        """Return class `probabilities` (B, J) and the most probable of `classes` (B,), a dict.

        Images may be files, see `CapsuleClassifier.classify`.
        """
        probabilities = self.encode(images)["probabilities"]
        found = {"probabilities": probabilities, "classes": winners(probabilities)}
        return self.named(found, images)

    directions = Looking.directions

    def render(self, capsules: Tensor) -> dict[str, Tensor]:
        """Return a dict with the `images` (B, H, W, C) decoded from capsules (B, J, E)."""
        return {"images": ops.cast(self._decoder(capsules, training=False), "float32")}

    def reconstruct(self: Any, images: Tensor) -> dict[str, Tensor]:
        """Decode each image from its most probable capsule alone."""

        def reconstructed(images):
            capsules, classes = self._most_probable(images)
            return self.render(self.mask(capsules, ops.one_hot(classes, self.capsules)))

        return self.in_parts(reconstructed, images)

    def _most_probable(self, images):
        """Return capsules (B, J, E) and the index (B,) of the most probable one."""
        encoded = self.encode(images)
        return encoded["capsules"], winners(encoded["probabilities"])

    def reconstructions(self, images):
        """Return the pair (decoded, original) of images as `longest_capsule`."""
        return {"longest_capsule": (self.reconstruct(images)["images"], self._seen(images))}

    def traverse(self, images):
        """Vary each dimension of each image's most probable capsule, as Sabour et al. (Figure 4).

        Returns:
            Dict with the decoded `images` (B, E, 11, H, W, C), one row per dimension, offset by
            -0.25 to 0.25, and `classes` (B,), the index of the capsule.
        """
        # Each image gives an image for each step of each dimension.
        return self.in_parts(self._traversed, images, max(1, AT_ONCE // (self.dim * STEPS)))

    def _traversed(self, images):
        (capsules, chosen), dim = self._most_probable(images), self.dim
        moves = np.linspace(-self.SPAN, self.SPAN, STEPS, dtype="float32")
        moves = ops.convert_to_tensor(np.eye(dim, dtype="float32")[:, None] * moves[:, None])
        moved = capsules[:, None, None] + moves[None, :, :, None]
        codes = self.mask(
            ops.reshape(moved, (-1, self.capsules, dim)),
            ops.repeat(ops.one_hot(chosen, self.capsules), dim * STEPS, axis=0),
        )
        shown = self.render(codes)["images"]
        shape = (-1, dim, STEPS, *shown.shape[1:])
        return {"images": ops.reshape(shown, shape), "classes": chosen}

    def get_config(self):
        config = Supervised.get_config(self)
        if self.settings is not None:
            config["settings"] = self.saved_settings()
        if not self.is_fitted:
            return config
        return {
            **config,
            "image_shape": self.image_shape,
            "decoder": keras.saving.serialize_keras_object(self.decoder),
            "reconstruction_weight": self.reconstruction_weight,
            "view": keras.saving.serialize_keras_object(self.view),
        }

    def _seen(self, images):
        images = self.pixels(images)
        return images if self.view is None else self.view(images)

    @property
    def _decoder(self):
        if self.decoder is None:
            raise BadUse("A network without a decoder makes no images. Received: decoder=None")
        return self.decoder


def with_classes(data, names, classes):
    """Return `ImageData` with the class numbers of a network that knows classes by name, or not.

    Other labels may be these numbers.
    """
    own, known = data.train.class_names, list(names or ())
    if own is None or list(own) == known:
        return data
    numbers = [known.index(name) for name in own if name in known]
    if not numbers:
        numbers = [int(name) for name in own if name.isdecimal() and int(name) < classes]
    if len(numbers) < len(own):
        if not known and len(own) <= classes:
            return data
        raise DataError(
            f"labels must be of the classes of this model, {listing(known or range(classes))}. "
            f"Received: {listing(own)}. After `reset()` it takes any."
        )

    def renumbered(images):
        labels = np.where(images.labels < 0, -1, np.take(numbers, images.labels))
        return dataclasses.replace(images, labels=labels, class_names=names)

    parts = {name: renumbered(getattr(data, name)) for name in ("train", "held_out")}
    return dataclasses.replace(data, **parts, test=parts["held_out"])


def _parted(x, y, probabilities):
    """Return labels (B, J), targets (B, T, H, W, C) and labels (B, T, J) of the parts."""
    labels = class_labels(y, probabilities)
    if isinstance(y, (tuple, list)):
        return labels, *y[1:]
    return labels, ops.convert_to_tensor(x)[:, None], labels[:, None]


def _judge(model, images, labels, classes):
    """Return a function that measures class probabilities (N, J) and the mean loss of images."""
    rows = images.epoch(0, 0)(np.arange(len(images)))
    parts = np.eye(classes, dtype="float32")[labels]
    whole = parts if labels.ndim == 1 else parts.max(axis=1)
    given = (whole, rows["targets"], parts) if "targets" in rows else (whole,)

    def judged(images, *labels):
        outputs = model(images, training=False)
        y = labels if len(labels) > 1 else labels[0]
        loss = model.compute_loss(images, y, outputs, training=False)
        loss = ops.broadcast_to(ops.cast(loss, "float32"), ops.shape(images)[:1])
        return {"probabilities": model.class_probabilities(outputs), "loss": loss}

    graph = compiled(judged)

    def judge():
        found = map_batches(graph, (rows["images"], *given))
        return found["probabilities"], found["loss"].mean()

    return judge


def _logit_changes(model, images):
    """Return a function that measures each routing iteration's change of the logits."""
    if model.routing_iterations == 1:
        return dict
    # Sabour et al. (2017), Appendix A. A few images keep this cheap.
    changes = compiled(model.coupling_changes)

    def measured():
        means = map_batches(changes, images).mean(axis=0)
        return {f"logit_change_{t + 1}": mean for t, mean in enumerate(means)}

    return measured


def _reconstructions(model, images):
    """Return rows of images and of reconstructions; for composed images, one row per part."""
    _, rows = named_rows(model, images.head(SHOWN))
    return list(rows.values())
