"""Training by processes that torchrun started equals training by one."""

import json

import numpy as np
import pytest
import torch

from pamc.distributed.scatter import bytes_per_epoch
from pamc.training.trainer import train
from tests.distributed.torchrun import torchrun
from tests.distributed.train_worker import N_EPOCHS
from tests.training.test_distributed import config_of, parts
from tests.training.test_engine import N_CLUSTERS, N_NODES

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def alone():
    model, rows = parts(config_of())
    records = list(train(model, rows, n_epochs=N_EPOCHS, lr=1e-3))
    return records, torch.cat([tensor.ravel() for tensor in model.state_dict().values()]).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3])
def test_loss_curve_weights_and_labels_are_those_of_one_process(size, alone, tmp_path):
    done = torchrun("tests.distributed.train_worker", tmp_path, n_processes=size)
    assert done.returncode == 0, done.stderr
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(size)]
    records, weights = alone
    n_dims = 6
    n_weights = len(weights) - N_CLUSTERS * n_dims
    stated = bytes_per_epoch(N_NODES, n_dims, N_CLUSTERS, n_weights, n_processes=size, itemsize=8)
    for name in ("whole", "chunked"):
        for rank, found in enumerate(results[name] for results in ranks):
            np.testing.assert_allclose(found["loss"], [record.values["loss"] for record in records], rtol=1e-10)
            assert found["changed"] == [record.values["changed"] for record in records]
            np.testing.assert_allclose(np.load(tmp_path / f"{name}-{rank}.npy"), weights, rtol=0, atol=1e-10)
            assert found["checksum"] == ranks[0][name]["checksum"]
            assert found["bytes_per_epoch"] == stated["total"]
        labels = [label for results in ranks for label in results[name]["labels"]]
        assert labels == records[-1].labels.tolist()
    assert all(results["odd_sum"] == [size * (size + 1) / 2] * 5 for results in ranks)
