"""One step of contrastive divergence of expert neurons against one of expert capsules.

CD-1 with routing of each image, drawn at random, against the mean-field step of as large capsules:
128 images, 576x8 inputs, 20 experts of 16. Both in turn in one process; memory each in its own.
Usage: python benchmarks/neurons_step.py [--json FILE]
"""

import _children as children
import _measure as measure
import numpy as np
import tensorflow as tf

INPUTS, IN_DIM, OUTPUTS, OUT_DIM = 576, 8, 20, 16
IMAGES, QUICK = 128, 32
FORMS = ("capsules", "per_image", "averaged", "latent")
COLUMNS = "form images ms extra_mb time_over_capsules memory_over_capsules".split()
# As both families train.
ROUTING = {
    "routing_iterations": 4,
    "agreement_scale": 0.1,
    "softmax_over": "outputs",
    "activation_prior_weight": 2.0,
    "coefficient_sum": 5.0,
    "use_routing_bias": True,
}


def step(form, images):
    """A function without arguments that takes one step."""
    import keras

    from keras_capsule_poe import CapsulePoE, NeuronPoE

    random = np.random.default_rng(0)
    x = tf.constant(0.05 * random.normal(size=(images, INPUTS, IN_DIM)), "float32")
    options = {"kernel_initializer": keras.initializers.RandomNormal(stddev=0.1, seed=0)}
    if form == "capsules":
        layer = CapsulePoE(OUTPUTS, OUT_DIM, **ROUTING, **options)
    else:
        layer = NeuronPoE(OUTPUTS, OUT_DIM, routing=form, **ROUTING, **options)
    layer.build(x.shape)
    seeded = {} if form == "capsules" else {"seed": 0}
    signature = [tf.TensorSpec((None, INPUTS, IN_DIM))]

    @tf.function(autograph=False, input_signature=signature)
    def one(x):
        found = layer.contrastive_divergence(x, **seeded)
        return found.gradient, found.reconstruction, found.z, found.z_model

    return lambda: one(x)


def speed(images):
    """Milliseconds of each form."""
    return measure.times({form: step(form, images) for form in FORMS}, seconds=12.0)


def memory(form, images):
    """Extra megabytes of one step."""
    return measure.extra_peak_mb(step(form, images))


def main():
    args = measure.parser(__doc__).parse_args()
    images = QUICK if args.quick else IMAGES
    least = children.in_child(speed, images)
    extra = dict(zip(FORMS, children.in_children(memory, [(form, images) for form in FORMS])))
    rows = [
        {
            "form": form,
            "images": images,
            "ms": least[form],
            "extra_mb": extra[form],
            "time_over_capsules": least[form] / least["capsules"],
            "memory_over_capsules": extra[form] / max(extra["capsules"], 1e-9),
        }
        for form in FORMS
    ]
    measure.report(rows, COLUMNS, args.json)


if __name__ == "__main__":
    main()
