"""Views: random copies of rows that show the same thing, such as shifted images."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pamc.errors import ConfigError, DataError
from pamc.ops.torch.rows import uniform_values

# Number of copies that a callable makes of each row; each batch and each epoch draws one of them.
_COPIES_PER_CALLABLE = 8

# Largest shift of an image, as a share of its height and width, largest rotation, and largest change of its size.
_MOST_SHIFT, _MOST_ANGLE, _MOST_ZOOM = 1 / 12, math.radians(12), 0.1

# Numbers that determine a view: which copy, the shifts, the angle and the zoom.
_N_NUMBERS = 5


class Views:
    """Random views of rows, which depend on the seed, the step and the row only, on any device.

    Parameters
    ----------
    copies
        (V, N, d) preprocessed copies of the rows, one of which is drawn; None to start from the row itself.
    shape
        (height, width[, channels]) of the images to be shifted, turned and zoomed; None for rows that are no images.
    seed
        Random seed.
    first_row
        Index, among all rows, of the first of these N consecutive rows.
    """

    def __init__(self, copies: Tensor | None, shape: tuple[int, ...] | None, *, seed: int, first_row: int = 0) -> None:
        self.copies, self.shape, self.seed, self.first_row = copies, shape, seed, first_row

    def copies_of_rows(self, rows: slice) -> Tensor | None:
        """Return the copies (V, n, d) of consecutive rows; None without copies."""
        return None if self.copies is None else self.copies[:, rows].contiguous()

    def of(self, x: Tensor, rows: Tensor, step: Tensor) -> Tensor:
        """Return views (n, d) of the rows x (n, d) with these numbers (n,), which differ from step to step."""
        numbers = uniform_values(step, rows, _N_NUMBERS, seed=self.seed)
        if self.copies is not None:
            x = self.copies[(numbers[:, 0] * len(self.copies)).long(), rows - self.first_row]
        return x if self.shape is None else moved_images(x, self.shape, 2 * numbers[:, 1:] - 1)


def moved_images(x: Tensor, shape: tuple[int, ...], amounts: Tensor) -> Tensor:
    """Return the images x (n, d), shifted down and right, turned and zoomed.

    The amounts (n, 4) of these four changes run from −1 to 1, as shares of the largest ones that views have. Pixels are
    interpolated; beyond its border, an image continues with the pixels of the border.

    Examples
    --------
    >>> image = torch.tensor([[0.0, 0.0, 0.0, 0.0, 12.0, 0.0, 0.0, 0.0, 0.0]])
    >>> moved_images(image, (3, 3), torch.tensor([[0.0, 0.0, 0.0, 0.0]])).round().tolist() == image.tolist()
    True
    >>> moved_images(image, (3, 3), torch.tensor([[0.0, 1.0, 0.0, 0.0]])).round().tolist()
    [[0.0, 0.0, 0.0, 0.0, 9.0, 3.0, 0.0, 0.0, 0.0]]
    """
    images = x.reshape(len(x), *shape[:2], -1).permute(0, 3, 1, 2)
    amounts = amounts.to(x.dtype)
    # The grid runs from −1 to 1, twice the share of the height or width.
    down, right = -2 * _MOST_SHIFT * amounts[:, 0], -2 * _MOST_SHIFT * amounts[:, 1]
    angle, scale = _MOST_ANGLE * amounts[:, 2], 1 + _MOST_ZOOM * amounts[:, 3]
    cosine, sine, ratio = scale * angle.cos(), scale * angle.sin(), shape[0] / shape[1]
    transform = torch.stack([cosine, -sine * ratio, right, sine / ratio, cosine, down], dim=1).reshape(-1, 2, 3)
    grid = nn.functional.affine_grid(transform, list(images.shape), align_corners=False)
    moved = nn.functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
    return moved.permute(0, 2, 3, 1).reshape(x.shape)


def check_views(features: Any, shape: tuple[int, ...] | None) -> None:
    """Raise an error if rows are sparse, or not images of a shape."""
    if not isinstance(features, np.ndarray):
        raise DataError("views and image_shape need dense rows: pass X.toarray()")
    if shape is not None and math.prod(shape) != features.shape[1]:
        raise ConfigError(
            f"image_shape={shape} has {math.prod(shape)} pixels, but the rows have {features.shape[1]} columns"
        )


def copies_of(X: Any, views: Any) -> list[np.ndarray[Any, Any]]:
    """Return the copies (N, d) of rows X (N, d) that arrays contain or callables make; raise DataError for others.

    Parameters
    ----------
    X
        (N, d) rows.
    views
        A callable or an array, or a list of them. A callable takes X and returns one copy of each row, each time it is
        called; an array is (N, d), or (V, N, d) for several copies.
    """
    copies: list[np.ndarray[Any, Any]] = []
    for number, view in enumerate(views if isinstance(views, list | tuple) else [views]):
        made = [view(X.copy()) for _ in range(_COPIES_PER_CALLABLE)] if isinstance(view, Callable) else [view]  # type: ignore[arg-type]
        for copy in map(np.asarray, made):
            if copy.shape[-2:] != X.shape or copy.ndim not in (2, 3) or copy.dtype.kind not in "fiub":
                raise DataError(
                    f"view {number} has shape {copy.shape} and dtype {copy.dtype}: it must be numbers of the shape of "
                    f"X, {X.shape}, or several such copies, (n_copies, {X.shape[0]}, {X.shape[1]})"
                )
            if not np.isfinite(copy).all():
                raise DataError(f"view {number} has values that are not finite numbers")
            copies += list(copy.reshape(-1, *X.shape).astype(X.dtype))
    return copies
