"""Product of expert units, grouped into capsules whose maps are weighted by routing."""

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
    """Product of binary experts, grouped into capsules with routed maps.

    `-E(v, h; c) = b.x + a.y + sum_ij c_ij y_j^T W_ij x_i`, with `x = v/s - mu` and
    `y = h - lambda`. Gaussian units add `-|v/s|^2/2`, up to a constant. Given the coupling
    coefficients c, this is an RBM with the maps `c_ij W_ij`. The option `routing` defines c:

    - `"held"`: per-image dynamic routing, constant along a Gibbs chain. Each image has its own
      partition function, so v has no likelihood.
    - `"fixed"`: averaged, `mean_coefficients` for all images. An exact Boltzmann machine.
    - `"latent"`: each visible capsule has one latent parent c_i. Exact in (v, h, c). Mean field
      is dynamic routing, see `functions.LatentRouter`, which uses `iterations` and `scale`.

    Args:
        capsules: int, J.
        dim: int, E, binary units of a capsule.
        visible: `"gaussian"`, `"bernoulli"` for v in `{0, 1}`, or `"unit"` for v in `[0, 1]`.
        routing: `"held"`, `"fixed"` or `"latent"`.
        centering: bool, use the offsets mu and lambda. Otherwise they are zero.
        learn_variance: bool, train s^2 of Gaussian units.
        kernel_initializer, bias_initializer: For W and a.
        **kwargs: Arguments of `RoutingLayer`.

    Call arguments:
        inputs: Tensor (B, I, D), v.

    Returns:
        Tensor (B, J, E), p(h = 1 | v).

    Raises:
        ValueError: If an argument or the input shape is invalid.

    Example:
        >>> experts = NeuronPoE(capsules=5, dim=3)
        >>> v = keras.random.normal((2, 6, 4), seed=0)
        >>> experts(v).shape, experts.free_energy(v).shape
        (TensorShape([2, 5, 3]), TensorShape([2]))
        >>> experts.contrastive_divergence(v, seed=0).gradient.shape
        TensorShape([6, 5, 3, 4])

    Reference:
        [Hauser, 2019](https://arxiv.org/abs/1907.11639), products of expert neurons.
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
        # Row 0 is the mean over all images, row 1 + j over the images that capsule j wins.
        self.mean_coefficients = self.add_weight(
            (1 + self.capsules, inputs, self.capsules), uniform, name="mean_coefficients", **options
        )
        self.built = True

    def harmonium(self, coefficients=None):
        """Return the `functions.Harmonium` of coefficients ([B,] I, J). None: the averaged ones."""
        c = self.mean_coefficients[0] if coefficients is None else coefficients
        return Harmonium(self.maps(), *self.neuron_units(), self.hidden_bias, self.visible_bias, c)

    def coefficients_of_winner(self, winner):
        """Return typical coefficients ([N,] I, J) of images whose longest capsule is `winner`.

        They are averages over training images. With latent parents the winner is every parent.
        """
        if self.routing in ("latent", "mixture"):
            child = ops.one_hot(winner, self.capsules, dtype=self.variable_dtype)[..., None, :]
            return self.coefficient_scale * ops.repeat(child, self.kernel.shape[0], axis=-2)
        case = 0 * winner if self.routing == "fixed" else 1 + winner
        return ops.take(self.mean_coefficients, case, axis=0)

    def capsule_machine(self, capsule):
        """Return the `functions.Harmonium` of one capsule alone, over flat units."""
        c = self.coefficients_of_winner(capsule)
        return flattened(one_capsule(self.harmonium(c), capsule))

    def state_log_weights(self):
        """Return -F(h_j) (J, 2^E) of all states of each capsule alone, in nats."""
        machines = map(self.capsule_machine, range(self.capsules))
        return ops.stack([state_log_weights(machine) for machine in machines])

    def route(self, inputs, coefficients=None):
        """Return `Routing(coefficients, z)`, (B, I, J) and (B, J, E), of v (B, I, D).

        `z_j = sum_i c_ij W_ij x_i` excludes the bias. `coefficients="uniform"` disables routing.
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
        """Return c (B, I, J) and p(h = 1 | v) - lambda (B, J, E). See `route` for the arguments."""
        c, z = self.route(inputs, coefficients)
        return c, self.neuron_units()[0].mean(z + self.bias_of(z))

    def latent_router(self):
        """Return the `LatentRouter` of the layer."""
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
        """Return the free energy F(v) (B,) of v (B, I, D) in nats, given the routing.

        `coefficients` (B, I, J) default to those of `route`. With latent parents the result is an
        upper bound.
        """
        routed = self.routing != "fixed" and coefficients is None
        c = self.route(v).coefficients if routed else coefficients
        return self.free_energy_of(self.harmonium(c), self.sent(v))

    def free_energy_of(self, machine, x, fields=None):
        """Return `free_energy` from x = `sent(v)` for a machine of `harmonium`."""
        if self.routing == "latent":
            return latent_free_energy(machine, x, self.coefficient_scale) + self.log_scale()
        return machine.free_energy(x, fields) + self.log_scale()

    def reconstruct(self, v, coefficients=None):
        """Return the mean-field reconstruction (B, I, D) of v, with constant coefficients."""
        c = self.route(v).coefficients if coefficients is None else coefficients
        return self.received(gibbs_chain(self.harmonium(c), self.sent(v), 1, None)[0])

    def decode(self, y, coefficients):
        """Return the mean of v (B, I, D) given y = h - lambda (B, J, E) and c (B, I, J)."""
        machine = self.harmonium(coefficients).transposed()
        return self.received(machine.hidden.mean(machine.fields(y)))

    def gibbs(self, v, coefficients, steps=1, seed=0):
        """Run Gibbs chains. Coefficients are constant, except that latent parents are sampled.

        Args:
            v: Tensor (B, I, D), initial states.
            coefficients: Tensor (B, I, J), initial coefficients.
            steps: int or scalar integer tensor, number of Gibbs steps.
            seed: int, scalar integer tensor or `keras.random.SeedGenerator`. None is mean field.

        Returns:
            Tensors v (B, I, D), h (B, J, E) and c (B, I, J). The last v is sampled from this h.
        """
        machine, x = self.harmonium(coefficients), self.sent(v)
        if self.routing == "latent":
            x, y, c = latent_chain(self.latent_router(), machine, x, coefficients, steps, seed)
        else:
            (x, y), c = gibbs_chain(machine, x, steps, seed), coefficients
        return self.received(x), y if self.hidden_offset is None else y + self.hidden_offset, c

    def contrastive_divergence(self, v, coefficients=None, **options):
        """Return the `functions.Divergence` of data v (B, I, D).

        Args:
            v: Tensor (B, I, D).
            coefficients: Tensor (B, I, J) or (I, J), kept constant. None: as `routing` says.
            **options: See `functions.contrastive_divergence`. Persistent chains are in the
                coordinates of `sent`, as its `reconstruction` returns them.

        Raises:
            ValueError: If `chains` are given and `routing` is not `"fixed"`.
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
        """Add `visible` (I, D) to mu and `hidden` (J, E) to lambda; keep the model of c (I, J)."""
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
