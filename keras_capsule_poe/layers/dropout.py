"""Dropout that does not depend on how a batch is split over devices."""

import keras

from keras_capsule_poe.functions.rows import drop_rows


@keras.saving.register_keras_serializable("keras_capsule_poe")
class BatchDropout(keras.layers.Dropout):
    """`keras.layers.Dropout` whose mask is drawn for the whole batch and then sharded."""

    def call(self, inputs, training=False):
        if not (training and self.rate > 0):
            return inputs
        return drop_rows(inputs, self.rate, self.seed_generator)
