"""Every example of the page on serving runs, in the order of the page."""

import re
import shlex
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/deploy.md"
FIXTURE = ROOT / "tests/fixtures/a1ce340-rbm.tar.xz"


@pytest.mark.long
def test_every_example_runs(tmp_path, monkeypatch, capspoe):
    pytest.importorskip("tf2onnx")
    pytest.importorskip("onnxruntime")
    pytest.importorskip("ai_edge_litert")
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "saved_models").mkdir()
    (tmp_path / "finished").rename(tmp_path / "saved_models" / "digits")
    monkeypatch.chdir(tmp_path)
    # LiteRT does not convert a SavedModel of that version.
    shutil.rmtree("saved_models/digits/1")
    assert capspoe("export", "--model-dir", "saved_models/digits").exit_code == 0
    values = {}
    for kind, text in re.findall(r"```(\w+)\n(.*?)```", PAGE.read_text(), re.DOTALL):
        if kind == "sh":
            for line in text.splitlines():
                program, *arguments = shlex.split(line)
                result = capspoe(*arguments)
                assert program == "capspoe" and result.exit_code == 0, result.output
                assert ("held-out images:" in result.output) == ("--quantize" in line)
        else:
            exec(compile(text, "page", "exec"), values)
    values["server"].shutdown()
    values["server"].server_close()
    np.testing.assert_allclose(values["codes"], values["capsules"], atol=1e-4)
    names = {path.name for path in (tmp_path / "digits-hub").iterdir()}
    assert {"README.md", "model.keras", "saved_model", "onnx", "litert", ".gitattributes"} <= names
    text = (tmp_path / "digits-hub" / "README.md").read_text()
    assert 'license: "mit"' in text and str(tmp_path) not in text
