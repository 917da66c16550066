"""Imports of TensorFlow without its start-up lines, and of this package's classes after Keras.

The lines are for the developers of TensorFlow. Those of another kind, and all lines of an import
that fails, are shown. Keras finds the classes of a saved model only if their modules are imported.
These modules import TensorFlow, which takes seconds, so `import keras_capsule_poe` must not.
"""

import contextlib
import functools
import importlib
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
    sys.meta_path.insert(0, _Inside("tensorflow", without_known_lines))
    logging.getLogger("tensorflow").addFilter(_is_of_use)


def _is_of_use(record):
    """Return False for the warning that Keras traces its steps: it counts all models together."""
    text = record.getMessage()
    return not ("triggered tf.function retracing" in text and "TensorFlowTrainer" in text)


def register_with_keras(modules):
    """Import `modules`, which register their classes, now or right after Keras is imported."""
    if "keras" in sys.modules:
        _import(modules)
    else:
        sys.meta_path.insert(0, _Inside("keras", functools.partial(_followed_by, modules)))


def _import(modules):
    for module in modules:
        importlib.import_module(module)


@contextlib.contextmanager
def _followed_by(modules):
    """Context that imports modules at its end."""
    # A module of this package that imports Keras registers its classes itself.
    package = f"{__name__.rpartition('.')[0]}."
    is_needed = not any(module.startswith(package) for module in _loading())
    yield
    if is_needed:
        _import(modules)


def _loading():
    """Yield the names of the modules whose import is in progress."""
    for name, module in list(sys.modules.items()):
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            yield name


class _Inside(importlib.abc.MetaPathFinder):
    """Import hook that imports a package inside of a context."""

    def __init__(self, package, context):
        self.package, self.context = package, context

    def find_spec(self, name, path=None, target=None):
        if name != self.package:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        run = spec.loader.exec_module

        def run_inside(module):
            with self.context():
                run(module)

        spec.loader.exec_module = run_inside
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
