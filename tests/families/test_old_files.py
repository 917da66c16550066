"""Files of version 0.2.0 before the packages were rearranged: they load, sample and resume.

`tests/fixtures/FAMILY.tar.gz` holds a finished run (`whole`), a run that SIGKILL ended in its last
training stage (`stopped`), the options of both, and results of the finished model for fixed images
and seeds (`expected.npz`), all written by commit 2a5e713.
Rejected: a setting, a file name or a registered class that old files have and the code no longer
knows; weights that are read in another order.
"""

import json
import tarfile
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_capsule_poe as kcp

FIXTURES = Path(__file__).parents[1] / "fixtures"
FAMILIES = ("capsules", "neurons", "rbm", "capsnet", "matrix-capsules")


@pytest.fixture(scope="module", params=FAMILIES)
def old(request, tmp_path_factory):
    """Name of a model family and the folder of its unpacked files."""
    folder = tmp_path_factory.mktemp(request.param)
    with tarfile.open(FIXTURES / f"{request.param}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    return request.param, folder


def test_a_model_gives_the_same_results(old):
    _, folder = old
    model = kcp.load(folder / "whole")
    with np.load(folder / "expected.npz") as expected:
        images, wanted = expected["images"], {k: expected[k] for k in expected if k != "images"}
    found = {}
    for name in {key.partition(".")[0] for key in wanted}:
        has_seed = tuple(model.ENDPOINTS[name]) == ("n", "seed")
        results = getattr(model, name)(*((5, 3) if has_seed else (images,)))
        # Former names of results still work.
        keys = [key.partition(".")[2] for key in wanted if key.startswith(f"{name}.")]
        found |= {f"{name}.{key}": np.asarray(results[key]) for key in keys}
    for key, value in wanted.items():
        # Another processor adds up in another order.
        np.testing.assert_allclose(found[key], value, rtol=2e-3, atol=2e-4, err_msg=key)


def test_keras_loads_it_in_safe_mode(old):
    family, folder = old
    model = keras.models.load_model(folder / "whole" / "model.keras", compile=False)
    assert isinstance(model, kcp.registry.model_class(family))


def test_it_is_shown_and_samples(old, capspoe, tmp_path):
    family, folder = old
    result = capspoe("info", "--model-dir", folder / "whole")
    assert result.exit_code == 0 and family in result.output, result.output
    options = "--model-dir", folder / "whole", "--out", tmp_path / "grid.png"
    if family in ("capsnet", "matrix-capsules"):
        result = capspoe("reconstruct", *options)
        # They were trained without a decoder, to be small.
        assert result.exit_code == 1 and "reconstructs no images" in result.output
    else:
        result = capspoe("sample", *options)
        assert result.exit_code == 0 and (tmp_path / "grid.png").exists(), result.output


# The options of these runs have names of settings that have been renamed since.
@pytest.mark.some(3)
@pytest.mark.filterwarnings("ignore:.* is deprecated:FutureWarning")
def test_a_stopped_run_goes_on(old, capspoe):
    _, folder = old
    before = json.loads((folder / "stopped" / "run.json").read_text())
    options = json.loads((folder / "options.json").read_text())["stopped"]
    options = [str(folder / "stopped") if word == "FOLDER" else word for word in options]
    result = capspoe(*options)
    assert result.exit_code == 0, result.output
    assert "resum" in result.output.lower() or "goes on" in result.output.lower(), result.output
    after = json.loads((folder / "stopped" / "run.json").read_text())
    assert before.keys() <= after.keys() or after.keys() <= before.keys()
    assert (folder / "stopped" / "model.keras").exists()
