"""Dropout that is the same wherever an image lies."""

import keras

from keras_capsule_poe.functions.rows import drop_rows


@keras.saving.register_keras_serializable("keras_capsule_poe")
class BatchDropout(keras.layers.Dropout):
    """Keras' dropout, whose mask is drawn for the whole batch where devices share its images.

    Call arguments:
        inputs: Tensor (B, ...).
        training: bool, whether anything is dropped.

    Returns:
        Tensor of the shape of `inputs`.

    Examples:

    >>> np.asarray(BatchDropout(0.5)(np.ones((2, 3), "float32"))).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """

    def call(self, inputs, training=False):
        if not (training and self.rate > 0):
            return inputs
        return drop_rows(inputs, self.rate, self.seed_generator)
