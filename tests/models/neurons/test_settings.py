"""Settings of a product of expert neurons: values that are refused, presets, earlier runs."""

import pytest

from keras_capsule_poe import registry
from keras_capsule_poe.core.enumeration import MOST_NEURONS
from keras_capsule_poe.errors import ConfigError


@pytest.mark.parametrize(
    "preset, given, words",
    [
        ("held", {"experts.dim": MOST_NEURONS + 1}, "experts.dim must be .*20. Received: 21"),
        ("held", {"routing": "new"}, "experts.routing must be .*Received: 'new'"),
        ("held", {"top.capsules": -1}, "top.capsules must be .*Received: -1"),
        ("held", {"coefficient_sum": 0}, "experts.coefficient_sum must be .*Received: 0"),
        ("held", {"posterior_states": 0}, "experts.posterior_states must be .*Received: 0"),
        ("held", {"joint_steps": 0}, "experts.joint_steps must be .*Received: 0"),
        ("held", {"initializer": "zeros"}, "experts.initializer must be .*Received: 'zeros'"),
        ("held", {"experts.algorithm": "pcd"}, "There is no setting `experts.algorithm`"),
        ("held", {"experts.weight_decay": 334}, "experts.weight_decay must be below 333"),
        ("held", {"top.dim": 3}, "top.dim has no effect here: top.capsules is 0"),
        ("boltzmann", {"load_balancing": 1}, "experts.load_balancing .*no effect.*'averaged'"),
        ("latent", {"agreement_scale": 2}, "experts.agreement_scale .*no effect.*'latent'"),
        ("mixture", {"cd_steps": 2}, "experts.cd_steps .*no effect.*'mixture'"),
    ],
)
def test_settings_that_cannot_be(preset, given, words):
    with pytest.raises(ConfigError, match=words):
        registry.settings("neurons", preset, **given).check((28, 28, 1))


def test_presets():
    for name in registry.settings_class("neurons").PRESETS:
        settings = registry.settings("neurons", name)
        settings.check((28, 28, 1))
        assert list(settings.stages) == ["autoencoder", "features", "experts", "export"]
        shapes, parameters = registry.model_class("neurons").outline(settings, (28, 28, 1))
        assert shapes["expert neurons"] == (20, 16) and set(parameters) == {
            "autoencoder",
            "experts",
        }
    settings.set("top.capsules", 3)
    assert list(settings.stages)[-2:] == ["top", "export"]
    assert set(settings.steps(1000)) == {"autoencoder", "experts", "top"}


def test_settings_of_an_earlier_run():
    """Idle settings and those of the code are left out; another value cannot be resumed."""
    experts = {"routing": "fixed", "temperature": 0.2, "centering": False, "remembered": 7}
    former = {"recipe": "boltzmann", "experts": {**experts, "algorithm": "cd"}, "features": {}}
    settings = registry.settings("neurons").from_dict(former)
    assert (settings.preset, settings.experts.routing) == ("boltzmann", "averaged")
    assert settings.experts.agreement_scale == 0.2 and settings.experts.posterior_states == 7
    assert settings.lost == {}
    former["top"] = {"capsules": 3, "momentum": 0.9}
    former["experts"]["algorithm"] = "pcd"
    lost = registry.settings("neurons").from_dict(former).lost
    assert lost == {"experts.algorithm": "pcd", "top.momentum": 0.9}
