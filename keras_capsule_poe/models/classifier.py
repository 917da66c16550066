"""What one can ask of a model that names the classes of images."""


class CapsuleClassifier:
    """A classifier of images by capsules, one a class, asked in the same words whatever it is.

    To be mixed into a `keras.Model` that has `image_shape` (H, W, C) and the methods below. A
    model that both generates and classifies is of both kinds, and joins their tables.

    Attributes:
        TITLE: str, what the model is, for people to read.
        MEASURE: str, what its `probabilities` are: the `"length"` or `"activation"` of a class's
            capsule, or the `"probability"` that a softmax gives.
        ENDPOINTS: dict, what a SavedModel of it answers, by name; the names of the arguments.
        SHARED: dict, likewise, methods that several endpoints call.
        iterations: int, how often routing updates its coefficients; where it does, the model
            brings `couplings` and `coupling_changes` of images, see `CapsNet`. One of several
            layers of capsules in places may bring `layer_maps`, see `MatrixCapsNet`.
        view: Layer from images to the window of them that it sees, or None: all of it.

    Examples:

    >>> list(CapsuleClassifier.ENDPOINTS)
    ['classify', 'reconstruct']
    """

    TITLE = "Capsule classifier"
    MEASURE = "length"
    ENDPOINTS = {"classify": ("images",), "reconstruct": ("images",)}
    SHARED: dict[str, tuple[str, ...]] = {}
    iterations = 0
    view = None

    def check_compiled(self):
        """Raises `ValueError` if the model was compiled with a loss, which it would not heed."""
        if self.compiled and self.loss is not None:
            raise ValueError(
                f"{type(self).__name__} has a loss of its own, which it is given when it is made: "
                f"compile it with an optimizer and no `loss`. Received: loss={self.loss!r}"
            )

    def classify(self, images):
        """The classes of images.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].

        Returns:
            dict: `probabilities` (B, classes); `classes` (B,), the most probable one of each.
        """
        raise NotImplementedError

    def reconstruct(self, images):
        """Images (B, H, W, C), under the key `images`, decoded from the capsules of images."""
        raise NotImplementedError
