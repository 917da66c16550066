"""Memory that is freed stays with the process, for the next tensor to lie in."""

import ctypes
import os

# Of `mallopt`: when to give the end of the heap back, how many pieces to map on their own, and
# how many heaps to have.
TRIM_THRESHOLD, MMAP_MAX, ARENA_MAX = -1, -4, -8
NEVER = 2**31 - 1


def keep_freed_memory():
    """Tells glibc to keep what is freed; whether it was told.

    TensorFlow asks `malloc` for each tensor. Pieces of over 32 MB are otherwise mapped and given
    back each time, and the system fills them with zeros, page by page; of hundreds of images at
    once that takes about as long as what is computed. Another C library is left as it is, and so
    is one whose behaviour was chosen in the environment.

    Reference:

    - mallopt(3)

    Examples:

    >>> from keras_capsule_poe.cli.allocator import keep_freed_memory
    >>> keep_freed_memory() in (True, False)
    True
    """
    chosen = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if chosen or any(name.startswith("MALLOC_") for name in os.environ) or not _is_glibc():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all([mallopt(MMAP_MAX, 0), mallopt(TRIM_THRESHOLD, NEVER), mallopt(ARENA_MAX, 1)])


def _is_glibc():
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") is not None
    except (AttributeError, ValueError):
        return False
