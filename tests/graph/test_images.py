"""Tangent distance against plain least squares, and what it ignores."""

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter, shift

from pamc.graph import images
from pamc.graph.images import KnownNeighbors, image_neighbors
from pamc.graph.neighbors import nearest


def patterns(n=30, size=12, seed=0):
    """Return images (n, size, size) of smooth random patterns."""
    return gaussian_filter(np.random.default_rng(seed).normal(size=(n, size, size)), (0, 1.5, 1.5))


@pytest.mark.parametrize("channels", [1, 3])
def test_the_distance_is_that_of_the_two_tangent_planes(channels):
    pictures = np.random.default_rng(1).normal(size=(6, 5, 7, channels))
    tangents = images._tangents(pictures)
    pixels = torch.from_numpy(pictures.reshape(6, -1)).float()
    planes = images._orthonormal(torch.from_numpy(tangents))
    others = torch.arange(1, 6)[None]
    got = images._squared_distances(pixels[:1], planes[:1], pixels[others], planes[others])[0]
    for position, other in enumerate(range(1, 6)):
        both = np.concatenate([tangents[0], tangents[other]], axis=1).astype(np.float64)
        difference = pixels[other].double().numpy() - pixels[0].double().numpy()
        rest = difference - both @ np.linalg.lstsq(both, difference, rcond=None)[0]
        assert got[position].item() == pytest.approx(rest @ rest, rel=0.02)


def test_shifted_copies_are_the_nearest_neighbors():
    pictures = patterns()
    copies = np.stack([shift(picture, (1.2, -1.2), order=1, mode="nearest") for picture in pictures])
    rows = np.concatenate([pictures, copies]).reshape(60, -1)
    found = image_neighbors(rows, (12, 12), 1)
    partner = np.concatenate([np.arange(30, 60), np.arange(30)])
    by_pixels = nearest(rows, 1).edges[1]
    assert (by_pixels == partner).mean() < 1
    assert (found.edges[1] == partner).all()


def test_neighbors_are_sorted_and_never_the_row_itself():
    found = image_neighbors(patterns().reshape(30, -1), (12, 12), 4)
    distance = found.distance.reshape(30, 4)
    assert (np.diff(distance, axis=1) >= 0).all()
    assert (found.edges[0] != found.edges[1]).all()
    assert found.edges[0].tolist() == np.repeat(np.arange(30), 4).tolist()


def test_blank_and_equal_images_have_finite_distances():
    rows = np.zeros((8, 16))
    rows[4:] = np.random.default_rng(0).normal(size=16)
    found = image_neighbors(rows, (4, 4), 3)
    assert np.isfinite(found.distance).all()
    assert (found.edges[0] // 4 == found.edges[1] // 4).all()


def test_neighbors_among_some_rows_are_renumbered():
    known = KnownNeighbors(np.array([[0, 1, 2, 3], [2, 2, 3, 0]]), np.array([0.1, 0.2, 0.3, 0.4]))
    part = known.among(np.array([0, 2, 3]))
    assert part.edges.tolist() == [[0, 1, 2], [1, 2, 0]]
    assert part.distance.tolist() == [0.1, 0.3, 0.4]
