"""Means over a batch, computed on microbatches one after the other."""

from keras import ops, tree

from keras_capsule_poe.functions.rows import current_rows, rows_at_hand


def mean_of_microbatches(function, data, microbatch):
    """Average the first dict that `function(rows, share)` returns over microbatches of `data`."""
    # `function` returns a dict of means over its rows and a dict of values that all rows share.
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

    # Trace once, for the shapes of the results and for the loop.
    part = tf.function(part, autograph=False).get_concrete_function(tf.TensorSpec((), "int32"))
    zeros = tree.map_structure(lambda x: tf.zeros(x.shape, x.dtype), part.structured_outputs)

    def body(start, sums, _):
        added, same = part(start)
        return start + microbatch, tree.map_structure(ops.add, sums, added), same

    # In parallel, the iterations would need the memory of the whole batch.
    _, sums, same = tf.while_loop(
        lambda start, *_: start < images,
        body,
        (tf.constant(0, "int32"), *zeros),
        parallel_iterations=1,
    )
    return sums, same
