"""Protocols of models that classify images, and of models that generate them."""

import contextlib
import dataclasses
import math
import os
import random
import types
from collections.abc import Mapping
from typing import Any, SupportsIndex

import keras
import numpy as np
from keras import ops

from keras_capsule_poe._types import Seed, Tensor
from keras_capsule_poe.core.arguments import capsule_given, number_given, seed_given
from keras_capsule_poe.core.numerics import StatelessSeed, capsule_order, compiled, step_seed
from keras_capsule_poe.data.arrays import image_array, is_dataset, number_array
from keras_capsule_poe.data.mapping import map_batches
from keras_capsule_poe.errors import BadUse, meant
from keras_capsule_poe.keras_private import Exportable
from keras_capsule_poe.models.base.inputs import checked_pixels, rows_given
from keras_capsule_poe.models.base.looking import Looking
from keras_capsule_poe.models.base.new_images import TakesFiles
from keras_capsule_poe.models.base.outputs import CapsuleCodes, Images, Samples


class CapsuleClassifier(TakesFiles):
    """Protocol of classifiers that the tools of this package train, evaluate and export.

    It is a mixin for a `keras.Model` with an `image_shape` (H, W, C).

    Attributes:
        TITLE: String, a readable title.
        MEASURE: String, the meaning of `probabilities`: the `"length"` or `"activation"` of a
            class capsule, or the `"probability"` of a softmax.
        ENDPOINTS, SHARED: Dicts from SavedModel endpoints and the methods they share to argument
            names.
        routing_iterations: Integer, the number of routing iterations. Above one, the model has
            `couplings` and `coupling_changes`, see `CapsNet`.
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
    routing_iterations = 1
    view = None

    def check_compiled(self):
        """Raise `ValueError` if the model was compiled with a loss."""
        if self.compiled and self.loss is not None:
            raise ValueError(
                f"{type(self).__name__} has a loss of its own, which it is given when it is made: "
                f"compile it with an optimizer and no `loss`. Received: loss={self.loss!r}"
            )

    def classify(self, images: Any) -> dict[str, Any]:
        """Return `probabilities` (B, J) and `classes` (B,) of images, a dict.

        Images are as of `GenerativeModel.encode`. Files and lists add `names`, a list of str, if
        the classes have names.
        """
        raise NotImplementedError

    def reconstruct(self, images: Tensor) -> dict[str, Tensor]:
        """Return the `images` (B, H, W, C) decoded from the class capsules, a dict."""
        raise NotImplementedError


# Default of constructor arguments that are settings of the training, too.
UNSET: Any = object()
# Sums of products of larger codes are not finite.
_LARGEST_CODE = 1e9
# Former names of domains, which still work.
DOMAINS = {"complete": "prior", "restricted": "half_space", "visited": "posterior"}


@dataclasses.dataclass(frozen=True)
class Mode:
    """One way in which a model samples images."""

    # The widest domain comes first and is the default; the one of the training data comes last.
    domains: tuple[str, ...] = ()
    columns: int = 20  # images per row of a picture
    note: str = ""
    domain_notes: dict[str, str] = dataclasses.field(default_factory=dict)


class GenerativeModel(Looking, TakesFiles, Exportable):
    """Protocol of image models with capsule codes that the tools of this package use.

    It is a mixin for a `keras.Model`. A subclass implements the methods that raise
    `NotImplementedError` here. It sets `image_shape` (H, W, C), `capsules` J, `dim` E and `modes`.

    Attributes:
        TITLE: String, a readable title.
        modes: Dict of `Mode` by name. The first is the default.
        CHAINS: Tuple of strings, the Markov chains of the model: `"meanfield"`, `"gibbs"`.
        CODES: String, the range of a capsule: the unit `"ball"`, if its length is a probability,
            or the unit `"cube"`, if each dimension is one.
        upper_bounds: Tuple of strings, the `reconstructions` that serve as upper bounds in the
            evaluation of samples.
        ENDPOINTS, SHARED: Dicts from SavedModel endpoints and the methods they share to argument
            names.

    Example:

    >>> class Digits(GenerativeModel):
    ...     modes = {"single": Mode(("prior", "posterior")), "joint": Mode()}
    >>> Digits().resolve_mode(), Digits().resolve_mode("joint")
    (('single', 'prior'), ('joint', None))
    """

    TITLE = "Generative model"
    capsules: int
    dim: int
    modes: dict[str, Mode] = {}
    CHAINS: tuple[str, ...] = ()
    CODES = "ball"
    upper_bounds: tuple[str, ...] = ()
    ENDPOINTS = {
        "encode": ("images",),
        "decode": ("capsules",),
        "reconstruct": ("images",),
        "free_energy": ("images",),
        "sample": ("n", "seed"),
    }
    SHARED = {"code": ("images",), "render": ("capsules",)}

    @property
    def classify(self) -> Any:
        """Raise `AttributeError`: the model knows no classes."""
        raise AttributeError(
            f"A {self.TITLE} knows no classes. `encode` returns the probability of each capsule."
        )

    @property
    def own_parameters(self):
        """Number of parameters, without those of a feature extractor."""
        return self.count_params()

    def call(self, images):
        """Return the reconstructed images."""
        return self.reconstruct(images)["images"]

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)

    def code(self, images: Tensor, coefficients: Tensor | None = None) -> dict[str, Tensor]:
        """Encode images.

        Args:
            images: Tensor (B, H, W, C), pixels in `[0, 1]`.
            coefficients: `"uniform"` turns routing off. None is the model's own routing.

        Returns:
            Dict with `capsules` (B, J, E), `probabilities` (B, J) and `free_energy` (B,) in nats.
            Models whose clustering needs other features add `experts` (B, J, E).
        """
        raise NotImplementedError

    def featured_code(self, images):
        """Return `code` plus the `features` (B, ...), computed once."""
        return {**self.code(images), "features": self.to_features(images)}

    def render(self, capsules: Tensor) -> dict[str, Tensor]:
        """Decode codes (B, J, E) to a dict with `images` (B, H, W, C) and model-specific extras."""
        raise NotImplementedError

    def draw(
        self, n: Tensor, seed: Seed, mode: str | None = None, domain: str | None = None
    ) -> dict[str, Tensor]:
        """Sample codes; mode `"single"` uses each capsule once per block of J, in random order.

        Args:
            n: Integer or scalar integer tensor, the number of codes.
            seed: Integer or scalar integer tensor.
            mode: String, a key of `modes`. None is the first.
            domain: String, a domain of the mode. None is its first.

        Returns:
            Dict of a code: `capsules` (N, J, E), and what else `render` takes. If each image has
            one active capsule, `capsule` (N,) is its index.

        Raises:
            BadUse: If the mode or the domain is unknown.
        """
        n, seed = self.number_of_images(n), seed_given(seed)
        mode, domain = self.resolve_mode(mode, domain)
        if mode == "joint":
            return self.code_of_all(n, seed)
        capsule = capsule_order(n, self.capsules, StatelessSeed(seed, 1))
        return {**self.code_of_capsule(capsule, seed, domain), "capsule": capsule}

    def number_of_images(self, n):
        """Return `n` of a public call; raise `BadUse` unless so many images fit into memory."""
        sizes = (math.prod(self.image_shape), self.capsules * self.dim) if self.built else ()
        return rows_given(n, sum(sizes))

    def code_of_capsule(self, capsule, seed, domain=None):
        """Sample codes, a dict with `capsules` (N, J, E): only that of index `capsule` is on."""
        raise NotImplementedError

    def code_of_all(self, n, seed):
        """Sample codes of mode `"joint"`, a dict with `capsules` (N, J, E), all active."""
        raise NotImplementedError

    def draw_capsule(self, capsule, n, seed, domain=None):
        """Sample codes of the capsule with index `capsule`; otherwise like `draw`."""
        n, seed = self.number_of_images(n), seed_given(seed)
        capsule = capsule_given(capsule, self.capsules)
        if "single" not in self.modes:
            raise BadUse(
                f"`capsule` must be None: a {self.TITLE} has no samples of one capsule. "
                f"Received: capsule={capsule}"
            )
        _, domain = self.resolve_mode("single", domain)
        index = ops.full((n,), capsule, dtype="int32")
        return {**self.code_of_capsule(index, seed, domain), "capsule": index}

    def sample_capsule(self, capsule, n, seed, domain=None):
        """Sample images from the capsule with index `capsule`; otherwise like `sample`."""
        drawn = self.draw_capsule(capsule, n, seed, domain)
        return {"images": self.render(*whole(drawn))["images"], "capsules": drawn["capsules"]}

    def sample_joint(self, n, seed):
        """Sample images in mode `"joint"`, with all capsules active."""
        return self.sample(n, seed, "joint")

    def to_visible(self, images):
        """Encode images (B, H, W, C) to the state (B, ...) of the Markov chain."""
        raise NotImplementedError

    def from_visible(self, x):
        """Decode states (B, ...) of the Markov chain to images (B, H, W, C)."""
        raise NotImplementedError

    def visible_noise(self, n, seed):
        """Sample initial states (N, ...) of the Markov chain."""
        raise NotImplementedError

    def chain_step(self, x, seed=None):
        """Return the next state (B, ...): a Gibbs step with `seed`, else mean field."""
        raise NotImplementedError

    def to_features(self, images):
        """Return the features (B, ...) that baselines and linear probes use."""
        raise NotImplementedError

    def from_features(self, features):
        """Decode features (B, ...) to images (B, H, W, C)."""
        raise NotImplementedError

    def fast(self):
        """Context manager: use faster, less precise convolutions. See `ConvAutoencoder.fast`."""
        autoencoder = getattr(self, "autoencoder", None)
        return getattr(autoencoder, "fast", contextlib.nullcontext)()

    def reconstructions(self, images):
        """Reconstruct images from each level of the model.

        Returns:
            Dict of pairs (decoded, original) of tensors (B, ...), in display order.
        """
        raise NotImplementedError

    def encode(self, images: Any) -> Any:
        """Encode images, in batches.

        Args:
            images: Array (N, H, W, C), or (N, H, W) of grey images, uint8 or floats in [0, 1]. Or
                the path of an image file, or a list of paths and of arrays of any size, which are
                prepared as the training images were, see `data.read_image`. Or a `tf.data.Dataset`
                or `PyDataset` of images, which is read into memory. The values of a tensor in a
                graph are not checked.

        Returns:
            `CapsuleCodes` of arrays. For a tensor (B, H, W, C), pixels in [0, 1]: a dict of
            tensors, `capsules` (B, J, E) and `probabilities` (B, J).

        Raises:
            DataError: If the array has another shape, type or range, or a file cannot be read.
        """
        if is_numpy(images):
            found = self._mapped("code", self._checked(images))
            return CapsuleCodes(*(found.get(field) for field in CapsuleCodes.__annotations__))
        code = self.code(self._tensor("images", images))
        return {name: code[name] for name in ("capsules", "probabilities")}

    def free_energy(self, images: Any) -> dict[str, Any]:
        """Return a dict with the `free_energy` (N,) of images, in nats; see `encode`."""
        if is_numpy(images):
            return {"free_energy": self.encode(images).free_energy}
        return {"free_energy": self.code(self._tensor("images", images))["free_energy"]}

    def decode(self, capsules: Any) -> Any:
        """Decode codes (N, J, E), in batches.

        Args:
            capsules: Array (N, J, E). Or the `CapsuleCodes` of images, `Samples`, or another dict
                of arrays `capsules` and, if there are any, `shared`.

        Returns:
            `Images` of arrays. For a tensor: a dict with `images` (B, H, W, C).
        """
        shared = None
        if isinstance(capsules, Mapping):
            if "capsules" not in capsules:
                names = ", ".join(map(str, capsules)) or "none"
                raise BadUse(f"`capsules` must have an array `capsules`. Received: {names}")
            capsules, shared = capsules["capsules"], capsules.get("shared")
        if is_numpy(capsules):
            self.check_fitted()
            capsules = _floats(capsules)
            if capsules.shape[1:] != (self.capsules, self.dim):
                raise BadUse(
                    f"`capsules` must have shape (N, {self.capsules}, {self.dim}). "
                    f"Received: shape {capsules.shape}"
                )
            largest = np.abs(capsules).max(initial=0)
            if not largest <= _LARGEST_CODE:
                size = f"{largest:g}" if np.isfinite(largest) else "NaN or infinity"
                raise BadUse(f"`capsules` must be finite and below 1e9. Received: {size}")
            code = whole({"capsules": capsules, "shared": shared})
            return Images(**self._mapped("render", code))
        need_tensor("capsules", capsules)
        return {"images": self.render(capsules)["images"]}

    def reconstruct(self, images: Any) -> Any:
        """Decode the codes of images, in batches; arguments as of `encode`.

        Returns:
            `Images` of arrays. For a tensor: a dict of tensors, see `render`.
        """
        if is_numpy(images):
            return Images(**self._mapped("reconstruct", self._checked(images)))
        return self.render(*whole(self.code(self._tensor("images", images))))

    def _tensor(self, name, images):
        """Return a tensor of pixels; values that can be read now are checked."""
        self.check_fitted()
        need_tensor(name, images)
        return checked_pixels(images, name)

    def _checked(self, images):
        """Return an array of images after checks; files are read."""
        self.check_fitted()
        return image_array(self.as_pixels(images), self.image_shape)

    def check_fitted(self):
        """Raise `BadUse` unless the model is trained; a `TrainedModel` knows."""

    def _mapped(self, method, rows):
        """Apply a method to the rows of arrays, in batches, by one graph that is kept."""
        # The instance's dict, since Keras would track an attribute.
        graphs = self.__dict__.setdefault("_graphs", {})
        # A graph keeps the convolutions of its trace, see `fast`.
        key = method, getattr(getattr(self, "autoencoder", None), "is_fast", False)
        if key not in graphs:
            graphs[key] = compiled(getattr(self, method))
        return map_batches(graphs[key], rows)

    def gibbs(self, images: Tensor, steps: Tensor, seed: Seed) -> dict[str, Tensor]:
        """Run the Markov chain from images, for models with `"gibbs"` in `CHAINS`.

        Args:
            images: Tensor (B, H, W, C), pixels in `[0, 1]`.
            steps: Integer or scalar integer tensor, zero or more.
            seed: Integer or scalar integer tensor.

        Returns:
            Dict with `images` (B, H, W, C), pixels in `[0, 1]`.
        """
        steps, seed = number_given("steps", steps, 0), seed_given(seed)

        def step(done, x):
            return self.chain_step(x, step_seed(seed, done + 1))

        return {"images": self.from_visible(ops.fori_loop(0, steps, step, self.to_visible(images)))}

    def gibbs_step(self, images: Tensor, seed: Seed) -> dict[str, Tensor]:
        """Run one step of the Markov chain from images; see `gibbs`."""
        seed = seed_given(seed)
        return {"images": self.from_visible(self.chain_step(self.to_visible(images), seed))}

    def sample(
        self,
        n: SupportsIndex = 16,
        seed: Seed | None = None,
        mode: str | None = None,
        domain: str | None = None,
        capsule: int | None = None,
    ) -> Any:
        """Generate images.

        Args:
            n: Integer, the number of images.
            seed: Integer. The same seed gives the same images. None: a new one at each call.
            mode: String, a key of `modes`. None is the first.
            domain: String, a domain of the mode. None is its first.
            capsule: Integer, the capsule that is active in all images, all others zero; for mode
                `"single"`. None: all capsules in turn.

        Returns:
            `Samples` of arrays. If `n` is a tensor: a dict of tensors, the result of `draw` and the
            decoded `images` (N, H, W, C), pixels in [0, 1].

        Raises:
            BadUse: If an argument is out of range or unknown.
        """
        if ops.is_tensor(n):
            drawn = self.draw(n, seed, mode, domain)
            return {"images": self.render(*whole(drawn))["images"], **drawn}
        n = self.number_of_images(n)
        self.check_fitted()
        if capsule is not None and mode not in (None, "single"):
            raise BadUse(f"`capsule` must be None in mode {mode!r}. Received: capsule={capsule}")
        seed = random.randrange(2**31) if seed is None else seed
        # All codes are drawn at once, so the chunk size changes nothing but rounding.
        if capsule is None:
            drawn = self.draw(n, seed, mode, domain)
        else:
            drawn = self.draw_capsule(capsule, n, seed, domain)
        drawn = {name: ops.convert_to_numpy(value) for name, value in drawn.items()}
        images = self._mapped("render", whole(drawn))["images"]
        return Samples(images, drawn["capsules"], drawn.get("capsule"), drawn.get("shared"))

    def plot_samples(self, n: int | None = None, **options: Any) -> Any:
        """Return a figure of random images, see `figures.plot_samples`."""
        self.check_fitted()
        from keras_capsule_poe import figures

        return figures.plot_samples(self, n, **options)

    def plot_capsule(self, capsule: int, **options: Any) -> Any:
        """Return a figure of a capsule's samples and traversals, see `figures.plot_capsule`."""
        self.check_fitted()
        from keras_capsule_poe import figures

        return figures.plot_capsule(self, capsule, **options)

    def plot_reconstructions(self, images: Any, **options: Any) -> Any:
        """Return a figure of images and reconstructions, see `figures.plot_reconstructions`."""
        from keras_capsule_poe import figures

        return figures.plot_reconstructions(self, self._checked(images), **options)

    def plot_filters(self, n: int | None = None, **options: Any) -> Any:
        """Return a figure of the effect of each hidden neuron, see `figures.plot_filters`."""
        from keras_capsule_poe import figures

        return figures.plot_filters(self, n, **options)

    def plot_chains(self, n: int = 12, **options: Any) -> Any:
        """Return a figure of Markov chains, see `figures.plot_chains`."""
        from keras_capsule_poe import figures

        if options.get("images") is not None:
            options["images"] = self._checked(options["images"])
        return figures.plot_chains(self, n, **options)

    def plot_traversal(self, capsule: int | None = None, image: Any = None, **options: Any) -> Any:
        """Return a figure that varies a capsule's dimensions, see `figures.plot_traversal`."""
        self.check_fitted()
        from keras_capsule_poe import figures

        return figures.plot_traversal(self, capsule, image, **options)

    def _repr_png_(self):
        """Return samples as a PNG, which a notebook shows for the model; None if there are none."""
        try:
            return self.plot_samples()._repr_png_()
        except Exception:
            # A representation never raises: the notebook then shows the text.
            return None

    def resolve_mode(self, mode=None, domain=None):
        """Fill in the default mode and domain; raise `BadUse` if one is unknown."""
        mode = next(iter(self.modes), None) if mode is None else mode
        if not isinstance(mode, str) or mode not in self.modes:
            raise BadUse(
                f"`mode` must be {_listed(self.modes)}. Received: mode={mode!r}."
                f"{meant(mode, self.modes)}"
            )
        domains = tuple(self.modes[mode].domains)
        if domain not in domains and isinstance(domain, str) and DOMAINS.get(domain) in domains:
            domain = DOMAINS[domain]
        if domain is None:
            return mode, domains[0] if domains else None
        if domain not in domains:
            wanted = f"be {_listed(domains)}" if domains else "be left out: there is none"
            raise BadUse(
                f"`domain` must {wanted} in mode {mode!r}. Received: domain={domain!r}."
                f"{meant(domain, domains)}"
            )
        return mode, domain


