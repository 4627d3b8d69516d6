"""The scikit-learn estimators: PamCGC, and every other method by its name."""

from pamc.estimator.advanced import Advanced
from pamc.estimator.methods import clusterer, estimator_class
from pamc.estimator.pamcgc import PamCGC

__all__ = ["Advanced", "PamCGC", "clusterer", "estimator_class"]
