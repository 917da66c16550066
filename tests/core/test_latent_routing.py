"""Routing as inference: parents of parts that are latent, all of whose laws are enumerated.

Wrong versions that these tests reject, and `test_mutants` runs: a softmax over the inputs instead
of the outputs, logits that add up over the iterations, agreement without the scale, c drawn
before v (stale), and a chain that is routed anew by mean field.
"""

import itertools

import numpy as np
import pytest
from keras import ops
from scipy.special import logsumexp

from keras_capsule_poe.core.fused.blocks import BlockMaps
from keras_capsule_poe.core.harmonium import latent_chain
from keras_capsule_poe.functions import (
    BinaryUnits,
    CentredUnits,
    EinsumMaps,
    Harmonium,
    LatentRouter,
    contrastive_divergence,
    latent_free_energy,
)

I, D, J, E = 3, 2, 2, 2


def bits(number):
    return np.array(list(itertools.product((0.0, 1.0), repeat=number)))


class ThirdOrder:
    """Every term of -E = b.x + a.y + s sum_i y_(c_i)^T W_(i c_i) x_i, written out."""

    def __init__(self, outputs=J, seed=0, centred=False, scale=1.5):
        random = np.random.default_rng(seed)
        self.scale, self.outputs = scale, outputs
        self.w = random.normal(size=(I, outputs, E, D))
        self.a, self.b = random.normal(size=(outputs, E)), random.normal(size=(I, D))
        self.lam = centred * random.uniform(0.2, 0.8, size=(outputs, E))
        self.mu = centred * random.uniform(0.2, 0.8, size=(I, D))
        self.v = bits(I * D).reshape(-1, I, D)
        self.h = bits(outputs * E).reshape(-1, outputs, E)
        self.parents = np.array(list(itertools.product(range(outputs), repeat=I)))
        self.c = scale * np.eye(outputs)[self.parents]
        x, y = self.v - self.mu, self.h - self.lam
        pairs = np.einsum("hje,ijed,vid->vhij", y, self.w, x)
        self.log_joint = (
            np.einsum("vid,id->v", x, self.b)[:, None, None]
            + np.einsum("hje,je->h", y, self.a)[None, :, None]
            + np.einsum("vhij,cij->vhc", pairs, self.c)
            - I * np.log(outputs)
        )

    def joint(self):
        p = np.exp(self.log_joint)
        return p / p.sum()

    def machine(self, coefficients, maps=EinsumMaps):
        hidden, visible = (
            CentredUnits(BinaryUnits(), self.lam),
            CentredUnits(BinaryUnits(), self.mu),
        )
        return Harmonium(maps(self.w), hidden, visible, self.a, self.b, coefficients)

    def router(self, routing_iterations=4, maps=EinsumMaps):
        hidden = CentredUnits(BinaryUnits(), self.lam)
        return LatentRouter(
            maps(self.w),
            hidden,
            self.a,
            routing_iterations=routing_iterations,
            coefficient_sum=self.scale,
        )

    def conditionals(self, router):
        """p(c | v, h), p(h | v, c) and p(v | h, c) of the library, each over all the rest."""
        machine = self.machine(np.repeat(self.c[:, None], 1, 1).reshape(-1, I, self.outputs))
        x, y = self.v - self.mu, self.h - self.lam
        nv, nh, nc = len(x), len(y), len(self.c)
        c = np.asarray(router.given(np.repeat(x, nh, 0), np.tile(y, (nv, 1, 1)))) / self.scale
        chosen = np.take_along_axis(
            c[:, None], np.broadcast_to(self.parents[None, :, :, None], (nv * nh, nc, I, 1)), 3
        )
        of_c = chosen[..., 0].prod(axis=2).reshape(nv, nh, nc)
        machine = self.machine(np.tile(self.c, (nv, 1, 1)))
        on = np.asarray(machine.hidden.mean(machine.fields(np.repeat(x, nc, 0)))) + self.lam
        of_h = _bernoulli(on, self.h).reshape(nv, nc, nh).transpose(0, 2, 1)
        back = self.machine(np.tile(self.c, (nh, 1, 1))).transposed()
        on = np.asarray(back.hidden.mean(back.fields(np.repeat(y, nc, 0)))) + self.mu
        of_v = _bernoulli(on, self.v).reshape(nh, nc, nv).transpose(2, 0, 1)
        return of_c, of_h, of_v


def _bernoulli(means, states):
    factors = np.where(states[None] == 1, means[:, None], 1 - means[:, None])
    return factors.prod(axis=(2, 3))


