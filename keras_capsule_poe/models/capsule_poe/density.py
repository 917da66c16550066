"""Density of primary capsules under a product of expert capsules, by annealing."""

import numpy as np
from keras import ops

from keras_capsule_poe.core.likelihood import log_partition_bracket
from keras_capsule_poe.core.mcmc import (
    CentredGaussian,
    SquashedGaussian,
    UniformBall,
    block_resampling,
    elliptical_slice,
    expert_log_weight,
)
from keras_capsule_poe.core.numerics import compiled
from keras_capsule_poe.core.units import free_energy
from keras_capsule_poe.data.mapping import chunks, map_batches
from keras_capsule_poe.models.base.protocols import Density

BASES, ROUTINGS = ("ball", "isotropic", "gaussian"), ("fixed", "routed")
# Batch size.
_AT_ONCE = 200
# Primary capsules resampled per proposal; about half of the proposals are accepted.
BLOCKS = 64


class CapsuleDensity(Density):
    """Density P(x) = P_0(x) w(x)/Z of primary capsules x, with log P/P_0 in nats."""

    TEMPERATURES, CHAINS = 20, 512

    def __init__(self, model, fitted, base, routing="fixed", blocks=BLOCKS):
        experts = model.encoder.experts
        self._model, self._kernel = model, np.asarray(ops.convert_to_numpy(experts.kernel))
        self._units, inputs = experts.units, fitted.shape[1]
        self._blocks = min(blocks, inputs)
        # ball: uniform on |x_i| < 1; isotropic: noise as long as the data; gaussian: the
        # second moments of `fitted`.
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
            mean = compiled(lambda x: ops.mean(self.router.route(x).coefficients, axis=0))
            means = [ops.convert_to_numpy(mean(x)) for x in chunks(fitted, _AT_ONCE)]
            self.coefficients = np.mean(means, axis=0)
        self._log_weight = expert_log_weight(
            self._kernel, self.coefficients, self._units, self._bias if routing == "fixed" else None
        )
        self.about = (
            f"{inputs} primary capsules of {fitted.shape[2]} dimensions, over the base {base} "
            f"({self.base.describe()}), coefficients {routing}"
        )

    def log_weights(self, images):
        """Return log w (N,) of the primary capsules of images, in nats."""
        return self.log_weights_of(visible(self._model, images))

    def log_weights_of(self, x):
        """Return log w (N,) of primary capsules (N, I, D), in nats."""
        return map_batches(compiled(self._log_weight), x, _AT_ONCE).astype("float64")

    def bracket(self, temperatures, chains, seed):
        """Return bidirectional bounds on log Z/Z_0 (AIS and reverse AIS)."""
        return self.annealed(temperatures, chains, seed)[0]

    def annealed(self, temperatures, chains, seed=0):
        """Return the bounds on log Z/Z_0 and log w (chains,) of draws from P_0."""
        base, log_weight = self.base, self._log_weight
        is_fixed = self.coefficients is not self.router
        if base.is_gaussian and is_fixed:
            # With averaged coefficients the experts see P_0 as a Gaussian of J E dimensions.
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
    """Return squashed primary capsules (N, I, D) of images, uint8 or pixels in [0, 1]."""
    encode = compiled(lambda x: model.to_visible(ops.cast(x, "float32")))
    return map_batches(encode, images, _AT_ONCE)
