"""Settings of models as keyword arguments. Written by tools/keywords.py: do not edit."""

from os import PathLike
from typing import Any, Literal, TypedDict

from keras_capsule_poe.models.boltzmann.images import ImageBoltzmannMachine as ImageBoltzmannMachine
from keras_capsule_poe.models.capsnet.model import CapsNet as CapsNet
from keras_capsule_poe.models.capsule_poe.product import (
    ProductOfExpertCapsules as ProductOfExpertCapsules,
)
from keras_capsule_poe.models.matrix_capsules.model import MatrixCapsNet as MatrixCapsNet
from keras_capsule_poe.models.neurons.product import (
    ProductOfExpertNeurons as ProductOfExpertNeurons,
)

class TrainedSection(TypedDict, total=False):
    epochs: int | None
    steps: int
    batch_size: int
    learning_rate: float

class AutoencoderNames(TypedDict, total=False):
    feature_noise: float

class AutoencoderSection(TrainedSection, AutoencoderNames, total=False):
    filters: int

class PrimaryNames(TypedDict, total=False):
    center: bool
    target_length: float

class PrimarySection(PrimaryNames, total=False):
    dim: int

class RoutedSection(TrainedSection, total=False):
    routing_iterations: int
    agreement_scale: float
    softmax_over: Literal["outputs", "inputs"]
    momentum: float
    weight_decay: float

class EncoderNames(TypedDict, total=False):
    capsules: int
    coefficient_sum: float | Literal["mean"]
    initializer: Literal["principal", "clusters", "random", "noise"]
    activation_prior_weight: float
    cd_steps: int
    load_balancing: float
    use_bias: bool
    bias_rate: float
    whitening: bool
    experts_class: type[Any] | str | None
    encoder_class: type[Any] | str | None

class EncoderSection(RoutedSection, EncoderNames, total=False):
    dim: int

class DecoderNames(TypedDict, total=False):
    min_learning_rate_fraction: float
    feature_scale: float
    activity: float | None
    offset: bool
    conditional: bool
    shared_capsules: int

class DecoderSection(RoutedSection, DecoderNames, total=False): ...

class CodesNames(TypedDict, total=False):
    components: int

class CodesSection(CodesNames, total=False): ...

class ComputeSection(TypedDict, total=False):
    precision: Literal["auto", "float32", "mixed_bfloat16"]
    implementation: Literal["auto", "fused", "reference", "xla"]
    microbatch: int | None
    features_limit: float | str

class ClassifierNames(TypedDict, total=False):
    network: Literal["capsules", "cnn"]
    classes: int
    routing_iterations: int
    optimizer: Literal["adam", "muon"]
    augmentation: Literal["none", "shift", "efficient", "flip", "cifar", "norb"]
    until_accuracy: float | None
    steps: int
    published_code: bool
    units: int | None
    learning_rate_schedule: Literal["cosine", "exponential"]
    decay_rate: float
    decay_steps: int | None
    ema_momentum: float | None
    types: int

class CapsNetNames(ClassifierNames, total=False):
    coefficients: Literal["routed", "uniform"]
    learning_rate: float
    body: Literal["capsules", "efficient", "places"]
    primary_dim: int
    dim: int
    agreement: Literal["dot", "cosine", "projection"]
    logits: Literal["accumulated", "replaced"]
    leaky: bool
    absent_weight: float

class CapsNetSection(CapsNetNames, total=False):
    epochs: int | None
    batch_size: int
    decoder: Literal["dense", "conv", "none"]
    reconstruction_weight: float
    filters: int

class MatrixNames(ClassifierNames, total=False):
    routing: Literal["em", "variational"]
    learning_rate: float | None
    primary_types: int
    last_types: int
    size: int
    coordinates: bool
    inner_routing_iterations: int | None
    inverse_temperature: float
    class_temperature: float
    variance_floor: float
    assignment_temperature: float

class MatrixSection(MatrixNames, total=False):
    epochs: int | None
    batch_size: int
    decoder: Literal["none", "dense"]
    reconstruction_weight: float
    filters: int
    loss: Literal["spread", "margin", "cross-entropy"]

class ExpertsNames(TypedDict, total=False):
    routing: Literal["per_image", "averaged", "latent", "mixture"]
    routing_iterations: int
    agreement_scale: float
    activation_prior_weight: float
    coefficient_sum: float | Literal["mean"]
    load_balancing: float
    cd_steps: int
    weight_decay: float
    initializer: Literal["clusters", "principal", "random", "noise"]

class ExpertsSection(TrainedSection, ExpertsNames, total=False):
    capsules: int
    dim: int
    posterior_states: int
    joint_steps: int

class TopSection(TrainedSection, total=False):
    capsules: int
    dim: int

class MachineNames(TypedDict, total=False):
    visible: Literal["pixels", "features"]
    neurons: Literal["bernoulli", "unit", "gaussian"]
    hidden: int
    algorithm: Literal["cd", "pcd", "pt"]
    cd_steps: int
    temperatures: int
    momentum: float
    weight_decay: float

