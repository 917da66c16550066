"""A server of static files for this machine alone."""

import functools
import http.server
import tempfile
import threading
from pathlib import Path
from typing import Any

from keras_capsule_poe.errors import BadUse

HOST = "127.0.0.1"


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Files of one folder, for browsers on this machine."""

    extensions_map = {
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".wasm": "application/wasm",
        ".js": "text/javascript",
        ".onnx": "application/octet-stream",
    }

    def do_GET(self):
        # Another page could otherwise reach this one by a name of its own for this machine.
        host = self.headers.get("Host", "").rpartition(":")[0]
        if host not in (HOST, "localhost"):
            return self.send_error(403, "Only localhost is answered")
        if "%00" in self.path:
            return self.send_error(404)
        return super().do_GET() if self.command == "GET" else super().do_HEAD()

    do_HEAD = do_GET

    def list_directory(self, path):
        self.send_error(404)

    def log_message(self, *values):
        """Write nothing to the terminal."""


class Page:
    """A page of static files at a port of this machine, until `close`.

    Attributes:
        local_url: Address of the page.
    """

    def __init__(self, folder: str | Path, port: int | None = None) -> None:
        handler = functools.partial(_Handler, directory=str(folder))
        try:
            self._server = http.server.ThreadingHTTPServer((HOST, port or 0), handler)
        except OSError as error:
            raise BadUse(
                f"`port` must be free. Received: port={port} ({error.strerror})."
            ) from error
        self.local_url = f"http://{HOST}:{self._server.server_port}/"
        self.holder: Any = None
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        if self.holder is not None:
            self.holder.cleanup()

    def wait(self) -> None:
        """Wait until the server ends."""
        self._thread.join()

    def __repr__(self):
        return f"Page at {self.local_url}"

    def _repr_html_(self):
        return f'<iframe src="{self.local_url}" width="100%" height="800"></iframe>'


def served(write: Any, port: int | None = None) -> Page:
    """Return the `Page` of a temporary folder that `write(folder)` fills; `close` removes it."""
    holder = tempfile.TemporaryDirectory(prefix="capspoe-page-")
    try:
        write(Path(holder.name) / "page")
        page = Page(Path(holder.name) / "page", port)
    except BaseException:
        holder.cleanup()
        raise
    page.holder = holder
    return page
