"""A slim run has nothing of the training rows, and predicts as before."""

import numpy as np
import pytest
from safetensors import safe_open
from sklearn.datasets import load_digits

from pamc import PamCGC, explain
from pamc.errors import ConfigError
from tests.noise.planted import embeddings

pytestmark = pytest.mark.usefixtures("few_repeats")
SMALL = {"n_epochs": 5, "advanced": {"hidden": (16,)}, "random_state": 0, "device": "cpu"}


@pytest.fixture(scope="module")
def rows():
    return embeddings(311, 24, 3)[0]


@pytest.fixture(scope="module")
def fitted(rows):
    return PamCGC(3, min_confidence=0.7, **SMALL).fit(rows)


def test_a_slim_run_has_no_array_with_one_value_per_row(fitted, rows, tmp_path):
    fitted.save(tmp_path / "slim", slim=True, ids=[f"secret {i}" for i in range(311)])
    assert sorted(path.name for path in (tmp_path / "slim").iterdir()) == ["model.safetensors", "run.json"]
    with safe_open(tmp_path / "slim" / "model.safetensors", framework="np") as file:
        assert all(len(file.get_tensor(name)) != len(rows) for name in file.keys())  # noqa: SIM118
    assert b"secret" not in b"".join(path.read_bytes() for path in (tmp_path / "slim").iterdir())


def test_a_slim_model_predicts_as_before_and_can_be_saved_again(fitted, rows, tmp_path):
    fitted.save(tmp_path / "slim", slim=True)
    slim = PamCGC.load(tmp_path / "slim")
    np.testing.assert_array_equal(slim.predict(rows), fitted.labels_)
    np.testing.assert_array_equal(slim.predict_with_confidence(rows)[1], fitted.predict_with_confidence(rows)[1])
    assert not hasattr(slim, "labels_")
    slim.save(tmp_path / "again", slim=True)
    np.testing.assert_array_equal(PamCGC.load(tmp_path / "again").predict(rows), fitted.labels_)
    assert PamCGC.load(tmp_path / "again").record() == fitted.record()
    np.testing.assert_array_equal(slim.fit(rows).labels_, fitted.labels_)


def test_what_needs_the_training_rows_says_that_they_are_gone(fitted, rows, tmp_path):
    fitted.save(tmp_path / "slim", slim=True)
    slim = PamCGC.load(tmp_path / "slim")
    with pytest.raises(ConfigError, match="this model has no training rows"):
        slim.save(tmp_path / "whole")
    with pytest.raises(ConfigError, match="this model has no training rows"):
        explain(slim, rows)


def test_a_slim_model_of_digits_is_smaller_than_a_megabyte(tmp_path):
    X = load_digits().data[:500]
    model = PamCGC(10, n_epochs=1, advanced={"pretrain_epochs": 1}, min_confidence=0.7, random_state=0)
    model.fit(X).save(tmp_path / "slim", slim=True)
    assert sum(path.stat().st_size for path in (tmp_path / "slim").iterdir()) < 1_000_000
