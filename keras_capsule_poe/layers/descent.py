"""The way down from the hidden neurons of a layer, as a generating stack takes it."""

from keras_capsule_poe.functions.latent_descent import parents_given_hidden
from keras_capsule_poe.functions.randomness import streams
from keras_capsule_poe.functions.winners import winners


def draw_visible(layer, h, seed, mean=False):
    """Visible neurons drawn given hidden ones.

    Without routing, or with fixed coefficients, this is p(v | h). Latent parents are drawn
    given h, the visible neurons summed out, so that it is p(v | h), too. Coefficients that an
    image holds are not known from h: they are the mean ones of the images of the capsule that is
    farthest from rest; of a mixture that one is the parent.

    Args:
        layer: `RestrictedBoltzmannMachine` or `NeuronPoE`.
        h: Tensor (B, E) or (B, J, E), hidden neurons.
        seed: int, scalar integer tensor or `keras.random.SeedGenerator`.
        mean: bool, whether the mean of v given h, and parents, is taken instead of a draw.

    Returns:
        Tensor (B, D) or (B, I, D), v.

    Examples:

    >>> from keras_capsule_poe.layers import RestrictedBoltzmannMachine
    >>> machine = RestrictedBoltzmannMachine(3)
    >>> machine.build((None, 4))
    >>> draw_visible(machine, keras.ops.ones((2, 3)), seed=0).shape
    TensorShape([2, 4])
    """
    first, second = streams(seed, 2)
    machine = layer.harmonium()
    y = h if layer.hidden_offset is None else h - layer.hidden_offset
    routing = getattr(layer, "routing", None)
    if routing == "latent":
        c = parents_given_hidden(machine, y, layer.coefficient_scale, first)
        machine = layer.harmonium(c)
    elif routing in ("held", "mixture"):
        machine = layer.harmonium(layer.coefficients_of_winner(winners(y)))
    z = machine.transposed().fields(y)
    return layer.received(machine.visible.mean(z) if mean else machine.visible.sample(z, second))
