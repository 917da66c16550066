"""A tiny model, trained once through the command line, that the commands are tried on."""

import pytest
from click.testing import CliRunner

TINY = [
    "--limit", "96",
    "--epochs", "2",
    "--batch-size", "48",
    "--set", "autoencoder.filters=8",
    "--set", "encoder.capsules=3",
    "--set", "encoder.dim=4",
    "--set", "autoencoder.precision=float32",
    # The plain form has the smaller graph, and the graphs are what takes time here.
    "--set", "encoder.implementation=plain",
    "--set", "decoder.implementation=plain",
]  # fmt: skip


@pytest.fixture(scope="session")
def capspoe():
    """Runs a `capspoe` command line; returns click's result."""
    from keras_capsule_poe.cli.main import main

    def run(*arguments):
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return run


@pytest.fixture(scope="session")
def tiny():
    """The options of the tiny model."""
    return TINY


@pytest.fixture(scope="session")
def tiny_model(capspoe, tmp_path_factory):
    """Folder of a model of three capsules, trained on 96 digits for seconds."""
    folder = tmp_path_factory.mktemp("models") / "digits"
    result = capspoe("train", "--dataset", "digits", "--model-dir", folder, *TINY)
    assert result.exit_code == 0, result.output
    return folder
