"""A harmonium: two layers of units, connected by maps and not within themselves.

Hidden units receive z = a + W x, visible ones z~ = b + W^T y, where x and y are what the other
side sends. Given one side the units of the other are independent.
"""

from keras import ops

from keras_capsule_poe.functions.checks import whole_number
from keras_capsule_poe.functions.harmonium_units import TemperedUnits
from keras_capsule_poe.functions.maps import DenseMaps
from keras_capsule_poe.functions.norms import at_least_float32
from keras_capsule_poe.functions.passes import Passes
from keras_capsule_poe.functions.randomness import streams
from keras_capsule_poe.functions.units import BinaryUnits


class Harmonium:
    """Energy -E(x, y) = b.x + y.(a + W x), less the base energies of the units' states.

    F(x) = base_energy(x) - b.x + sum of the hidden units' free energies at a + W x; so
    p(x) = exp(-F(x))/Z, a density where x is real. Capsules have maps c_ij W_ij, with fixed c.

    Args:
        maps: `DenseMaps`, `EinsumMaps` or `BlockMaps`.
        hidden, visible: Units of an exponential family, see `functions.units`.
        hidden_bias: Tensor of the shape of one image's hidden units, a; `None`: zero.
        visible_bias: Tensor of the shape of one image's visible units, b; `None`: zero.
        coefficients: Tensor (I, J), c, for maps between capsules, or (B, I, J), those of each
            image; `None` with `DenseMaps`.

    Raises:
        ValueError: If coefficients are missing.

    Examples:

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
        maps,
        hidden=None,
        visible=None,
        hidden_bias=None,
        visible_bias=None,
        coefficients=None,
    ):
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
        """What the hidden units receive, a + W x.

        Args:
            x: Tensor (B, ...), what the visible units send.

        Returns:
            Tensor (B, ...) of the hidden units' shape.
        """
        maps, x = self.maps, ops.cast(at_least_float32(x), self.maps.kernel.dtype)
        up = maps.up(self.pairs(ops.shape(x)[0]), maps.lay_inputs(x))
        return maps.unlay_outputs(up) + self.hidden_bias

    def free_energy(self, x, fields=None):
        """F(x), the hidden units summed out.

        Args:
            x: Tensor (B, ...), what the visible units send.
            fields: Tensor, `fields(x)` where it is known.

        Returns:
            Tensor (B,), nats.
        """
        fields = self.fields(x) if fields is None else fields
        x = ops.cast(x, fields.dtype)
        visible = self.visible.energy(x, self.visible_bias)
        hidden = self.hidden.free_energy(fields)
        return _total(visible, self.maps.input_shape) + _total(hidden, self.maps.output_shape)

    def transposed(self):
        """The same machine with its sides exchanged, whose free energy is F(y)."""
        maps, c = self.maps, self.coefficients
        axes = (1, 0) if len(maps.kernel.shape) == 2 else (1, 0, 3, 2)
        return Harmonium(
            type(maps)(ops.transpose(maps.kernel, axes)),
            self.visible,
            self.hidden,
            self.visible_bias,
            self.hidden_bias,
            None if c is None else ops.swapaxes(c, -1, -2),
        )

    def tempered(self, beta, base_bias=None):
        """The machine at inverse temperature beta, of energy (1 - beta) E_base + beta E.

        E_base has neither maps nor hidden biases. The fields are those of this machine.

        Args:
            beta: Scalar, or a tensor that broadcasts to both sides, in [0, 1].
            base_bias: Tensor, the visible biases of E_base; `None`: those of the machine.

        Returns:
            `Harmonium`.
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

    def passes(self):
        """`Passes` of the machine, which are given `pairs`."""
        biases = self.hidden_bias, self.visible_bias
        return Passes(self.maps, self.coefficients, self.hidden, self.visible, *biases)

    def pairs(self, images):
        """The coefficients of so many images, as the maps lay them, or None."""
        c = self.coefficients
        if c is None:
            return None
        c = ops.cast(c, self.maps.kernel.dtype)
        if len(c.shape) == 3:
            return self.maps.lay_pairs(c)
        return self.maps.lay_pairs(ops.broadcast_to(c[None], (images, *c.shape)))


def gibbs_step(harmonium, x, seed, fields=None):
    """Both sides drawn once, y of p(y | x) and then x of p(x | y): all images at once.

    Args:
        harmonium: `Harmonium`.
        x: Tensor (B, ...), what the visible units send.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`; `None`: means instead
            of draws.
        fields: Tensor, `harmonium.fields(x)` where it is known.

    Returns:
        Tensors x and y.

    Examples:

    >>> from keras_capsule_poe.functions import DenseMaps
    >>> x, y = gibbs_step(Harmonium(DenseMaps(ops.ones((3, 4)))), ops.ones((2, 4)), seed=0)
    >>> x.shape, y.shape
    (TensorShape([2, 4]), TensorShape([2, 3]))

    Reference:

    - [Geman & Geman, 1984](https://doi.org/10.1109/TPAMI.1984.4767596)
    """
    fields = harmonium.fields(x) if fields is None else fields
    maps, chain = harmonium.maps, harmonium.passes()
    (seeds,) = chain.seeds(seed, 1)
    chain.all_at_once(fields)
    c = harmonium.pairs(ops.shape(fields)[0])
    x, y = chain.states(c, maps.lay_outputs(fields), seeds, None)
    return maps.unlay_inputs(x), maps.unlay_outputs(y)


def gibbs_chain(harmonium, x, steps, seed):
    """What both sides are after some steps of Gibbs sampling.

    Args:
        harmonium: `Harmonium`.
        x: Tensor (B, ...), what the visible units send at the start.
        steps: int or scalar integer tensor, one or more.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`; `None`: mean field.

    Returns:
        Tensors x, and the y that it was drawn from.

    Raises:
        ValueError: If `steps` is an int below one.

    Examples:

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
    """Gradient of the mean log p(v) in log s^2, where v = s x and x is what is modelled.

    log p(v) = -F(v/s) - log Z - sum log s, and Z does not depend on s: with the parameters of
    the standardised machine held no samples of the model are needed,

    d/d log s^2 = <x (x - E[x | p(y | x)])>/2 - 1/2, mean field, for Gaussian visible units.

    Args:
        harmonium: `Harmonium` with `GaussianUnits`, or these centred, as visible units.
        x: Tensor (B, D), what the visible units send.

    Returns:
        Tensor (D,), nats.

    Examples:

    >>> from keras_capsule_poe.functions import DenseMaps, GaussianUnits
    >>> machine = Harmonium(DenseMaps(ops.zeros((3, 1))), visible=GaussianUnits())
    >>> float(log_variance_gradient(machine, np.array([[-2.0], [2.0]], "float32"))[0])
    1.5
    """
    x = ops.cast(x, harmonium.maps.kernel.dtype)
    offset = ops.cast(getattr(harmonium.visible, "offset", 0), x.dtype)
    expected, _ = gibbs_step(harmonium, x, seed=None)
    return ops.mean((x + offset) * (x - expected), axis=0) / 2 - 0.5


def _total(energy, shape):
    """The sum over a side of energies that have its last axis summed out."""
    axes = len(shape) - 1
    return ops.sum(energy, axis=tuple(range(-axes, 0))) if axes else energy
