"""Training for machines with a GPU: without TensorFlow, and resumed as if it had not stopped.

Rejected: a script that imports TensorFlow; an optimizer that begins anew; an epoch whose images
are those of another; an import that turns what runs after it to Jax.
"""

import importlib.util
import json
import os
import runpy
import subprocess
import sys

import accelerator as script
import pytest

TINY = ["digits", "--recipe", "small", "--limit", "60", "--held-out", "20", "--set"]
# A rate that does not fall with the epochs that there will be.
TINY += ["capsnet.filters=2", "capsnet.types=1", "capsnet.batch_size=20", "capsnet.decoder=none"]
TINY += ["capsnet.learning_rate_schedule=exponential", "capsnet.routing_iterations=1"]
BLOCKED = """
import runpy, sys
sys.modules["tensorflow"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def trained(folder, epochs):
    args = script.parser().parse_args([str(folder), *TINY, "--epochs", str(epochs)])
    folder.mkdir(exist_ok=True)
    train, held_out, _ = script.images_of(args)
    return script.trained(args, 0, train, held_out)


def test_importing_it_leaves_the_backend_of_other_programs_alone(monkeypatch):
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    runpy.run_path(script.__file__, run_name="imported")
    assert "KERAS_BACKEND" not in os.environ


@pytest.mark.long
def test_a_stopped_training_goes_on_as_if_it_had_not_been(tmp_path):
    trained(tmp_path / "parts", epochs=1)
    resumed, in_parts = trained(tmp_path / "parts", epochs=2)
    model, whole = trained(tmp_path / "whole", epochs=2)
    # The order of sums is the backend's.
    assert [epoch["loss"] for epoch in in_parts] == pytest.approx(
        [epoch["loss"] for epoch in whole], rel=1e-4
    )
    assert int(resumed.optimizer.iterations) == int(model.optimizer.iterations) == 4


def test_a_training_of_other_settings_is_another_one():
    def digest(*more):
        args = script.parser().parse_args(["folder", *TINY, *more])
        return script._digest(args, script.config_of(args, 0))

    assert digest("--epochs", "1") == digest("--epochs", "2")
    others = {
        digest(),
        digest("capsnet.optimizer=muon"),
        digest("--pairs"),
        digest("--limit", "50"),
    }
    assert len(others) == 4
    # Where the margin grows over the run, its length matters from the first step.
    matrix = ("--model", "matrix-capsules", "--set", "matrix.learning_rate_schedule=exponential")
    args = [
        script.parser().parse_args(["folder", "digits", *matrix, *more, "--epochs", epochs])
        for more in ([], ["matrix.published_code=true"])
        for epochs in "12"
    ]
    free, also, fixed, same = (script._digest(each, script.config_of(each, 0)) for each in args)
    assert free != also and fixed == same


def test_pairs_come_with_their_targets():
    args = script.parser().parse_args(["folder", *TINY, "--epochs", "1"])
    args.pairs = True
    train, held_out, test = script.images_of(args)
    examples, steps = script.batches(train, script.config_of(args, 0), epoch=0)
    batch = [(x.shape, *(part.shape for part in y)) for x, y in examples]
    assert batch == steps * [((20, 36, 36, 1), (20, 10), (20, 2, 36, 36, 1), (20, 2, 10))]
    assert steps == 2 and held_out.labels.shape == (20, 2) and test.labels.shape[1] == 2


@pytest.mark.long
def test_matrix_capsules_of_two_seeds_vote(tmp_path):
    words = [tmp_path, "digits", "--model", "matrix-capsules", "--recipe", "small", "--limit", "60"]
    words += ["--held-out", "20", "--epochs", "1", "--seeds", "0", "1", "--set", "matrix.filters=4"]
    words += ["matrix.primary_types=1", "matrix.types=2", "matrix.last_types=2"]
    words += ["matrix.routing_iterations=1", "compute.implementation=reference"]
    *each, together = script.main([str(word) for word in words])
    assert [row["seed"] for row in each] == [0, 1] and together["seed"] == "all"
    assert 0 <= together["low"] <= together["error"] <= together["high"] <= 1
    args = script.parser().parse_args([str(word) for word in words])
    train, held_out, _ = script.images_of(args)
    # One epoch of 40 images in batches of 64 is a single step, at the first margin.
    model, _ = script.trained(args, 0, train, held_out)
    assert model.spread.margin == pytest.approx(0.2)


@pytest.mark.long
def test_it_runs_on_jax_without_tensorflow(tmp_path):
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed")
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-W", "error", "-c", BLOCKED, script.__file__, tmp_path]
    command += [*TINY, "--epochs", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    (row,) = json.loads((tmp_path / "small.json").read_text())
    assert 0 <= row["low"] <= row["error"] <= row["high"] <= 1 and row["epochs"] == 1
    assert "1 epochs: test error" in done.stdout
