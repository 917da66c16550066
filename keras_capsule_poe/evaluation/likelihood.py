"""Log-likelihood of test images, with bidirectional bounds on log Z."""

import time

import numpy as np

from keras_capsule_poe.core.likelihood import Bracket
from keras_capsule_poe.errors import BadUse

# A standard error of one means that a single chain has all the weight.
_UNSURE = 0.5


def has_likelihood(model):
    """Return True if a model has the `density` of a `LikelihoodModel`."""
    return callable(getattr(model, "density", None))


def likelihood(model, data, images=None, temperatures=None, chains=None, seed=0, **named):
    """Return the mean log-likelihood of test images and the estimates of log Z, in nats."""
    if not has_likelihood(model):
        title = getattr(model, "TITLE", type(model).__name__)
        raise BadUse(f"The model has no likelihood. It is a {title}.")
    density = model.density(data.train.images, seed, **named)
    temperatures = density.TEMPERATURES if temperatures is None else temperatures
    chains = density.CHAINS if chains is None else chains
    if chains < 2 or temperatures < 1 or (images is not None and images < 1):
        raise BadUse(
            "`chains` must be at least 2, `temperatures` and `images` at least 1. "
            f"Received: chains={chains}, temperatures={temperatures}, images={images}"
        )
    values = density.log_weights(data.test.images[:images])
    begun = time.perf_counter()
    found = density.bracket(temperatures, chains, seed)
    seconds = time.perf_counter() - begun
    exact = density.exact()
    annealed = dict.fromkeys((*Bracket._fields, "width", "nats_forward", "nats_reverse"))
    if found is not None:
        annealed = {**found._asdict(), "width": found.width}
        annealed |= {
            f"nats_{side}": float(values.mean()) - annealed[side] for side in ("forward", "reverse")
        }
    # AIS is low on average and reverse AIS is high, so take the middle if no exact value exists.
    if exact is None:
        log_z = (found.forward + found.reverse) / 2
        uncertain = max(found.forward_error, found.reverse_error, abs(found.width) / 2)
    else:
        log_z, uncertain = exact, 0.0
    mean = float(values.mean())
    spread = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return {
        "about": density.about,
        "named": named,
        "images": len(values),
        "temperatures": temperatures,
        "chains": chains,
        **annealed,
        "exact": exact,
        "nats": mean - log_z,
        "nats_error": float(np.hypot(spread, uncertain)),
        "seconds": seconds,
    }


def likelihood_text(figures):
    """Format the dict of `likelihood` as lines of text."""
    shown = figures
    lines = [f"Nats of {shown['about']}"]
    by_side = ""
    if shown["width"] is not None:
        lines += _annealing_lines(shown)
        sides = (f"{shown[f'nats_{side}']:.3f} by {side}" for side in ("forward", "reverse"))
        by_side = f" ({', '.join(sides)})"
    if shown["exact"] is not None:
        lines.append(f"  exact      {shown['exact']:.3f}" if by_side else "log Z is exact")
    lines.append(
        f"test images  {shown['nats']:.3f} +- {shown['nats_error']:.3f} nats an image, of "
        f"{shown['images']}{by_side}"
    )
    return "\n".join(lines)


def _annealing_lines(shown):
    lines = [
        f"log Z: {shown['chains']} chains, {shown['temperatures']} temperatures, "
        f"{shown['seconds']:.0f} s",
    ]
    for side in ("forward", "reverse"):
        lines.append(f"  {side}    {shown[side]:.3f} +- {shown[f'{side}_error']:.3f}")
    lines.append(f"  width      {shown['width']:.3f}")
    unsure = [side for side in ("forward", "reverse") if shown[f"{side}_error"] > _UNSURE]
    if unsure:
        lines.append(
            f"  A few chains carry the weight, {' and '.join(unsure)}: neither errors nor the "
            "width can be trusted; take more temperatures or chains"
        )
    return lines
