"""Top-down sampling of visible units from the hidden units of a layer."""

from keras_capsule_poe.functions.latent_descent import parents_given_hidden
from keras_capsule_poe.functions.randomness import streams
from keras_capsule_poe.functions.winners import winners


def draw_visible(layer, h, seed, mean=False):
    """Sample (or with `mean` return the mean of) v (B, [I,] D) given h (B, [J,] E)."""
    first, second = streams(seed, 2)
    machine = layer.harmonium()
    y = h if layer.hidden_offset is None else h - layer.hidden_offset
    routing = getattr(layer, "routing", None)
    if routing == "latent":
        c = parents_given_hidden(machine, y, layer.coefficient_scale, first)
        machine = layer.harmonium(c)
    elif routing in ("held", "mixture"):
        # Per-image coefficients do not follow from h: use the means of the winner's images.
        machine = layer.harmonium(layer.coefficients_of_winner(winners(y)))
    z = machine.transposed().fields(y)
    return layer.received(machine.visible.mean(z) if mean else machine.visible.sample(z, second))