def whole(code):
    """Return the capsules of a code, a dict of arrays, and the shared ones if there are any."""
    return tuple(code[name] for name in ("capsules", "shared") if code.get(name) is not None)


def _listed(names):
    names = [repr(name) for name in names]
    return f"one of {', '.join(names)}" if len(names) > 1 else "".join(names)


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
                    hint=f"name:{name}",
                )


def is_classifier(model):
    """Return True if a model has the `classify` of a `CapsuleClassifier`."""
    return callable(getattr(model, "classify", None))


def is_numpy(x):
    """Return True for NumPy arrays, what converts to them and files, but not for tensors."""
    is_tensor = ops.is_tensor(x) or isinstance(x, keras.KerasTensor)
    is_known = isinstance(x, (list, tuple, str, bytes, os.PathLike, types.GeneratorType))
    is_known = is_known or is_dataset(x)
    return not is_tensor and (is_known or hasattr(x, "__array__") or hasattr(x, "getexif"))


def need_tensor(name, value):
    """Raise `BadUse` unless a value is an array or a tensor of Keras."""
    if not (
        isinstance(value, np.ndarray)
        or ops.is_tensor(value)
        or isinstance(value, keras.KerasTensor)
    ):
        raise BadUse(f"`{name}` must be an array or a tensor. Received: {name}={value!r:.80}")


def _floats(capsules):
    """Return codes as float32; raise `BadUse` unless they are numbers in rows of one length."""
    try:
        return number_array(capsules, "capsules").astype("float32", copy=False)
    except BadUse as error:
        raise BadUse(
            "`capsules` must be an array of real numbers, none of them masked. "
            f"Received: {' '.join(str(capsules).split()):.80}"
        ) from error


def deserialized(part):
    """Return the Keras object of a config; other values as they are."""
    return keras.saving.deserialize_keras_object(part) if isinstance(part, dict) else part


def build_once(layer, input_shape):
    """Build a layer or model unless loading has already built it."""
    if not layer.built:
        layer.build(input_shape)
