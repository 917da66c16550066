"""The product of expert neurons: its training, its sampling and the whole model."""

from keras_capsule_poe.models.neurons.experts import NeuronExperts
from keras_capsule_poe.models.neurons.mixture import NeuronMixtureExperts
from keras_capsule_poe.models.neurons.product import ProductOfExpertNeurons

__all__ = ["NeuronExperts", "NeuronMixtureExperts", "ProductOfExpertNeurons"]
