"""Pairs of test images side by side, for models trained on single images."""

import click


def side_by_side(model, data, folder):
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