class MachineSection(TrainedSection, MachineNames, total=False):
    binarize: Literal["stochastic", "threshold"] | None
    persistent_chains: int

class Shared(TypedDict, total=False):
    features_limit: float | str
    filters: int
    precision: Literal["auto", "float32", "mixed_bfloat16"]
    implementation: Literal["auto", "fused", "reference", "xla"]
    microbatch: int | None
    column: str | None
    image_size: int | str | tuple[int, int] | None
    grey: bool
    limit: int | None
    split: Literal["azimuth", "elevation"] | None
    held_out: int | None
    skip_broken: bool
    train_dir: str | None
    test_dir: str | None
    background: str | None
    max_value: int | None
    labels: str | None
    label_column: str | None
    data_version: int
    seed: int
    deterministic: bool
    checkpoint_seconds: float

class Made(TypedDict, total=False):
    dataset: str
    groups: str | None
    name: Any
    trainable: Any
    dtype: Any

class Trained(TypedDict, total=False):
    folder: str | PathLike[str] | None
    epochs: int | None
    batch_size: int | None
    verbose: int | str
    callbacks: Any
    groups: Any
    data_dir: Any
    manual_dir: Any
    store: Any

ProductOfExpertCapsulesPreset = (
    Literal["generation", "representation", "detail", "paper", "affine"] | None
)

class ProductOfExpertCapsulesKeywords(
    Shared, AutoencoderNames, PrimaryNames, EncoderNames, DecoderNames, CodesNames, total=False
):
    recipe: ProductOfExpertCapsulesPreset
    codes: CodesSection
    compute: ComputeSection

class ProductOfExpertCapsulesArguments(ProductOfExpertCapsulesKeywords, Made, total=False): ...

class ProductOfExpertCapsulesTraining(ProductOfExpertCapsulesKeywords, Trained, total=False):
    autoencoder: AutoencoderSection
    primary: PrimarySection
    encoder: EncoderSection
    decoder: DecoderSection
    preset: ProductOfExpertCapsulesPreset

CapsNetPreset = Literal["paper", "official", "small", "efficient", "shared", "baseline"] | None

class CapsNetKeywords(Shared, CapsNetNames, total=False):
    recipe: CapsNetPreset
    capsnet: CapsNetSection
    compute: ComputeSection

class CapsNetArguments(CapsNetKeywords, Made, total=False):
    epochs: int | None
    batch_size: int

class CapsNetTraining(CapsNetKeywords, Trained, total=False):
    decoder: Literal["dense", "conv", "none"]
    reconstruction_weight: float
    preset: CapsNetPreset

MatrixCapsNetPreset = Literal["small", "paper", "official"] | None

class MatrixCapsNetKeywords(Shared, MatrixNames, total=False):
    recipe: MatrixCapsNetPreset
    matrix: MatrixSection
    compute: ComputeSection

class MatrixCapsNetArguments(MatrixCapsNetKeywords, Made, total=False):
    epochs: int | None
    batch_size: int

class MatrixCapsNetTraining(MatrixCapsNetKeywords, Trained, total=False):
    loss: Literal["spread", "margin", "cross-entropy"]
    decoder: Literal["none", "dense"]
    reconstruction_weight: float
    preset: MatrixCapsNetPreset

ProductOfExpertNeuronsPreset = Literal["held", "latent", "mixture", "boltzmann"] | None

class ProductOfExpertNeuronsKeywords(
    Shared, AutoencoderNames, PrimaryNames, ExpertsNames, total=False
):
    recipe: ProductOfExpertNeuronsPreset
    compute: ComputeSection

class ProductOfExpertNeuronsArguments(ProductOfExpertNeuronsKeywords, Made, total=False): ...

class ProductOfExpertNeuronsTraining(ProductOfExpertNeuronsKeywords, Trained, total=False):
    posterior_states: int
    joint_steps: int
    autoencoder: AutoencoderSection
    primary: PrimarySection
    experts: ExpertsSection
    top: TopSection
    preset: ProductOfExpertNeuronsPreset

ImageBoltzmannMachinePreset = Literal["pixels", "small", "features"] | None

class ImageBoltzmannMachineKeywords(
    Shared, AutoencoderNames, PrimaryNames, MachineNames, total=False
):
    recipe: ImageBoltzmannMachinePreset
    chains: int
    dim: int
    primary: PrimarySection
    rbm: MachineSection
    compute: ComputeSection

class ImageBoltzmannMachineArguments(ImageBoltzmannMachineKeywords, Made, total=False): ...

class ImageBoltzmannMachineTraining(ImageBoltzmannMachineKeywords, Trained, total=False):
    binarize: Literal["stochastic", "threshold"] | None
    persistent_chains: int
    autoencoder: AutoencoderSection
    preset: ImageBoltzmannMachinePreset
