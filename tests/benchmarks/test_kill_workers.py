"""What other workers do when one is ended is judged: here by processes that train nothing."""

import subprocess
import tempfile

import kill_workers as module
import pytest

WAITS = "sleep 60"
# What a worker does after another one is gone, half a second after the start.
ENDS = "sleep 0.5; echo 'epoch 1: held_out_relative_error 0.1'; echo 'Error: gone.'; exit 1"
SILENT = "sleep 0.5; exit 1"
CRASHES = "sleep 0.5; kill -SEGV $$"
TRACED = "sleep 0.5; echo 'Traceback (most recent call last):'; echo 'Error: gone.'; exit 1"
DONE = "sleep 0.5"


@pytest.fixture
def disturbed(monkeypatch, tmp_path):
    """Function of two programs and a stage: what is said of the kill of the first one."""
    monkeypatch.setattr(module, "SOON", 2)

    def start(self, folder, stack):
        found = []
        for program in self.programs:
            said = stack.enter_context(tempfile.TemporaryFile("w+"))
            process = subprocess.Popen(["sh", "-c", program], stdout=said, stderr=said)
            stack.enter_context(process)
            stack.callback(process.kill)
            found.append((process, said))
        return found

    monkeypatch.setattr(module.Crew, "start", start)

    def call(*programs, stage="rbm", moment=0.1):
        (tmp_path / stage).mkdir()
        crew = module.Crew("rbm", workers=2, epochs=1)
        crew.programs = programs
        return crew.disturbed(tmp_path, "KILL", moment, victim=0)

    return call


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "other, stage, problem",
    [
        (ENDS, "rbm", None),
        (SILENT, "rbm", "KILL of 0: worker 1 did not end in one line"),
        (TRACED, "rbm", "KILL of 0: worker 1 did not end in one line"),
        (CRASHES, "rbm", "KILL of 0: worker 1: exit -11"),
        (WAITS, "rbm", "KILL of 0: worker 1: did not end"),
        # In the midst of a training nobody is done; at its end one may be.
        (DONE, "rbm", "KILL of 0: worker 1: exit 0"),
        (DONE, "export", None),
    ],
)
def test_how_the_other_ends(disturbed, other, stage, problem):
    seconds, found = disturbed(WAITS, other, stage=stage)
    assert 0 < seconds < 10
    assert found is None if problem is None else found.startswith(problem)


def test_what_ends_before_it_is_disturbed(disturbed):
    assert disturbed("true", "true", stage="export", moment=0.5) is None


@pytest.mark.parametrize(
    "first, second",
    [("true", CRASHES), pytest.param("true", WAITS, marks=pytest.mark.long), (WAITS, "exit 3")],
)
def test_failures_without_a_kill_are_failures(disturbed, first, second):
    seconds, found = disturbed(first, second, stage="export", moment=0.8)
    assert "worker" in found
