"""Workers find each other, say for whom they wait, and end if one is gone; without TensorFlow."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
import time

import pytest

from keras_capsule_poe.distributed import devices
from keras_capsule_poe.distributed.rendezvous import barrier
from keras_capsule_poe.errors import BadUse, RunFailed

PATIENCE = 20


def free_address():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


class Worker(threading.Thread):
    """One that comes, in a thread of its own; `error` is what it raised."""

    def __init__(self, addresses, number, patience=PATIENCE):
        super().__init__(daemon=True)
        self.notes = []
        self.arguments = (addresses, number, patience, self.notes.append)
        self.error = self.watch = None
        self.start()

    def run(self):
        try:
            self.watch = barrier(*self.arguments)
        except RunFailed as error:
            self.error = str(error)

    def result(self):
        self.join(PATIENCE + 5)
        assert not self.is_alive()
        return self.watch


def until(found):
    end = time.monotonic() + PATIENCE
    while not found() and time.monotonic() < end:
        time.sleep(0.02)
    assert found()


@pytest.fixture
def addresses():
    # The chief's counts; the others are TensorFlow's.
    return [free_address(), "127.0.0.1:1", "127.0.0.1:2"]


def say(address, words):
    """A connection to the chief that has said something."""
    host, port = address.split(":")
    end = time.monotonic() + PATIENCE
    while True:
        with contextlib.suppress(OSError):
            connection = socket.create_connection((host, int(port)), timeout=PATIENCE)
            connection.sendall(words)
            return connection
        assert time.monotonic() < end
        time.sleep(0.02)


def test_all_meet_in_whatever_order_they_come(addresses):
    second = Worker(addresses, 2)
    until(lambda: second.notes)
    chief = Worker(addresses, 0)
    until(lambda: "Waiting for worker 1 of 3." in chief.notes)
    first = Worker(addresses, 1)
    watches = [worker.result() for worker in (chief, first, second)]
    assert chief.notes[-1] == "Waiting for worker 1 of 3."
    first_note = f"Waiting for worker 0 at {addresses[0]}."
    assert second.notes == [first_note, "Waiting for all 3 workers."]
    # Where one closes first the others do not take it for dead: that would end this process.
    for watch in watches:
        watch.close()
        time.sleep(0.1)
    # TensorFlow's server listens at the same port right afterwards.
    host, port = addresses[0].split(":")
    socket.create_server((host, int(port))).close()


@pytest.mark.long
def test_who_does_not_come_is_named(addresses):
    second = Worker(addresses, 2, patience=4)
    until(lambda: second.notes)
    chief = Worker(addresses, 0, patience=3)
    chief.result(), second.result()
    assert chief.error == (
        "Waited 3 seconds for worker 1 of 3. Start the same command there; it must reach this "
        f"machine as {addresses[0]}."
    )
    assert re.match("Waited 4 seconds for worker 0 at", second.error)
    alone = Worker(addresses, 1, patience=0.1)
    alone.result()
    assert alone.error == (
        f"Waited 0.1 seconds for worker 0 at {addresses[0]}. Start the same command there, or "
        "correct TF_CONFIG."
    )


def test_a_port_that_is_taken_is_waited_for(addresses):
    host, port = addresses[0].split(":")
    with socket.create_server((host, int(port))):
        chief = Worker(addresses, 0, patience=0.1)
        chief.result()
        assert chief.error.startswith(f"Waited 0.1 seconds for port {port} of this machine.")
        late = Worker(addresses[:2], 0)
        until(lambda: late.notes)
    first = Worker(addresses[:2], 1)
    for worker in (late, first):
        worker.result().close()


STRANGE = [
    b"GET / HTTP/1.1\r\n\r\n",
    b'{"worker": "one", "workers": 3}\n',
    b'{"worker": "\\ud800", "workers": 3}\n',
    b'{"worker": true, "workers": 3}\n',
    b'{"worker": 1.0, "workers": 3}\n',
    b'{"worker": 0, "workers": 3}\n',
    b'{"worker": -1, "workers": 3}\n',
    b"[1]\n",
    b"\xff\n",
    b"[" * 4000 + b"\n",
    b"x" * 100_000,
]


def test_strangers_and_who_is_gone_again_do_not_count(addresses):
    chief = Worker(addresses, 0)
    for words in STRANGE:
        with contextlib.suppress(OSError):  # it is cut off in the midst of a long one
            say(addresses[0], words).close()
    # Whoever says nothing keeps nobody waiting.
    silent = [say(addresses[0], b"") for _ in range(30)]
    began = time.monotonic()
    left = say(addresses[0], b'{"worker": 1, "workers": 3}\n')
    until(lambda: chief.notes[-1:] == ["Waiting for worker 2 of 3."])
    left.close()
    second = Worker(addresses, 2)
    until(lambda: chief.notes[-1] == "Waiting for worker 1 of 3.")
    first = say(addresses[0], b'{"worker": 1, ')
    time.sleep(0.1)
    first.sendall(b'"workers": 3}\n')
    chief.result(), second.result()
    assert time.monotonic() - began < 10
    assert first.recv(200) == b"go\n"
    first.sendall(b"joined\n")
    for worker in (second, chief):
        worker.result().close()
    for connection in (first, *silent):
        connection.close()


@pytest.mark.parametrize("said", [b"go\njoined\n", b"g|o\n|joined\n", b"no \xff\n"])
def test_words_of_the_chief_may_come_in_any_parts(addresses, said):
    with socket.create_server(("127.0.0.1", int(addresses[0].split(":")[1]))) as chief:
        worker = Worker(addresses[:2], 1)
        connection, _ = chief.accept()
        for part in said.split(b"|"):
            connection.sendall(part)
            time.sleep(0.1)
        watch = worker.result()
        connection.close()
    # The chief has joined it, and may end: that is not seen here any more.
    time.sleep(0.3)
    if said.startswith(b"no"):
        assert worker.error == "\ufffd"
    else:
        watch.close()


def test_a_worker_that_cannot_be_is_refused(addresses):
    small = Worker(addresses[:2], 0)
    many = Worker(addresses, 2)
    many.result()
    assert many.error == "The chief has 2 workers, and worker 2 has 3."
    for worker in (Worker(addresses[:2], 1), small):
        worker.result().close()
    chief = Worker([free_address(), *addresses[1:]], 0)
    own = chief.arguments[0]
    before = say(own[0], b'{"worker": 1, "workers": 3}\n')
    until(lambda: chief.notes[-1:] == ["Waiting for worker 2 of 3."])
    after = Worker(own, 1)
    # The later one counts: the earlier one may be left of a run that was ended.
    said = before.recv(200)
    assert said == b"no Another process came as worker 1: each needs its own `index`.\n"
    before.close()
    for worker in (after, Worker(own, 2), chief):
        worker.result().close()


PROGRAM = """
import sys, time
from keras_capsule_poe.distributed.rendezvous import barrier
with barrier(sys.argv[1].split(","), int(sys.argv[2]), 100, print):
    print("here", flush=True)
    if sys.stdin.readline():
        raise RuntimeError
    time.sleep(100)
