import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from pamc import PamCGC

pytestmark = pytest.mark.filterwarnings("ignore::pamc.errors.PamcWarning")

SMALL = {"hidden": (16,), "n_dims": 5, "n_epochs": 10, "pretrain_epochs": 10, "n_init": 2}


# Four clusters, because two checks take whatever has `predict_proba` for a classifier of their four classes.
@parametrize_with_checks([PamCGC(4, **SMALL), PamCGC(4, start="autoencoder", **SMALL)])
def test_every_check_of_scikit_learn_passes(estimator, check):
    check(estimator)


def wrong_for_other_numbers_of_clusters(estimator):
    reason = "takes a clusterer with predict_proba for a classifier and expects four columns, one per class"
    return dict.fromkeys(("check_estimator_sparse_array", "check_estimator_sparse_matrix"), reason)


@pytest.mark.slow
@parametrize_with_checks([PamCGC()], expected_failed_checks=wrong_for_other_numbers_of_clusters)
def test_every_check_of_scikit_learn_passes_with_the_default_settings(estimator, check):
    check(estimator)
