"""Choice of the number format in which convolutions train fastest; checks of Keras' settings."""

from pathlib import Path

from keras_capsule_poe.errors import ConfigError


def policy(precision):
    """Return the dtype policy for a precision; `"auto"` stands for `best_precision()`."""
    return best_precision() if precision == "auto" else precision


def best_precision():
    """Return `"mixed_bfloat16"` if the hardware multiplies bfloat16, else `"float32"`."""
    # Hardware without such instructions emulates bfloat16, which is slower than float32.
    import tensorflow as tf

    for device in tf.config.list_physical_devices("GPU"):
        capability = tf.config.experimental.get_device_details(device).get("compute_capability")
        return "mixed_bfloat16" if capability and capability >= (8, 0) else "float32"
    flags = _processor_flags()
    return "mixed_bfloat16" if flags & {"avx512_bf16", "amx_bf16"} else "float32"


def _processor_flags():
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    for line in text.splitlines():
        if line.startswith("flags"):
            return set(line.split(":", 1)[1].split())
    return set()


def check_global_settings(policy=True):
    """Raise ConfigError for global settings of Keras under which no model can be trained.

    With `policy` the dtype policy is checked, too; layers that take it as it is need no check.
    """
    import keras

    for name, found, wanted in (
        ("image_data_format", keras.config.image_data_format(), "channels_last"),
        ("floatx", keras.config.floatx(), "float32"),
        ("dtype_policy", keras.config.dtype_policy().variable_dtype, "float32"),
    ):
        if found != wanted and (policy or name != "dtype_policy"):
            raise ConfigError(
                f"Keras' global setting `{name}` must be {wanted!r} to train a model. "
                f"Received: {found!r}. Call `keras.config.set_{name}({wanted!r})` first, or change "
                "it in keras.json."
            )
