"""The routing layer: numbers, options, shapes, precision, serialisation."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_capsule_poe import CapsulePoE, RoutingLayer
from keras_capsule_poe.functions import EinsumMaps, Router, RoutingOptions, squash

BOTH = [RoutingLayer, CapsulePoE]


def primaries(n=3, capsules=6, dim=4, seed=0):
    return np.asarray(squash(np.random.default_rng(seed).normal(size=(n, capsules, dim)))).astype(
        "float32"
    )


def ordinary(layer_class, **options):
    """A layer whose maps are not tiny."""
    options = {"kernel_initializer": keras.initializers.RandomNormal(stddev=0.5, seed=1), **options}
    return layer_class(5, 3, **options)


@pytest.mark.parametrize("layer_class", BOTH)
@pytest.mark.parametrize("implementation", ["reference", "fused"])
def test_the_call_routes_and_squashes(layer_class, implementation):
    for softmax_over in ("inputs", "outputs"):
        for agreement in ("cosine", "dot"):
            check_call(layer_class, implementation, softmax_over, agreement)


def check_call(layer_class, implementation, softmax_over, agreement):
    layer = ordinary(
        layer_class,
        routing_iterations=3,
        agreement_scale=3.0,
        softmax_over=softmax_over,
        agreement=agreement,
        activation_prior_weight=0.5,
        use_routing_bias=True,
        coefficient_sum=4.0,
        implementation=implementation,
    )
    x = primaries()
    layer.build(x.shape)
    layer.routing_bias.assign([0.5, -1.0, 0.0, 2.0, 0.3])
    options = RoutingOptions(
        routing_iterations=3,
        agreement_scale=3.0,
        softmax_over=softmax_over,
        agreement=agreement,
        activation_prior_weight=0.5,
        coefficient_sum=4.0,
    )
    maps = EinsumMaps(np.asarray(layer.kernel))
    expected = Router(maps, options, np.asarray(layer.routing_bias)).route(x)
    got = layer.route(x)
    # Sums of six products in float32, in another order, through two softmaxes.
    np.testing.assert_allclose(got.coefficients, expected.coefficients, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got.z, expected.z, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(layer(x), squash(expected.z), rtol=1e-4, atol=1e-5)
    share = 4 / (6 if softmax_over == "inputs" else 5)
    uniform = layer.route(x, coefficients="uniform")
    np.testing.assert_allclose(uniform.coefficients, np.full((3, 6, 5), share), rtol=1e-6)
    np.testing.assert_allclose(
        uniform.z, share * np.asarray(maps.equal_up(x)), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    "scale, softmax_over, expected",
    [("mean", "inputs", 6.0), ("mean", "outputs", 5.0), (2.5, "inputs", 2.5)],
)
def test_scale(scale, softmax_over, expected):
    layer = ordinary(RoutingLayer, coefficient_sum=scale, softmax_over=softmax_over)
    layer.build((None, 6, 4))
    c = np.asarray(layer.route(primaries()).coefficients)
    assert layer.coefficient_scale == expected
    # float32 softmax.
    np.testing.assert_allclose(
        c.sum(axis=1 if softmax_over == "inputs" else 2), expected, rtol=1e-5
    )


@pytest.mark.parametrize("layer_class", BOTH)
@pytest.mark.parametrize("implementation", ["reference", "fused"])
def test_mixed_bfloat16(layer_class, implementation):
    options = {"implementation": implementation, "use_routing_bias": True}
    half = ordinary(layer_class, dtype="mixed_bfloat16", **options)
    full = ordinary(layer_class, **options)
    x = primaries(20)
    got, expected = half(x), np.asarray(full(x))
    assert got.dtype == "bfloat16"
    assert half.kernel.dtype == half.routing_bias.dtype == "float32"
    assert np.array_equal(half.kernel, full.kernel)
    # bfloat16 keeps eight bits: 0.4% of each of the numbers, of which six are added.
    assert np.abs(np.asarray(tf.cast(got, "float32")) - expected).max() < 0.03


def test_routing_bias_is_not_trained_and_shifts_the_shares():
    layer = ordinary(RoutingLayer, use_routing_bias=True, routing_iterations=1)
    layer.build((None, 6, 4))
    assert [weight.name for weight in layer.trainable_weights] == ["kernel"]
    assert [weight.name for weight in layer.non_trainable_weights] == ["routing_bias"]
    layer.routing_bias.assign(np.log([1.0, 2.0, 3.0, 4.0, 10.0]))
    c = np.asarray(layer.route(primaries()).coefficients)
    np.testing.assert_allclose(c, np.broadcast_to([0.05, 0.1, 0.15, 0.2, 0.5], c.shape), rtol=1e-5)


@pytest.mark.parametrize("layer_class", BOTH)
def test_initializer_regularizer_and_constraint(layer_class):
    layer = layer_class(
        5,
        3,
        kernel_initializer="ones",
        kernel_regularizer=keras.regularizers.L2(0.1),
        kernel_constraint="non_neg",
    )
    layer(primaries())
    assert np.array_equal(layer.kernel, np.ones((6, 5, 3, 4)))
    # 0.1 times a sum of 360 ones.
    np.testing.assert_allclose(layer.losses, [36.0], rtol=1e-6)
    assert isinstance(layer.kernel.constraint, keras.constraints.NonNeg)


def test_the_default_initializer_of_experts():
    layer, stddev = CapsulePoE(10, 16), 1e-3
    layer.build((None, 20, 8))
    # 25,600 draws give the standard deviation to 0.5%; five times that.
    np.testing.assert_allclose(np.std(layer.kernel), stddev, rtol=0.025)


FULL = {
    "capsules": 5,
    "dim": 3,
    "routing_iterations": 5,
    "agreement_scale": 2.5,
    "softmax_over": "inputs",
    "agreement": "dot",
    "activation_prior_weight": 0.25,
    "use_routing_bias": True,
    "coefficient_sum": 7.0,
    "kernel_initializer": keras.initializers.RandomUniform(-0.2, 0.2, seed=3),
    "kernel_regularizer": keras.regularizers.L1L2(0.01, 0.02),
    "kernel_constraint": keras.constraints.MaxNorm(2.0),
    "implementation": "reference",
    "name": "layer_of_capsules",
}


@pytest.mark.parametrize("options", [FULL, {"capsules": 5, "dim": 3, "coefficient_sum": "mean"}])
@pytest.mark.parametrize("layer_class", BOTH)
def test_config_round_trip(layer_class, options):
    layer = layer_class(**options)
    serialized = keras.saving.serialize_keras_object(layer)
    assert serialized["registered_name"] == f"keras_capsule_poe>{layer_class.__name__}"
    for copy in (
        layer_class.from_config(layer.get_config()),
        keras.saving.deserialize_keras_object(serialized),
    ):
        assert type(copy) is layer_class
        assert copy.get_config() == layer.get_config()
        for name, value in options.items():
            assert name.startswith("kernel") or copy.get_config()[name] == value
    if options is FULL:
        x = primaries()
        # Seeded initialisers: the copy draws the same maps.
        assert np.array_equal(layer_class.from_config(layer.get_config())(x), layer(x))


def test_a_subclass_may_keep_an_argument_under_another_name_or_not_at_all():
    class Own(RoutingLayer):
        def __init__(self, capsules, dim, other=2, **kwargs):
            super().__init__(capsules, dim, **kwargs)

    assert Own(5, 3, name="own").get_config() == RoutingLayer(5, 3, name="own").get_config()


@pytest.mark.parametrize("layer_class", BOTH)
@pytest.mark.parametrize("shape", [(3, 24), (3, 6, 4, 1), (3, None, 4), (3, 6, None)])
def test_wrong_ranks_and_unknown_sizes_are_refused(layer_class, shape):
    layer = layer_class(5, 3)
    for method in (layer.build, layer.compute_output_shape):
        with pytest.raises(
            ValueError, match=f"{layer_class.__name__} needs capsules.*Received: input_shape"
        ):
            method(shape)


@pytest.mark.parametrize("layer_class", BOTH)
def test_other_sizes_than_built_for_are_refused(layer_class):
    layer = layer_class(5, 3)
    layer(primaries())
    for sizes in ({"capsules": 7}, {"dim": 5}):
        with pytest.raises(ValueError, match="incompatible with the layer"):
            layer(primaries(**sizes))


BAD = [
    ("capsules", 0),
    ("capsules", -2),
    ("capsules", 2.0),
    ("capsules", True),
    ("dim", float("nan")),
    ("dim", 0),
    ("dim", "8"),
    ("coefficient_sum", None),
    ("coefficient_sum", "sum"),
    ("routing_iterations", True),
    ("implementation", "quick"),
]


@pytest.mark.parametrize("layer_class", BOTH)
def test_bad_arguments_are_refused(layer_class):
    for name, value in BAD:
        with pytest.raises(ValueError, match=rf"`{name}` must be .*Received: {name}="):
            layer_class(**{"capsules": 5, "dim": 3, name: value})


@pytest.mark.parametrize("softmax_over", ["inputs", "outputs"])
@pytest.mark.parametrize("inputs, outputs", [(1, 4), (4, 1), (1, 1)])
def test_a_single_capsule_on_either_side(softmax_over, inputs, outputs):
    """Allowed, and without a warning."""
    layer = RoutingLayer(outputs, 3, softmax_over=softmax_over)
    assert layer(primaries(capsules=inputs)).shape == (3, outputs, 3)


def test_numpy_numbers_are_taken_and_saved_as_plain_ones():
    layer = RoutingLayer(
        np.int64(5), np.int32(3), routing_iterations=np.int64(2), coefficient_sum=np.float32(2)
    )
    config = json.loads(json.dumps(layer.get_config()))
    assert (
        config["capsules"],
        config["dim"],
        config["routing_iterations"],
        config["coefficient_sum"],
    ) == (
        5,
        3,
        2,
        2,
    )


def test_the_scale_of_older_configurations():
    for softmax_over, expected in (("inputs", "mean"), ("outputs", 1.0)):
        config = {
            **RoutingLayer(5, 3, softmax_over=softmax_over).get_config(),
            "coefficient_sum": None,
        }
        assert RoutingLayer.from_config(config).options.coefficient_sum == expected


def test_coefficients_are_uniform_or_routed():
    layer = ordinary(RoutingLayer)
    layer.build((None, 6, 4))
    with pytest.raises(ValueError, match="`coefficients` must be 'uniform'.*Received"):
        layer.route(primaries(), coefficients="equal")
