"""Nearest neighbors of images by tangent distance, which hardly changes when an image is moved, turned or deformed.

The small deformations of an image span a plane, its tangent plane (Simard, LeCun and Denker 1993). The tangent distance
of two images is the distance of their planes: that of the most similar deformations of both.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from torch import Tensor

from pamc.graph.smoothing import Floats
from pamc.runtime import side_by_side

# Standard deviation of the blur before pixels are compared, as a share of the height or width.
_BLUR = 1 / 24

# Number of candidates, those nearest by pixels, for each neighbor; only candidates are compared by tangent distance.
_CANDIDATES_PER_NEIGHBOR = 6

# Images that are compared at a time, and number of blocks of images that are computed in parallel.
_IMAGES_AT_A_TIME = 64

# Two tangent planes that share a direction are kept from being exactly parallel by this term.
_RIDGE = 1e-3

# A direction of a tangent plane shorter than this share of the longest one is left out.
_LEAST_TANGENT = 1e-6

_CPU = torch.device("cpu")


class KnownNeighbors(NamedTuple):
    """Directed edges (2, N·k) from each row to its nearest other rows, and their distances (N·k,)."""

    edges: NDArray[np.int64]
    distance: Floats

    def among(self, rows: NDArray[np.int64]) -> KnownNeighbors:
        """Return the edges between some of the rows, which are numbered 0, 1, … in the given ascending order."""
        inside = np.isin(self.edges, rows).all(axis=0)
        return KnownNeighbors(np.searchsorted(rows, self.edges[:, inside]), self.distance[inside])


def image_neighbors(
    rows: NDArray[np.floating[Any]], shape: tuple[int, ...], n_neighbors: int, *, device: torch.device = _CPU
) -> KnownNeighbors:
    """Return the k nearest images of each image by tangent distance. O(N²·d + N·k·d) time, O(N·(d + k)) memory.

    Both images may be moved, turned, scaled, sheared in two ways, and made bolder or thinner. The k images are chosen
    among the 6k nearest ones by pixels.

    Parameters
    ----------
    rows
        (N, d) pixels.
    shape
        (height, width) or (height, width, channels) of an image.
    n_neighbors
        Number of neighbors, k.
    """
    images = rows.reshape(len(rows), *shape[:2], -1).astype(np.float64)
    blurred = gaussian_filter(images, (0, *(_BLUR * size for size in shape[:2]), 0), mode="nearest")
    tangents = torch.from_numpy(_tangents(blurred)).to(device, torch.float32)
    pixels = torch.from_numpy(blurred.reshape(len(rows), -1)).to(device, torch.float32)
    planes = _orthonormal(tangents)
    k = min(n_neighbors, len(rows) - 1)
    starts = range(0, len(rows), _IMAGES_AT_A_TIME)
    found = side_by_side([partial(_nearest_of, pixels, planes, start, k) for start in starts], device)
    targets, distance = (np.concatenate(parts) for parts in zip(*found, strict=True))
    edges = np.stack([np.repeat(np.arange(len(rows)), k), targets.ravel()])
    return KnownNeighbors(edges, distance.ravel())


def _tangents(images: Floats) -> NDArray[np.float32]:
    """Return (N, d, 7) derivatives of images (N, height, width, channels) with respect to seven small deformations."""
    down, right = np.gradient(images, axis=(1, 2))
    height, width = images.shape[1:3]
    y = (np.arange(height) - (height - 1) / 2)[:, None, None]
    x = (np.arange(width) - (width - 1) / 2)[:, None]
    parts = (
        right,
        down,
        x * down - y * right,
        x * right + y * down,
        x * right - y * down,
        y * right + x * down,
        right**2 + down**2,
    )
    return np.stack([part.reshape(len(images), -1) for part in parts], axis=2).astype(np.float32)


def _orthonormal(tangents: Tensor) -> Tensor:
    """Return orthonormal bases (N, d, t) of the columns, in which missing directions are 0."""
    lengths = torch.linalg.vector_norm(tangents, dim=1, keepdim=True)
    bases, factors = torch.linalg.qr(tangents / lengths.clamp(min=torch.finfo(tangents.dtype).tiny))
    present = factors.diagonal(dim1=1, dim2=2).abs() > _LEAST_TANGENT
    orthonormal: Tensor = bases * present[:, None]
    return orthonormal


def _nearest_of(pixels: Tensor, planes: Tensor, start: int, k: int) -> tuple[NDArray[np.int64], Floats]:
    """Return the k nearest images (n, k) of a block of images, and their tangent distances."""
    block = slice(start, start + _IMAGES_AT_A_TIME)
    by_pixels = torch.cdist(pixels[block], pixels)
    own = torch.arange(len(by_pixels), device=pixels.device)
    by_pixels[own, own + start] = math.inf
    n_candidates = min(_CANDIDATES_PER_NEIGHBOR * k, len(pixels) - 1)
    candidates = by_pixels.topk(n_candidates, largest=False).indices
    squared = _squared_distances(pixels[block], planes[block], pixels[candidates], planes[candidates])
    nearest = squared.topk(k, largest=False)
    targets = candidates.gather(1, nearest.indices)
    return targets.cpu().numpy(), nearest.values.sqrt().cpu().numpy().astype(np.float64)


def _squared_distances(pixels: Tensor, planes: Tensor, other_pixels: Tensor, other_planes: Tensor) -> Tensor:
    """Return (n, m) squared tangent distances between n images and m candidates of each.

    The difference of two images is reduced by its projection to the span of both planes: first that to the plane of the
    image, then that to the part of the other plane which is orthogonal to it.
    """
    difference = other_pixels - pixels[:, None]
    along = difference @ planes
    along_other = (difference[:, :, None] @ other_planes)[:, :, 0]
    shared = planes.transpose(1, 2)[:, None] @ other_planes
    rest = along_other - (along[:, :, None] @ shared)[:, :, 0]
    n_tangents = planes.shape[2]
    orthogonal = (1 + _RIDGE) * torch.eye(n_tangents, device=pixels.device) - shared.transpose(2, 3) @ shared
    explained = (rest * torch.linalg.solve(orthogonal, rest)).sum(dim=2)
    squared: Tensor = difference.square().sum(dim=2) - along.square().sum(dim=2) - explained
    return squared.clamp(min=0)
