"""Model family of a classifier."""

from keras_capsule_poe.training.family import Family, Stage, lazily


def classifier_family(name, text, section, module, options, **parts):
    """Return a classifier's `Family`, with one training stage called `section` and an export."""
    labels = lazily("keras_capsule_poe.families.classifiers.examples:class_labels")

    def fits(config, data):
        for images in (data.train, data.held_out):
            labels(images, config[section].classes, section)

    train = Stage(
        section,
        lazily(f"{module}.stages:{section}"),
        section=section,
        writes=(f"{section}/model.keras",),
        cost=lazily(f"{module}.build:cost"),
        fits=fits,
    )
    export = Stage(
        "export",
        lazily(f"{module}.stages:export"),
        writes=("model.keras",),
        pictures=("reconstructions.png", "traverse.png"),
        alone=True,
    )
    # Stereo pairs of toys or solids, augmented as in the code of Sabour et al.
    stereo = {f"{section}.classes": 5, f"{section}.augmentation": "norb"}
    return Family(
        name=name,
        text=text,
        stages=(train, export),
        labelled=True,
        options={name: f"{section}.{name.replace('-', '_')}" for name in options},
        check=lazily(f"{module}.build:check"),
        outline=lazily(f"{module}.build:outline"),
        smallest=lazily(f"{module}.build:smallest"),
        load=lazily(f"{module}.stages:load"),
        suits={"smallnorb": {"image_size": (48, 48), **stereo}, "viewpoints": stereo},
        **parts,
    )
