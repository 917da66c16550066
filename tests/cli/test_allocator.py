"""What is freed stays with the process, unless the environment says otherwise."""

import os
import subprocess
import sys

import pytest

# Pieces of 64 MB, larger than any that glibc would keep by itself, ten times.
PROGRAM = """
import ctypes, resource, sys
from keras_capsule_poe.cli.allocator import keep_freed_memory

told = sys.argv[1] == "keep" and keep_freed_memory()
libc, size = ctypes.CDLL(None), 64 << 20
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def use():
    piece = libc.malloc(size)
    ctypes.memset(piece, 1, size)
    libc.free(piece)


use()
before = faults()
for _ in range(10):
    use()
print(int(told), (faults() - before) / (10 * size / resource.getpagesize()))
assert "tensorflow" not in sys.modules
"""


def run(word, **environment):
    """Whether the library was told, and page faults as a share of the pages that were used."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    kept.pop("GLIBC_TUNABLES", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, word], env=kept | environment, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    told, share = done.stdout.split()
    return bool(int(told)), float(share)


@pytest.fixture
def glibc():
    if "CS_GNU_LIBC_VERSION" not in getattr(os, "confstr_names", ()):
        pytest.skip("the C library is another one")


def test_pages_are_used_again(glibc):
    told, share = run("keep")
    assert told and share < 0.01
    # Without it each page comes anew, so that the share says something.
    assert run("leave")[1] > 0.9


@pytest.mark.parametrize(
    "environment",
    [{"GLIBC_TUNABLES": "glibc.malloc.arena_max=2"}, {"MALLOC_ARENA_MAX": "2"}],
    ids=lambda environment: "".join(environment),
)
def test_what_the_environment_says_holds(glibc, environment):
    told, share = run("keep", **environment)
    assert not told and share > 0.9


def test_another_library_is_left_alone(monkeypatch):
    from keras_capsule_poe.cli import allocator

    def unknown(name):
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(allocator.os, "confstr", unknown, raising=False)
    assert not allocator.keep_freed_memory()
    monkeypatch.delattr(allocator.os, "confstr")
    assert not allocator.keep_freed_memory()
