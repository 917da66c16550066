"""The density of a product of expert capsules over a named base measure, and its log Z."""

import numpy as np
from keras import ops

from keras_capsule_poe.functions.annealing import log_partition_bracket
from keras_capsule_poe.functions.base_measures import (
    CentredGaussian,
    SquashedGaussian,
    UniformBall,
)
from keras_capsule_poe.functions.compiled import compiled
from keras_capsule_poe.functions.kernels import block_resampling, elliptical_slice
from keras_capsule_poe.functions.tilts import expert_log_weight
from keras_capsule_poe.functions.units import free_energy
from keras_capsule_poe.models.likelihood import Density

BASES, ROUTINGS = ("ball", "isotropic", "gaussian"), ("fixed", "routed")
# Images that the Gaussian and the mean routing are taken of, at most; images at a time.
FITTED, _AT_ONCE = 6000, 200
# Primary capsules drawn anew at a time: about half of such proposals are accepted.
BLOCKS = 64


class CapsuleDensity(Density):
    """P(x) = P_0(x) w(x)/Z of the primary capsules x of a `ProductOfExpertCapsules`.

    Nats are those over the base: log P/P_0.

    Args:
        model: `ProductOfExpertCapsules`.
        fitted: Array (N, I, D), primary capsules of training images, squashed.
        base: str, P_0: `"ball"`, uniform on |x_i| < 1; `"isotropic"`, noise as long as data;
            `"gaussian"`, of the second moments of `fitted`.
        routing: str, the coefficients: `"fixed"`, their mean over `fitted`; `"routed"`, found
            anew for each x.
        blocks: int, primary capsules that a step of the chain draws anew.

    Attributes:
        base: The base measure.
        router: `Router` of the experts.
        coefficients: Array (I, J), or that router.

    Examples:

    >>> CapsuleDensity.TEMPERATURES
    20

    Reference:

    - [Neal, 2001](https://arxiv.org/abs/physics/9803008), annealed importance sampling
    """

    TEMPERATURES, CHAINS = 20, 512

    def __init__(self, model, fitted, base, routing="fixed", blocks=BLOCKS):
        experts = model.encoder.experts
        self._model, self._kernel = model, np.asarray(ops.convert_to_numpy(experts.kernel))
        self._units, inputs = experts.units, fitted.shape[1]
        self._blocks = min(blocks, inputs)
        self.base = {
            "ball": lambda: UniformBall(inputs, fitted.shape[2]),
            "isotropic": lambda: SquashedGaussian(
                inputs, fitted.shape[2], length=model.primary.target_length
            ),
            "gaussian": lambda: CentredGaussian.from_samples(fitted),
        }[base]()
        self.router = experts.router()
        self._bias = None if experts.bias is None else ops.convert_to_numpy(experts.bias)
        self.coefficients = self.router
        if routing == "fixed":
            mean = in_batches(
                lambda x: ops.mean(self.router.route(x).coefficients, axis=0)[None], fitted
            )
            self.coefficients = mean.mean(axis=0)
        self._log_weight = expert_log_weight(
            self._kernel, self.coefficients, self._units, self._bias if routing == "fixed" else None
        )
        self.about = (
            f"{inputs} primary capsules of {fitted.shape[2]} dimensions, over the base {base} "
            f"({self.base.describe()}), coefficients {routing}"
        )

    def log_weights(self, images):
        """log w of the primary capsules of images, (N,), nats."""
        return self.log_weights_of(visible(self._model, images))

    def log_weights_of(self, x):
        """log w of primary capsules (N, I, D), an array (N,), nats."""
        return in_batches(self._log_weight, x).astype("float64")

    def bracket(self, temperatures, chains, seed):
        """log Z/Z_0 by annealing from the base and back; the ends are those of the way there."""
        return self.annealed(temperatures, chains, seed)[0]

    def annealed(self, temperatures, chains, seed=0):
        """`Bracket`, and log w of draws of the base, (chains,)."""
        base, log_weight = self.base, self._log_weight
        is_fixed = self.coefficients is not self.router
        if base.is_gaussian and is_fixed:
            # To experts with fixed coefficients the base is a Gaussian of J E dimensions.
            base, units = base.of_experts(self._kernel, self.coefficients), self._units
            bias = 0.0 if self._bias is None else self._bias

            def log_weight(z):
                return -free_energy(z + bias, units)

        if base.is_gaussian:
            step = elliptical_slice(base, log_weight)
        else:
            step = block_resampling(base, log_weight, self._blocks)
        start = base.draw(chains, seed=seed)
        plain = np.asarray(compiled(log_weight)(start), "float64")
        betas = np.linspace(0, 1, temperatures + 1)
        return log_partition_bracket(log_weight, step, start, betas, seed=seed + 1), plain


def visible(model, images):
    """Squashed primary capsules (N, I, D) of images (N, H, W, C), uint8 or pixels in [0, 1].

    Examples:

    >>> class Half:
    ...     def to_visible(self, images):
    ...         return images[..., 0] / 2
    >>> visible(Half(), np.ones((3, 4, 2, 1))).shape
    (3, 4, 2)
    """

    def encode(images):
        return model.to_visible(images)

    scale = 255 if np.asarray(images[:1]).dtype == np.uint8 else 1
    return in_batches(encode, images, scale)


def in_batches(function, rows, scale=1):
    """The function of rows over `scale`, some at a time, as one array.

    Examples:

    >>> in_batches(lambda x: 2 * x, np.ones((3, 2), "uint8"), scale=2).tolist()
    [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    """
    graph, parts = compiled(function), []
    for start in range(0, len(rows), _AT_ONCE):
        part = np.asarray(rows[start : start + _AT_ONCE], "float32") / np.float32(scale)
        parts.append(ops.convert_to_numpy(graph(part)))
    return np.concatenate(parts)
