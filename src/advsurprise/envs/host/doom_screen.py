"""Doom's screen averaged down to an observation. Imports no jax."""

import numpy as np
from jaxtyping import Float32, UInt8


class AreaMean:
    """Shrinks grey images by averaging the area that each new pixel covers.

    Pixels at the border of an area count by the fraction inside. Weights are integers and all sums stay below 2²⁴, so
    float32 is exact: every machine gets the same bytes, in at most a third of the time that matching OpenCV would take.
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
    """Overlap of each of `smaller` new pixels with each of `size` old ones, in units of 1 / `smaller` old pixels."""
    pixel = np.arange(size + 1) * smaller
    area = np.arange(smaller + 1)[:, None] * size
    overlap = np.minimum(pixel[1:], area[1:]) - np.maximum(pixel[:-1], area[:-1])
    return np.maximum(overlap, 0).astype(np.float32)
