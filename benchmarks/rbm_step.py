"""One step of contrastive divergence of a restricted Boltzmann machine, 784-500: images a second.

CD-1 on random binary images, against scikit-learn's BernoulliRBM (persistent, one step) at equal
batches, all in turn in one process; and the share that its five products would have of the rate of
a large product.
Usage: python benchmarks/rbm_step.py [--json FILE] [--against OLD_CHECKOUT [--fail]]
"""

import _against as against
import _children as children
import _measure as measure
import numpy as np

VISIBLE, HIDDEN = 784, 500
BATCHES = (10, 100, 1000)
COLUMNS = "form images centred ms images_per_s speedup_over_sklearn share_of_product_rate".split()
# Steps that one call takes, so that a call is long against what starting it takes.
STEPS = {10: 100, 100: 20, 1000: 4}


def images(number):
    return (np.random.default_rng(0).uniform(size=(number, VISIBLE)) < 0.2).astype("float32")


def trained(batch, centring):
    """A function without arguments that takes `STEPS` training steps of the library."""
    import keras
    import tensorflow as tf

    from keras_capsule_poe import HarmoniumModel, RestrictedBoltzmannMachine

    model = HarmoniumModel(RestrictedBoltzmannMachine(HIDDEN, centering=centring))
    model.build((None, VISIBLE))
    model.compile(keras.optimizers.SGD(1e-3, momentum=0.5), jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    steps = STEPS[batch]
    data = tf.constant(images(steps * batch).reshape(steps, batch, VISIBLE))

    @tf.function(autograph=False)
    def run():
        return tf.while_loop(
            lambda i, _: i < steps,
            lambda i, _: (i + 1, model.train_step(data[i])["loss"]),
            (0, 0.0),
        )

    def call():
        return [np.asarray(run()[1])[None]]

    return call


def sklearn_epoch(batch):
    """As many steps of scikit-learn."""
    from sklearn.neural_network import BernoulliRBM

    machine = BernoulliRBM(HIDDEN, learning_rate=1e-3, batch_size=batch, n_iter=1, random_state=0)
    data = images(STEPS[batch] * batch)
    return lambda: machine.fit(data)


def speed(batch):
    """Milliseconds of one step of each form, and the rate of a large product."""
    calls = {
        "centred": trained(batch, True),
        "plain": trained(batch, False),
        "sklearn": sklearn_epoch(batch),
    }
    calls["product"], operations = measure.large_product()
    least = measure.times(calls, seconds=12.0)
    rate = operations / least.pop("product") * 1e3
    return {name: ms / STEPS[batch] for name, ms in least.items()}, rate


def library_call(images, centred):
    """Some steps of the library, as `against` times them."""
    return trained(images, centred)


def main():
    parser = measure.parser(__doc__)
    against.add_arguments(parser)
    args = parser.parse_args()
    batches = BATCHES[1:2] if args.quick else BATCHES
    if args.against:
        cases = [{"images": b, "centred": c} for b in batches for c in (False, True)]
        against.compare("rbm_step", cases, args)
        return
    rows = []
    for batch in batches:
        least, rate = children.in_child(speed, batch)
        # Up, down and up again, and two correlations.
        operations = 5 * 2.0 * batch * VISIBLE * HIDDEN
        for form, ms in least.items():
            rows.append(
                {
                    "form": "sklearn" if form == "sklearn" else "ours",
                    "images": batch,
                    "centred": form == "centred",
                    "ms": ms,
                    "images_per_s": batch / ms * 1e3,
                    "speedup_over_sklearn": least["sklearn"] / ms,
                    "share_of_product_rate": operations / (ms / 1e3) / rate,
                    "product_gflops": rate / 1e9,
                }
            )
    measure.report(rows, COLUMNS, args.json)


if __name__ == "__main__":
    main()
