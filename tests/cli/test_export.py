import numpy as np
import pytest

from tests.cli.conftest import FAST

pytest.importorskip("onnx", reason='needs pip install "pamc[export]"')
onnxruntime = pytest.importorskip("onnxruntime", reason='needs pip install "pamc[export]"')

pytestmark = pytest.mark.usefixtures("few_repeats")


def test_a_run_is_exported_and_a_slim_run_predicts(pamc, table, planted, tmp_path):
    rows, _ = table
    fit = pamc("fit", rows, "--id", "name", "--truth", "kind", "-k", 3, "--out", "run", "--no-report", *FAST)
    assert fit.code == 0, fit.err
    done = pamc("export", "run")
    assert done.out.startswith("run → run/model.onnx (")
    session = onnxruntime.InferenceSession(str(tmp_path / "run" / "model.onnx"), providers=["CPUExecutionProvider"])
    labels = session.run(["label"], {"X": planted.features.astype(np.float32)})[0]
    slim = pamc("export", "run", "--out", "slim", "--json").json
    assert slim["n_bytes"] == (tmp_path / "slim" / "model.safetensors").stat().st_size
    assert pamc("predict", "slim", rows, "--out", "new.csv").code == 0
    found = [int(line.split(",")[1]) for line in (tmp_path / "new.csv").read_text().splitlines()[1:]]
    assert found == labels.tolist()
    refused = pamc("report", "slim")
    assert refused.code == 3
    assert "saved without training rows" in refused.err
    assert pamc("export", "run", "--out", "slim").code == 3
    assert pamc("export", "run", "--out", "slim", "--overwrite").code == 0
