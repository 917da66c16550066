"""Which number format convolutions train fastest in on this machine."""

from pathlib import Path

POLICIES = ("float32", "mixed_bfloat16")


def policy(precision="auto"):
    """The dtype policy of a precision.

    Args:
        precision: `"float32"`, `"mixed_bfloat16"`, or `"auto"` for the faster one here.

    Raises:
        ValueError: If it is none of these.
    """
    if precision == "auto":
        return best_precision()
    if precision not in POLICIES:
        listed = ", ".join(repr(known) for known in ("auto", *POLICIES))
        raise ValueError(f"`precision` must be one of {listed}. Received: {precision!r}")
    return precision


def best_precision():
    """`"mixed_bfloat16"` where the processor or GPU multiplies bfloat16 itself, else `"float32"`.

    On a processor with AVX512-BF16 plain convolutions ran about twice as fast in bfloat16, and
    large filters, which training computes in float32 either way, take about half the products that
    float32's digits take (`functions.fast_convolution`). Without such instructions the format is
    emulated, and slower than float32.
    """
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
