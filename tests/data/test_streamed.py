"""Streamed block models: the shares and counts are those asked for, the same for any memory and number of threads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pamc.data import synthetic
from pamc.data.synthetic import BlockModel, write_block_model
from pamc.errors import ConfigError, OutputError


def written(folder, **wishes):
    options = {name: wishes.pop(name) for name in ("memory_bytes", "n_threads", "overwrite") if name in wishes}
    model = BlockModel(**{"n_nodes": 2000, "n_clusters": 5, "n_features": 4, **wishes})
    return write_block_model(folder / "s", model, **options)


def ends(store):
    return np.repeat(np.arange(store.n_nodes), np.diff(store.indptr)), np.array(store.indices)


def inside_share(store):
    source, target = ends(store)
    return (store.labels[source] == store.labels[target]).mean()


@settings(max_examples=30, deadline=None)
@given(
    n_nodes=st.integers(1, 60),
    n_clusters=st.integers(1, 6),
    degree=st.floats(0, 12),
    homophily=st.floats(0, 1),
    power_law=st.none() | st.floats(2.1, 5),
    size_power_law=st.none() | st.floats(1.2, 4),
    seed=st.integers(0, 99),
)
def test_every_model_is_a_symmetric_graph_without_loops_or_repeats(tmp_path_factory, n_nodes, n_clusters, **wishes):
    n_clusters = min(n_clusters, n_nodes)
    store = written(tmp_path_factory.mktemp("model"), n_nodes=n_nodes, n_clusters=n_clusters, **wishes)
    source, target = ends(store)
    pairs = set(zip(source.tolist(), target.tolist(), strict=True))
    assert len(pairs) == store.n_stored
    assert all((b, a) in pairs and a != b for a, b in pairs)
    assert (np.bincount(store.labels, minlength=n_clusters) > 0).all()
    assert store.n_stored <= 2 * round(n_nodes * wishes["degree"] / 2)
    assert np.isfinite(store.features).all()
    store.to_graph()


def test_the_same_bits_for_any_memory_and_any_number_of_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(synthetic, "_PAIRS_PER_UNIT", 1000)
    monkeypatch.setattr(synthetic, "_VALUES_PER_UNIT", 512)
    files = [
        written(tmp_path / str(number), seed=3, **options).manifest["files"]
        for number, options in enumerate(
            [
                {"n_threads": 1},
                {"n_threads": 3},
                {"memory_bytes": 1 << 16},
                {"memory_bytes": 1 << 20, "n_threads": 2},
            ]
        )
    ]
    assert all(found == files[0] for found in files)
    assert written(tmp_path / "other", seed=4).manifest["files"] != files[0]


@pytest.mark.parametrize("power_law", [None, 2.5])
@pytest.mark.parametrize("homophily", [0.0, 0.3, 0.8, 1.0])
def test_the_share_of_edges_inside_blocks_is_the_homophily(tmp_path, homophily, power_law):
    store = written(tmp_path, n_nodes=6000, homophily=homophily, degree=16, power_law=power_law, n_features=1)
    assert inside_share(store) == pytest.approx(homophily, abs=0.03)


def test_degrees_are_equal_without_and_uneven_with_a_power_law(tmp_path):
    even, uneven = (
        np.diff(written(tmp_path / str(law), n_nodes=20_000, power_law=law, n_features=1).indptr) for law in (None, 2.3)
    )
    assert even.mean() == pytest.approx(28, rel=0.01)
    assert uneven.mean() == pytest.approx(28, rel=0.2)
    assert even.max() < 70
    assert uneven.max() > 300


def test_a_power_law_of_degrees_has_its_exponent(tmp_path):
    degrees = np.diff(written(tmp_path, n_nodes=50_000, power_law=3.0, n_features=1, degree=40).indptr)
    # The share of degrees above x falls as x^(1 − exponent).
    above = [(degrees > x).mean() for x in (60, 120)]
    assert np.log2(above[0] / above[1]) == pytest.approx(2, abs=0.35)


def test_edges_that_leave_a_block_reach_the_others_by_their_size(tmp_path):
    store = written(tmp_path, n_nodes=6000, n_clusters=3, size_power_law=2, homophily=0, n_features=1)
    source, target = (store.labels[side] for side in ends(store))
    sizes = np.bincount(store.labels)
    assert sizes.tolist() == [3273, 1636, 1091]
    found = np.bincount(target[source == 0], minlength=3)
    # Drawn at the first block, and drawn at the other one.
    expected = [sizes[i] * (1 / (6000 - sizes[0]) + 1 / (6000 - sizes[i])) for i in (1, 2)]
    assert found[0] == 0
    assert found[1] / found[2] == pytest.approx(expected[0] / expected[1], rel=0.05)


def test_blocks_of_one_node_send_their_edges_outside_and_one_block_has_all_inside(tmp_path):
    store = written(tmp_path / "tiny", n_nodes=4, n_clusters=4, homophily=1, degree=3)
    assert inside_share(store) == 0
    assert inside_share(written(tmp_path / "one", n_clusters=1, homophily=0)) == 1


def test_noise_is_the_spread_around_centers_at_distance_one(tmp_path):
    calm = written(tmp_path / "calm", n_nodes=300, n_clusters=40, feature_noise=0, n_features=64)
    centers = np.unique(calm.features, axis=0)
    assert len(centers) == 40
    squared = ((centers[:, None] - centers[None]) ** 2).sum(axis=2)
    assert squared.sum() / (40 * 39) == pytest.approx(1, rel=0.05)
    noisy = written(tmp_path / "noisy", n_nodes=20_000, n_clusters=2, feature_noise=2.5)
    rows = np.array(noisy.features)[noisy.labels == 0]
    assert rows.std(axis=0) == pytest.approx(np.full(4, 2.5), rel=0.05)


def test_rows_are_in_random_order_and_no_two_have_the_same_noise(tmp_path):
    store = written(tmp_path)
    assert (np.diff(store.labels) < 0).any()
    assert len(np.unique(store.features, axis=0)) == 2000


def test_half_precision_is_written(tmp_path):
    assert written(tmp_path, dtype="float16").features.dtype == np.float16


def test_the_manifest_says_how_it_was_made(tmp_path):
    about = written(tmp_path, seed=9).manifest["options"]["block_model"]
    assert about["seed"] == 9
    assert BlockModel(**about).n_nodes == 2000


def test_one_node_is_a_store(tmp_path):
    store = written(tmp_path, n_nodes=1, n_clusters=1, power_law=2.5)
    assert store.n_stored == 0
    assert store.features.shape == (1, 4)


def test_a_store_in_the_way_is_refused(tmp_path, refusal):
    written(tmp_path)
    assert "already holds a store" in refusal(written, tmp_path, error=OutputError)
    written(tmp_path, overwrite=True)


def test_an_interrupt_leaves_nothing(tmp_path):
    class Impatient:
        def phase(self, name, total=None):
            if name == "pairs":
                raise KeyboardInterrupt
            return synthetic.SilentProgress().phase(name, total)

    model = BlockModel(n_nodes=100, n_clusters=2, n_features=2)
    with pytest.raises(KeyboardInterrupt):
        write_block_model(tmp_path / "s", model, progress=Impatient())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("wishes", "part"),
    [
        ({"n_clusters": 0}, "n_clusters must be between 1 and n_nodes = 2000, got 0"),
        ({"n_clusters": 2001}, "got 2001"),
        ({"degree": -1}, "degree must be a finite number of at least 0"),
        ({"homophily": 1.1}, "homophily must be a finite number of at least 0 and at most 1, got 1.1"),
        ({"feature_noise": np.nan}, "feature_noise"),
        ({"n_features": 0}, "n_features must be an integer of at least 1"),
        ({"power_law": 2}, "power_law must be an exponent above 2"),
        ({"size_power_law": 1}, "size_power_law must be an exponent above 1"),
        ({"seed": -1}, "seed must be an integer of at least 0"),
        ({"dtype": "int8"}, "dtype must be"),
    ],
)
def test_impossible_wishes_are_refused(tmp_path, refusal, wishes, part):
    assert part in refusal(written, tmp_path, error=ConfigError, **wishes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_million_nodes_take_little_memory(tmp_path):
    store = written(tmp_path, n_nodes=1_000_000, n_clusters=50, n_features=64, power_law=2.5)
    store.verify()
    assert store.n_stored / store.n_nodes == pytest.approx(28, rel=0.1)
