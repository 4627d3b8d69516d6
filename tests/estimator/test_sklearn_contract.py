import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from pamc import PamCGC

pytestmark = pytest.mark.filterwarnings("ignore::pamc.errors.PamcWarning")


@parametrize_with_checks([PamCGC(hidden=(16,), n_dims=5, n_epochs=10, pretrain_epochs=10, n_init=2)])
def test_every_check_of_scikit_learn_passes(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([PamCGC()])
def test_every_check_of_scikit_learn_passes_with_the_default_sizes(estimator, check):
    check(estimator)
