"""Area resizing of grey images, with the same pixels as OpenCV's INTER_AREA, without OpenCV."""

import math

import numpy as np
from jaxtyping import Float32, Int, UInt8


class AreaResize:
    """Makes every new pixel the rounded mean of the rectangle that it covers.

    A side of s pixels becomes d pixels that cover p / q = s / d old ones each, in lowest terms: whole pixels and
    fractions k / q. So weights are multiples of 1 / p, and the sums here are integers, exact in float32. OpenCV adds
    rounded weights instead, which matters only for means halfway between two integers; there its additions are repeated
    in its order.
    """

    def __init__(self, rows: int, columns: int, side: int):
        self._row = _Axis(rows, side)
        self._column = _Axis(columns, side)
        self._parts = self._row.parts * self._column.parts
        self._rows = self._row.blocks()
        self._columns = np.ascontiguousarray(self._column.blocks().T)
        self._half = 0.5 - 0.25 / self._parts
        self._shape = (rows, columns, side)

    def __call__(self, picture: UInt8[np.ndarray, "rows columns"]) -> UInt8[np.ndarray, "side side"]:
        """The smaller image."""
        rows, columns, side = self._shape
        tall, wide = self._rows.shape[1], self._columns.shape[0]
        source = picture.astype(np.float32)
        lines = self._rows @ source.reshape(rows // tall, tall, columns)
        # In parts: BLAS would wake its threads for the whole product, which takes longer than the product.
        total = lines.reshape(columns // wide, side, wide) @ self._columns
        total *= np.float32(1 / self._parts)
        result = np.rint(total)
        total -= result
        np.abs(total, out=total)
        if total.max() > self._half:
            ties = np.flatnonzero(total > self._half)
            result.flat[ties] = self._as_opencv(picture, ties)
        return result.reshape(side, side).astype(np.uint8)

    def _as_opencv(self, picture: UInt8[np.ndarray, "rows columns"], at: Int[np.ndarray, " n"]) -> np.ndarray:
        """OpenCV's result for some pixels: first along columns, then along rows, each product and sum in float32."""
        row, column = np.divmod(at, self._shape[2])
        window = picture[self._row.taps[row][:, :, None], self._column.taps[column][:, None, :]].astype(np.float32)
        lines = _add(window * self._column.weights[column][:, None, :])
        return np.rint(_add(lines * self._row.weights[row]))


class _Axis:
    """How one side is divided into new pixels."""

    def __init__(self, source: int, target: int):
        shared = math.gcd(source, target)
        self.source, self.target = source, target
        self.parts, self.steps = source // shared, target // shared
        edges = np.arange(target + 1) * self.parts
        first = edges[:-1] // self.steps
        longest = int((-(-edges[1:] // self.steps) - first).max())
        pixel = first[:, None] + np.arange(longest)
        covered = np.minimum(edges[1:, None], (pixel + 1) * self.steps) - np.maximum(
            edges[:-1, None], pixel * self.steps
        )
        self.covered = np.maximum(covered, 0)
        self.taps = np.minimum(pixel, source - 1)
        self.weights = (self.covered / self.parts).astype(np.float32)

    def blocks(self) -> Float32[np.ndarray, "steps parts"]:
        """Weights, times `parts`, from `parts` pixels to `steps` new ones; the pattern repeats along the side."""
        block = np.zeros((self.steps, self.parts), np.float32)
        for new in range(self.steps):
            for pixel, covered in zip(self.taps[new], self.covered[new], strict=True):
                block[new, min(pixel, self.parts - 1)] += covered
        return block


def _add(terms: Float32[np.ndarray, "*axes n"]) -> Float32[np.ndarray, "*axes"]:
    """The sum over the last axis, from left to right."""
    total = terms[..., 0]
    for index in range(1, terms.shape[-1]):
        total = total + terms[..., index]
    return total
