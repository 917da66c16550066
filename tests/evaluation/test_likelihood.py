"""Likelihoods of models that have one, and the command on capsules."""

import json

import numpy as np
import pytest

from keras_capsule_poe.core.likelihood import Bracket
from keras_capsule_poe.data import ImageData
from keras_capsule_poe.errors import BadUse
from keras_capsule_poe.evaluation.likelihood import likelihood, likelihood_text
from keras_capsule_poe.functions import Router


class Known:
    """A density whose log Z is known from both sides."""

    TITLE, about, TEMPERATURES, CHAINS = "Known", "bytes", 7, 5
    LOG_Z = None

    def density(self, images, seed=0, **named):
        return self

    def log_weights(self, images):
        return images[:, 0, 0, 0].astype("float64")

    def exact(self):
        return self.LOG_Z

    def bracket(self, temperatures, chains, seed):
        self.asked = temperatures, chains, seed
        return Bracket(2.0, 0.1, 3.0, 0.2)


def test_nats_are_of_the_middle_or_of_what_is_exact(image_set):
    data = ImageData(image_set(9, 0), image_set(6, 1))
    known = Known()
    values = data.test.images[:4, 0, 0, 0].astype("float64")
    spread = values.std(ddof=1) / 2
    found = likelihood(known, data, images=4, seed=3)
    assert known.asked == (7, 5, 3) and found["images"] == 4
    # Half of the width counts, where an error of one side alone would be smaller.
    assert found["nats"] == pytest.approx(values.mean() - 2.5)
    assert found["nats_error"] == pytest.approx(np.hypot(spread, 0.5))
    assert found["nats_forward"] == pytest.approx(values.mean() - 2)
    known.LOG_Z = 2.7
    found = likelihood(known, data, images=4, temperatures=9, chains=3)
    assert known.asked == (9, 3, 0)
    assert found["nats"] == pytest.approx(values.mean() - 2.7)
    assert found["nats_error"] == pytest.approx(spread)


def test_weights_of_few_chains_are_reported(image_set):
    class Few(Known):
        def bracket(self, temperatures, chains, seed):
            return Bracket(2.0, self.error, 3.0, 0.2)

    data, few = ImageData(image_set(9, 0), image_set(6, 1)), Few()
    few.error = 0.4
    assert "weight" not in likelihood_text(likelihood(few, data))
    few.error = 0.9
    assert "the weight, forward:" in likelihood_text(likelihood(few, data))


def test_what_has_no_likelihood_is_refused(image_set):
    data = ImageData(image_set(9, 0), image_set(6, 1))
    with pytest.raises(BadUse, match="no likelihood. It is a int"):
        likelihood(3, data)
    with pytest.raises(BadUse, match="`chains` must be at least 2.*chains=1"):
        likelihood(Known(), data, chains=1)
    for name in ("chains", "temperatures", "images"):
        # Zero is not the default.
        with pytest.raises(BadUse, match=f"`images` at least 1.*{name}=0"):
            likelihood(Known(), data, **{name: 0})


@pytest.mark.some(2)
@pytest.mark.parametrize("base, routing", [("ball", "routed"), ("gaussian", "fixed")])
def test_capsules_over_a_named_base(model, image_set, base, routing):
    data = ImageData(image_set(9, 0), image_set(6, 1))
    named = {"base": base, "routing": routing}
    found = likelihood(model, data, chains=300, temperatures=8, **named)
    experts = model.encoder.experts
    router = Router(experts.maps(), experts.options, experts.routing_bias)
    x, fitted = (
        np.asarray(model.to_visible(part.images / np.float32(255)))
        for part in (data.test, data.train)
    )
    routed = router.route(x)
    z = np.asarray(routed.z)
    if routing == "fixed":
        mean = np.asarray(router.route(fitted).coefficients).mean(axis=0)
        z = np.einsum("ij,ijed,nid->nje", mean, np.asarray(experts.kernel), x)
    # Coefficients of the test images, or a sum without its one, would be other values.
    values = np.log1p(np.square(z).sum(axis=-1)).sum(axis=-1)
    middle = (found["forward"] + found["reverse"]) / 2
    assert found["nats"] == pytest.approx(values.mean() - middle, abs=1e-3)
    assert found["exact"] is None and f"base {base}" in found["about"]
    errors = np.hypot(found["forward_error"], found["reverse_error"])
    assert abs(found["width"]) < 5 * errors + 0.05


def test_a_base_must_be_named(model, image_set):
    data = ImageData(image_set(9, 0), image_set(6, 1))
    with pytest.raises(BadUse, match="`base` must be one of 'ball', 'isotropic', 'gaussian'"):
        likelihood(model, data)
    with pytest.raises(BadUse, match="Received: routing='held'"):
        likelihood(model, data, base="ball", routing="held")


def test_the_command(capspoe, tiny_model, tmp_path):
    path = tmp_path / "figures.json"
    options = ("--model-dir", tiny_model, "--images", 20, "--chains", 20, "--temperatures", 3)
    result = capspoe("likelihood", *options, "--base", "isotropic", "--json", path)
    assert result.exit_code == 0, result.output
    figures = json.loads(path.read_text())
    assert figures["named"] == {"base": "isotropic"} and figures["chains"] == 20
    assert "over the base isotropic" in result.output and "coefficients fixed" in result.output
    assert f"{figures['nats']:.3f} +- {figures['nats_error']:.3f}" in result.output
    result = capspoe("likelihood", *options)
    assert result.exit_code == 2
    last = result.output.strip().splitlines()[-1]
    assert "`base` must be one of" in last and last.endswith("None. Give it with --base.")
