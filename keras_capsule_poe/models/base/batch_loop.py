"""Training on prepared batches in one compiled loop, which starts sooner than Keras' `fit`."""

import keras
from keras import ops


def compiled_steps(model, shape):
    """Return a function that trains a compiled model on batches (S, *shape), one step for each."""
    if keras.backend.backend() != "tensorflow":
        rows = (-1, *shape[1:])
        options = {"batch_size": shape[0], "shuffle": False, "verbose": 0}
        return lambda batches: model.fit(batches.reshape(rows), **options)
    import tensorflow as tf

    # Variables cannot be made inside of the graph.
    model.optimizer.build(model.trainable_variables)

    @tf.function(autograph=False, input_signature=[tf.TensorSpec((None, *shape), "float32")])
    def steps(batches):
        def step(i, _):
            return model.train_step(batches[i])["loss"]

        ops.fori_loop(0, ops.shape(batches)[0], step, ops.zeros(()))

    # TensorFlow warns of many traces if a search fits one model after the other, but not of
    # concrete functions.
    run = steps if tf.config.functions_run_eagerly() else steps.get_concrete_function()
    return lambda batches: run(tf.convert_to_tensor(batches))