def check_conditionals(model, router):
    joint = model.joint()
    of_c, of_h, of_v = model.conditionals(router)
    for found, axis in ((of_c, 2), (of_h, 1), (of_v, 0)):
        np.testing.assert_allclose(found, joint / joint.sum(axis, keepdims=True), atol=1e-12)


def check_bound(model, router_of, most=6):
    """The ELBO never falls, in either half of an update, stays below log p~(v), and gains."""
    x = model.v - model.mu
    exact = logsumexp(model.log_joint, axis=(1, 2))
    before, found = -np.inf, []
    for number in range(1, most + 1):
        c = np.asarray(router_of(number).route(x).coefficients)
        bound = -np.asarray(latent_free_energy(model.machine(c), x, model.scale))
        assert np.all(bound >= before - 1e-12)
        assert np.all(bound <= exact + 1e-12)
        before = bound
        found.append((exact - bound).mean())
        # The other half: parents that are found anew, neurons as they were.
        machine = model.machine(c)
        q = np.asarray(machine.hidden.mean(machine.fields(x))) + model.lam
        half = elbo(model, x, c, q)
        np.testing.assert_allclose(half, bound, atol=1e-12)
        new = np.asarray(router_of(number).given(x, q - model.lam))
        assert np.all(elbo(model, x, new, q) >= half - 1e-12)
    assert found[-1] < 0.7 * found[0]


def elbo(model, x, c, q):
    """The bound of any q(c) = c/s and q(h), written out."""

    def entropy(p):
        return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0)

    energy = np.einsum("vid,id->v", x, model.b) + np.einsum("vje,je->v", q - model.lam, model.a)
    energy = energy + np.einsum("vij,vje,ijed,vid->v", c, q - model.lam, model.w, x)
    own = entropy(c / model.scale).sum(axis=(1, 2)) + (entropy(q) + entropy(1 - q)).sum(axis=(1, 2))
    return energy + own - I * np.log(model.outputs)


@pytest.mark.parametrize("centred", [False, True])
def test_conditionals(centred):
    model = ThirdOrder(centred=centred)
    check_conditionals(model, model.router())


@pytest.mark.parametrize("centred", [False, True])
def test_mean_field_never_loosens_the_bound(centred):
    model = ThirdOrder(centred=centred)
    check_bound(model, model.router)


def test_with_one_hidden_capsule_the_bound_is_exact():
    model = ThirdOrder(outputs=1)
    x = model.v
    c = model.router(routing_iterations=3).route(x).coefficients
    found = -np.asarray(latent_free_energy(model.machine(c), x, model.scale))
    np.testing.assert_allclose(found, logsumexp(model.log_joint, axis=(1, 2)), atol=1e-12)


def transition(model, router):
    """T(v c -> v' c') of a sweep: h of p(h | v, c), v' of p(v' | h, c), c' of p(c' | v', h)."""
    of_c, of_h, of_v = model.conditionals(router)
    return np.einsum("vhc,whc,whd->vcwd", of_h, of_v, of_c)


def check_stationarity(model, router):
    p = model.joint().sum(axis=1)
    np.testing.assert_allclose(
        np.einsum("vc,vcwd->wd", p, transition(model, router)), p, atol=1e-14
    )


def test_a_sweep_is_stationary():
    model = ThirdOrder()
    check_stationarity(model, model.router())


def test_a_chain_that_is_routed_anew_is_no_sampler():
    """c' by mean field of v' instead of drawn: the law of v is off by more than .05."""
    model = ThirdOrder()
    p = model.joint().sum(axis=(1, 2))
    c = np.asarray(model.router().route(model.v).coefficients)
    machine = model.machine(c)
    up = _bernoulli(np.asarray(machine.hidden.mean(machine.fields(model.v))), model.h)
    back = machine.transposed()
    t = np.zeros((len(p), len(p)))
    for h, y in enumerate(model.h):
        on = np.asarray(back.hidden.mean(back.fields(np.repeat(y[None], len(c), 0))))
        t += up[:, h, None] * _bernoulli(on, model.v)
    law = np.linalg.matrix_power(t, 4096)[0]
    assert np.abs(law - p).sum() / 2 > 0.05


