"""Import of TensorFlow without its start-up lines, which are for its developers.

Lines of another kind, and all lines of an import that fails, are shown.
"""

import contextlib
import importlib.abc
import importlib.util
import logging
import os
import re
import sys
import tempfile

LEVEL = "TF_CPP_MIN_LOG_LEVEL"
# Notes and warnings in the forms of absl and of TensorFlow, and errors that are none: a library
# of a GPU is registered twice.
_KNOWN = re.compile(
    rb"WARNING: All log messages before absl::InitializeLog"
    rb"|[IW]\d{4} |\d{4}-\d\d-\d\d \S+: [IW] "
    rb"|(E\d{4} |\d{4}-\d\d-\d\d \S+: E ).*(Unable to register cu|already (been )?registered)"
    rb"|To enable the following instructions"
)


def prepare():
    """Make the import of TensorFlow quiet, unless it is done or its log level was chosen."""
    if "tensorflow" in sys.modules or os.environ.setdefault(LEVEL, "3") != "3":
        return
    sys.meta_path.insert(0, _Quiet())
    logging.getLogger("tensorflow").addFilter(_is_of_use)


def _is_of_use(record):
    """Return False for the warning that Keras traces its steps: it counts all models together."""
    text = record.getMessage()
    return not ("triggered tf.function retracing" in text and "TensorFlowTrainer" in text)


class _Quiet(importlib.abc.MetaPathFinder):
    """Import hook that imports TensorFlow without its start-up lines."""

    def find_spec(self, name, path=None, target=None):
        if name != "tensorflow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        run = spec.loader.exec_module

        def run_quietly(module):
            with without_known_lines():
                run(module)

        spec.loader.exec_module = run_quietly
        return spec


@contextlib.contextmanager
def without_known_lines():
    """Context in which known start-up lines on the standard error are not shown.

    They come from C++, before any log level applies, so the file descriptor is redirected.
    """
    try:
        kept = os.dup(2)
    except OSError:
        # A program without a standard error has nowhere to show them.
        yield
        return
    with tempfile.TemporaryFile() as file:
        failed = True
        _flush()
        os.dup2(file.fileno(), 2)
        try:
            yield
            failed = False
        finally:
            _flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            for line in file:
                if failed or not _KNOWN.match(line):
                    os.write(2, line)


def _flush():
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
