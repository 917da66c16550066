"""Images moved, turned, squeezed and erased at random, as they are streamed.

All that is drawn derives from the seed and the number of the step, so that a run that is resumed
sees what an uninterrupted one sees, and the same epoch of the same seed is the same images.
"""

import math

# Deviations of what is drawn: in shares of what is possible, and in units of these degrees.
DEVIATION, TURN = 0.33, 30.0
ERASED = 4


def augmented(stream, change, seed, first_step=0):
    """A stream whose images are changed at random, step by step.

    Args:
        stream: `tf.data.Dataset` of images (B, H, W, C), or of tuples that begin with them.
        change: Function of images and a pair of integers, its seed, to images.
        seed: int.
        first_step: int, the number of the stream's first step.

    Returns:
        `tf.data.Dataset`, otherwise the same.

    Examples:

    >>> import numpy as np
    >>> from keras_capsule_poe.data import batches
    >>> images = np.zeros((6, 8, 8, 1), np.uint8)
    >>> stream = augmented(batches(images, batch_size=4, seed=0), shifted, seed=0)
    >>> [tuple(batch.shape) for batch in stream]
    [(4, 8, 8, 1), (2, 8, 8, 1)]
    """
    import tensorflow as tf

    def changed(step, parts):
        pair = tf.stack([tf.constant(seed, tf.int64), step])
        if isinstance(parts, tuple):
            return (change(parts[0], pair), *parts[1:])
        return change(parts, pair)

    # A generator's length is lost in the numbering.
    length = stream.cardinality()
    numbered = stream.enumerate(start=first_step).map(changed, tf.data.AUTOTUNE, deterministic=True)
    return numbered.apply(tf.data.experimental.assert_cardinality(length)).prefetch(2)


def shifted(images, seed, most=2):
    """Each image moved by whole pixels, up to `most` down or up and as many across; zeros move in.

    Args:
        images: Tensor (B, H, W, C).
        seed: Pair of integers.
        most: int, pixels; all (2 most + 1)^2 moves are equally frequent.

    Returns:
        Tensor (B, H, W, C).

    Examples:

    >>> import numpy as np
    >>> shifted(np.ones((1, 4, 4, 1), "float32"), seed=(0, 0), most=0).numpy().sum()
    np.float32(16.0)

    Reference:

    - [Sabour et al., 2017](https://arxiv.org/abs/1710.09829), Section 5
    """
    import tensorflow as tf

    count = tf.shape(images)[0]
    moves = tf.random.stateless_uniform((count, 2), seed, -most, most + 1, tf.int32)
    return _moved(images, moves)


def distorted(images, seed):
    """Digits turned (half of them), moved inside their margins, squeezed, and erased in a place.

    The turn is normal, 30 degrees times 0.33 its deviation. A digit moves by whole pixels, by a
    half-normal share of what is free on the side that it moves to. Its width loses up to a
    quarter of the image's. At last a square of 4x4 pixels is made zero.

    Args:
        images: Tensor (B, H, W, C), ink on zeros.
        seed: Pair of integers.

    Returns:
        Tensor (B, H, W, C), in the range of the images.

    Examples:

    >>> import numpy as np
    >>> distorted(np.ones((2, 28, 28, 1), "float32"), seed=(0, 0)).shape
    TensorShape([2, 28, 28, 1])

    Reference:

    - [Mazzia et al., 2021](https://doi.org/10.1038/s41598-021-93977-0)
    """
    import tensorflow as tf

    turn, move, squeeze, place = tf.unstack(tf.random.experimental.stateless_split(seed, 4))
    images = turned(images, turn)
    images = _moved(images, _inside_margins(images, move))
    images = _squeezed(images, squeeze)
    return _erased(images, place)


def turned(images, seed):
    """Half of the images turned about their middle, by a normal angle; zeros fill the corners.

    Args:
        images: Tensor (B, H, W, C).
        seed: Pair of integers.

    Returns:
        Tensor (B, H, W, C), by bilinear interpolation.

    Examples:

    >>> import numpy as np
    >>> turned(np.ones((2, 8, 8, 1), "float32"), seed=(0, 0)).shape
    TensorShape([2, 8, 8, 1])
    """
    import tensorflow as tf

    seeds = tf.random.experimental.stateless_split(seed, 2)
    shape = tf.shape(images)[:1]
    angle = math.radians(TURN) * tf.random.stateless_normal(shape, seeds[0], stddev=DEVIATION)
    is_turned = tf.random.stateless_uniform(shape, seeds[1]) < 0.5
    angle = tf.where(is_turned, angle, 0.0)
    cos, sin = tf.cos(angle), tf.sin(angle)
    y, x = ((size - 1) / 2 for size in images.shape[1:3])
    # Where each pixel comes from: about the middle (x, y).
    rows = (cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y)
    return _transformed(images, rows)


