"""Features for scikit-learn on its digits: test accuracy of a logistic regression, and fit time.

The estimators of the library with their defaults, against scikit-learn's BernoulliRBM with its
defaults and with a learning rate chosen on a validation part of the training set. The classifier
has its default C in one column, and in the other a C chosen on the same validation part. The test
part chooses nothing. A fit is timed whole, with what it compiles; the forms alternate.
Usage: python benchmarks/sklearn_features.py [--json FILE] [--quick]
"""

import time

import _measure as measure
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import BernoulliRBM
from sklearn.preprocessing import FunctionTransformer

from keras_capsule_poe.sklearn import CapsuleTransformer, RBMTransformer

COMPONENTS, SEEDS = 100, range(5)
RATES = (0.025, 0.05, 0.1, 0.2, 0.4)
REGULARIZATION = (1.0, 10.0, 100.0)
COLUMNS = "form epochs test test_sd test_chosen_c test_chosen_c_sd fit_s fit_cpu_s rates".split()


def forms(quick):
    """Rows of the table: name, epochs, and a function from seed and rate to an estimator."""
    epochs = (2,) if quick else (10, 20)
    yield "pixels", 0, lambda seed, rate: FunctionTransformer(), (None,)
    for n in epochs:
        options = {"n_iter": n}

        def theirs(seed, rate, options=options):
            return BernoulliRBM(COMPONENTS, learning_rate=rate, random_state=seed, **options)

        def ours(seed, rate, options=options):
            return RBMTransformer(COMPONENTS, random_state=seed, **options)

        yield "BernoulliRBM", n, theirs, (0.1,)
        yield "BernoulliRBM, chosen rate", n, theirs, RATES
        yield "RBMTransformer", n, ours, (None,)
    for output in ("capsules", "probabilities"):

        def capsules(seed, rate, output=output):
            return CapsuleTransformer(n_iter=epochs[0], output=output, random_state=seed)

        yield f"CapsuleTransformer, {output}", epochs[0], capsules, (None,)


def accuracies(estimator, train, test):
    """Accuracy on `test` for each C, features and classifier trained on `train`."""
    (rows, labels), (new_rows, new_labels) = train, test
    features, new_features = estimator.fit(rows).transform(rows), estimator.transform(new_rows)
    return [
        LogisticRegression(C=c, max_iter=3000).fit(features, labels).score(new_features, new_labels)
        for c in REGULARIZATION
    ]


def split(rows, labels, seed):
    parts = train_test_split(rows, labels, test_size=0.25, random_state=seed, stratify=labels)
    return parts[::2], parts[1::2]


def accuracy(estimator_of, rates, seed):
    """Test accuracies with the default and with the chosen C, and the chosen rate."""
    rows, labels = load_digits(return_X_y=True)
    train, test = split(rows / 16, labels, seed)
    fitted, validation = split(*train, 100 + seed)
    found = np.array([accuracies(estimator_of(seed, r), fitted, validation) for r in rates])
    # The rate is chosen for the default C, and once more for any C.
    first, (second, c) = found[:, 0].argmax(), np.unravel_index(found.argmax(), found.shape)
    default = accuracies(estimator_of(seed, rates[first]), train, test)[0]
    chosen = accuracies(estimator_of(seed, rates[second]), train, test)[c]
    return default, chosen, rates[first]


def seconds(estimators, rows, rounds):
    """Least seconds of a fit of each estimator, on the clock and of the processor, in turn."""
    least = np.full((len(estimators), 2), np.inf)
    for _ in range(rounds):
        for index, estimator in enumerate(estimators):
            start = time.perf_counter(), time.process_time()
            estimator.fit(rows)
            end = time.perf_counter(), time.process_time()
            least[index] = np.minimum(least[index], np.subtract(end, start))
    return least


def main():
    args = measure.parser(__doc__).parse_args()
    seeds = SEEDS[:1] if args.quick else SEEDS
    cases, rows = list(forms(args.quick)), []
    data = load_digits().data / 16
    train, _ = train_test_split(data, test_size=0.25, random_state=0)
    # A rate takes the same time as another.
    times = seconds([of(0, rates[0]) for _, _, of, rates in cases], train, 2 if args.quick else 7)
    for (name, epochs, estimator_of, rates), (wall, processor) in zip(cases, times):
        found = [accuracy(estimator_of, rates, seed) for seed in seeds]
        default, chosen = (np.array([each[k] for each in found]) for k in (0, 1))
        row = {"form": name, "epochs": epochs, "test": default.mean(), "test_sd": default.std()}
        row |= {"test_chosen_c": chosen.mean(), "test_chosen_c_sd": chosen.std()}
        row |= {"fit_s": wall, "fit_cpu_s": processor}
        row["rates"] = " ".join(str(each[2]) for each in found) if len(rates) > 1 else rates[0]
        rows.append(row)
        print(row, flush=True)
    measure.report(rows, COLUMNS, args.json)


if __name__ == "__main__":
    main()
