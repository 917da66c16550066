"""Means over a batch, found for a few images at a time, one after the other."""

from keras import ops, tree

from keras_capsule_poe.functions.rows import current_rows, rows_at_hand


def mean_of_microbatches(function, data, microbatch):
    """Means over the images of a batch, of what a function finds for a few of them at a time.

    What the function needs while it runs is then what a few images need. TensorFlow only.

    Args:
        function: Of tensors like `data`, rows of it, and their share of all. It gives a dict of
            means over these images, and a dict of what is the same for all.
        data: Tensor (B, ...), or a nest of them.
        microbatch: int, images at a time, at most.

    Returns:
        Both dicts, the means over the whole batch.

    Examples:

    >>> images = ops.reshape(ops.arange(5, dtype="float32"), (5, 1))
    >>> means, _ = mean_of_microbatches(
    ...     lambda rows, share: ({"mean": ops.mean(rows)}, {}), images, microbatch=2
    ... )
    >>> float(means["mean"])
    2.0
    """
    import tensorflow as tf

    data = tree.map_structure(lambda x: None if x is None else tf.convert_to_tensor(x), data)
    images = ops.shape(tree.flatten(data)[0])[0]
    first, total = current_rows(images)

    def part(start):
        end = ops.minimum(start + microbatch, images)
        rows = tree.map_structure(lambda x: None if x is None else x[start:end], data)
        share = ops.cast(end - start, "float32") / ops.cast(images, "float32")
        with rows_at_hand(first + start, total):
            means, same = function(rows, share)
        return tree.map_structure(lambda mean: ops.cast(share, mean.dtype) * mean, means), same

    # Traced once, for the shapes of what it gives and for the loop.
    part = tf.function(part, autograph=False).get_concrete_function(tf.TensorSpec((), "int32"))
    zeros = tree.map_structure(lambda x: tf.zeros(x.shape, x.dtype), part.structured_outputs)

    def body(start, sums, _):
        added, same = part(start)
        return start + microbatch, tree.map_structure(ops.add, sums, added), same

    # One after the other: side by side they would take the memory of all.
    _, sums, same = tf.while_loop(
        lambda start, *_: start < images,
        body,
        (tf.constant(0, "int32"), *zeros),
        parallel_iterations=1,
    )
    return sums, same
