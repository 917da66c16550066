"""Child processes that end with their parent, however it ends.

An exception, Ctrl-C and SIGTERM end a child's whole process group. Where the parent is killed,
it can end nothing: on Linux the kernel then ends its children, and so theirs.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import warnings

_PR_SET_PDEATHSIG = 1
# Bound before any fork: a child forked from a process with threads should load nothing.
_prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
PATIENCE = 2.0


def in_child(function, *args):
    """function(*args), run in a process of its own.

    Raises:
        RuntimeError: If it fails, with its message.
    """
    return in_children(function, [args])[0]


def in_children(function, calls):
    """function(*args) for each args of `calls`, all at once, each in a process of its own.

    Not for what is timed.

    Raises:
        RuntimeError: If one fails, with its message.
    """
    started = []
    try:
        with warnings.catch_warnings():
            # The threads that imports started do nothing that a fork could harm.
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            for args in calls:
                started.append(_start(function, args))
        outcomes = [_outcome(*child) for child in started]
    finally:
        for child, _ in started:
            child.kill()
            child.join()
    for works, result in outcomes:
        if not works:
            raise RuntimeError(result)
    return [result for _, result in outcomes]


def run(command, **options):
    """Runs a command to its end, as `subprocess.run`; it ends with this process.

    Args:
        command: list of its words.
        **options: Of `subprocess.Popen`.

    Returns:
        `subprocess.CompletedProcess`.
    """
    with start(command, **options) as process:
        try:
            out, errors = process.communicate()
        except BaseException:
            _end_group(process)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


def start(command, **options):
    """A `subprocess.Popen` of a command; it ends with this process."""
    parent = os.getpid()

    def begin():
        # Programs that a script started in the background inherit that interrupts are ignored.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.setpgrp()
        end_with(parent)

    return subprocess.Popen(command, preexec_fn=begin, **options)


def end_with(parent):
    """In a child just forked: it is killed when its parent ends.

    Args:
        parent: int, the parent's process id as it was before the fork.
    """
    if _prctl:
        _prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if os.getppid() != parent:  # it ended before it could be asked about
        os._exit(1)


def exit_on_sigterm():
    """Makes SIGTERM end this process as an exception does: what it has begun is cleared away."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def _start(function, args):
    receiver, sender = multiprocessing.Pipe(duplex=False)
    parent = os.getpid()

    def run():
        end_with(parent)
        try:
            sender.send((True, function(*args)))
        except Exception as error:
            sender.send((False, f"{type(error).__name__}: {str(error)[:300]}"))

    child = multiprocessing.get_context("fork").Process(target=run)
    child.start()
    sender.close()
    return child, receiver


def _outcome(child, receiver):
    try:
        outcome = receiver.recv()
    except EOFError:
        outcome = False, "the process was killed, for memory perhaps"
    child.join()
    return outcome


def _end_group(process):
    with contextlib.suppress(ProcessLookupError):
        # First a chance to end groups of their own.
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        os.killpg(process.pid, signal.SIGKILL)
