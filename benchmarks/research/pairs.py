"""Two digits side by side, named by networks that were trained on single ones.

Maps that all places share take images of any size (Su, 2018): a pair counts as right if its two
digits are the two longest capsules, and `digits` are the shares of single ones. Beside it uniform
coefficients, and the same convolutions with a mean over all places and as many parameters.

In full: python benchmarks/research/pairs.py build/pairs
Usage: python benchmarks/research/pairs.py FOLDER [--seeds N ...] [--epochs N] [--models NAME ...]
           [--recipe NAME] [--dataset NAME] [--limit N] [--set SETTING=VALUE ...] [--table]
"""

import _classifiers as classifiers
from _shares import shares

from keras_capsule_poe.data import ComposedSet
from keras_capsule_poe.data.composed import SideBySide

JUDGED = ("held out pairs", "digits", "pairs")


def pairs(images):
    """Two different images of a set side by side, always the same."""
    return ComposedSet(images, SideBySide()).fixed()


def judge(model, data):
    """Shares of single test images, and of pairs of them, that are named rightly.

    `held out pairs` are of images that are kept from training: settings are chosen by these.
    """
    return {
        **shares("held out pairs", classifiers.rightly(model, pairs(data.held_out))),
        **shares("digits", classifiers.rightly(model, data.test)),
        **shares("pairs", classifiers.rightly(model, pairs(data.test))),
    }


def main():
    parser = classifiers.parser(__doc__)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--recipe", default="shared")
    args = parser.parse_args()
    classifiers.compare(args, args.dataset, args.recipe, {}, judge, JUDGED)


if __name__ == "__main__":
    main()
