"""What models of an autoencoder's features have in common: their parts, and the way to pixels."""

import keras


class AutoencodedModel:
    """Layers and models in a model that is saved whole, the first of them a `ConvAutoencoder`.

    To be mixed into a `keras.Model`, which names its parts in `PARTS`.

    Examples:

    >>> import keras_capsule_poe as kcp
    >>> kcp.ProductOfExpertCapsules.PARTS[:2]
    ('autoencoder', 'primary')
    """

    PARTS = ("autoencoder",)

    def set_parts(self, *parts):
        """Sets the attributes of `PARTS`: objects, configurations of them, or None."""
        for name, part in zip(self.PARTS, parts, strict=True):
            is_config = isinstance(part, dict)
            part = keras.saving.deserialize_keras_object(part) if is_config else part
            setattr(self, name, part)

    @property
    def image_shape(self):
        """(H, W, C); known once the autoencoder is built."""
        return tuple(self.autoencoder.image_shape)

    def to_features(self, images):
        """The autoencoder's feature map (B, h, w, F) of images (B, H, W, C)."""
        return self.autoencoder.encode(images)

    def from_features(self, features):
        """Images (B, H, W, C), pixels in [0, 1], of feature maps (B, h, w, F)."""
        return self.autoencoder.decode(features)

    def get_config(self):
        parts = {name: getattr(self, name) for name in self.PARTS}
        saved = {name: keras.saving.serialize_keras_object(part) for name, part in parts.items()}
        return {**super().get_config(), **saved}


def build_once(layer, input_shape):
    """Builds a layer or model that was not built as it was loaded."""
    if not layer.built:
        layer.build(input_shape)