"""


@pytest.mark.parametrize("end", ["kill", "raise"])
def test_whoever_is_left_alone_before_all_are_joined_ends(addresses, end):
    command = [sys.executable, "-c", PROGRAM, ",".join(addresses[:2])]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with contextlib.ExitStack() as stack:
        crew = []
        for number in ("0", "1"):
            worker = subprocess.Popen([*command, number], text=True, **pipes)
            crew.append(stack.enter_context(worker))
            stack.callback(worker.kill)
        for worker in crew:
            assert "here\n" in iter(worker.stdout.readline, "")
        if end == "kill":
            crew[1].kill()
        else:
            crew[1].communicate("raise\n")
        error = crew[0].stderr.read()
    assert crew[0].returncode == 1
    assert error.strip().splitlines()[-1] == (
        "Error: Worker 0 of 2 has stopped because another one did. Start the same command on all "
        "of them again."
    )


def test_how_long_is_waited(monkeypatch, addresses):
    task = {"cluster": {"worker": addresses[:2]}, "task": {"type": "worker", "index": 1}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(task))
    monkeypatch.setenv("GRPC_FAIL_FAST", "true")
    monkeypatch.setenv("CAPSPOE_PATIENCE", "0.1")
    with pytest.raises(RunFailed, match=f"Waited 0.1 seconds for worker 0 at {addresses[0]}"):
        devices.start(note=str)
    for wrong in ("long", "nan", "-1"):
        monkeypatch.setenv("CAPSPOE_PATIENCE", wrong)
        with pytest.raises(BadUse, match=f"CAPSPOE_PATIENCE must be seconds. Received: {wrong}"):
            devices.start(note=str)


@pytest.mark.parametrize("address", ["here", "here:", ":1", "here:22x", "here:0", "here:65536"])
def test_addresses_without_a_port_are_refused(monkeypatch, address):
    task = {"cluster": {"worker": ["b:1", address]}, "task": {"type": "worker", "index": 0}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(task))
    with pytest.raises(BadUse, match="addresses, host:port"):
        devices.start(note=str)


def test_a_name_that_is_none_is_waited_for():
    worker = Worker(["a..b:2222", "127.0.0.1:1"], 1, patience=0.1)
    worker.result()
    assert worker.error.startswith("Waited 0.1 seconds for worker 0 at a..b:2222.")
