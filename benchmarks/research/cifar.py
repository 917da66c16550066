"""Capsules on natural images, against uniform coefficients and a convolutional network.

The network of Sabour et al. (2017) as their section 7 has it for CIFAR-10: 64 types of primary
capsules, a further output for what is none of the classes, no decoder, random windows of 24x24
to train on and the one in the middle to test with. All three have as many parameters. FOLDER's
images are those of a folder of classes, or of a data set by its name.

In full: python benchmarks/research/cifar.py build/cifar --dataset IMAGES --epochs 20 --seeds 0
Usage: python benchmarks/research/cifar.py FOLDER [--dataset FOLDER] [--seeds N ...] [--epochs N]
           [--models NAME ...] [--recipe NAME] [--limit N] [--set SETTING=VALUE ...] [--table]
"""

import _classifiers as classifiers
from _shares import shares

SETTINGS = {
    "capsnet.augmentation": "cifar",
    "capsnet.types": 64,
    "capsnet.leaky": True,
    "capsnet.decoder": "none",
}


def judge(model, data):
    """The share of test images that are named rightly."""
    return shares("test", classifiers.rightly(model, data.test))


def main():
    parser = classifiers.parser(__doc__)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--recipe", default="paper")
    args = parser.parse_args()
    classifiers.compare(args, args.dataset, args.recipe, SETTINGS, judge, ("test",))


if __name__ == "__main__":
    main()
