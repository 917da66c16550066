"""What the tests of commands share: commands with their ends, copies of a model, a cache."""

import shutil
import sys

import pytest

CAPSPOE = (sys.executable, "-c", "from keras_capsule_poe.cli.main import main; main()")


@pytest.fixture(scope="session")
def program():
    """Words that start `capspoe` as a process of its own."""
    return CAPSPOE


@pytest.fixture(scope="session")
def asked(capspoe):
    """Runs a command, checks its exit code and words of its last line, and returns its output."""

    def asked(*arguments, code=0, last=()):
        result = capspoe(*arguments)
        assert result.exit_code == code, (arguments, result.output)
        line = result.output.strip().splitlines()[-1] if last else ""
        for words in [last] if isinstance(last, str) else last:
            assert words in line, (arguments, result.output)
        return result.output

    return asked


@pytest.fixture
def copied(tiny_model, tmp_path):
    """A copy of the tiny model that a test may damage."""
    return shutil.copytree(tiny_model, tmp_path / "copy")


@pytest.fixture
def files():
    """Function of a folder that returns the bytes of all of its files."""
    return lambda folder: {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Where the classifier of digits is kept, once trained."""
    return tmp_path_factory.mktemp("cache")
