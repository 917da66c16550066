"""Rendezvous of the processes that train together.

TensorFlow waits an hour for a missing worker, without a message and without reaction to Ctrl-C.
The workers therefore connect to the chief first, and watch each other until TensorFlow joins them.
"""

import contextlib
import errno
import json
import os
import selectors
import socket
import sys
import threading
import time

from keras_capsule_poe.errors import RunFailed, listing

PATIENCE = 600.0
# Seconds between two attempts, and between two checks whether the watch is closed.
_AGAIN, _LOOKS = 0.5, 0.1
_LONGEST = 4096


def barrier(addresses, worker, patience=PATIENCE, note=print):
    """Wait for all workers (`host:port`, the chief first); return a `Watch` over the others."""
    waiting = _Waiting(patience, note)
    peers = [_join(addresses, worker, waiting)] if worker else _gather(addresses, waiting)
    return Watch(peers, worker, len(addresses))


class Watch:
    """Context that ends this process if another one ends before all have joined."""

    def __init__(self, peers, worker, workers):
        self._peers, self._about = peers, (worker, workers)
        self._closed = threading.Event()
        self._looking = threading.Thread(target=self._look, daemon=True)
        self._looking.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.close(joined=kind is None)

    def close(self, joined=True):
        """Close the connections, after a message that this process has joined if it has."""
        self._closed.set()
        self._looking.join()
        for peer in self._peers:
            if joined:
                peer.say(_JOINED)
            peer.connection.close()

    def _look(self):
        with selectors.DefaultSelector() as selector:
            for peer in self._peers:
                if _JOINED not in peer.unread:
                    selector.register(peer.connection, selectors.EVENT_READ, peer)
            while selector.get_map() and not self._closed.is_set():
                for key, _ in selector.select(_LOOKS):
                    lines = key.data.lines()
                    if lines is None and not self._closed.is_set():
                        self._end()
                    if lines is None or _JOINED in lines:
                        selector.unregister(key.fileobj)

    def _end(self):
        said = f"Error: {stopped(*self._about)} Start the same command on all of them again."
        print(said, file=sys.stderr, flush=True)
        # The main thread waits inside TensorFlow and takes no signal; no training has begun.
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
    """Connection to another process that sends lines; `unread` holds lines not yet processed."""

    def __init__(self, connection):
        self.connection, self.unread, self._part = connection, [], b""
        connection.settimeout(_AGAIN)

    def lines(self):
        """Return the complete lines received, or None if the peer is gone or sends no lines."""
        try:
            came = self.connection.recv(_LONGEST)
        except TimeoutError:
            return []
        except OSError:
            came = b""
        *whole, self._part = (self._part + came).split(b"\n")
        return None if not came or len(self._part) > _LONGEST else whole

    def say(self, line):
        """Send a line; the next call of `lines` shows whether the peer is gone."""
        with contextlib.suppress(OSError):
            self.connection.sendall(line + b"\n")


def _gather(addresses, waiting):
    """Return the chief's peers, once all other workers are present."""
    workers, present = len(addresses), {}
    server = _listen(host_and_port(addresses[0])[1], waiting)
    with server, selectors.DefaultSelector() as selector, contextlib.ExitStack() as stack:

        def forget(peer):
            selector.unregister(peer.connection)
            peer.connection.close()

        stack.callback(lambda: [peer.connection.close() for peer in present.values()])
        selector.register(server, selectors.EVENT_READ)
        while len(present) < workers - 1:
            missing = [str(number) for number in range(1, workers) if number not in present]
            kind = "worker" if len(missing) == 1 else "workers"
            waiting.wait_for(
                f"{kind} {listing(missing)} of {workers}",
                f"Start the same command there; it must reach this machine as {addresses[0]}.",
            )
            for key, _ in selector.select(_AGAIN):
                peer = key.data
                if peer is None:
                    peer = _Peer(server.accept()[0])
                    selector.register(peer.connection, selectors.EVENT_READ, peer)
                    continue
                if peer.connection.fileno() < 0:  # a newer connection has replaced it
                    continue
                lines = peer.lines()
                if lines is None:
                    present = {n: other for n, other in present.items() if other is not peer}
                    forget(peer)
                elif lines and peer not in present.values():
                    number, why = _number(lines[0], workers)
                    if number is None:
                        peer.say(b"no " + why.encode())
                        forget(peer)
                        continue
                    if number in present:
                        # The old connection may be from an earlier run.
                        present[number].say(b"no " + _TWICE.format(number).encode())
                        forget(present[number])
                    present[number] = peer
        for key in list(selector.get_map().values()):
            if key.data is not None and key.data not in present.values():
                key.fileobj.close()
        stack.pop_all()
    for peer in present.values():
        peer.say(_GO)
    return list(present.values())


_GO, _JOINED = b"go", b"joined"
_TWICE = "Another process came as worker {}: each needs its own `index`."


def _number(hello, workers):
    """Return (worker's number, None), or (None, reason) if the greeting is not valid."""
    try:
        said = json.loads(hello)
        number, known = said["worker"], said["workers"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, "This is the chief of a training."
    if not (type(number) is int and type(known) is int):
        return None, "This is the chief of a training."
    if known != workers or not 0 < number < workers:
        return None, f"The chief has {workers} workers, and worker {number} has {known}."
    return number, None


def _join(addresses, worker, waiting):
    """Return a worker's peer, the chief, once all workers are present."""
    hello = json.dumps({"worker": worker, "workers": len(addresses)}).encode()
    while True:
        waiting.wait_for(
            f"worker 0 at {addresses[0]}", "Start the same command there, or mend TF_CONFIG."
        )
        with contextlib.ExitStack() as stack:
            try:
                peer = _Peer(stack.enter_context(_connection(addresses[0])))
            except (OSError, UnicodeError):  # UnicodeError: invalid host name
                time.sleep(_AGAIN)
                continue
            peer.say(hello)
            said = _answer(peer, len(addresses), waiting)
            if said == _GO:
                stack.pop_all()
                return peer
        if said.startswith(b"no "):
            raise RunFailed(said[3:].decode(errors="replace"))
        # The chief is gone, but a new one may start.
        time.sleep(_AGAIN)


def _connection(address):
    return socket.create_connection(host_and_port(address), timeout=_AGAIN)


def _answer(peer, workers, waiting):
    """Return the chief's line once all workers are present, or b"" if the chief is gone."""
    while True:
        waiting.wait_for(f"all {workers} workers", "Worker 0 says which are missing.")
        lines = peer.lines()
        if lines is None:
            return b""
        if lines:
            said, *peer.unread = lines
            return said


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
