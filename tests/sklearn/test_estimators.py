"""Estimators for scikit-learn: its own checks, and results against independent truth.

Rejected: a free energy that is not that of the Keras layer; a gradient of the wrong sign; sparse
rows that give other features than dense ones; known values that sampling changes.
"""

import pickle

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neural_network import BernoulliRBM
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import keras_capsule_poe as kcp
from keras_capsule_poe.sklearn import CapsuleTransformer, RBMTransformer

X, Y = load_digits(return_X_y=True)
X = X / 16


@pytest.fixture
def eager():
    """Graphs take seconds to trace, and the checks fit dozens of estimators for a few steps."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@parametrize_with_checks([RBMTransformer(n_components=4, n_iter=2)])
def test_scikit_learn_s_checks_of_the_machine(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:Even though the `tf.config")
@pytest.mark.some(4)
@parametrize_with_checks([CapsuleTransformer(2, 2, n_iter=1)])
def test_scikit_learn_s_checks_of_capsules(estimator, check, eager):
    check(estimator)


def test_the_free_energy_is_that_of_the_keras_layer():
    found = RBMTransformer(7, n_iter=2, random_state=0).fit(X)
    layer = kcp.RestrictedBoltzmannMachine(7)
    layer.build((None, 64))
    layer.kernel.assign(found.components_.T)
    layer.hidden_bias.assign(found.intercept_hidden_)
    layer.visible_bias.assign(found.intercept_visible_)
    v = X[:20].astype("float32")
    np.testing.assert_allclose(found.score_samples(v), -layer.free_energy(v), rtol=1e-4)
    np.testing.assert_allclose(found.transform(v), layer(v), atol=1e-5)


def test_training_raises_the_exact_likelihood():
    """log Z by enumeration of the hidden units, in float64."""
    small = X[:, 20:32]
    v = (np.random.default_rng(0).uniform(size=small.shape) < small).astype(float)

    def log_likelihood(rbm):
        states = np.array(np.meshgrid(*[[0, 1]] * 5)).reshape(5, -1).T.astype(float)
        fields = states @ rbm.components_ + rbm.intercept_visible_
        log_z = np.logaddexp.reduce(
            states @ rbm.intercept_hidden_ + np.logaddexp(0, fields).sum(axis=1)
        )
        return (rbm.score_samples(v) - log_z).mean()

    found = [
        log_likelihood(RBMTransformer(5, n_iter=n, random_state=0).fit(small)) for n in (1, 3, 30)
    ]
    assert found[0] < found[1] - 0.05 and found[1] < found[2] - 0.05, found
    mean = v.mean(axis=0)
    independent = (v * np.log(mean) + (1 - v) * np.log(1 - mean)).sum(axis=1).mean()
    assert found[2] > independent + 1


def test_features_are_at_least_as_good_as_scikit_learn_s():
    scores = {}
    for name, make in (("ours", RBMTransformer), ("theirs", BernoulliRBM)):
        scores[name] = []
        for seed in range(3):
            train, test, y, y_test = train_test_split(X, Y, random_state=seed)
            pipeline = make_pipeline(
                make(100, random_state=seed), LogisticRegression(C=10, max_iter=200, tol=1e-2)
            )
            scores[name].append(pipeline.fit(train, y).score(test, y_test))
    assert np.mean(scores["ours"]) >= np.mean(scores["theirs"]), scores
    assert np.mean(scores["ours"]) > 0.9


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.csc_array])
def test_sparse_rows_are_like_dense_ones(kind):
    dense = RBMTransformer(6, n_iter=2, random_state=0).fit(X)
    sparse = RBMTransformer(6, n_iter=2, random_state=0).fit(kind(X))
    np.testing.assert_allclose(sparse.transform(kind(X)), dense.transform(X), atol=1e-5)
    np.testing.assert_allclose(sparse.score_samples(kind(X)), dense.score_samples(X), rtol=1e-4)


def test_other_ranges_are_scaled_or_refused():
    scaled = RBMTransformer(6, n_iter=2, random_state=0).fit(X)
    raw = RBMTransformer(6, n_iter=2, random_state=0).fit(16 * X)
    assert raw.transform(16 * X).shape == (1797, 6) and scaled._offset is None
    samples = raw.sample(5, steps=20, random_state=0)
    assert samples.min() >= 0 and samples.max() > 2
    with pytest.raises(ValueError, match=r"`X` must be in \[0, 1\] with scale='never'. Rec.*0 to 16"):
        RBMTransformer(6, scale="never").fit(16 * X)


def test_known_values_stay():
    rbm = RBMTransformer(16, n_iter=5, random_state=0).fit(X)
    known = X[0].copy()
    known[32:] = np.nan
    filled = rbm.sample(4, steps=50, known=known, random_state=0)
    np.testing.assert_allclose(filled[:, :32], np.tile(X[0, :32], (4, 1)), atol=1e-6)
    assert np.isfinite(filled).all()
    with pytest.raises(ValueError, match="`known` must have shape"):
        rbm.sample(4, known=known[:5])
    with pytest.raises(ValueError, match="1 or more. Received: n_samples=0"):
        rbm.sample(0)


def test_partial_fit_goes_on():
    rbm = RBMTransformer(8, random_state=0)
    scores = []
    for _ in range(4):
        rbm.partial_fit(X)
        scores.append(rbm.score_samples(X[:50]).copy())
    assert rbm.n_iter_ == 4 and not np.allclose(scores[0], scores[3])


@pytest.mark.parametrize("estimator", [RBMTransformer(5, n_iter=1), CapsuleTransformer(3, 2, n_iter=1)])
def test_pickled_and_cloned(estimator, eager):
    fitted = clone(estimator).set_params(random_state=0).fit(X[:100])
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_allclose(again.transform(X[:9]), fitted.transform(X[:9]), atol=1e-6)
    assert list(fitted.get_feature_names_out())[0].startswith(type(estimator).__name__.lower())


def test_settings_are_searched():
    pipeline = make_pipeline(RBMTransformer(n_iter=1), LogisticRegression(max_iter=20, tol=1))
    search = GridSearchCV(pipeline, {"rbmtransformer__n_components": [3, 30]}, cv=2)
    assert search.fit(X[:300], Y[:300]).best_params_ == {"rbmtransformer__n_components": 30}


def test_capsules_learn_and_tell_digits_apart():
    train, test, y, y_test = train_test_split(X[:800], Y[:800], random_state=0)
    capsules = CapsuleTransformer(random_state=0)
    pipeline = make_pipeline(capsules, LogisticRegression(C=10, max_iter=200, tol=1e-2))
    assert pipeline.fit(train, y).score(test, y_test) > 0.8
    assert capsules.relative_error_ < 0.7
    lengths = capsules.set_params(output="probabilities").transform(test)
    assert lengths.shape == (200, 10) and 0 <= lengths.min() and lengths.max() < 1
    # Noise is less probable than digits.
    noise = np.random.default_rng(0).uniform(size=test.shape)
    assert capsules.score_samples(test).mean() > capsules.score_samples(noise).mean()
