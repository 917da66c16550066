"""A whole training step of a capsule network: time and memory, with routing of several forms.

Ours, the same with the gradients of a few images at a time (--microbatch), uniform coefficients,
and the three forms of routing that public implementations use, in the same network; autodiff
through theirs. Times are the least of some steps, taken in turn. With
--quick a batch has 8 images, whose votes are small beside the weights and what TensorFlow takes
for itself: its ratio of memory says nothing of a batch of 128.
Usage: python benchmarks/research/capsnet_step.py [--recipe official] [--batch 128]
           [--microbatch 32] [--forms FORM ...] [--json FILE]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import _children as children
import _measure as measure
import _public_forms as public
import numpy as np

from keras_capsule_poe import CapsNet, RoutingLayer, SelfAttentionRouting, registry
from keras_capsule_poe.core.routing import Routing
from keras_capsule_poe.models.base.networks import optimizer

SHAPE = (28, 28, 1)
COLUMNS = "form ms images_per_second extra_mb time_ratio memory_ratio".split()
FORMS = ("ours", "microbatches", "uniform", *public.FORMS)


class PublicRouting(RoutingLayer):
    """A `RoutingLayer` by one of the public forms, without a bias.

    Args:
        form: One of `public.FORMS`.
        **kwargs: `RoutingLayer` arguments.
    """

    def __init__(self, form, **kwargs):
        super().__init__(**kwargs)
        self._form = public.FORMS[form]

    def route(self, inputs, coefficients=None):
        """See `RoutingLayer.route`."""
        return Routing(
            *public.route_dot(self._form, inputs, self.kernel.value, self.options.updates)
        )


class PublicAttention(SelfAttentionRouting):
    """A `SelfAttentionRouting` by one of the public forms.

    Args:
        form: One of `public.FORMS`.
        **kwargs: `SelfAttentionRouting` arguments.
    """

    def __init__(self, form, **kwargs):
        super().__init__(**kwargs)
        self._form = public.FORMS[form]

    def route(self, inputs, mask=None):
        """See `SelfAttentionRouting.route`."""
        bias = 0.0 if self.bias is None else self.bias.value
        return Routing(*public.route_attention(self._form, inputs, self.kernel.value, bias))


def step(form, recipe, batch, microbatch):
    """A function without arguments that takes one training step."""
    config = registry.settings("capsnet", recipe)
    config.set("capsnet.coefficients", "uniform" if form == "uniform" else "routed")
    model = CapsNet.of_shape(config, SHAPE)
    if form in public.FORMS:
        routing = model.routing.get_config()
        routing.pop("dtype")
        if isinstance(model.routing, SelfAttentionRouting):
            theirs = PublicAttention(form, **routing)
        else:
            # Their forms have no bias, as the published code has.
            theirs = PublicRouting(form, **{**routing, "use_bias": False})
        model = CapsNet(model.primary, theirs, SHAPE, model.decoder, model.margin)
        model.build()
    model.compile(optimizer(config.capsnet, images=59_000), jit_compile=False)
    model.microbatch = microbatch if form == "microbatches" else None
    random = np.random.default_rng(0)
    x = random.uniform(size=(batch, *SHAPE)).astype("float32")
    y = np.eye(10, dtype="float32")[random.integers(10, size=batch)]
    return lambda: model.train_on_batch(x, y)


def memory(form, recipe, batch, microbatch):
    """Extra megabytes of building the network and of two steps."""

    def run():
        call = step(form, recipe, batch, microbatch)
        call(), call()

    return measure.extra_peak_mb(run)


def speed(form, recipe, batch, microbatch, seconds):
    """Least milliseconds of a step."""
    call = step(form, recipe, batch, microbatch)
    call()
    return measure.times({form: call}, seconds, most=20)[form]


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--recipe", default="official")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--microbatch", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--forms", nargs="+", default=FORMS, choices=FORMS)
    args = parser.parse_args()
    batch, few = (8, 4) if args.quick else (args.batch, args.microbatch)
    forms = args.forms
    # One after another: some of them take gigabytes.
    peaks = [children.in_child(memory, form, args.recipe, batch, few) for form in forms]
    cases = [(form, args.recipe, batch, few, args.seconds) for form in forms]
    least = [children.in_child(speed, *case) for case in cases]
    theirs = [k for k, form in enumerate(forms) if form in public.FORMS]
    best_ms, best_mb = (min((row[k] for k in theirs), default=None) for row in (least, peaks))
    rows = [
        {
            "recipe": args.recipe,
            "batch": batch,
            "form": form,
            "ms": ms,
            "images_per_second": 1e3 * batch / ms,
            "extra_mb": mb,
            "time_ratio": best_ms and ms / best_ms,
            "memory_ratio": best_mb and mb / best_mb,
        }
        for form, ms, mb in zip(forms, least, peaks)
    ]
    measure.report(rows, COLUMNS, args.json)


if __name__ == "__main__":
    main()
