"""The estimators keep scikit-learn's conventions and learn what the models of the library learn.

Rejected: a step of another rule than that of `HarmoniumModel`, weights that lose the offsets,
training that depends on the form of X, features that depend on the batch, and a known feature
that moves, rows far from the training rows without a word, and clusters worse than k-means.
"""

import itertools
import pickle
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy import sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import normalized_mutual_info_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import keras_capsule_poe as kcp
from keras_capsule_poe.core.units import BinaryUnits
from keras_capsule_poe.models.boltzmann.arrays import ArrayMachine, Rule
from keras_capsule_poe.sklearn import CapsuleClusterer, CapsuleTransformer, RBMTransformer

RNG = np.random.default_rng(0)
X = RNG.integers(2, size=(40, 6)).astype("float64")
REAL = RNG.normal(size=(40, 6)) * (RNG.uniform(size=(40, 6)) < 0.5)

OUTSIDE = "it trains on values outside [0, 1], which are an error without rescale=True"
TRAINED_OUTSIDE = """
    check_dict_unchanged check_dont_overwrite_parameters check_estimators_dtypes
    check_estimators_fit_returns_self check_estimators_overwrite_params check_estimators_pickle
    check_f_contiguous_array_estimator check_fit2d_1feature check_fit2d_1sample
    check_fit2d_predict1d check_fit_check_is_fitted check_fit_idempotent
    check_methods_sample_order_invariance check_methods_subset_invariance check_n_features_in
    check_n_features_in_after_fitting check_pipeline_consistency
    check_positive_only_tag_during_fit check_readonly_memmap_input
    check_transformer_data_not_an_array check_transformer_general
    check_transformer_preserve_dtypes
""".split()


def tiny(**options):
    """A `CapsuleTransformer` with a small graph, because the checks build it often."""
    options = {"n_iter": 1, "primary_dim": 4, "routing_iterations": 1, **options}
    return CapsuleTransformer(2, 2, random_state=0, **options)


def clusterer(**options):
    return CapsuleClusterer(3, 2, **{"n_iter": 1, "random_state": 0, **options})


EVERY = {"rbm": RBMTransformer(3, n_iter=2, random_state=0), "capsules": tiny(),
         "clusters": clusterer()}  # fmt: skip


def expected(estimator):
    is_strict = isinstance(estimator, RBMTransformer) and not estimator.rescale
    return dict.fromkeys(TRAINED_OUTSIDE, OUTSIDE) if is_strict else {}


# As one case each: scikit-learn names the check that fails.
@pytest.mark.parametrize(
    "estimator",
    [
        RBMTransformer(4, n_iter=2, rescale=True),
        RBMTransformer(4, n_iter=2),
        pytest.param(tiny(), marks=pytest.mark.long),
        pytest.param(clusterer(), marks=pytest.mark.long),
    ],
)
def test_conventions(estimator, eager):
    check_estimator(estimator, expected_failed_checks=expected(estimator), on_skip=None)


