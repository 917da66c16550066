"""Harmoniums: restricted Boltzmann machines with units of any exponential family, and chains."""

from typing import Any

from keras import ops

from keras_capsule_poe._types import Seed, Tensor
from keras_capsule_poe.core.divergence import GibbsChain
from keras_capsule_poe.core.maps import DenseMaps
from keras_capsule_poe.core.numerics import (
    at_least_float32,
    streams,
    whole_number,
)
from keras_capsule_poe.core.units import BinaryUnits, CentredUnits, TemperedUnits


class Harmonium:
    """RBM with any exponential-family units on either side.

    The two layers are connected by maps W. Units of one layer are independent given the other:

    ```
    -E(x, y) = b.x + y.(a + W x) - base_energy(x) - base_energy(y)
    p(x) = exp(-F(x))/Z,  F(x) = base_energy(x) - b.x + sum over hidden units of F(a + W x)
    ```

    `p(x)` is a density if x is real. Capsules have the maps `c_ij W_ij` with fixed coupling
    coefficients c. Methods take and return states as the units send them, less any offset.

    Args:
        maps: `DenseMaps`, `EinsumMaps` or `BlockMaps`.
        hidden, visible: Units of an exponential family; `None`: `BinaryUnits`.
        hidden_bias: Tensor a of the shape of one image's hidden units; `None`: zero.
        visible_bias: Tensor b of the shape of one image's visible units; `None`: zero.
        coefficients: Tensor c (I, J) or (B, I, J) for maps between capsules; `None` with
            `DenseMaps`.

    Raises:
        ValueError: If coefficients are missing.

    Example:

    >>> machine = Harmonium(DenseMaps(ops.ones((3, 4))))
    >>> v = np.array([[0.0, 1.0, 1.0, 0.0]], "float32")
    >>> machine.free_energy(v).shape, machine.transposed().free_energy(np.ones((1, 3))).shape
    (TensorShape([1]), TensorShape([1]))

    Reference:

    - [Smolensky, 1986](https://stanford.edu/~jlmcc/papers/PDP/Volume%201/Chap6_PDP86.pdf)
    - [Welling et al., 2004](https://papers.nips.cc/paper/2672), exponential family harmoniums
    - [Hinton, 2012](https://doi.org/10.1007/978-3-642-35289-8_32), practical guide
    """

    def __init__(
        self,
        maps: Any,
        hidden: Any = None,
        visible: Any = None,
        hidden_bias: Tensor | None = None,
        visible_bias: Tensor | None = None,
        coefficients: Tensor | None = None,
    ) -> None:
        self.maps, self.coefficients = maps, coefficients
        self.hidden, self.visible = hidden or BinaryUnits(), visible or BinaryUnits()
        zeros = [
            ops.zeros(shape, maps.kernel.dtype) for shape in (maps.output_shape, maps.input_shape)
        ]
        self.hidden_bias, self.visible_bias = (
            zero if bias is None else ops.cast(bias, zero.dtype)
            for bias, zero in zip((hidden_bias, visible_bias), zeros)
        )
        if coefficients is None and not isinstance(maps, DenseMaps):
            raise ValueError(
                "`coefficients` must be a tensor (I, J): only DenseMaps do without. "
                "Received: coefficients=None"
            )

    def fields(self, x):
        """Return the hidden units' pre-activations a + W x (B, ...) for x (B, ...)."""
        maps, x = self.maps, ops.cast(at_least_float32(x), self.maps.kernel.dtype)
        up = maps.up(self.pairs(ops.shape(x)[0]), maps.lay_inputs(x))
        return maps.unlay_outputs(up) + self.hidden_bias

    def free_energy(self, x, fields=None):
        """Return F(x) (B,) in nats for x (B, ...); pass `fields(x)` if it is known."""
        fields = self.fields(x) if fields is None else fields
        x = ops.cast(x, fields.dtype)
        visible = self.visible.energy(x, self.visible_bias)
        hidden = self.hidden.free_energy(fields)
        return _total(visible, self.maps.input_shape) + _total(hidden, self.maps.output_shape)

    def transposed(self):
        """Return the same RBM with its sides exchanged, whose free energy is F(y)."""
        maps, c = self.maps, self.coefficients
        axes = (1, 0) if len(maps.kernel.shape) == 2 else (1, 0, 3, 2)
        return Harmonium(
            maps.form(ops.transpose(maps.kernel, axes)),
            self.visible,
            self.hidden,
            self.visible_bias,
            self.hidden_bias,
            None if c is None else ops.swapaxes(c, -1, -2),
        )

    def tempered(self, beta, base_bias=None):
        """Return the RBM at inverse temperature beta, with energy `(1 - beta) E_base + beta E`.

        E_base has neither maps nor hidden biases. `fields` of both RBMs are the same.

        Args:
            beta: Scalar, or tensor that broadcasts to both sides, in `[0, 1]`.
            base_bias: Tensor, visible biases of E_base; `None`: the RBM's own.
        """
        base = self.visible_bias if base_bias is None else base_bias
        return Harmonium(
            self.maps,
            TemperedUnits(self.hidden, beta),
            TemperedUnits(self.visible, beta, base),
            self.hidden_bias,
            self.visible_bias,
            self.coefficients,
        )

    def sides(self, routing=None):
        """Return the arguments of a `GibbsChain`; a router replaces the coefficients."""
        return {
            "maps": self.maps,
            "coefficients": self.coefficients if routing is None else None,
            "routing": routing,
            "hidden": self.hidden,
            "visible": self.visible,
            "hidden_bias": self.hidden_bias,
            "visible_bias": self.visible_bias,
        }

    def pairs(self, images):
        """Return the coupling coefficients of a number of images in the maps' layout, or None."""
        c = self.coefficients
        if c is None:
            return None
        c = ops.cast(c, self.maps.kernel.dtype)
        if len(c.shape) == 3:
            return self.maps.lay_pairs(c)
        return self.maps.lay_pairs(ops.broadcast_to(c[None], (images, *c.shape)))


