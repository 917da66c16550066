"""Building, training and export of the classifier families."""

import functools
import math

import keras
import numpy as np
from keras import ops

from keras_capsule_poe.core.numerics import compiled, one_of, real_number, whole_number
from keras_capsule_poe.core.routing import are_longest
from keras_capsule_poe.data import stream
from keras_capsule_poe.data.augmentation import cifar, efficient, flip, norb, shift
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.data.streams import AHEAD
from keras_capsule_poe.errors import ConfigError, DataError, in_section
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.models.base import feature_files as stored
from keras_capsule_poe.models.base.classifiers import ConvClassifier
from keras_capsule_poe.models.base.saved import save_whole
from keras_capsule_poe.plotting import image_traversal, named_rows
from keras_capsule_poe.training.family import Schedule
from keras_capsule_poe.training.optimizers import (
    AveragedAdam,
    AveragedMuon,
    ConvolutionMuon,
    averaged,
)
from keras_capsule_poe.training.precision import policy
from keras_capsule_poe.training.sanity import no_better_than_commonest, warn

# Crops, random in training and central in evaluation: (function, window size, required image
# size or None).
WINDOWS = {"cifar": (cifar, 24, None), "norb": (norb, 32, 48)}


def view_of(net, image_shape):
    """Return the layer that crops images (H, W, C) to the network's window, or None."""
    if net.augmentation not in WINDOWS:
        return None
    _, size, whole = WINDOWS[net.augmentation]
    height, width = image_shape[:2]
    if min(height, width) < size or (whole and (height, width) != (whole, whole)):
        wanted = f"{whole}x{whole}" if whole else f"at least {size}x{size}"
        raise ValueError(
            f"`augmentation` {net.augmentation!r} is for images of {wanted} pixels; `image_size` "
            f"resizes them. Received: {height}x{width}"
        )
    return keras.layers.CenterCrop(size, size, data_format="channels_last", dtype="float32")


def seen_shape(view, image_shape):
    """Return the shape of the image window that the network receives."""
    return image_shape if view is None else (view.height, view.width, image_shape[2])


def check_size(shape, least, what):
    """Raise `ValueError` if images of a shape (H, W, C) are too small."""
    if min(shape[:2]) < least:
        raise ValueError(
            f"images must be at least {least}x{least} pixels for {what}. "
            f"Received: {shape[0]}x{shape[1]}"
        )


def augmentation(net):
    """Return the augmentation function for `data.stream`, or None."""
    kind = one_of("augmentation", net.augmentation, net.CHOICES["augmentation"])
    if kind in WINDOWS:
        return functools.partial(_window, WINDOWS[kind][0])
    moved = functools.partial(shift, most=whole_number("shift", net.shift, least=0))
    return {"none": None, "shift": moved, "efficient": efficient, "flip": flip}[kind]


def _window(change, images, random):
    """Return augmented windows with 255 grey levels as 1; the network standardizes them."""
    return change(images, random, standardized=False) / 255


def smallest(net, least=0):
    """Return the minimum height and width of images in pixels, or None."""
    _, window, whole = WINDOWS.get(net.augmentation, (None, 0, 0))
    return max(least, whole or window) or None


def fitting_side(net):
    """Return an image height and width that the augmentation accepts."""
    return 48 if net.augmentation in WINDOWS else 28


@keras.saving.register_keras_serializable("keras_capsule_poe")
class FlooredDecay(keras.optimizers.schedules.ExponentialDecay):
    """Keras' `ExponentialDecay` with a lower bound `least`."""

    def __init__(self, initial_learning_rate, decay_steps, decay_rate, least=0.0, **kwargs):
        super().__init__(initial_learning_rate, decay_steps, decay_rate, **kwargs)
        self.least = least

    def __call__(self, step):
        return ops.maximum(super().__call__(step), self.least)

    def get_config(self):
        return {**super().get_config(), "least": self.least}