@pytest.mark.parametrize("maps", [EinsumMaps, BlockMaps])
def test_the_chain_draws_from_its_law(maps):
    model, number = ThirdOrder(), 20_000
    p = model.joint().sum(axis=1)
    random = np.random.default_rng(0)
    chosen = random.choice(p.size, number, p=p.ravel())
    v, c = model.v[chosen // p.shape[1]], model.c[chosen % p.shape[1]]
    router, machine = model.router(maps=maps), model.machine(c, maps)
    x, _, c = (np.asarray(s) for s in latent_chain(router, machine, v, c, steps=4, seed=1))
    v = x.reshape(number, -1) @ 2 ** np.arange(I * D)[::-1]
    parents = c.argmax(axis=2) @ model.outputs ** np.arange(I)[::-1]
    counts = np.bincount((v * p.shape[1] + parents).astype(int), minlength=p.size) / number
    floor = np.sqrt(p * (1 - p) / number).sum() / 2
    assert np.abs(counts - p.ravel()).sum() / 2 < 4 * floor


def test_both_forms_of_maps_agree():
    model = ThirdOrder(centred=True)
    x = model.v - model.mu
    plain, blocks = (model.router(maps=maps).route(x) for maps in (EinsumMaps, BlockMaps))
    for a, b in zip(plain, blocks):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_contrastive_divergence_draws_the_parents_too():
    """k steps on: the statistics of the enumerated chain, within five standard errors."""
    model = ThirdOrder()
    router, number, v0 = model.router(), 100_000, model.v[[11]]
    machine = model.machine(np.asarray(router.route(v0).coefficients))
    options = {"hidden_bias": model.a, "visible_bias": model.b}
    found = contrastive_divergence(
        machine.maps, np.repeat(v0, number, 0), routing=router, hidden=machine.hidden,
        visible=machine.visible, seed=3, cd_steps=2, **options,
    )  # fmt: skip
    of_c, of_h, of_v = model.conditionals(router)
    on = np.asarray(machine.hidden.mean(machine.fields(v0)))
    law = np.einsum("h,vh->vh", _bernoulli(on, model.h)[0], _of_v_soft(model, machine))
    law = np.einsum("vh,vhc->vc", law, of_c)
    law = np.einsum("vc,vcwd->wd", law, transition(model, router))
    mean = np.einsum("wq,wid->id", law, model.v)
    expected = v0[0] - mean
    error = np.sqrt(mean * (1 - mean) / number)
    assert np.all(np.abs(np.asarray(found.visible_bias) - expected) < 5 * error)
    stats = np.einsum("wq,whq->whq", law, of_h)
    w = np.einsum("whq,qij,hje,wid->ijed", stats, model.c, model.h, model.v)
    data = np.einsum("ij,je,id->ijed", np.asarray(machine.coefficients)[0], on[0], v0[0])
    assert np.all(np.abs(np.asarray(found.gradient) - (data - w)) < 5 * model.scale / number**0.5)


def _of_v_soft(model, machine):
    """p(v | h) with the first, mean-field coefficients, (V, H)."""
    back = machine.transposed()
    on = [np.asarray(back.hidden.mean(back.fields(y[None])))[0] for y in model.h]
    return _bernoulli(np.array(on), model.v).T


class OverInputs(EinsumMaps):
    def softmax(self, logits, softmax_over, scale):
        return super().softmax(logits, "inputs", scale)


class Accumulating(LatentRouter):
    total = 0.0

    def iterations(self, x):
        self.total = 0.0
        return super().iterations(x)

    def given(self, x, y, seed=None):
        self.total = self.total + self.maps.agreement(y, x)
        return self.maps.softmax(2 * self.total, "outputs", self.coefficient_sum)


def _router(model, kind=LatentRouter, maps=EinsumMaps, factor=1.0):
    def of(iterations):
        router = kind(
            maps(model.w),
            BinaryUnits(),
            model.a,
            routing_iterations=iterations,
            coefficient_sum=model.scale,
        )
        if factor != 1:
            agreement = router.maps.agreement
            router.maps.agreement = lambda y, x: factor * agreement(y, x)
        return router

    return of


@pytest.mark.parametrize(
    "wrong",
    [{"maps": OverInputs}, {"factor": 1 / 1.5}, {"factor": -1.0}],
    ids=["softmax axis", "no scale", "sign"],
)
def test_mutants(wrong):
    model = ThirdOrder()
    with pytest.raises(AssertionError):
        check_conditionals(model, _router(model, **wrong)(4))
    with pytest.raises(AssertionError):
        check_stationarity(model, _router(model, **wrong)(4))


def test_mutants_of_the_mean_field():
    model = ThirdOrder()
    with pytest.raises(AssertionError):
        check_bound(model, _router(model, kind=Accumulating))
    with pytest.raises(AssertionError):
        check_bound(model, _router(model, maps=OverInputs))


@pytest.mark.parametrize("wrong", [{"routing_iterations": 0}, {"coefficient_sum": 0.0}])
def test_numbers_that_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        LatentRouter(EinsumMaps(ops.ones((3, 2, 2, 2))), **wrong)
