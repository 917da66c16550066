"""Workers of `TF_CONFIG`, and how long they wait for each other."""

import json
import signal
import socket
import threading
import time

import pytest

from keras_capsule_poe.distributed import devices
from keras_capsule_poe.distributed.devices import cluster
from keras_capsule_poe.errors import BadUse, RunFailed


@pytest.fixture
def task(monkeypatch):
    """Function that makes this process a worker of a cluster."""

    def made(jobs, kind="worker", index=0):
        values = {"cluster": jobs, "task": {"type": kind, "index": index}}
        monkeypatch.setenv("TF_CONFIG", json.dumps(values))

    # Set here, so that it is removed afterwards: starting sets it.
    monkeypatch.setenv("GRPC_FAIL_FAST", "true")
    return made


@pytest.fixture
def worker(task, monkeypatch):
    """Function that starts a worker of 2, with a function in place of TensorFlow's strategy."""
    task({"worker": ["127.0.0.1:1", "127.0.0.1:2"]})

    def start(strategy, notes=None):
        monkeypatch.setattr(devices, "_strategy", lambda *_: strategy())
        return devices.start(note=(notes if notes is not None else []).append)

    return start


def test_who_a_worker_is(task, monkeypatch):
    addresses = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    found = []
    for jobs, kind, index in (
        (addresses, "worker", 1),
        (addresses, "chief", 0),
        ({"worker": ["b:1", "c:1"]}, "worker", 0),
    ):
        task(jobs, kind, index)
        found.append(cluster())
    assert found == [(2, 3), (0, 3), (0, 2)]
    monkeypatch.delenv("TF_CONFIG")
    assert cluster() == (0, 1)


def test_clusters_that_are_none_are_refused(task, monkeypatch):
    addresses = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    jobs = [(addresses, "worker", 2), (addresses, "ps", 0), ({"worker": 3}, "worker", 0)]
    jobs.append(({**addresses, "ps": ["d:1"]}, "worker", 0))
    wrong = ("here", "here:", ":1", "here:22x", "here:0", "here:65536")
    jobs += [({"worker": ["b:1", address]}, "worker", 0) for address in wrong]
    for each in jobs:
        task(*each)
        with pytest.raises(BadUse, match="TF_CONFIG must be JSON .* addresses, host:port"):
            devices.start(note=str)
    for text in ("{", "[]", '{"cluster": {"worker": ["a:1"]}}'):
        monkeypatch.setenv("TF_CONFIG", text)
        with pytest.raises(BadUse, match="TF_CONFIG must be JSON"):
            cluster()


def test_a_worker_that_waits_in_vain_ends_with_a_line(worker, monkeypatch, capsys):
    codes = []
    monkeypatch.setattr("os._exit", codes.append)
    monkeypatch.setenv("CAPSPOE_PATIENCE", "0.05")
    worker(lambda: time.sleep(0.5))
    assert codes == [1]
    assert capsys.readouterr().err == (
        "Error: Worker 0 waited 0.05 seconds for all 2 workers. Start the same command on each, "
        "all within this time, or correct TF_CONFIG.\n"
    )


def test_signals_end_a_worker_that_waits_and_are_handled_afterwards(worker):
    kinds, found, notes = (signal.SIGINT, signal.SIGTERM), [], []
    before = [signal.getsignal(kind) for kind in kinds]
    worker(lambda: found.extend(map(signal.getsignal, kinds)), notes)
    assert found == [signal.SIG_DFL] * 2
    assert [signal.getsignal(kind) for kind in kinds] == before
    assert notes == ["Waiting for all 2 workers; worker 0 is at 127.0.0.1:1."]


def test_an_error_of_tensorflow_while_workers_join_is_a_line(worker):
    import tensorflow as tf

    def fail():
        raise tf.errors.UnavailableError(None, None, "Task 0 is gone\nmore")

    with pytest.raises(RunFailed, match="Worker 0 of 2 has stopped .* \\(Task 0 is gone\\)."):
        worker(fail)


def test_how_long_is_waited_is_a_number(worker, monkeypatch):
    for text in ["long", "nan", "-1"]:
        monkeypatch.setenv("CAPSPOE_PATIENCE", text)
        with pytest.raises(BadUse, match=f"CAPSPOE_PATIENCE must be seconds. Received: {text}"):
            worker(lambda: None)


def test_a_worker_waits_for_the_chief_to_listen(task, monkeypatch):
    """Rejects TensorFlow's own way, which fails if the chief starts after the worker."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    task({"worker": [f"127.0.0.1:{port}", "127.0.0.1:2"]}, index=1)
    joined = threading.Event()
    monkeypatch.setattr(devices, "_strategy", lambda *_: joined.set())
    thread = threading.Thread(target=devices.start, args=(1, str))
    thread.start()
    assert not joined.wait(1)
    with socket.create_server(("127.0.0.1", port)):
        assert joined.wait(20)
    thread.join()


def test_a_name_of_the_chief_that_is_none_is_waited_for(worker, task, monkeypatch):
    task({"worker": ["a..b:2222", "127.0.0.1:2"]}, index=1)
    connect, asked = socket.create_connection, []

    def second(address, timeout):
        asked.append(address)
        return connect(address, timeout) if len(asked) < 2 else socket.socket()

    monkeypatch.setattr(socket, "create_connection", second)
    worker(lambda: None)
    assert asked == [("a..b", 2222)] * 2