def falling(net, epochs, steps):
    """Return a section's learning-rate schedule for `epochs` epochs of `steps` steps."""
    first, least = net.first_rate, net.min_learning_rate
    by = steps if net.decay_steps is None else net.decay_steps
    for name, value, is_right in (
        ("learning_rate", first, first > 0),
        ("decay_rate", net.decay_rate, 0 < net.decay_rate <= 1),
        ("decay_steps", by, by >= 1),
    ):
        if not is_right:
            raise ValueError(f"`{name}` is out of range. Received: {name}={value!r}")
    if not 0 <= least <= first:
        raise ValueError(
            "`min_learning_rate` must lie between zero and the learning rate. "
            f"Received: min_learning_rate={least!r}, learning_rate={first!r}"
        )
    if (
        one_of("learning_rate_schedule", net.learning_rate_schedule, ("exponential", "cosine"))
        == "cosine"
    ):
        return keras.optimizers.schedules.CosineDecay(first, epochs * steps, alpha=least / first)
    return FlooredDecay(first, by, net.decay_rate, least)


INITIAL = ("glorot", "official", "he")


class Starts:
    """Initializers of a network's layers, each with a new seed."""

    def __init__(self, kind, seed):
        self._kind, self.seed = one_of("initializer", kind, INITIAL), seed

    def kernel(self, stddev):
        """Return a filter initializer; only the kind "official" uses `stddev`."""
        self.seed += 1
        if self._kind == "official":
            return keras.initializers.TruncatedNormal(stddev=stddev, seed=self.seed)
        known = {"glorot": keras.initializers.GlorotUniform, "he": keras.initializers.HeNormal}
        return known[self._kind](seed=self.seed)

    def kernels(self, stddev):
        """Return a filter initializer without a seed, so that several layers can share it."""
        start = self.kernel(stddev)
        return type(start).from_config({**start.get_config(), "seed": None})

    def bias(self):
        return keras.initializers.Constant(0.1 if self._kind == "official" else 0.0)

    def maps(self, stddev):
        """Return an initializer of prediction maps."""
        # Keras' fan-in rules do not fit their four axes.
        self.seed += 1
        return keras.initializers.TruncatedNormal(stddev=stddev, seed=self.seed)


def schedule(net):
    """Return the training `Schedule` of a section."""
    return Schedule(net.epochs, net.steps, net.batch_size)


def optimizer(net, images):
    """Return Adam or Muon with a learning-rate schedule, and a weight average if set."""
    made = {"adam": (keras.optimizers.Adam, AveragedAdam), "muon": (ConvolutionMuon, AveragedMuon)}
    plain, averaging = made[one_of("optimizer", net.optimizer, net.CHOICES["optimizer"])]
    rate, momentum = falling(net, *schedule(net).over(images)), net.ema_momentum
    if momentum is None:
        return plain(rate, epsilon=1e-8)
    if not 0 <= real_number("ema_momentum", momentum) < 1:
        raise ValueError(f"`ema_momentum` must lie in [0, 1). Received: {momentum}")
    return averaging(rate, epsilon=1e-8, use_ema=True, ema_momentum=momentum)


def build(config, section, makers, image_shape, dtype=None):
    """Return the model of a section, built but not compiled, by the maker of its `network`."""
    net = config[section]
    make = makers[one_of("network", net.network, net.CHOICES["network"])]
    starts = Starts(net.initializer, config.seed)
    view = view_of(net, image_shape)
    model = make(net, image_shape, view, dtype or policy(net.precision), starts)
    model.build()
    return model


def outline(config, section, model, describe):
    """Return two dicts for display, shapes and parameter counts; `describe` those of capsules."""
    shapes = {"image": tuple(model.image_shape)}
    if isinstance(model, ConvClassifier):
        return shapes | {"classes": (config[section].classes,)}, {"network": model.count_params()}
    seen = seen_shape(model.view, model.image_shape)
    if model.view is not None:
        shapes["window"] = seen
    more, parts = describe(model, seen)
    counts = {name: part.count_params() for name, part in parts.items() if part is not None}
    return shapes | more, counts


def check(config, section, build_model, image_shape=None):
    """Build the model to validate a section; raise `ConfigError` that names the section."""
    net = config[section]
    with in_section(section):
        augmentation(net)
        optimizer(net, images=1)
        side = fitting_side(net)
        build_model(config, image_shape or (side, side, 1)).microbatch = net.microbatch
        wanted = net.until_accuracy
        if wanted is not None and not 0 < real_number("until_accuracy", wanted) <= 1:
            raise ValueError(f"`until_accuracy` must lie in (0, 1]. Received: {wanted}")


