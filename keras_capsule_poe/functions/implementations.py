"""The implementations of routing and contrastive divergence, by name.

Each has `route`, `encoder_divergence` and `decoder_divergence`, and the first with either of the
others in one call, `routed_encoder_divergence` and `routed_decoder_divergence`; of the same
arguments and the same results.
"""

from types import SimpleNamespace

from keras_capsule_poe.functions import divergence, routing
from keras_capsule_poe.functions.streamed import rules as streamed


def _plain_routed_encoder(x, kernel, **options):
    coefficients = routing.route(x, kernel, **options).coefficients
    return divergence.encoder_divergence(x, kernel, coefficients)


def _plain_routed_decoder(x, z, kernel, conditional=False, **options):
    coefficients = routing.route(x, kernel, **options).coefficients
    return divergence.decoder_divergence(x, z, kernel, coefficients, conditional)


_IMPLEMENTATIONS = {
    "plain": SimpleNamespace(
        route=routing.route,
        encoder_divergence=divergence.encoder_divergence,
        decoder_divergence=divergence.decoder_divergence,
        routed_encoder_divergence=_plain_routed_encoder,
        routed_decoder_divergence=_plain_routed_decoder,
    ),
    "streamed": SimpleNamespace(
        route=streamed.route,
        encoder_divergence=streamed.encoder_divergence,
        decoder_divergence=streamed.decoder_divergence,
        routed_encoder_divergence=streamed.routed_encoder_divergence,
        routed_decoder_divergence=streamed.routed_decoder_divergence,
    ),
}


def get(name):
    """The implementation called `name`.

    Raises:
        ValueError: If there is none.
    """
    if name not in _IMPLEMENTATIONS:
        listed = " or ".join(repr(known) for known in _IMPLEMENTATIONS)
        raise ValueError(f"`implementation` must be {listed}. Received: implementation={name!r}")
    return _IMPLEMENTATIONS[name]
