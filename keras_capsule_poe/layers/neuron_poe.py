"""A product of expert neurons, grouped into capsules whose maps are weighted by routing."""

import keras
from keras import ops

from keras_capsule_poe.functions.checks import one_of
from keras_capsule_poe.functions.divergence import contrastive_divergence
from keras_capsule_poe.functions.exact_draws import state_log_weights
from keras_capsule_poe.functions.flat_machines import flattened, one_capsule
from keras_capsule_poe.functions.harmonium import Harmonium, gibbs_chain
from keras_capsule_poe.functions.latent_chain import latent_chain
from keras_capsule_poe.functions.latent_routing import LatentRouter, latent_free_energy
from keras_capsule_poe.functions.routing import Router, Routing
from keras_capsule_poe.functions.units import BinaryUnits
from keras_capsule_poe.layers.neurons import VISIBLE, Neurons
from keras_capsule_poe.layers.routing_layer import RoutingLayer


@keras.saving.register_keras_serializable("keras_capsule_poe")
class NeuronPoE(Neurons, RoutingLayer):
    """Capsules of binary neurons that model their inputs as a product of experts.

    -E(v, h; c) = b.x + a.y + sum_ij c_ij y_j^T W_ij x_i, less the base energies of v, where
    x = v/s - mu and y = h - lambda; s is one but for Gaussian v, and without centring
    mu = lambda = 0. Given the routing coefficients c it is a restricted Boltzmann machine with
    the maps c_ij W_ij, p(h = 1 | v) = sigmoid(phi) with phi_j = a_j + sum_i c_ij W_ij x_i, and
    each neuron is an expert: P(v; c) is proportional to exp(b.x) prod (1 + exp(phi)).

    What c is, `routing` says:

    - `"held"`: found from the image by dynamic routing, and kept wherever a chain goes from
      there. Exact given c; there is one normaliser an image, and so no likelihood of v.
    - `"fixed"`: `mean_coefficients`, the same for all images: a Boltzmann machine, exact.
    - `"latent"`: each visible capsule has one parent c_i, a latent variable; exact in (v, h, c),
      and its mean field is dynamic routing, see `functions.LatentRouter`. `iterations` and
      `scale` are the routing options that it has.

    Args:
        capsules: int, J.
        dim: int, E, neurons of a capsule.
        visible: `"gaussian"`, `"bernoulli"` in {0, 1}, or `"unit"` in [0, 1].
        routing: `"held"`, `"fixed"` or `"latent"`.
        centering: bool, whether the machine is centred.
        learn_variance: bool, whether s of Gaussian neurons is trained, or stays as it is.
        kernel_initializer, bias_initializer: Of W and a.
        **kwargs: `RoutingLayer` arguments.

    Call arguments:
        inputs: Tensor (B, I, D), v.

    Returns:
        Tensor (B, J, E), p(h = 1 | v).

    Raises:
        ValueError: If an argument or the input's shape is not as above.

    Examples:

    >>> experts = NeuronPoE(capsules=5, dim=3)
    >>> v = keras.random.normal((2, 6, 4), seed=0)
    >>> experts(v).shape, experts.free_energy(v).shape
    (TensorShape([2, 5, 3]), TensorShape([2]))
    >>> experts.contrastive_divergence(v, seed=0).gradient.shape
    TensorShape([6, 5, 3, 4])

    Reference:

    - [Hauser, 2019](https://arxiv.org/abs/1907.11639), products of expert neurons
    """

    READINGS = ("held", "fixed", "latent")

    def __init__(
        self,
        capsules,
        dim,
        visible="gaussian",
        routing="held",
        centering=True,
        learn_variance=False,
        iterations=3,
        kernel_initializer=None,
        bias_initializer="zeros",
        **kwargs,
    ):
        if kernel_initializer is None:
            kernel_initializer = keras.initializers.RandomNormal(stddev=0.01)
        kwargs = {"iterations": iterations, "kernel_initializer": kernel_initializer, **kwargs}
        super().__init__(capsules, dim, **kwargs)
        self.visible = one_of("visible", visible, tuple(VISIBLE))
        self.routing = one_of("routing", routing, self.READINGS)
        if routing == "latent" and self.options.normalize != "outputs":
            raise ValueError(
                "`normalize` must be 'outputs' where parents are latent. "
                f"Received: normalize={self.options.normalize!r}"
            )
        if self.use_bias:
            raise ValueError("`use_bias` must be False: neurons have biases. Received: True")
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.centering, self.learn_variance = bool(centering), bool(learn_variance)

    def build(self, input_shape):
        super().build(input_shape)
        inputs, dim = tuple(input_shape)[1:]
        self.add_neurons((self.capsules, self.dim), (inputs, dim), self.bias_initializer)
        side = inputs if self.options.normalize == "inputs" else self.capsules
        uniform = keras.initializers.Constant(self.coefficient_scale / side)
        options = {"trainable": False, "dtype": self.variable_dtype, "autocast": False}
        # The first for all images, then of those that each capsule wins.
        self.mean_coefficients = self.add_weight(
            (1 + self.capsules, inputs, self.capsules), uniform, name="mean_coefficients", **options
        )
        self.built = True

    def harmonium(self, coefficients=None):
        """The Boltzmann machine of coefficients (I, J) or (B, I, J), or of the fixed ones."""
        c = self.mean_coefficients[0] if coefficients is None else coefficients
        return Harmonium(self.maps(), *self.neuron_units(), self.hidden_bias, self.visible_bias, c)

    def coefficients_of_winner(self, winner):
        """Coefficients that stand for those of images that a capsule wins.

        Args:
            winner: int or integer tensor (N,), the capsule.

        Returns:
            Tensor (I, J) or (N, I, J): means; with latent parents every part is its child.
        """
        if self.routing in ("latent", "mixture"):
            child = ops.one_hot(winner, self.capsules, dtype=self.variable_dtype)[..., None, :]
            return self.coefficient_scale * ops.repeat(child, self.kernel.shape[0], axis=-2)
        case = 0 * winner if self.routing == "fixed" else 1 + winner
        return ops.take(self.mean_coefficients, case, axis=0)

    def capsule_machine(self, capsule):
        """The `functions.Harmonium` of one capsule alone, over flat neurons."""
        c = self.coefficients_of_winner(capsule)
        return flattened(one_capsule(self.harmonium(c), capsule))

    def state_log_weights(self):
        """-F(h_j) of every state of each capsule alone, (J, 2^E), nats."""
        machines = map(self.capsule_machine, range(self.capsules))
        return ops.stack([state_log_weights(machine) for machine in machines])

    def route(self, inputs, coefficients=None):
        """Routing coefficients of images and what they give.

        Args:
            inputs: Tensor (B, I, D), v.
            coefficients: None; or `"uniform"`: all the same, as if nothing were routed.

        Returns:
            `Routing(coefficients, z)`: (B, I, J), and sum_i c_ij W_ij x_i (B, J, E).

        Raises:
            ValueError: If `coefficients` is something else.
        """
        x = self.sent(inputs)
        if self.routing == "held" or coefficients is not None:
            return super().route(x, coefficients)
        if self.routing == "latent":
            return self.latent_router().route(x)
        machine = self.harmonium()
        c = ops.cast(machine.coefficients, x.dtype)
        c = ops.broadcast_to(c[None], (ops.shape(x)[0], *c.shape))
        z = machine.fields(x)
        return Routing(c, z - self.bias_of(z))

    def infer(self, inputs, coefficients=None):
        """c (B, I, J) and p(h = 1 | v) - lambda (B, J, E) of images, see `route`."""
        c, z = self.route(inputs, coefficients)
        return c, self.neuron_units()[0].mean(z + self.bias_of(z))

    def latent_router(self):
        """The `LatentRouter` of the layer."""
        return LatentRouter(
            self.maps(),
            self.neuron_units()[0],
            self.hidden_bias,
            self.options.iterations,
            self.coefficient_scale,
        )

    def call(self, inputs):
        z = self.route(inputs).z
        return ops.cast(BinaryUnits().mean(z + self.bias_of(z)), self.compute_dtype)

    def free_energy(self, v, coefficients=None):
        """F(v), (B,), h summed out, nats, given the routing; with latent parents its upper bound.

        Args:
            v: Tensor (B, I, D).
            coefficients: Tensor (B, I, J); `None`: those of `route`.
        """
        routed = self.routing != "fixed" and coefficients is None
        c = self.route(v).coefficients if routed else coefficients
        return self.free_energy_of(self.harmonium(c), self.sent(v))

    def free_energy_of(self, machine, x, fields=None):
        """`free_energy` of neurons that send x, of a machine of `harmonium`."""
        if self.routing == "latent":
            return latent_free_energy(machine, x, self.coefficient_scale) + self.log_scale()
        return machine.free_energy(x, fields) + self.log_scale()

    def reconstruct(self, v, coefficients=None):
        """The mean of v given p(h | v), (B, I, D), mean field, one routing throughout.

        Args:
            v: Tensor (B, I, D).
            coefficients: Tensor (B, I, J); `None`: those of `route`.
        """
        c = self.route(v).coefficients if coefficients is None else coefficients
        return self.received(gibbs_chain(self.harmonium(c), self.sent(v), 1, None)[0])

    def decode(self, y, coefficients):
        """The mean of v given what hidden neurons send, y (B, J, E), and c (B, I, J)."""
        machine = self.harmonium(coefficients).transposed()
        return self.received(machine.hidden.mean(machine.fields(y)))

    def gibbs(self, v, coefficients, steps=1, seed=0):
        """Neurons and coefficients after some steps of Gibbs sampling.

        Coefficients stay as they are, unless parents are latent, which are drawn too.

        Args:
            v: Tensor (B, I, D), where the chains start.
            coefficients: Tensor (B, I, J), c there.
            steps: int or scalar integer tensor.
            seed: int, scalar integer tensor or `keras.random.SeedGenerator`; `None`: mean field.

        Returns:
            Tensors v (B, I, D), the h (B, J, E) that it was drawn from, and c (B, I, J).
        """
        machine, x = self.harmonium(coefficients), self.sent(v)
        if self.routing == "latent":
            x, y, c = latent_chain(self.latent_router(), machine, x, coefficients, steps, seed)
        else:
            (x, y), c = gibbs_chain(machine, x, steps, seed), coefficients
        return self.received(x), y if self.hidden_offset is None else y + self.hidden_offset, c

    def contrastive_divergence(self, v, coefficients=None, **options):
        """Contrastive divergence of the layer's parameters.

        Args:
            v: Tensor (B, I, D), the data.
            coefficients: Tensor (B, I, J) or (I, J), held; `None`: as `routing` says.
            **options: `steps`, `seed`, `chains`, see `functions.contrastive_divergence`; the
                chains are as its `reconstruction` left them, see `sent`.

        Returns:
            `functions.Divergence`.

        Raises:
            ValueError: If chains go on that are not of fixed coefficients.
        """
        if options.get("chains") is not None and self.routing != "fixed":
            raise ValueError(
                "`chains` must be None where coefficients are of the image: they would be routed "
                f"anew. Received: routing={self.routing!r}"
            )
        machine, c = self.harmonium(), coefficients
        if c is None and self.routing == "held":
            c = Router(machine.maps, self.options, self.routing_bias, units=self.units)
        elif c is None:
            c = machine.coefficients if self.routing == "fixed" else self.latent_router()
        return contrastive_divergence(
            machine.maps,
            self.sent(v),
            c,
            machine.hidden,
            machine.visible,
            hidden_bias=machine.hidden_bias,
            visible_bias=machine.visible_bias,
            **options,
        )

    def move_offsets(self, visible, hidden, coefficients=None):
        """Moves the centre, and the biases so that the machine of c stays what it is.

        Args:
            visible: Tensor (I, D), by how much mu moves.
            hidden: Tensor (J, E), by how much lambda moves.
            coefficients: Tensor (I, J), c; `None`: the fixed ones.
        """
        machine = self.harmonium(coefficients)
        up, down = machine.fields(visible[None]), machine.transposed().fields(hidden[None])
        self.hidden_bias.assign(up[0])
        self.visible_bias.assign(down[0])
        self.visible_offset.assign_add(visible)
        self.hidden_offset.assign_add(hidden)

    def get_config(self):
        return {
            **super().get_config(),
            "visible": self.visible,
            "routing": self.routing,
            "centering": self.centering,
            "learn_variance": self.learn_variance,
            "bias_initializer": keras.initializers.serialize(self.bias_initializer),
        }
