"""PamCGC takes the place of BERTopic's clustering model."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from pamc import PamCGC

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

WORDS = {"space": "orbit rocket moon launch", "food": "bread cheese oven recipe", "sport": "goal team match league"}


def test_topics_are_the_clusters_of_the_embeddings():
    pytest.importorskip("bertopic", reason="needs bertopic: pip install 'pamc[bertopic]'")
    from bertopic import BERTopic
    from bertopic.backend import BaseEmbedder
    from bertopic.dimensionality import BaseDimensionalityReduction

    vocabulary = " ".join(WORDS.values()).split()

    class Stub(BaseEmbedder):
        def embed(self, documents, verbose=False):
            noise = np.random.default_rng(0).normal(0, 0.05, (len(documents), len(vocabulary)))
            return noise + [[document.split().count(word) for word in vocabulary] for document in documents]

    rng = np.random.default_rng(0)
    kind = rng.integers(3, size=150)
    documents = [" ".join(rng.choice(list(WORDS.values())[k].split(), 6)) for k in kind]
    documents += [" ".join(rng.choice(vocabulary, 6)) for _ in range(15)]
    for limit in (None, 0.6):
        model = PamCGC(3, n_epochs=10, min_confidence=limit, advanced={"hidden": (32,)}, random_state=0)
        topics = BERTopic(embedding_model=Stub(), umap_model=BaseDimensionalityReduction(), hdbscan_model=model)
        found, _ = topics.fit_transform(documents)
        has_topic = np.array(found[:150]) >= 0
        assert has_topic.mean() > 0.8
        assert adjusted_rand_score(kind[has_topic], np.array(found[:150])[has_topic]) > 0.9
        assert limit is not None or -1 not in found
        assert len(topics.get_topic_info()) == 3 + (-1 in found)
        assert topics.transform(documents[:5])[0] == found[:5]
