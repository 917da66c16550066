"""Fine-tuning of the model of MNIST digits on 2,000 images of clothes, against training from noise.

Both are trained on the same images for as many epochs, and the second for twice as many, too.
Recall and coverage compare 2,000 draws (domain `posterior`) with 2,000 held-out images of
Fashion-MNIST, in the features of a classifier of 10,000 training images. Clothes, because nothing
of them is in the digits: what helps is the start, not that the model knows the images. Seconds are
of the processor, all threads together, so that other programs do not count.
Usage: python benchmarks/fine_tune.py [--seeds N ...] [--epochs N] [--json FILE] [--quick]
"""

import time

import _measure as measure
import numpy as np

IMAGES, DRAWN, KNOWN = 2_000, 2_000, 10_000
# Where the training starts, and for how many times the epochs it goes on.
KINDS = (("fine-tuned", 1), ("from noise", 1), ("from noise", 2))
METRICS = ("recall", "coverage", "precision", "seconds")
COLUMNS = ("seed", "epochs", "start", *METRICS)


def trained(kind, images, seed, epochs):
    """Return a model trained on images, and the seconds of the processor that it took."""
    import keras_capsule_poe as kcp

    model = kcp.load("mnist")
    model.settings.set("seed", seed)
    if kind == "from noise":
        model.reset()
    start = time.process_time()
    model.fit(images, epochs=epochs, verbose=0)
    return model, time.process_time() - start


def rows(seeds, epochs, data, images, drawn):
    """Yield a row for each seed and start."""
    from keras_capsule_poe.evaluation.classifier import evaluation_classifier
    from keras_capsule_poe.evaluation.feature_metrics import overlap

    data = data.hold_out(drawn)
    judge = evaluation_classifier(data.train.head(KNOWN))
    real = judge(data.held_out.images)[0]
    for seed in seeds:
        chosen = np.random.default_rng(seed).choice(len(data.train), images, replace=False)
        for kind, times in KINDS:
            n = times * epochs
            model, seconds = trained(kind, data.train.images[np.sort(chosen)], seed, n)
            draws = model.sample(drawn, seed=seed, domain="posterior").images
            found = overlap(real, judge(draws)[0])
            row = {"seed": seed, "epochs": n, "start": kind, "seconds": seconds}
            yield row | {name: found[name] for name in METRICS if name in found}


def main():
    parser = measure.parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()
    from keras_capsule_poe.data import load_images

    name, images, drawn = "fashion_mnist", IMAGES, DRAWN
    if args.quick:
        name, images, drawn = "digits", 60, 60
    found = []
    for row in rows(args.seeds, args.epochs, load_images(name), images, drawn):
        found.append(row)
        print(row, flush=True)
    measure.report(found, COLUMNS, args.json)


if __name__ == "__main__":
    main()
