"""Rendezvous of the processes that train together.

TensorFlow waits an hour for a missing worker, without a message and without reaction to Ctrl-C.
The workers therefore connect to the chief first, and watch each other until TensorFlow joins them.
"""

import contextlib
import errno
import json
import os
import queue
import socket
import sys
import threading
import time

from keras_capsule_poe.errors import RunFailed, listing

PATIENCE = 600.0
# Seconds between two attempts, and that the chief waits for a connection before it looks at others.
_AGAIN, _ACCEPT = 0.5, 0.1
_LONGEST = 4096
_GO, _JOINED = b"go", b"joined"


def barrier(addresses, worker, patience=PATIENCE, note=print):
    """Wait for all workers (`host:port`, the chief first); return a `Watch` over the others."""
    waiting = _Waiting(patience, note)
    peers, events = _join(addresses, worker, waiting) if worker else _gather(addresses, waiting)
    return Watch(peers, events, worker, len(addresses))


class Watch:
    """Context that ends this process if another one ends before all have joined."""

    def __init__(self, peers, events, worker, workers):
        self._peers, self._events, self._about = peers, events, (worker, workers)
        self._watching = threading.Thread(target=self._watch, daemon=True)
        self._watching.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close(joined=kind is None)

    def close(self, joined=True):
        """Close the connections, after a message that this process has joined if it has."""
        self._events.put((None, None))
        self._watching.join()
        for peer in self._peers:
            if joined:
                peer.say(_JOINED)
            peer.close()

    def _watch(self):
        waited_for = set(self._peers)
        while waited_for:
            peer, line = self._events.get()
            if peer is None:
                return
            if line == _JOINED:
                waited_for.discard(peer)
            elif line is None and peer in waited_for:
                said = f"{stopped(*self._about)} Start the same command on all of them again."
                print(f"Error: {said}", file=sys.stderr, flush=True)
                # The main thread waits inside TensorFlow, without signals; no training has begun.
                os._exit(1)


def stopped(worker, workers):
    """Return the message of a worker that stops because another one is gone."""
    return f"Worker {worker} of {workers} has stopped because another one did."


def host_and_port(address):
    """Return (host, port) of `host:port`; raise ValueError if there is no valid port."""
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(f"an address must be host:port. Received: {address!r}")
    return host.strip("[]"), int(port)


class _Waiting:
    """Deadline of the rendezvous; prints each thing that it waits for once."""

    def __init__(self, patience, note):
        self._until, self._patience = time.monotonic() + patience, patience
        self._note, self._said = note, set()

    def wait_for(self, what, advice):
        """Note what this process waits for; raise RunFailed after the deadline."""
        if time.monotonic() > self._until:
            raise RunFailed(f"Waited {self._patience:g} seconds for {what}. {advice}")
        if what not in self._said:
            self._note(f"Waiting for {what}.")
            self._said.add(what)


class _Peer:
    """Connection to another process; its lines, then None, are events (peer, line) in a queue."""

    def __init__(self, connection, events):
        connection.settimeout(None)
        self.is_open, self._connection = True, connection
        threading.Thread(target=self._read, args=(events,), daemon=True).start()

    def _read(self, events):
        with contextlib.suppress(OSError), self._connection.makefile("rb") as file:
            while (line := file.readline(_LONGEST)).endswith(b"\n"):
                events.put((self, line[:-1]))
        events.put((self, None))

    def say(self, line):
        """Send a line; if the peer is gone, its end is an event."""
        with contextlib.suppress(OSError):
            self._connection.sendall(line + b"\n")

    def refuse(self, why):
        self.say(b"no " + why.encode())
        self.close()

    def close(self):
        self.is_open = False
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def _gather(addresses, waiting):
    """Return the chief's peers and the queue of their events, once all workers are present."""
    workers, present, events = len(addresses), {}, queue.Queue()
    peers, found = [], []
    with _listen(host_and_port(addresses[0])[1], waiting) as server:
        server.settimeout(_ACCEPT)
        try:
            while len(present) < workers - 1:
                missing = [str(number) for number in range(1, workers) if number not in present]
                kind = "worker" if len(missing) == 1 else "workers"
                waiting.wait_for(
                    f"{kind} {listing(missing)} of {workers}",
                    f"Start the same command there; it must reach this machine as {addresses[0]}.",
                )
                with contextlib.suppress(TimeoutError):
                    peers.append(_Peer(server.accept()[0], events))
                while len(present) < workers - 1 and not events.empty():
                    _welcome(*events.get(), present, workers)
            found = list(present.values())
        finally:
            for peer in peers:
                if peer not in found:
                    peer.close()
    for peer in found:
        peer.say(_GO)
    return found, events


def _welcome(peer, line, present, workers):
    """Add a peer to the dict `present` if its line is a greeting; remove it if it is gone."""
    if line is None:
        peer.close()
        for number in [number for number, other in present.items() if other is peer]:
            del present[number]
    elif peer.is_open and peer not in present.values():
        try:
            number = _number(line, workers)
        except ValueError as error:
            peer.refuse(str(error))
            return
        if number in present:
            # The old connection may be from an earlier run.
            why = f"Another process came as worker {number}: each needs its own `index`."
            present[number].refuse(why)
        present[number] = peer


def _number(hello, workers):
    """Return the worker's number in a greeting; raise ValueError with a reason to refuse it."""
    try:
        said = json.loads(hello)
        number, known = said["worker"], said["workers"]
        is_worker = type(number) is type(known) is int
    except (ValueError, KeyError, TypeError, RecursionError):
        is_worker = False
    if not is_worker:
        raise ValueError("This is the chief of a training.")
    if known != workers or not 0 < number < workers:
        raise ValueError(f"The chief has {workers} workers, and worker {number} has {known}.")
    return number


def _join(addresses, worker, waiting):
    """Return a worker's one peer, the chief, and its events, once all workers are present."""
    chief, workers = addresses[0], len(addresses)
    hello = json.dumps({"worker": worker, "workers": workers}).encode()
    while True:
        waiting.wait_for(
            f"worker 0 at {chief}", "Start the same command there, or correct TF_CONFIG."
        )
        # UnicodeError: invalid host name.
        with contextlib.suppress(OSError, UnicodeError), contextlib.ExitStack() as on_error:
            events = queue.Queue()
            connection = socket.create_connection(host_and_port(chief), timeout=_AGAIN)
            peer = _Peer(connection, events)
            on_error.callback(peer.close)
            peer.say(hello)
            said = _answer(events, workers, waiting)
            if said == _GO:
                on_error.pop_all()
                return [peer], events
            if said.startswith(b"no "):
                raise RunFailed(said[3:].decode(errors="replace"))
        # There is no chief yet, or it is gone and a new one may start.
        time.sleep(_AGAIN)


def _answer(events, workers, waiting):
    """Return the chief's line once all workers are present, or b"" if the chief is gone."""
    while True:
        waiting.wait_for(f"all {workers} workers", "Worker 0 says which are missing.")
        with contextlib.suppress(queue.Empty):
            return events.get(timeout=_AGAIN)[1] or b""


def _listen(port, waiting):
    """Return a server at this port, once no other process uses the port."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    while True:
        try:
            return socket.create_server(("", port), family=family, dualstack_ipv6=both)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise RunFailed(f"The chief cannot listen at port {port}: {error}.") from error
            waiting.wait_for(f"port {port} of this machine", "Another process listens there.")
            time.sleep(_AGAIN)
