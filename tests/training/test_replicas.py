"""Two replicas of one process learn what one device does, and two processes what one does."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

PROGRAM = Path(__file__).with_name("replicas_program.py")
CAPSPOE = [sys.executable, "-c", "from keras_capsule_poe.cli.main import main; main()"]
# Sums of float32 numbers in another order, over 21 steps. Weights and figures are of about one,
# float32 has 1e-7 of that.
TOLERANCE = 1e-5
# Variances of a normalised batch come as E[x^2] - E[x]^2: on one device, too, this formula alone
# moves weights by up to a hundred times as much.
NORMALISED = 1e-4
CORE = {"rbm": {"rbm"}}
MORE = {
    "capsules": {"autoencoder", "features", "encoder", "decoder"},
    "neurons": {"experts", "top"},
    "latent neurons": {"experts"},
    "mixture": {"experts"},
    "persistent rbm": {"rbm"},
    "tempered rbm": {"rbm"},
    "capsnet": {"capsnet"},
    "control": {"capsnet"},
    "matrix capsules": {"matrix"},
    "variational": {"matrix"},
}


# What the program finds of some runs, by run or by name of what is wrong, then by stage.
@pytest.fixture(scope="module")
def core(printed, tmp_path_factory):
    return printed(PROGRAM, tmp_path_factory.mktemp("replicas"), "--right", *CORE)


@pytest.fixture(scope="module")
def more(printed, tmp_path_factory):
    return printed(PROGRAM, tmp_path_factory.mktemp("replicas"), *CORE, *MORE)


def assert_equal(found, name, stages):
    assert set(found[name]) == stages
    tolerance = NORMALISED if name == "variational" else TOLERANCE
    for stage in found[name].values():
        assert max(stage["weights"], stage["figures"]) < tolerance


def assert_seen(found, wrong):
    (stage,) = found[wrong].values()
    assert stage["weights"] > 10 * NORMALISED


@pytest.mark.parametrize("name, stages", CORE.items())
def test_two_replicas_learn_what_one_device_does(core, name, stages):
    assert_equal(core, name, stages)


@pytest.mark.long
@pytest.mark.parametrize(
    "wrong",
    [
        "a sum over replicas that is no mean",
        "the images of the first replica alone",
        "replicas that count equally whatever images they have",
        "noise that each replica draws for itself",
    ],
)
def test_what_would_be_wrong_is_seen(more, wrong):
    assert_seen(more, wrong)


@pytest.mark.long
@pytest.mark.parametrize("name, stages", MORE.items())
def test_so_it_is_with_the_others(more, name, stages):
    assert_equal(more, name, stages)


@pytest.mark.long
def test_batches_that_each_replica_normalises_by_itself_are_seen(more):
    assert_seen(more, "batches that each replica normalises by itself")


TRAIN = ("train", "--dataset", "digits", "--limit", "90", "--held-out", "10")
TRAIN += ("--batch-size", "7", "--checkpoint-seconds", "0.1", "--verbose")
MACHINE = (*TRAIN, "--model", "rbm", "--image-size", "8", "--hidden", "6", "--stage", "rbm")
MACHINE += ("--epochs", "12")
CAPSULES = (*TRAIN, "--image-size", "20", "--stage", "encoder")
CAPSULES += ("--autoencoder-epochs", "12", "--encoder-epochs", "1")
for _setting in (
    "autoencoder.filters=4",
    "compute.precision=float32",
    "encoder.capsules=3",
    "encoder.dim=3",
    "compute.implementation=reference",
    "encoder.routing_iterations=2",
):
    CAPSULES += ("--set", _setting)
# The optimizer of the autoencoder divides by the size of gradients, the small ones too, over 144
# steps: what rounding changes grows. A step that is lost or done twice changes a hundred times as
# much. Features are of float16, whose last bit may turn.
COMMANDS = {"rbm": (MACHINE, {"rbm": 1e-4})}
COMMANDS["capsules"] = CAPSULES, {"autoencoder": 1e-4, "encoder": 1e-2}


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def begin(command, folder, workers=2):
    """Processes that train together in a folder."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(workers)]}
    processes = []
    # The level at which the tests import TensorFlow: the command is to silence it by itself.
    environment = {k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"}
    for index in range(workers):
        task = {"cluster": cluster, "task": {"type": "worker", "index": index}}
        processes.append(
            subprocess.Popen(
                [*CAPSPOE, *command, "--model-dir", str(folder)],
                env={**environment, "TF_CONFIG": json.dumps(task)},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    return processes


def end(processes, seconds=120):
    """Exit codes, outputs and errors of processes, which are killed when time is up."""
    until, found = time.time() + seconds, []
    try:
        for process in processes:
            out, error = process.communicate(timeout=max(1, until - time.time()))
            found.append((process.returncode, out, error))
    finally:
        for process in processes:
            process.kill()
    return found


def weights(folder, stage):
    import keras

    model = keras.models.load_model(folder / stage / "model.keras", compile=False)
    return model.get_weights()


def begun_and_killed(command, folder, first):
    """Two processes, of which one is killed once there is a checkpoint of the first stage."""
    processes = begin(command, folder)
    until = time.time() + 120
    while not list(folder.glob(f"{first}/checkpoints/step-*/state.json")) and time.time() < until:
        time.sleep(0.01)
    os.kill(processes[1].pid, signal.SIGKILL)
    (code, out, error), (killed, _, _) = end(processes)
    assert (code, killed) == (1, -signal.SIGKILL), error
    # One line and no more.
    assert error.strip().splitlines() == [
        "Error: Worker 0 of 2 has stopped because another one did. Run the same capspoe "
        "train on all of them to resume from the last checkpoint."
    ]


@pytest.mark.long
def test_a_process_whose_other_one_is_killed_stops_and_says_so(tmp_path):
    begun_and_killed(MACHINE, tmp_path, "rbm")
    assert not (tmp_path / "rbm" / "done.json").exists()


@pytest.mark.long
@pytest.mark.parametrize("family", COMMANDS)
def test_two_processes_go_on_together(capspoe, tmp_path, family):
    (command, tolerances), (first, *_) = COMMANDS[family], COMMANDS[family][1]
    folder, whole = tmp_path / "two", tmp_path / "one"
    begun_and_killed(command, folder, first)
    (code, out, error), (other, said, problem) = end(begin(command, folder))
    assert (code, other) == (0, 0), error + problem
    assert f"{first}: resumed after step" in out
    # Lines on stages are those of worker 0 alone.
    assert said.endswith("\nWorker 1 of 2, from 0: worker 0 reports and writes.\n"), said
    found = capspoe(*command, "--model-dir", whole)
    assert found.exit_code == 0, found.output
    for stage, tolerance in tolerances.items():
        for mine, alone in zip(weights(folder, stage), weights(whole, stage), strict=True):
            np.testing.assert_allclose(mine, alone, atol=tolerance)


def test_replicas_that_cannot_be(capspoe, tmp_path, monkeypatch):
    import keras

    options = ("train", "--dataset", "digits", "--model-dir", tmp_path / "m")
    done = capspoe(*options, "--replicas", "none")
    rule = "must be a whole number of at least 1, or auto"
    assert done.exit_code == 2 and f"{rule}. Received: none" in done.output
    done = capspoe(*options, "--replicas", "0")
    assert done.exit_code == 2 and f"{rule}. Received: 0" in done.output
    # Devices are as they are once a process has computed.
    keras.ops.zeros(1)
    done = capspoe(*options, "--replicas", "2")
    assert done.exit_code == 1 and "start a new process" in done.output
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1"]}, "task": {"index": 3}}')
    done = capspoe(*options)
    assert done.exit_code == 2 and "TF_CONFIG must be JSON with a `cluster`" in done.output
    cluster = {"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]}}
    monkeypatch.setenv("TF_CONFIG", json.dumps({**cluster, "task": {"type": "worker", "index": 1}}))
    done = capspoe(*options, "--replicas", "2")
    assert done.exit_code == 2 and "Without GPUs each worker is one replica" in done.output
    assert not (tmp_path / "m").exists()


def test_the_plan_tells_of_replicas(capspoe, tmp_path):
    done = capspoe("train", "--dataset", "digits", "--replicas", "2", "--dry-run")
    assert done.exit_code == 0 and "2 replicas share each batch" in done.output
