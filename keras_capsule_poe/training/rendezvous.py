"""Processes that train together find each other before TensorFlow waits for them.

TensorFlow waits for an hour for a worker that does not come, says nothing, and hears no Ctrl-C.
So all meet here first, at the address where the chief will listen, and know of each other until
TensorFlow has joined them.
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
        `Watch` over the others; as a context it is open until they are joined.

    Raises:
        RunFailed: If they do not come in time, the chief refuses this worker, or it cannot listen.
    """
    waiting = _Waiting(patience, note)
    peers = [_join(addresses, worker, waiting)] if worker else _gather(addresses, waiting)
    return Watch(peers, worker, len(addresses))


class Watch:
    """Ends this process if another one ends before all are joined.

    A context: where it ends by an exception, this process is not joined, and the others end.

    Args:
        peers: list of `_Peer`.
        worker, workers: int, the number of this one, and how many there are.
    """

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
        """Tells the others that this process has joined them, or lets them see that it has not."""
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
        # The main thread waits inside of TensorFlow, where nothing reaches it; nothing is begun.
        os._exit(1)


def stopped(worker, workers):
    """What a worker says where another one is gone.

    Examples:

    >>> stopped(0, 2)
    'Worker 0 of 2 has stopped because another one did.'
    """
    return f"Worker {worker} of {workers} has stopped because another one did."


def host_and_port(address):
    """The two parts of an address.

    Raises:
        ValueError: If it has no port from 1 to 65535.

    Examples:

    >>> host_and_port("10.0.0.1:2222"), host_and_port("[::1]:80")
    (('10.0.0.1', 2222), ('::1', 80))
    """
    host, _, port = address.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise ValueError(f"an address must be host:port. Received: {address!r}")
    return host.strip("[]"), int(port)


class _Waiting:
    """Until when; and for what, each of which is said once."""

    def __init__(self, patience, note):
        self._until, self._patience = time.monotonic() + patience, patience
        self._note, self._said = note, set()

    def wait_for(self, what, advice):
        """Notes what is waited for.

        Raises:
            RunFailed: If time is up.
        """
        if time.monotonic() > self._until:
            raise RunFailed(f"Waited {self._patience:g} seconds for {what}. {advice}")
        if what not in self._said:
            self._note(f"Waiting for {what}.")
            self._said.add(what)


class _Peer:
    """A connection to another process, which sends lines.

    Attributes:
        connection: Socket.
        unread: list of bytes, lines that came behind the one that was waited for.
    """

    def __init__(self, connection):
        self.connection, self.unread, self._part = connection, [], b""
        connection.settimeout(_AGAIN)

    def lines(self):
        """Lines that have come whole, perhaps none yet; None if it is gone, or sends no lines."""
        try:
            came = self.connection.recv(_LONGEST)
        except TimeoutError:
            return []
        except OSError:
            came = b""
        *whole, self._part = (self._part + came).split(b"\n")
        return None if not came or len(self._part) > _LONGEST else whole

    def say(self, line):
        """Sends a line; that it is gone is seen when it is listened to."""
        with contextlib.suppress(OSError):
            self.connection.sendall(line + b"\n")


def _gather(addresses, waiting):
    """The chief's peers: all others, by number."""
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
                if peer.connection.fileno() < 0:  # its place was taken a moment ago
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
                        # It may be left of a run that was ended.
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
    """Which worker says hello, and why it is none: one of both is None."""
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
    """A worker's peer: the chief, after all have come."""
    hello = json.dumps({"worker": worker, "workers": len(addresses)}).encode()
    while True:
        waiting.wait_for(
            f"worker 0 at {addresses[0]}", "Start the same command there, or mend TF_CONFIG."
        )
        with contextlib.ExitStack() as stack:
            try:
                peer = _Peer(stack.enter_context(_connection(addresses[0])))
            except (OSError, UnicodeError):  # a name that is none is not encoded
                time.sleep(_AGAIN)
                continue
            peer.say(hello)
            said = _answer(peer, len(addresses), waiting)
            if said == _GO:
                stack.pop_all()
                return peer
        if said.startswith(b"no "):
            raise RunFailed(said[3:].decode(errors="replace"))
        # The chief is gone again; the next one may come.
        time.sleep(_AGAIN)


def _connection(address):
    return socket.create_connection(host_and_port(address), timeout=_AGAIN)


def _answer(peer, workers, waiting):
    """What the chief says when all are here; nothing if it is gone."""
    while True:
        waiting.wait_for(f"all {workers} workers", "Worker 0 says which are missing.")
        lines = peer.lines()
        if lines is None:
            return b""
        if lines:
            said, *peer.unread = lines
            return said


def _listen(port, waiting):
    """A server at a port, as soon as that is free: what listened there may just be ending."""
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
