"""Types of the names that `__init__.py` imports at first use."""

from keras_capsule_poe import (
    callbacks as callbacks,
    core as core,
    data as data,
    evaluation as evaluation,
    functions as functions,
    layers as layers,
    losses as losses,
    metrics as metrics,
    models as models,
    plotting as plotting,
    registry as registry,
    serving as serving,
    sklearn as sklearn,
    training as training,
)
from keras_capsule_poe.callbacks import SpreadMargin as SpreadMargin
from keras_capsule_poe.explorer import explore as explore
from keras_capsule_poe.layers.capsules import (
    CapsuleLength as CapsuleLength,
    CapsuleMask as CapsuleMask,
    ConvCapsules as ConvCapsules,
    PrimaryCapsules as PrimaryCapsules,
    Squash as Squash,
    Standardize as Standardize,
)
from keras_capsule_poe.layers.convolutions import (
    ConvDecoder as ConvDecoder,
    DenseDecoder as DenseDecoder,
    FastConv2D as FastConv2D,
    FastConv2DTranspose as FastConv2DTranspose,
)
from keras_capsule_poe.layers.routing import (
    RoutingLayer as RoutingLayer,
    SelfAttentionRouting as SelfAttentionRouting,
)
from keras_capsule_poe.losses import MarginLoss as MarginLoss, SpreadLoss as SpreadLoss
from keras_capsule_poe.metrics import (
    ExpertUsage as ExpertUsage,
    OrientationConcentration as OrientationConcentration,
    RelativeError as RelativeError,
    relative_error as relative_error,
)
from keras_capsule_poe.models.base.autoencoder import ConvAutoencoder as ConvAutoencoder
from keras_capsule_poe.models.base.supervised import ConvClassifier as ConvClassifier
from keras_capsule_poe.models.boltzmann.images import ImageBoltzmannMachine as ImageBoltzmannMachine
from keras_capsule_poe.models.boltzmann.layers import (
    RestrictedBoltzmannMachine as RestrictedBoltzmannMachine,
)
from keras_capsule_poe.models.boltzmann.model import HarmoniumModel as HarmoniumModel
from keras_capsule_poe.models.capsnet.model import CapsNet as CapsNet
from keras_capsule_poe.models.capsule_poe.decoder import CapsuleDecoder as CapsuleDecoder
from keras_capsule_poe.models.capsule_poe.encoder import CapsuleEncoder as CapsuleEncoder
from keras_capsule_poe.models.capsule_poe.layers import (
    CapsulePoE as CapsulePoE,
    ExpertFrames as ExpertFrames,
    Whitening as Whitening,
)
from keras_capsule_poe.models.capsule_poe.product import (
    ProductOfExpertCapsules as ProductOfExpertCapsules,
)
from keras_capsule_poe.models.matrix_capsules.layers import (
    ConvEMCapsules as ConvEMCapsules,
    EMCapsules as EMCapsules,
    PrimaryMatrixCapsules as PrimaryMatrixCapsules,
)
from keras_capsule_poe.models.matrix_capsules.model import MatrixCapsNet as MatrixCapsNet
from keras_capsule_poe.models.neurons.experts import NeuronExperts as NeuronExperts
from keras_capsule_poe.models.neurons.layers import (
    NeuronMixture as NeuronMixture,
    NeuronPoE as NeuronPoE,
)
from keras_capsule_poe.models.neurons.experts import NeuronMixtureExperts as NeuronMixtureExperts
from keras_capsule_poe.pretrained import (
    load as load,
    pretrained_names as pretrained_names,
    train as train,
)
from keras_capsule_poe.runs import results as results, sweep as sweep
from keras_capsule_poe.models.neurons.product import (
    ProductOfExpertNeurons as ProductOfExpertNeurons,
)

__version__: str
__all__: list[str]

def import_all() -> None: ...
