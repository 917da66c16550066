"""Shared parts of models that work on the feature map of an autoencoder."""

import keras


class AutoencodedModel:
    """Mixin for a `keras.Model` whose serialized parts are named in `PARTS`."""

    PARTS = ("autoencoder",)

    def set_parts(self, *parts):
        """Set the attributes named in `PARTS` from objects, Keras configs or None."""
        for name, part in zip(self.PARTS, parts, strict=True):
            is_config = isinstance(part, dict)
            part = keras.saving.deserialize_keras_object(part) if is_config else part
            setattr(self, name, part)

    @property
    def image_shape(self):
        """Image shape (H, W, C), available once the autoencoder is built."""
        return tuple(self.autoencoder.image_shape)

    def to_features(self, images):
        """Return the feature maps (B, h, w, F) of images (B, H, W, C)."""
        return self.autoencoder.encode(images)

    def from_features(self, features):
        """Decode feature maps (B, h, w, F) to images (B, H, W, C)."""
        return self.autoencoder.decode(features)

    def get_config(self):
        parts = {name: getattr(self, name) for name in self.PARTS}
        saved = {name: keras.saving.serialize_keras_object(part) for name, part in parts.items()}
        return {**super().get_config(), **saved}


def build_once(layer, input_shape):
    """Build a layer or model unless loading has already built it."""
    if not layer.built:
        layer.build(input_shape)
