"""Processes that train together find each other before TensorFlow waits for them.

TensorFlow waits for an hour for a worker that does not come, says nothing, and hears no Ctrl-C.
So all meet here first, at the address where the chief will listen, and know of each other until
TensorFlow has joined them.
"""

import contextlib
import json
import os
import selectors
import socket
import sys
import threading
import time

from keras_capsule_poe.errors import RunFailed, listing

PATIENCE = 600.0
# How often is tried anew what failed, and looked whether all is done, in seconds.
_AGAIN, _LOOKS = 0.5, 0.1
_LONGEST = 4096


def meet(addresses, worker, patience=PATIENCE, note=print):
    """Waits until all workers are here.

    Args:
        addresses: list of str, `host:port` of every worker, the chief first.
        worker: int, the number of this one.
        patience: float, for how many seconds at most.
        note: Function of a line, told for whom is waited.

    Returns:
        `Watch` over the others; close it when they are joined.

    Raises:
        RunFailed: If they do not come in time, or the chief refuses this worker.
    """
    waiting = _Waiting(patience, note)
    if worker:
        return Watch([_join(addresses, worker, waiting)], worker, len(addresses))
    return Watch(_gather(addresses, waiting), worker, len(addresses))


class Watch:
    """Ends this process if another one ends before `close`; as a context, closes it.

    Args:
        connections: list of sockets to others.
        worker, workers: int, the number of this one, and how many there are.
    """

    def __init__(self, connections, worker, workers):
        self._connections, self._about = connections, (worker, workers)
        self._closed = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Tells the others that this process has joined them."""
        self._closed.set()
        self._looking.join()
        for connection in self._connections:
            # Whoever is gone by now is missed by TensorFlow.
            with contextlib.suppress(OSError):
                connection.sendall(b"joined\n")
            connection.close()

    def _look(self):
        with selectors.DefaultSelector() as selector:
            for connection in self._connections:
                selector.register(connection, selectors.EVENT_READ)
            while selector.get_map() and not self._closed.is_set():
                for key, _ in selector.select(_LOOKS):
                    if not _received(key.fileobj) and not self._closed.is_set():
                        self._end()
                    # It has joined, and so have all.
                    selector.unregister(key.fileobj)

    def _end(self):
        print(f"Error: {stopped(*self._about)} {ALL_AGAIN}", file=sys.stderr, flush=True)
        # The main thread waits inside of TensorFlow, where nothing reaches it; nothing is begun.
        os._exit(1)


ALL_AGAIN = "Start the same command on all of them again."


def stopped(worker, workers):
    """What a worker says where another one is gone.

    Examples:

    >>> stopped(0, 2)
    'Worker 0 of 2 has stopped because another one did.'
    """
    return f"Worker {worker} of {workers} has stopped because another one did."


class _Waiting:
    """Until when, and for what, which is said once."""

    def __init__(self, patience, note):
        self._until, self._patience = time.monotonic() + patience, patience
        self._note, self._said = note, None

    def wait_for(self, what, advice):
        """Notes what is waited for.

        Raises:
            RunFailed: If time is up.
        """
        if time.monotonic() > self._until:
            raise RunFailed(f"Waited {self._patience:g} seconds for {what}. {advice}")
        if what != self._said:
            self._note(f"Waiting for {what}.")
            self._said = what


def _gather(addresses, waiting):
    """The chief's connections to all others."""
    workers, present = len(addresses), {}
    port = _host_and_port(addresses[0])[1]
    server = _listen(port, waiting)
    with server, selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:
        stack.callback(lambda: [connection.close() for connection in present.values()])
        selector.register(server, selectors.EVENT_READ)
        while len(present) < workers - 1:
            missing = [str(number) for number in range(1, workers) if number not in present]
            kind = "worker" if len(missing) == 1 else "workers"
            waiting.wait_for(
                f"{kind} {listing(missing)} of {workers}",
                f"Start the same command there; it must reach this machine as {addresses[0]}.",
            )
            for key, _ in selector.select(_AGAIN):
                if key.fileobj is server:
                    _welcome(server, workers, present, selector)
                elif key.fileobj in selector.get_map() and not _received(key.fileobj):
                    # One that is gone again, or was never one of ours.
                    selector.unregister(key.fileobj)
                    for number in [n for n, c in present.items() if c is key.fileobj]:
                        present.pop(number)
                    key.fileobj.close()
        stack.pop_all()
    for connection in present.values():
        # Whoever has just gone is missed by the watch.
        with contextlib.suppress(OSError):
            connection.sendall(b"go\n")
    return list(present.values())


def _welcome(server, workers, present, selector):
    """Takes in one who says which worker it is; the later one of the same number counts."""
    connection, _ = server.accept()
    connection.settimeout(_AGAIN)
    try:
        hello = json.loads(_received(connection))
        number, said = hello["worker"], hello["workers"]
        is_right = said == workers and number in range(1, workers)
    except (ValueError, KeyError, TypeError):
        return connection.close()
    if not is_right:
        why = f"The chief has {workers} workers, and worker {number} has {said}."
        return _refuse(connection, why)
    if number in present:
        before = present.pop(number)
        selector.unregister(before)
        _refuse(before, f"Another process came as worker {number}: each needs its own `index`.")
    present[number] = connection
    selector.register(connection, selectors.EVENT_READ)


def _refuse(connection, why):
    with contextlib.suppress(OSError):
        connection.sendall(f"no {why}\n".encode())
    connection.close()


def _join(addresses, worker, waiting):
    """A worker's connection to the chief, after all have come."""
    hello = json.dumps({"worker": worker, "workers": len(addresses)}) + "\n"
    while True:
        waiting.wait_for(
            f"worker 0 at {addresses[0]}", "Start the same command there, or mend TF_CONFIG."
        )
        with contextlib.ExitStack() as stack:
            try:
                connection = stack.enter_context(_connection(addresses[0]))
                connection.sendall(hello.encode())
            except OSError:
                time.sleep(_AGAIN)
                continue
            said = _answer(connection, len(addresses), waiting)
            if said == b"go\n":
                stack.pop_all()
                return connection
        if said.startswith(b"no "):
            raise RunFailed(said.decode()[3:].strip())
        # The chief is gone again; the next one may come.
        time.sleep(_AGAIN)


def _connection(address):
    return socket.create_connection(_host_and_port(address), timeout=_AGAIN)


def _answer(connection, workers, waiting):
    """What the chief says when all are here; nothing if it is gone."""
    while True:
        waiting.wait_for(f"all {workers} workers", "Worker 0 says which are missing.")
        try:
            return connection.recv(_LONGEST)
        except TimeoutError:
            continue
        except OSError:
            return b""


def _received(connection):
    """What came, or nothing of one that is gone."""
    try:
        return connection.recv(_LONGEST)
    except OSError:
        return b""


def _listen(port, waiting):
    """A server at a port, as soon as that is free: what listened there may just be ending."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    while True:
        try:
            return socket.create_server(("", port), family=family, dualstack_ipv6=both)
        except OSError as error:
            waiting.wait_for(f"port {port} of this machine", f"It is taken: {error}.")
            time.sleep(_AGAIN)


def _host_and_port(address):
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)
