"""RBM 784-16 on MNIST thresholded at a half: the exact log-likelihood of test images, and seconds.

Persistent contrastive divergence, one step, centred and not: 16 hidden neurons have 65,536
states, so that log Z is a sum. The learning rates were chosen on the last 10,000 training images,
see --held-out; PyDeep reports -142.56 centred and -149.05 not.
Usage: python benchmarks/rbm_exact.py [--json FILE] [--held-out RATE ...]
"""

import time

import _children as children
import _measure as measure
import numpy as np

HIDDEN, BATCH, EPOCHS, SEEDS = 16, 100, 50, (0, 1, 2)
# (centred, flipped): learning rate
RATES = {(True, False): 0.5, (False, False): 0.1, (True, True): 0.5, (False, True): 0.05}
CASES = list(RATES)
COLUMNS = "centred flipped rate epochs seed train_nats test_nats error seconds".split()


def images(flipped):
    """Thresholded training and test images, (N, 784), or their negatives."""
    from keras_capsule_poe.data import load_images

    data = load_images("mnist")
    parts = np.asarray(data.train.images), np.asarray(data.test.images)
    parts = [part.reshape(len(part), -1) > 127 for part in parts]
    return [(part != flipped).astype("float32") for part in parts]


def nats(model, v):
    """Exact mean log p(v) and its standard error over images."""
    from keras_capsule_poe.functions import enumerated_log_partition

    return model.machine.log_likelihood(v, enumerated_log_partition(model.machine.harmonium()))


def trained(centring, flipped, rate, epochs, seed, held_out):
    """Row of a machine: nats of its training images and of others, and seconds."""
    import keras

    from keras_capsule_poe import HarmoniumModel, RestrictedBoltzmannMachine

    train, test = images(flipped)
    if held_out:
        train, test = train[:-10_000], train[-10_000:]
    start = time.perf_counter()
    keras.utils.set_random_seed(seed)
    machine = RestrictedBoltzmannMachine(HIDDEN, centering=centring)
    model = HarmoniumModel(machine, algorithm="pcd", persistent_chains=BATCH, seed=seed)
    model.adapt(train)
    steps = epochs * (len(train) // BATCH)
    falling = keras.optimizers.schedules.PolynomialDecay(rate, steps, rate / 100)
    model.compile(keras.optimizers.SGD(falling), jit_compile=False, steps_per_execution=50)
    model.fit(train, batch_size=BATCH, epochs=epochs, verbose=0)
    seconds = time.perf_counter() - start
    mean, error = nats(model, test)
    row = {"centred": centring, "flipped": flipped, "rate": rate, "epochs": epochs}
    row |= {"seed": seed, "error": error}
    return row | {"train_nats": nats(model, train)[0], "test_nats": mean, "seconds": seconds}


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--held-out", nargs="+", type=float, metavar="RATE")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--only", type=int, nargs="+", help="numbers of the cases to take")
    args = parser.parse_args()
    epochs, rows = 1 if args.quick else args.epochs, []
    cases = CASES if args.only is None else [CASES[i] for i in args.only]
    for centring, flipped in cases:
        for rate in args.held_out or [RATES[centring, flipped]]:
            for seed in SEEDS:
                case = centring, flipped, rate, epochs, seed, bool(args.held_out)
                rows.append(children.in_child(trained, *case))
                measure.table(rows[-1:], COLUMNS)
                print(f"{rows[-1]['test_nats']:.2f} nats of images not trained on", flush=True)
    measure.report(rows, COLUMNS, args.json)


if __name__ == "__main__":
    main()
