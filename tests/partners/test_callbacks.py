"""Callbacks see every epoch, and log it to MLflow and TensorBoard."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from pamc import PamCGC
from pamc.callbacks import MLflowLogger, TensorBoardLogger
from pamc.errors import BackendError, ConfigError

X = make_blobs(90, centers=3, n_features=4, random_state=0)[0]


def small(**options):
    advanced = {"hidden": (16,), "pretrain_epochs": 3, **options}
    return PamCGC(3, n_epochs=4, init="autoencoder", advanced=advanced, random_state=0)


class Watcher:
    def __init__(self):
        self.epochs, self.ended = [], []

    def __call__(self, epoch):
        self.epochs.append((epoch.number, dict(epoch.values), epoch.labels()))

    def on_end(self, model):
        self.ended.append(model)


def test_callbacks_see_the_history_and_the_model_and_change_nothing():
    watchers = [Watcher(), Watcher()]
    model = small().fit(X, on_epoch=watchers)
    for watcher in watchers:
        assert [number for number, _, _ in watcher.epochs] == [1, 2, 3, 4]
        assert [values["loss"] for _, values, _ in watcher.epochs] == model.history_["loss"]
        assert watcher.epochs[-1][2].shape == (90,)
        assert watcher.ended == [model]
    np.testing.assert_array_equal(small().fit(X).embedding_, model.embedding_)


def test_a_graph_alone_takes_callbacks_too():
    near = np.square(X[:, None] - X).sum(axis=2) < 16
    seen = []
    PamCGC(3, n_epochs=2, advanced={"hidden": (16,)}, random_state=0).fit(
        adjacency=near & ~np.eye(90, dtype=bool), on_epoch=seen.append
    )
    assert [epoch.number for epoch in seen] in ([], [1, 2])


def test_what_cannot_be_called_is_refused():
    with pytest.raises(ConfigError, match="on_epoch must be a function of an epoch"):
        small().fit(X, on_epoch="mlflow")


def test_a_missing_package_names_its_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "mlflow", None)
    with pytest.raises(BackendError, match=r'pip install "pamc\[mlflow\]"'):
        MLflowLogger()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_fit_is_logged_to_a_local_store_of_mlflow(tmp_path, monkeypatch):
    for package in ("mlflow", "sqlalchemy", "alembic"):
        pytest.importorskip(package, reason=f"needs {package}: pip install 'pamc[mlflow]'")
    import mlflow

    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("fits", artifact_location=str(tmp_path / "artifacts")))
    with mlflow.start_run() as run:
        model = small().fit(X, on_epoch=MLflowLogger(every=2))
        assert mlflow.active_run() is not None, "a run of the user is not ended"
    client = mlflow.MlflowClient()
    data = client.get_run(run.info.run_id).data
    assert data.params["hidden"] == "[16]"
    assert data.params["n_clusters"] == "3"
    assert data.metrics["silhouette"] == pytest.approx(model.scores_["silhouette"])
    losses = client.get_metric_history(run.info.run_id, "loss")
    assert [(m.step, m.value) for m in losses] == [(step, model.history_["loss"][step - 1]) for step in (2, 4)]
    folder = mlflow.artifacts.download_artifacts(run_id=run.info.run_id, artifact_path="pamc")
    np.testing.assert_array_equal(PamCGC.load(folder).predict(X), model.labels_)
    small().fit(X, on_epoch=MLflowLogger(artifacts=False))
    assert mlflow.active_run() is None, "a run of its own is ended"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_fit_is_logged_to_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="needs tensorboard: pip install 'pamc[tensorboard]'")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    model = small().fit(X, on_epoch=TensorBoardLogger(tmp_path / "logs"))
    log = EventAccumulator(str(tmp_path / "logs")).Reload()
    np.testing.assert_allclose([event.value for event in log.Scalars("pamc/loss")], model.history_["loss"], rtol=1e-6)
    assert (tmp_path / "logs" / "projector_config.pbtxt").is_file()