def class_labels(images, classes, section):
    """Return the labels of an `ImageSet`; raise an error unless all lie in [0, `classes`)."""
    if images.labels is None:
        why = f": {images.unlabelled} is in no class folder" if images.unlabelled else ""
        raise DataError(
            f"A classifier needs images with labels. Received: images without labels{why}."
        )
    if images.labels.min() < 0:
        raise DataError("A classifier needs images that are all labelled. Received: a label -1")
    if images.labels.max() >= classes:
        raise ConfigError(
            f"{section}: `classes` must be at least {images.labels.max() + 1} for these labels. "
            f"Received: classes={classes}"
        )
    return images.labels


def has_targets(images):
    """Return whether the set has each part of an image separately, as MultiMNIST has."""
    return "targets" in images.epoch(0, 0)(np.arange(1))


def examples(images, classes, **order):
    """Return a `tf.data.Dataset` of images (B, H, W, C) and multi-hot labels (B, J)."""
    import tensorflow as tf

    names = ("images", "labels", "targets") if has_targets(images) else ("images", "labels")

    # With targets, the labels are (labels, targets (B, T, H, W, C), part labels (B, T, J)).
    # Such images must not be augmented: they would no longer match their targets.
    def hot(pixels, labels, *targets):
        parts = tf.one_hot(labels, classes)
        whole = parts if labels.shape.rank == 1 else tf.reduce_max(parts, axis=1)
        return pixels, (whole, *targets, parts) if targets else whole

    return stream(images, names, **order).map(hot, AHEAD)


SHOWN = 12
# Held-out images on which routing is measured after each epoch.
WATCHED = 128


def train(run, stage, build_model, callbacks=None):
    """Train a classifier and return the metrics of the last epoch."""
    config, data = run.config, run.data
    net, plan = config[stage], schedule(config[stage])
    labels = class_labels(data.held_out, net.classes, stage)
    keras.utils.set_random_seed(config.seed)
    model = build_model(config, data.image_shape)
    # XLA makes convolutions several times slower on a CPU.
    model.compile(optimizer(net, len(data.train)), jit_compile=False)
    model.microbatch = net.microbatch
    augment = augmentation(net)
    if augment is not None and has_targets(data.train):
        run.reporter.note("Images of several are not augmented: they are composed anew each epoch.")
        augment = None
    lengths = compiled(lambda images: model.classify(images)["probabilities"])
    changes = _logit_changes(model, data.held_out.head(WATCHED).images)

    def stream(**order):
        return examples(data.train, net.classes, augment=augment, **order)

    def after_epoch():
        with averaged(model):
            found = are_longest(map_batches(lengths, data.held_out.images), labels)
            accuracy = np.mean(found.reshape(len(labels), -1).all(axis=1))
            return {"held_out_accuracy": accuracy, **changes()}

    def picture(path):
        with averaged(model):
            save_grid(path, _reconstructions(model, data.held_out))

    last = run.fit(
        stage,
        model,
        stream,
        plan,
        after_epoch,
        picture if _makes_images(model) else None,
        until=_enough(net.until_accuracy),
        callbacks=callbacks(model, math.prod(plan.over(len(data.train)))) if callbacks else (),
    )
    with averaged(model):
        stored.save_model(run, stage, model)
    found = no_better_than_commonest(labels, last["held_out_accuracy"])
    return {**last, **warn(run, stage, found)}


def export(run, stage, build_model):
    """Export the model for Keras and as a SavedModel, and draw reconstructions."""
    trained = stored.load_model(run, stage)
    # The exported model computes in float32, also after training in bfloat16.
    model = build_model(run.config, run.data.image_shape, dtype="float32")
    model.set_weights(trained.get_weights())
    version = save_whole(run, model)
    if _makes_images(model):
        held_out = run.data.held_out
        save_grid(run.path("reconstructions.png"), _reconstructions(model, held_out))
        moved, _, _ = image_traversal(model, held_out.images[:1], span=model.SPAN)
        save_grid(run.path("traverse.png"), moved)
    return {"saved_model": version}


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


def _makes_images(model):
    return "reconstruct" in model.ENDPOINTS


def _enough(accuracy):
    """Return a stopping test for the held-out accuracy, or None."""
    if accuracy is None:
        return None
    return lambda metrics: metrics["held_out_accuracy"] >= accuracy


def _reconstructions(model, images):
    """Return rows of images and of reconstructions; for composed images, one row per part."""
    _, rows = named_rows(model, images.head(SHOWN))
    return list(rows.values())