def gibbs_step(
    harmonium: Harmonium, x: Tensor, seed: Seed, fields: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """One Gibbs step: draw y from p(y | x), then x from p(x | y).

    Args:
        harmonium: `Harmonium`.
        x: Tensor (B, ...), states of the visible units.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`; `None`: mean field.
        fields: Tensor, `harmonium.fields(x)`; `None`: computed.

    Returns:
        Tensors x and y.

    Example:

    >>> from keras_capsule_poe.functions import DenseMaps
    >>> x, y = gibbs_step(Harmonium(DenseMaps(ops.ones((3, 4)))), ops.ones((2, 4)), seed=0)
    >>> x.shape, y.shape
    (TensorShape([2, 4]), TensorShape([2, 3]))

    Reference:

    - [Geman & Geman, 1984](https://doi.org/10.1109/TPAMI.1984.4767596)
    """
    fields = harmonium.fields(x) if fields is None else fields
    maps, chain = harmonium.maps, GibbsChain(**harmonium.sides())
    (seeds,) = chain.seeds(seed, 1)
    rows = chain.all_rows(fields)
    c = harmonium.pairs(ops.shape(fields)[0])
    x, y = chain.states(c, maps.lay_outputs(fields), seeds, rows)
    return maps.unlay_inputs(x), maps.unlay_outputs(y)


def gibbs_chain(
    harmonium: Harmonium, x: Tensor, steps: Tensor, seed: Seed
) -> tuple[Tensor, Tensor]:
    """Gibbs sampling of an RBM for a number of steps.

    Args:
        harmonium: `Harmonium`.
        x: Tensor (B, ...), states of the visible units at the start.
        steps: int or scalar integer tensor, at least one.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`; `None`: mean field.

    Returns:
        Tensors x, and the y from which x was drawn.

    Raises:
        ValueError: If `steps` is an int below one.

    Example:

    >>> from keras_capsule_poe.functions import DenseMaps
    >>> machine = Harmonium(DenseMaps(ops.ones((3, 4))))
    >>> gibbs_chain(machine, ops.ones((2, 4)), steps=10, seed=0)[0].shape
    TensorShape([2, 4])
    """
    if isinstance(steps, int):
        whole_number("steps", steps)
    x = ops.cast(x, harmonium.maps.kernel.dtype)
    stream = None if seed is None else streams(seed, 1)[0]

    def step(i, state):
        return gibbs_step(harmonium, state[0], None if stream is None else stream.later(i))

    return ops.fori_loop(1, steps, step, step(0, (x, None)))


def log_variance_gradient(harmonium, x):
    """Return the gradient (D,) of the mean log p(v) in `log s^2`, Gaussian units, v = s x."""
    # log p(v) = -F(v/s) - log Z - sum log s, and Z does not depend on s: no samples needed.
    x = ops.cast(x, harmonium.maps.kernel.dtype)
    offset = ops.cast(getattr(harmonium.visible, "offset", 0), x.dtype)
    expected, _ = gibbs_step(harmonium, x, seed=None)
    return ops.mean((x + offset) * (x - expected), axis=0) / 2 - 0.5


def _total(energy, shape):
    """Sum energies over the side's remaining axes."""
    axes = len(shape) - 1
    return ops.sum(energy, axis=tuple(range(-axes, 0))) if axes else energy


def flattened(harmonium):
    """Return the same RBM over flat neurons, with one matrix of the maps c_ij W_ij."""
    maps = harmonium.maps
    c = ops.cast(harmonium.coefficients, maps.kernel.dtype)
    kernel = ops.transpose(c[:, :, None, None] * maps.kernel, (1, 2, 0, 3))
    biases = harmonium.hidden_bias, harmonium.visible_bias
    return Harmonium(
        DenseMaps(ops.reshape(kernel, (kernel.shape[0] * kernel.shape[1], -1))),
        *(_flat_units(units) for units in (harmonium.hidden, harmonium.visible)),
        *(ops.reshape(bias, (-1,)) for bias in biases),
    )


def one_capsule(harmonium, capsule):
    """Return the RBM with a single hidden capsule, chosen by its index."""
    one = slice(capsule, capsule + 1)
    hidden = harmonium.hidden
    if isinstance(hidden, CentredUnits):
        hidden = CentredUnits(hidden.units, hidden.offset[one])
    return Harmonium(
        harmonium.maps.form(harmonium.maps.kernel[:, one]),
        hidden,
        harmonium.visible,
        harmonium.hidden_bias[one],
        harmonium.visible_bias,
        harmonium.coefficients[:, one],
    )


def _flat_units(units):
    if isinstance(units, CentredUnits):
        return CentredUnits(units.units, ops.reshape(units.offset, (-1,)))
    return units


def latent_chain(router, harmonium, x, coefficients, steps, seed):
    """Return x, y and coefficients after Gibbs steps over all three layers; no seed: mean field."""
    maps, chain = harmonium.maps, GibbsChain(**harmonium.sides(router))
    stream = None if seed is None else streams(seed, 1)[0]
    x, c = chain.cast(x), chain.cast(coefficients)
    rows = chain.all_rows(x)

    def step(i, state):
        x, _, c = state
        (seeds,) = chain.seeds(None if stream is None else stream.later(i), 1)
        x, y, c = chain.joint_step(maps.lay_pairs(c), maps.lay_inputs(x), seeds, rows)
        return maps.unlay_inputs(x), maps.unlay_outputs(y), maps.unlay_pairs(c)

    return ops.fori_loop(1, steps, step, step(0, (x, None, c)))