@pytest.fixture
def eager():
    """TensorFlow without graphs: tracing one for each fit takes longer than the few steps."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="module")
def digits():
    """Training and test rows and labels of digits, 700 and 500 rows."""
    rows, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(rows))[:1200]
    rows, labels = rows[order] / 16, labels[order]
    return rows[:700], labels[:700], rows[700:], labels[700:]


@pytest.mark.parametrize("cd_steps", [1, 2])
def test_a_step_is_that_of_a_harmonium_model(monkeypatch, cd_steps):
    machine = ArrayMachine(4, np.linspace(0.2, 0.7, 6), np.random.default_rng(0))
    machine.kernel += np.random.default_rng(1).normal(size=(4, 6)).astype("float32")
    model = machine.to_model(cd_steps=cd_steps)
    model.compile(keras.optimizers.SGD(0.3, momentum=0.5), jit_compile=False)
    model.optimizer.build(model.trainable_variables)
    ours, theirs = np.random.default_rng(2), np.random.default_rng(2)
    monkeypatch.setattr(
        BinaryUnits, "noise", lambda self, shape, dtype, seed: theirs.random(shape, "float32")
    )
    for rows in (slice(0, 20), slice(20, 40), slice(0, 20)):
        v = X[rows].astype("float32")
        machine.step(v, Rule(0.3, 0.5, cd_steps, binarize=False), ours)
        model.train_step(v)
    names = ("kernel", "hidden_bias", "visible_bias", "hidden_offset", "visible_offset")
    for name in names:
        found, wanted = getattr(machine, name), np.asarray(getattr(model.machine, name))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=name)
    hidden, _ = machine.uncentred_biases()
    wanted = np.asarray(model(X.astype("float32")))
    z = X @ machine.kernel.T + hidden
    np.testing.assert_allclose(1 / (1 + np.exp(-z)), wanted, atol=1e-5)


def test_rows_are_drawn_with_their_values_as_probabilities():
    seen = []

    class Watched(ArrayMachine):
        def gradient(self, v, *arguments):
            seen.append(v)
            return super().gradient(v, *arguments)

    rng = np.random.default_rng(0)
    machine = Watched(2, np.full(3, 0.5), rng)
    v = np.tile(np.float32([0, 0.25, 1]), (4000, 1))
    machine.step(v, Rule(0.1, 0.0, 1, binarize=True), rng)
    machine.step(v, Rule(0.1, 0.0, 1, binarize=False), rng)
    assert set(np.unique(seen[0])) == {0, 1}
    np.testing.assert_allclose(seen[0].mean(axis=0), [0, 0.25, 1], atol=0.03)
    np.testing.assert_array_equal(seen[1], v)


def test_scores_and_features_are_those_of_enumerated_hidden_states():
    machine = RBMTransformer(3, random_state=0).fit(X)
    states = np.array(list(itertools.product([0.0, 1.0], repeat=3)))
    log_joint = (
        (X @ machine.intercept_visible_)[:, None]
        + states @ machine.intercept_hidden_
        + X @ machine.components_.T @ states.T
    )
    joint = np.exp(log_joint)
    np.testing.assert_allclose(
        machine.score_samples(X), np.log(joint.sum(axis=1)), rtol=1e-5, atol=1e-5
    )
    hidden = joint @ states / joint.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(machine.transform(X), hidden, rtol=1e-5)
    model = machine.to_model()
    constant = machine.score_samples(X) + np.asarray(model.free_energy(X.astype("float32")))
    assert np.ptp(constant) < 1e-4


def test_sparse_rows_give_the_features_of_dense_rows(monkeypatch):
    for name in (
        "rbm.ROWS",
        "base.ROWS",
        "capsules.CapsuleTransformer.ROWS",
        "clusters.CapsuleClusterer.ROWS",
    ):
        monkeypatch.setattr(f"keras_capsule_poe.sklearn.{name}", 7)
    for estimator in (RBMTransformer(3, random_state=0, rescale=True), tiny(), clusterer()):
        dense = clone(estimator).fit(REAL)
        features = dense.transform(REAL)
        assert features.std() > 1e-4
        for form in (sparse.csr_matrix, sparse.csc_array):
            found = clone(estimator).fit(form(REAL)).transform(form(REAL))
            np.testing.assert_allclose(found, features, rtol=1e-5, atol=1e-7)
            scores = dense.score_samples(form(REAL))
            np.testing.assert_allclose(dense.score_samples(REAL), scores)


def test_epochs_of_fit_are_calls_of_partial_fit():
    whole = RBMTransformer(3, n_iter=3, batch_size=15, random_state=0)
    parts = clone(whole)
    for _ in range(3):
        parts.partial_fit(X)
    np.testing.assert_array_equal(whole.fit(X).transform(X), parts.transform(X))
    warm = clone(whole).set_params(warm_start=True, n_iter=2).fit(X)
    np.testing.assert_array_equal(warm.set_params(n_iter=1).fit(X).transform(X), parts.transform(X))
    # Without `warm_start` the weights start anew.
    np.testing.assert_array_equal(parts.fit(X).transform(X), whole.transform(X))


def test_pickles_go_on_as_the_estimator_would():
    machine = RBMTransformer(3, random_state=0).fit(X)
    loaded = pickle.loads(pickle.dumps(machine))
    np.testing.assert_array_equal(loaded.transform(X), machine.transform(X))
    again = loaded.partial_fit(X).transform(X)
    np.testing.assert_array_equal(again, machine.partial_fit(X).transform(X))
    capsules = tiny().fit(REAL)
    loaded = pickle.loads(pickle.dumps(capsules))
    np.testing.assert_array_equal(loaded.transform(REAL), capsules.transform(REAL))


def test_a_search_clones_and_sets_parameters(digits):
    rows, labels, *_ = digits
    pipeline = make_pipeline(
        RBMTransformer(n_iter=2, random_state=0), LogisticRegression(max_iter=200)
    )
    grid = {"rbmtransformer__n_components": [2, 30]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(rows, labels)
    assert search.best_params_ == {"rbmtransformer__n_components": 30}
    assert search.best_estimator_[0].components_.shape == (30, 64)
    assert clone(search.best_estimator_[0]).get_params() == search.best_estimator_[0].get_params()


def test_hidden_units_of_digits_tell_classes(digits):
    rows, labels, new_rows, new_labels = digits
    model = make_pipeline(RBMTransformer(random_state=0), RidgeClassifier())
    assert model.fit(rows, labels).score(new_rows, new_labels) > 0.88
    machine = model[0]
    noise = np.random.default_rng(0).permuted(new_rows, axis=1)
    assert machine.score_samples(new_rows).mean() > machine.score_samples(noise).mean() + 20
    assert machine.get_feature_names_out()[1] == "rbmtransformer1"


def test_chains_sample_the_data_and_keep_known_features():
    equal = np.repeat(RNG.integers(2, size=(200, 1)), 5, axis=1) * 4.0 - 1
    machine = RBMTransformer(4, n_iter=60, rescale=True, random_state=0).fit(equal)
    samples = machine.sample(200, gibbs_steps=100)
    assert set(np.unique(samples)) == {-1, 3}
    assert (np.ptp(samples, axis=1) == 0).mean() > 0.7
    np.testing.assert_array_equal(samples, machine.sample(200, gibbs_steps=100))
    known = np.full((200, 5), np.nan)
    known[:100, 2], known[100:, 2] = -1, 3
    samples = machine.sample(200, gibbs_steps=100, known=known)
    np.testing.assert_array_equal(samples[:, 2], known[:, 2])
    assert (samples == samples[:, 2:3]).mean() > 0.75
    one_row = machine.sample(3, gibbs_steps=1, known=known[0])
    np.testing.assert_array_equal(one_row[:, 2], [-1, -1, -1])


def test_capsules_of_digits_tell_classes(digits):
    rows, labels, new_rows, new_labels = digits
    capsules = CapsuleTransformer(16, n_iter=5, random_state=0)
    model = make_pipeline(capsules, RidgeClassifier()).fit(rows, labels)
    assert capsules.reconstruction_error_ < 0.5
    assert model.score(new_rows, new_labels) > 0.85
    codes = capsules.transform(new_rows)
    assert codes.shape == (500, 64) and codes.dtype == np.float64
    assert capsules.get_feature_names_out().shape == (64,)
    lengths = capsules.set_params(output="probabilities").transform(new_rows)
    np.testing.assert_allclose(lengths, np.linalg.norm(codes.reshape(500, 16, 4), axis=-1))
    assert capsules.get_feature_names_out().shape == (16,)


def test_capsules_are_those_of_the_encoder_on_padded_rows():
    capsules = tiny(n_iter=2, batch_size=15, routing_iterations=2).fit(REAL)
    centred = np.pad(REAL - REAL.mean(axis=0), ((0, 0), (0, 2))).reshape(40, 2, 4)
    z = 0.5 * centred / np.sqrt(np.square(centred).sum(axis=-1).mean())
    n = np.linalg.norm(z, axis=-1, keepdims=True)
    x = (z * n / (1 + n**2)).astype("float32")
    encoder = capsules.to_model()
    wanted = np.asarray(encoder(x)).reshape(40, 4)
    np.testing.assert_allclose(capsules.transform(REAL), wanted, rtol=1e-4, atol=1e-7)
    energy = np.asarray(encoder.experts.free_energy(x))
    np.testing.assert_allclose(capsules.score_samples(REAL), -energy, rtol=1e-4)


def test_parts_of_an_epoch_train_as_the_whole(monkeypatch):
    whole = tiny(n_iter=2, batch_size=15).fit(REAL)
    monkeypatch.setattr("keras_capsule_poe.sklearn.base.BLOCK_BYTES", 1)
    parts = tiny(n_iter=2, batch_size=15).fit(REAL)
    np.testing.assert_allclose(parts.maps_, whole.maps_, rtol=1e-5)
    other = tiny(n_iter=1, batch_size=15).fit(REAL)
    assert np.abs(other.maps_ - whole.maps_).max() > 1e-5


def test_bad_input_is_named_in_one_line():
    cases = [
        (RBMTransformer(), X - 1, r"`X` must have values in \[0, 1\]. Received: .* -1 to 0"),
        (RBMTransformer(), sparse.csr_array(3 * X), r"`X` must have values .* from 0 to 3"),
        (RBMTransformer(0), X, "`n_components` must be a positive integer. Received"),
        (RBMTransformer(learning_rate=0), X, "`learning_rate` must be a number above 0"),
        (RBMTransformer(momentum=1), X, r"`momentum` must lie in \[0, 1\)"),
        (CapsuleTransformer(weight_decay=-1), X, "`weight_decay` must be at least 0"),
        (CapsuleTransformer(output="maps"), X, "`output` must be 'capsules' or 'probabilities'"),
        (CapsuleTransformer(primary_dim=0), X, "`primary_dim` must be a positive integer"),
        (CapsuleTransformer(), X[[0, 0, 0]], "`X` must have rows that differ. Received: 3 equal"),
        (CapsuleClusterer(41), X, "`n_capsules` must be at most the number of images"),
        (CapsuleClusterer(capsule_dim=1), X, "`capsule_dim` must be an integer of at least 2"),
        (CapsuleClusterer(load_balancing=2), X, r"`load_balancing` must lie in \[0, 1\]"),
        (CapsuleClusterer(image_shape=(2, 4)), X, "`image_shape` must be .* with 6 features"),
        (CapsuleClusterer(image_shape=(3, 2)), X.reshape(40, 2, 3), r"images of shape \(2, 3, 1\)"),
    ]
    for estimator, rows, message in cases:
        with pytest.raises(ValueError, match=message) as error:
            estimator.fit(rows)
        assert "\n" not in str(error.value)


def test_known_features_have_the_shape_of_rows():
    machine = RBMTransformer(2, n_iter=1).fit(X)
    with pytest.raises(ValueError, match=r"`known` must have shape \(6,\) or \(3, 6\)"):
        machine.sample(3, known=np.zeros((2, 6)))


def test_a_later_part_that_does_not_fit_is_an_error():
    machine = RBMTransformer(2).partial_fit(X)
    with pytest.raises(ValueError, match="`X` must have values"):
        machine.partial_fit(2 * X)
    with pytest.raises(ValueError, match="`n_components` must stay 2 .* n_components=3"):
        machine.set_params(n_components=3).partial_fit(X)
    # New rows may leave the range.
    assert machine.transform(1.1 * X).shape == (40, 2)


def test_an_rbm_is_trained_without_tensorflow():
    program = (
        "import sys, numpy as np, keras_capsule_poe as kcp\n"
        "X = np.eye(4)\n"
        "print(kcp.sklearn.RBMTransformer(2).fit(X).transform(X).shape)\n"
        "assert not {'keras', 'tensorflow'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "(4, 2)\n", done.stderr
    assert kcp.sklearn.RBMTransformer is RBMTransformer


@pytest.mark.parametrize("name", EVERY)
def test_a_search_needs_no_labels(name, eager):
    estimator = EVERY[name]
    parameter = "n_components" if name == "rbm" else "n_capsules"
    search = GridSearchCV(estimator, {parameter: [2, 3]}, cv=2).fit(X)
    scores = search.best_estimator_.score_samples(X)
    assert scores.shape == (40,) and np.ptp(scores) > 0
    assert search.score(X) == pytest.approx(scores.mean())


def told(call, *arguments):
    """The warnings of a call of an estimator, as texts."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call(*arguments)
    return [str(each.message) for each in found if issubclass(each.category, UserWarning)]


