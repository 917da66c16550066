"""Results of models in words, and commands that measure."""

import pytest

from keras_capsule_poe.families import get


@pytest.mark.parametrize(
    "family, stages, words",
    [
        (
            "capsules",
            {
                "encoder": {
                    "capsules": {
                        "won": [0.5, 0.25, 0.25, 0.0], "class_coverage": 9, "classes": 10,
                        "purity": 0.75,
                    }
                },
                "decoder": {"held_out_relative_error": 0.15},
            },
            ["85%", "3 of 4 capsules", "9 of 10 classes", "75%"],
        ),
        ("neurons", {"experts": {"held_out_relative_error": 0.4, "won": [1.0]}}, ["60%", "1 of 1"]),
        ("rbm", {"rbm": {"held_out_relative_error": 0.2}}, ["80%"]),
        ("capsnet", {"capsnet": {"held_out_accuracy": 0.993}}, ["99.3%"]),
        ("matrix-capsules", {"matrix": {"held_out_accuracy": 0.5}}, ["50.0%"]),
        ("capsules", {}, []),
    ],
)  # fmt: skip
def test_results_are_told_in_words(family, stages, words):
    found = " ".join(get(family).verdict(stages))
    assert all(word in found for word in words) and bool(found) == bool(words)
