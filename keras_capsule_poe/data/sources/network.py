"""Network check with a short timeout."""

import socket
import threading
import urllib.parse
import urllib.request

# tensorflow-datasets retries for more than three minutes when offline.
TIMEOUT_SECONDS = 3.0


def is_online():
    """Return whether the main data host, or the proxy, accepts connections."""
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

    # In a thread, because name resolution has no timeout.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(TIMEOUT_SECONDS)
    return answered.is_set()