def _inside_margins(images, seed):
    """Moves (B, 2) that keep all ink inside, towards either side, by half-normal shares."""
    import tensorflow as tf

    seeds = tf.random.experimental.stateless_split(seed, 2)
    count = tf.shape(images)[0]
    share = tf.abs(tf.random.stateless_normal((count, 2), seeds[0], stddev=DEVIATION))
    back = tf.random.stateless_uniform((count, 2), seeds[1]) < 0.5
    free = []
    for axis, size in ((2, images.shape[1]), (1, images.shape[2])):
        has_ink = tf.reduce_any(images > 0, axis=(axis, 3))
        first = tf.argmax(has_ink, axis=1, output_type=tf.int32)
        last = size - 1 - tf.argmax(has_ink[:, ::-1], axis=1, output_type=tf.int32)
        is_blank = tf.logical_not(tf.reduce_any(has_ink, axis=1))
        free.append(tf.where(is_blank[:, None], 0, tf.stack([first, size - 1 - last], axis=1)))
    free = tf.stack(free, axis=1)
    room = tf.cast(tf.where(back, free[:, :, 0], free[:, :, 1]), share.dtype)
    # A share of one, of the margin and a pixel more, would be a pixel too many.
    amount = tf.floor(tf.minimum(share, 0.9999) * (room + 1))
    return tf.cast(tf.where(back, -amount, amount), tf.int32)


def _squeezed(images, seed):
    """Images made narrower by one pixel to a quarter of the width, about in the middle."""
    import tensorflow as tf

    width, count = images.shape[2], tf.shape(images)[0]
    share = tf.abs(tf.random.stateless_normal((count, 2), seed, stddev=DEVIATION))
    share = tf.minimum(share, 0.9999)
    less = tf.floor(share[:, 0] * width / 4) + 1
    left = tf.floor(less / 2) + tf.floor(2 * share[:, 1])
    factor = width / (width - less)
    one, zero = tf.ones_like(less), tf.zeros_like(less)
    # Middles of pixels are half a pixel from their edges.
    start = (0.5 - left) * factor - 0.5
    return _transformed(images, (factor, zero, start, zero, one, zero))


def _erased(images, seed):
    """Images with a square of zeros somewhere."""
    import tensorflow as tf

    height, width = images.shape[1:3]
    size = min(ERASED, height, width)
    room = tf.constant([height - size + 1, width - size + 1], "float32")
    place = tf.random.stateless_uniform((tf.shape(images)[0], 2), seed) * room
    place = tf.cast(tf.floor(place), tf.int32)
    rows, columns = (
        (tf.range(number)[None] >= place[:, k : k + 1])
        & (tf.range(number)[None] < place[:, k : k + 1] + size)
        for k, number in enumerate((height, width))
    )
    is_kept = tf.logical_not(rows[:, :, None] & columns[:, None, :])[..., None]
    return images * tf.cast(is_kept, images.dtype)


def _moved(images, moves):
    """Images (B, H, W, C) moved down and right by whole pixels (B, 2), zeros moving in."""
    import tensorflow as tf

    for axis in (1, 2):
        size = images.shape[axis]
        source = tf.range(size)[None] - moves[:, axis - 1 : axis]
        is_inside = tf.cast((source >= 0) & (source < size), images.dtype)
        taken = tf.gather(images, tf.clip_by_value(source, 0, size - 1), axis=axis, batch_dims=1)
        images = taken * (is_inside[:, :, None, None] if axis == 1 else is_inside[:, None, :, None])
    return images


def _transformed(images, rows):
    """Images by an affine map of pixels to where they come from, six tensors (B,)."""
    import tensorflow as tf

    zero = tf.zeros_like(rows[0])
    transforms = tf.stack([*rows, zero, zero], axis=1)
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=transforms,
        output_shape=images.shape[1:3],
        fill_value=0.0,
        interpolation="BILINEAR",
        fill_mode="CONSTANT",
    )
