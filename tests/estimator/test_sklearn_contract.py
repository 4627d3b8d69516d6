import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from pamc import PamCGC, clusterer
from pamc.models.method import METHODS
from tests.methods.tiny import tiny

pytestmark = pytest.mark.filterwarnings("ignore::pamc.errors.PamcWarning")

SMALL = {"hidden": (16,), "n_dims": 5, "n_epochs": 2, "pretrain_epochs": 4, "n_init": 2}


def of_repeated_rows(estimator):
    """Labels of weighted rows are those of repeated rows, but not to the last digit, as for scikit-learn's KMeans."""
    reason = "sample_weight is equivalent to repeated rows only up to rounding and the order of the rows"
    return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}


# Four clusters, because two checks take whatever has `predict_proba` for a classifier of their four classes.
@parametrize_with_checks([clusterer("pamcgc", 4, **SMALL)], expected_failed_checks=of_repeated_rows)
def test_every_check_of_scikit_learn_passes(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([clusterer("pamcgc", 4, init="autoencoder", **SMALL)], expected_failed_checks=of_repeated_rows)
def test_every_check_passes_with_the_initializer_of_the_paper(estimator, check):
    check(estimator)


# Enough epochs for the check that wants the clusters of three blobs found.
LONGER = {"n_epochs": 60, "pretrain_epochs": 60, "n_init": 3, "lr": 3e-3}


@pytest.mark.slow
@parametrize_with_checks([clusterer(name, 4, **tiny(name, **LONGER)) for name in METHODS if name != "pamcgc"])
def test_every_other_method_passes_every_check_too(estimator, check):
    check(estimator)


def wrong_for_other_numbers_of_clusters(estimator):
    reason = "takes a clusterer with predict_proba for a classifier and expects four columns, one per class"
    wrong = dict.fromkeys(("check_estimator_sparse_array", "check_estimator_sparse_matrix"), reason)
    reason = "has four distinct rows, fewer than the default number of clusters"
    wrong |= dict.fromkeys(("check_sample_weights_shape", "check_sample_weights_not_overwritten"), reason)
    return wrong | of_repeated_rows(estimator)


@pytest.mark.slow
@parametrize_with_checks([PamCGC()], expected_failed_checks=wrong_for_other_numbers_of_clusters)
def test_every_check_of_scikit_learn_passes_with_the_default_settings(estimator, check):
    check(estimator)
