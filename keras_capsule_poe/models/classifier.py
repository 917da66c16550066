"""The protocol of models that classify images."""


class CapsuleClassifier:
    """Protocol of classifiers that the tools of this package train, evaluate and export.

    It is a mixin for a `keras.Model` with an `image_shape` (H, W, C).

    Attributes:
        TITLE: String, a readable title.
        MEASURE: String, the meaning of `probabilities`: the `"length"` or `"activation"` of a
            class capsule, or the `"probability"` of a softmax.
        ENDPOINTS, SHARED: Dicts from SavedModel endpoints and the methods they share to argument
            names.
        iterations: Integer, the number of updates of the coupling coefficients. If positive, the
            model has `couplings` and `coupling_changes`, see `CapsNet`.
        view: Layer that crops images, or None.

    Example:

    >>> from keras_capsule_poe import ConvClassifier
    >>> issubclass(ConvClassifier, CapsuleClassifier), ConvClassifier.ENDPOINTS
    (True, {'classify': ('images',)})
    """

    TITLE = "Capsule classifier"
    MEASURE = "length"
    ENDPOINTS = {"classify": ("images",), "reconstruct": ("images",)}
    SHARED: dict[str, tuple[str, ...]] = {}
    iterations = 0
    view = None

    def check_compiled(self):
        """Raise `ValueError` if the model was compiled with a loss."""
        if self.compiled and self.loss is not None:
            raise ValueError(
                f"{type(self).__name__} has a loss of its own, which it is given when it is made: "
                f"compile it with an optimizer and no `loss`. Received: loss={self.loss!r}"
            )

    def classify(self, images):
        """Return `probabilities` (B, J) and `classes` (B,) of images, a dict."""
        raise NotImplementedError

    def reconstruct(self, images):
        """Return the `images` (B, H, W, C) decoded from the class capsules, a dict."""
        raise NotImplementedError