@pytest.mark.parametrize("name", EVERY)
def test_rows_far_from_the_training_rows_are_told(name, eager):
    estimator = clone(EVERY[name]).fit(X)
    column = np.where(np.arange(6) == 4, 1e6, 1) * X
    far = {"255 in feature 0": 255 * X, "1e+06 in feature 4": column}
    far["-9 in feature 0"] = sparse.csr_array(-9 * X)
    for text, rows in far.items():
        for method in (estimator.transform, estimator.score_samples):
            (line,) = told(method, rows)
            assert "of 40 rows far outside" in line
            assert f"such as {text}, which had values from 0 to 1." in line
    assert told(estimator.transform, 1.5 * X - 0.2) == []


def test_the_unit_of_a_constant_feature_is_that_of_the_widest(eager):
    rows = X * [1, 1, 1, 1, 1, 0] + [0, 0, 0, 0, 0, 3]
    estimator = tiny().fit(rows)
    assert told(estimator.transform, rows + [0, 0, 0, 0, 0, 1]) == []
    (line,) = told(estimator.transform, rows + [0, 0, 0, 0, 0, 252])
    assert "255 in feature 5, which had values from 3 to 4" in line


@pytest.mark.parametrize("name", EVERY)
def test_training_that_learns_nothing_is_told(name, eager):
    estimator = clone(EVERY[name]).set_params(learning_rate=1e4, n_iter=25)
    lines = told(estimator.fit, X)
    assert any(f"{type(estimator).__name__}: it learned nothing" in line for line in lines)
    # A few steps are not meant to learn much.
    assert told(clone(estimator).set_params(n_iter=1, learning_rate=0.05).fit, X) == []


