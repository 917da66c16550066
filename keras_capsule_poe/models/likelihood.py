"""The interface of models with a likelihood of images, known up to log Z."""

from keras_capsule_poe.errors import BadUse


class Density:
    """Base class of densities, log p = log weight - log Z; `about` says what the nats refer to."""

    about = ""
    TEMPERATURES, CHAINS = 100, 100

    def log_weights(self, images):
        """Return log p + log Z (N,) in nats of images (N, H, W, C), uint8 or pixels."""
        raise NotImplementedError

    def exact(self):
        """Return log Z in nats if it can be summed, else None."""
        return None

    def bracket(self, temperatures, chains, seed):
        """Return the `functions.Bracket` of log Z by annealing, or None if nothing is annealed."""
        raise NotImplementedError


class LikelihoodModel:
    """Mixin for a `GenerativeModel` that has a likelihood.

    Attributes:
        DENSITIES: dict that maps each extra argument of `density` to its allowed words.

    Example:

    >>> LikelihoodModel.DENSITIES
    {}
    """

    DENSITIES: dict[str, tuple[str, ...]] = {}

    def density(self, images, seed=0, **named):
        """Return the model's density of images.

        Args:
            images: Array (N, H, W, C), uint8 training images, to which a reference distribution may
                be fitted.
            seed: int, for random preprocessing of images, such as binarization.
            **named: Words as in `DENSITIES`.

        Returns:
            `Density` with the methods `log_weights`, `exact` and `bracket`.

        Raises:
            BadUse: If a required word is missing or unknown.
        """
        raise NotImplementedError

    def check_named(self, **named):
        """Raise `BadUse` for arguments or words that `DENSITIES` does not allow."""
        for name, word in named.items():
            choices = self.DENSITIES.get(name)
            if choices is None:
                raise BadUse(f"The likelihood of this model has no `{name}` to name.")
            if word not in choices:
                listed = ", ".join(map(repr, choices))
                raise BadUse(
                    f"`{name}` must be one of {listed}. Received: {name}={word!r}",
                    mend=f"name:{name}",
                )
