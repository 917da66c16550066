"""Training and export of classifiers. A stage takes a `Run`, writes files and returns metrics."""

import math

import keras
import numpy as np

from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.families.classifiers import fitting
from keras_capsule_poe.families.classifiers.examples import class_labels, examples, has_targets
from keras_capsule_poe.families.classifiers.windows import augmentation
from keras_capsule_poe.families.features import stored
from keras_capsule_poe.families.saved import save_whole
from keras_capsule_poe.functions.compiled import compiled
from keras_capsule_poe.functions.winners import are_longest
from keras_capsule_poe.generation.grids import image_traversal
from keras_capsule_poe.generation.parts import named_rows
from keras_capsule_poe.io.pictures import save_grid
from keras_capsule_poe.training.averages import averaged
from keras_capsule_poe.training.soundness import complain, no_better_than_commonest

SHOWN = 12
# Held-out images on which routing is measured after each epoch.
WATCHED = 128


def train(run, stage, build, callbacks=None):
    """Train a classifier and return the metrics of the last epoch."""
    config, data = run.config, run.data
    net, schedule = config[stage], fitting.schedule(config[stage])
    labels = class_labels(data.held_out, net.classes, stage)
    keras.utils.set_random_seed(config.seed)
    model = build.build_model(config, data.image_shape)
    # XLA makes convolutions several times slower on a CPU.
    model.compile(fitting.optimizer(net, len(data.train)), jit_compile=False)
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
        schedule,
        after_epoch,
        picture if _makes_images(model) else None,
        until=_enough(net.until_accuracy),
        callbacks=callbacks(model, math.prod(schedule.over(len(data.train)))) if callbacks else (),
    )
    with averaged(model):
        stored.save_model(run, stage, model)
    found = no_better_than_commonest(labels, last["held_out_accuracy"])
    return {**last, **complain(run, stage, found)}


def export(run, stage, build):
    """Export the model for Keras and as a SavedModel, and draw reconstructions."""
    trained = stored.load_model(run, stage)
    # The exported model computes in float32, also after training in bfloat16.
    model = build.build_model(run.config, run.data.image_shape, dtype="float32")
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
    if not model.iterations:
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
