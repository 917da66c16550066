"""What one can ask of a model that generates images; every tool asks this and nothing else."""

import contextlib
import dataclasses

from keras import ops

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.functions.randomness import step_seed


@dataclasses.dataclass(frozen=True)
class Mode:
    """One way in which a model draws images.

    Attributes:
        domains: tuple of str, where it can draw from: first the widest, which is the default,
            last what training visited. Empty: there is no choice.
        columns: int, images in a row of a picture.
        note: str, what one sees, for people to read.
        domain_notes: dict of str, where the draws of a domain come from, for people to read.

    Examples:

    >>> Mode(("complete", "visited"), columns=5).domains[0]
    'complete'
    """

    domains: tuple[str, ...] = ()
    columns: int = 20
    note: str = ""
    domain_notes: dict[str, str] = dataclasses.field(default_factory=dict)


class GenerativeModel:
    """A model of images by codes of capsules, asked in the same words whatever it is made of.

    To be mixed into a `keras.Model`. A model that implements what raises `NotImplementedError`
    here, and has `image_shape` (H, W, C), `capsules` (J), `dim` (E) and `MODES`, can be sampled,
    evaluated and exported.

    Attributes:
        TITLE: str, what the model is, for people to read.
        MODES: dict of `Mode` by name; the first is the default.
        CHAINS: tuple of str, the Markov chains that it has: `"meanfield"`, `"gibbs"`.
        CODES: str, where a capsule's vector can lie: in the unit `"ball"`, its length then being
            its probability, or in the unit `"cube"`, each dimension a probability.
        CEILINGS: tuple of str, the reconstructions that are judged beside samples.
        ENDPOINTS: dict, what a SavedModel of it answers, by name; the names of the arguments.
        SHARED: dict, likewise, methods that several endpoints call.

    Examples:

    >>> GenerativeModel.ENDPOINTS["sample"]
    ('n', 'seed')
    """

    TITLE = "Generative model"
    MODES: dict[str, Mode] = {}
    CHAINS: tuple[str, ...] = ()
    CODES = "ball"
    CEILINGS: tuple[str, ...] = ()
    ENDPOINTS = {
        "encode": ("images",),
        "decode": ("capsules",),
        "reconstruct": ("images",),
        "free_energy": ("images",),
        "sample": ("n", "seed"),
    }
    SHARED = {"code": ("images",), "render": ("capsules",)}

    @property
    def own_parameters(self):
        """How many parameters model the features: those of the features themselves do not count."""
        return self.count_params()

    def call(self, images):
        """As a Keras layer: the images of `reconstruct`."""
        return self.reconstruct(images)["images"]

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)

    def code(self, images, coefficients=None):
        """Everything that one pass up gives.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].
            coefficients: `"uniform"` turns routing off, where there is routing; `None`: the
                model's own.

        Returns:
            dict: `capsules` (B, J, E), see `CODES`; their `probabilities` (B, J); `free_energy`
            (B,), nats; and where clusterings should see something else than `capsules`, that
            as `experts` (B, J, E).
        """
        raise NotImplementedError

    def featured_code(self, images):
        """`code`, and the `to_features` that it may rest on as `features`, found once."""
        return {**self.code(images), "features": self.to_features(images)}

    def render(self, capsules):
        """A dict of `images` (B, H, W, C), pixels in [0, 1], of codes (B, J, E), and of more."""
        raise NotImplementedError

    def draw(self, n, seed, mode=None, domain=None):
        """Codes drawn at random.

        Args:
            n: int or scalar integer tensor, how many.
            seed: int or scalar integer tensor.
            mode: str, one of `MODES`; `None`: the first.
            domain: str, one of the mode's; `None`: its first.

        Returns:
            dict: `capsules` (N, J, E); where each image is of one capsule also `capsule` (N,),
            which one: each block of J shows each capsule once, in random order.

        Raises:
            BadUse: If the mode or the domain is unknown.
        """
        raise NotImplementedError

    def to_visible(self, images):
        """What the model's Markov chain moves on, (B, ...), of images (B, H, W, C)."""
        raise NotImplementedError

    def from_visible(self, x):
        """Images (B, H, W, C), pixels in [0, 1], of visible units (B, ...)."""
        raise NotImplementedError

    def visible_noise(self, n, seed):
        """Visible units (N, ...) that a chain can start from, drawn at random."""
        raise NotImplementedError

    def chain_step(self, x, seed=None):
        """Visible units (B, ...) after one step: mean field, or with a `seed` Gibbs sampling."""
        raise NotImplementedError

    def to_features(self, images):
        """Features (B, ...) that plain models of images are fitted to and probes look at."""
        raise NotImplementedError

    def from_features(self, features):
        """Images (B, H, W, C), pixels in [0, 1], of features (B, ...)."""
        raise NotImplementedError

    def fast(self):
        """A context in which features and images take less time, see `ConvAutoencoder.fast`."""
        autoencoder = getattr(self, "autoencoder", None)
        return getattr(autoencoder, "fast", contextlib.nullcontext)()

    def reconstructions(self, images):
        """What is left of images on the ways down from each height.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].

        Returns:
            dict of pairs (decoded, original) of tensors of one shape (B, ...), in the order in
            which they are shown; those of the images' shape are shown as pictures.
        """
        raise NotImplementedError

    def encode(self, images):
        """Capsules of images.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].

        Returns:
            dict: `capsules` (B, J, E); their `probabilities` (B, J).
        """
        code = self.code(images)
        return {name: code[name] for name in ("capsules", "probabilities")}

    def free_energy(self, images):
        """Free energy of images, (B,) under the key `free_energy`, nats; lower is likelier."""
        return {"free_energy": self.code(images)["free_energy"]}

    def decode(self, capsules):
        """Images (B, H, W, C), under the key `images`, of codes (B, J, E)."""
        return {"images": self.render(capsules)["images"]}

    def reconstruct(self, images):
        """What `render` makes of the whole code of images (B, H, W, C), pixels in [0, 1]."""
        return self.render(self.code(images)["capsules"])

    def gibbs(self, images, steps, seed):
        """Images after some steps of the Markov chain that start from others.

        Only where `CHAINS` has `"gibbs"`; to be named in `ENDPOINTS` there.

        Args:
            images: Tensor (B, H, W, C), pixels in [0, 1].
            steps: int or scalar integer tensor, zero or more.
            seed: int or scalar integer tensor.

        Returns:
            dict: `images` (B, H, W, C), pixels in [0, 1].
        """

        def step(done, x):
            return self.chain_step(x, step_seed(seed, done + 1))

        return {"images": self.from_visible(ops.fori_loop(0, steps, step, self.to_visible(images)))}

    def sample(self, n, seed, mode=None, domain=None):
        """Images drawn at random.

        Args:
            n, seed, mode, domain: See `draw`.

        Returns:
            dict: `images` (N, H, W, C), pixels in [0, 1], and what `draw` gives.

        Raises:
            BadUse: If the mode or the domain is unknown.
        """
        drawn = self.draw(n, seed, mode, domain)
        return {**self.decode(drawn["capsules"]), **drawn}

    def resolve_mode(self, mode=None, domain=None):
        """A mode and its domain, defaults filled in.

        Args:
            mode, domain: See `draw`.

        Returns:
            (str, str or `None`), the latter where the mode has no domains.

        Raises:
            BadUse: If the model has none such; lists those it has.
        """
        mode = next(iter(self.MODES), None) if mode is None else mode
        if mode not in self.MODES:
            raise BadUse(f"`mode` must be {_listed(self.MODES)}. Received: mode={mode!r}")
        domains = tuple(self.MODES[mode].domains)
        if domain is None:
            return mode, domains[0] if domains else None
        if domain not in domains:
            wanted = f"be {_listed(domains)}" if domains else "be left out: there is none"
            raise BadUse(f"`domain` must {wanted} in mode {mode!r}. Received: domain={domain!r}")
        return mode, domain


def _listed(names):
    names = [repr(name) for name in names]
    return f"one of {', '.join(names)}" if len(names) > 1 else "".join(names)