def test_images_and_rows_of_them_have_the_same_clusters(eager):
    """Stripes across, stripes down and corners, with noise."""
    shapes = np.zeros((3, 8, 8))
    shapes[0, ::2], shapes[1, :, ::2], shapes[2, :4, :4] = 1, 1, 1
    truth = np.arange(30) % 3
    images = np.clip(shapes[truth] + RNG.normal(0, 0.1, (30, 8, 8)), 0, 1)
    made = clusterer(image_shape=(8, 8))
    labels = made.fit_predict(images)
    assert normalized_mutual_info_score(truth, labels) == pytest.approx(1)
    assert made.image_shape_ == (8, 8, 1) and made.cluster_centers_.shape == (3, 64)
    same = images[..., None], images.reshape(30, 64), sparse.csr_array(images.reshape(30, 64))
    for rows in same:
        np.testing.assert_array_equal(made.predict(rows), labels)
    for rows in same[:2]:
        np.testing.assert_array_equal(clone(made).fit(rows).labels_, labels)
    in_bytes = np.rint(255 * images).astype("uint8")
    np.testing.assert_array_equal(made.predict(in_bytes), labels)
    np.testing.assert_array_equal(clone(made).fit_predict(in_bytes), labels)
    shares = pickle.loads(pickle.dumps(made)).transform(images)
    np.testing.assert_allclose(shares.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(shares.argmax(axis=1), labels)
    np.testing.assert_array_equal(make_pipeline(clone(made)).fit_predict(images), labels)
    for other in (images[:, :4, :4], images.reshape(30, 4, 16), np.repeat(images[..., None], 3, 3)):
        with pytest.raises(ValueError, match="shape|features"):
            made.predict(other)


def test_clusters_of_digits_are_no_worse_than_k_means(digits):
    rows, labels, new_rows, new_labels = digits
    made = CapsuleClusterer(n_iter=5, random_state=0).fit(rows.reshape(-1, 8, 8))
    of_means = KMeans(10, n_init=3, random_state=0).fit(rows)
    found = normalized_mutual_info_score(new_labels, made.predict(new_rows.reshape(-1, 8, 8)))
    assert found > normalized_mutual_info_score(new_labels, of_means.predict(new_rows)) - 0.01


def test_scores_of_clusters_are_log_densities_of_the_features(eager):
    # In one dimension, by a sum over a grid.
    rows = np.concatenate([RNG.normal(-3, 1, 30), RNG.normal(4, 0.5, 30)])[:, None]
    made = clusterer().fit(rows)
    grid = np.linspace(-100, 100, 4001)[:, None]
    made._trained_range = None
    assert np.exp(made.score_samples(grid)).sum() * 0.05 == pytest.approx(1, abs=1e-3)
