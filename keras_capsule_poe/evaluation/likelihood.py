"""What a model's density says of test images: log Z from both sides, and nats an image."""

import time

import numpy as np

from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.functions.annealing import Bracket

# A side's error is one where a single chain has all the weight: then it says nothing any more.
_UNSURE = 0.5


def has_likelihood(model):
    """Whether a model can be asked what a `LikelihoodModel` can.

    Examples:

    >>> has_likelihood(object())
    False
    """
    return callable(getattr(model, "density", None))


def likelihood(model, data, images=None, temperatures=None, chains=None, seed=0, **named):
    """Mean log-likelihood of test images, and how sure it is.

    log Z is exact where it can be summed. Else it is the middle of the two sides of annealed
    importance sampling: the forward side is low on average, so that nats are too high with it,
    and the reverse one high.

    Args:
        model: `LikelihoodModel`.
        data: `ImageData`.
        images: int, the first so many test images; `None`: all.
        temperatures: int, steps of an annealing; `None`: as many as the density says.
        chains: int, two or more; `None`: likewise.
        seed: int.
        **named: What must be named for there to be a density, see `LikelihoodModel.DENSITIES`.

    Returns:
        dict: `about`, what the nats are of, and `named`; `images`, `temperatures`, `chains`;
        `forward`, `reverse`, `exact` (or None), log Z in nats, with `forward_error` and
        `reverse_error`, standard errors, and `width` = reverse - forward; `nats`, the mean over
        test images, `nats_error` of images and log Z together; `nats_forward` and `nats_reverse`,
        the same with either side alone; `seconds` that annealing took. What annealing gives is None
        where the density is exact and nothing is annealed.

    Raises:
        BadUse: If the model has no likelihood, or a number is too small.

    Examples:

    >>> from keras_capsule_poe.data import ImageData, ImageSet
    >>> from keras_capsule_poe.functions import Bracket
    >>> class Even:
    ...     about, TEMPERATURES, CHAINS = "pixels, all as likely", 1, 2
    ...
    ...     def density(self, images, seed=0):
    ...         return self
    ...
    ...     def log_weights(self, images):
    ...         return np.zeros(len(images))
    ...
    ...     def exact(self):
    ...         return 2.0
    ...
    ...     def bracket(self, temperatures, chains, seed):
    ...         return Bracket(1.5, 0.1, 2.5, 0.1)
    >>> dark = ImageSet(np.zeros((4, 8, 8, 1), "uint8"))
    >>> found = likelihood(Even(), ImageData(dark, dark))
    >>> found["nats"], found["nats_error"], found["width"]
    (-2.0, 0.0, 1.0)

    Reference:

    - [Salakhutdinov & Murray, 2008](https://doi.org/10.1145/1390156.1390266)
    - [Grosse et al., 2015](https://arxiv.org/abs/1511.02543)
    """
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
    """The dict of `likelihood` as lines for people to read.

    Examples:

    >>> figures = dict.fromkeys(("forward", "forward_error", "reverse", "reverse_error"), 1.0)
    >>> figures |= {"forward_error": 0.1, "reverse_error": 0.1}
    >>> figures |= {"about": "pixels", "temperatures": 5, "chains": 2, "width": 0.0, "exact": None}
    >>> figures |= {"images": 10, "nats": -2.0, "nats_error": 0.1, "seconds": 3.0}
    >>> figures |= {"nats_forward": -2.0, "nats_reverse": -2.0}
    >>> print(likelihood_text(figures).splitlines()[-1])
    test images  -2.000 +- 0.100 nats an image, of 10 (-2.000 by forward, -2.000 by reverse)
    """
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
