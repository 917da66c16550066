"""What one can ask of a model that is a density of images, known up to its constant Z."""

from keras_capsule_poe.errors import BadUse


class Density:
    """log p = log weight - log Z of what a model models, and what is known of log Z.

    Attributes:
        about: str, what the nats are of, for people to read.
        TEMPERATURES, CHAINS: int, enough of them for most models of this kind.

    Examples:

    >>> Density().exact() is None
    True
    """

    about = ""
    TEMPERATURES, CHAINS = 100, 100

    def log_weights(self, images):
        """log p + log Z of images.

        Args:
            images: Array (N, H, W, C), uint8, or pixels in [0, 1].

        Returns:
            Array (N,), nats.
        """
        raise NotImplementedError

    def exact(self):
        """log Z, float, nats, where it can be summed; else None."""
        return None

    def bracket(self, temperatures, chains, seed):
        """log Z from both sides, by annealing; `None` where it is exact and nothing is annealed.

        Args:
            temperatures: int, steps of an annealing.
            chains: int, two or more.
            seed: int.

        Returns:
            `functions.Bracket`.
        """
        raise NotImplementedError


class LikelihoodModel:
    """A model of images that has a likelihood; to be mixed into a `GenerativeModel`.

    Attributes:
        DENSITIES: dict, what may have to be named for there to be a density, by names of the
            arguments of `density`: tuples of words.

    Examples:

    >>> LikelihoodModel.DENSITIES
    {}
    """

    DENSITIES: dict[str, tuple[str, ...]] = {}

    def density(self, images, seed=0, **named):
        """The model's density.

        Args:
            images: Array (N, H, W, C), uint8, training images, to which a base may be fitted.
            seed: int, of what is drawn to make images what the model models.
            **named: See `DENSITIES`.

        Returns:
            `Density`.

        Raises:
            BadUse: If what must be named is not, or there is none such.
        """
        raise NotImplementedError

    def check_named(self, **named):
        """Refuses names and words that `DENSITIES` does not have.

        Raises:
            BadUse: If there are such.
        """
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
