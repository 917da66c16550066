"""Whether there is a network at all, found out fast."""

import socket
import threading
import urllib.parse
import urllib.request

TIMEOUT_SECONDS = 3.0


def is_online():
    """Whether the host that serves most data sets, or the user's proxy, accepts connections.

    Takes no more than `TIMEOUT_SECONDS`. tensorflow-datasets without a network repeats each
    download for more than three minutes before it fails, so this must be known beforehand.
    """
    proxy = urllib.request.getproxies().get("https")
    address = urllib.parse.urlsplit(proxy or "https://storage.googleapis.com")
    host = address.hostname, address.port or 443
    answered = threading.Event()

    def connect():
        try:
            socket.create_connection(host, TIMEOUT_SECONDS).close()
            answered.set()
        except OSError:
            pass

    # In a thread, since looking up a name has no timeout of its own.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(TIMEOUT_SECONDS)
    return answered.is_set()
