"""Doom's screen averaged down to an observation. Imports no jax."""

import numpy as np
from jaxtyping import Float32, UInt8


class AreaMean:
    """Averages grey images of one size over the areas that the pixels of a smaller one cover.

    Pixels at a border count by the share of them that lies within. Weights are whole numbers and all sums stay below
    2²⁴, so that float32 adds them without error: every machine gets the same bytes, in a third of the time or less that
    agreeing with OpenCV would take.
    """

    def __init__(self, rows: int, columns: int, *, to: tuple[int, int]):
        self._rows = _overlaps(rows, to[0])
        self._columns = _overlaps(columns, to[1]).T.copy()
        self._area = np.float32(rows * columns)
        if 256 * rows * columns >= 2**24:
            raise ValueError(f"images of {rows}x{columns} are too large to be averaged exactly")

    def __call__(self, image: UInt8[np.ndarray, "rows columns"]) -> UInt8[np.ndarray, "fewer_rows fewer_columns"]:
        """The smaller image, each entry the rounded mean of its area (halves are rounded up)."""
        total = self._rows @ (image.astype(np.float32) @ self._columns)
        return ((total + self._area / 2) / self._area).astype(np.uint8)


def _overlaps(size: int, smaller: int) -> Float32[np.ndarray, "smaller size"]:
    """How much of each of `size` pixels lies in each of fewer pixels, in units of which a pixel has `smaller`."""
    pixel = np.arange(size + 1) * smaller
    area = np.arange(smaller + 1)[:, None] * size
    overlap = np.minimum(pixel[1:], area[1:]) - np.maximum(pixel[:-1], area[:-1])
    return np.maximum(overlap, 0).astype(np.float32)
