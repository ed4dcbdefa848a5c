"""Linear algebra over a prime field, in float64: ranks that no rounding can spoil.

A matrix of integer polynomials has, at almost every real point, the rank that it has as a matrix of polynomials.
Evaluated at integers and reduced modulo a prime its rank can only fall: so whatever rank is found here is proven.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

PRIME = 4_194_301  # the largest below 2**22: sums of 2**11 products of residues stay exact in float64
_CHUNK = 2**11
_BLOCK = 24  # rows eliminated one by one before matrix products take over; the fastest at sizes from 100 to 600

Matrix = NDArray[np.float64]


def residues(values: Matrix) -> Matrix:
    """The representatives between -PRIME/2 and PRIME/2 of exact integers."""
    quotients = values * (1 / PRIME)
    np.rint(quotients, out=quotients)
    quotients *= -PRIME
    quotients += values
    return quotients


def draw(rng: np.random.Generator, *shape: int) -> Matrix:
    return residues(rng.integers(PRIME, size=shape).astype(np.float64))


def product(left: Matrix, right: Matrix) -> Matrix:
    """The matrix product of residues, as residues."""
    total = residues(left[:, :_CHUNK] @ right[:_CHUNK])
    for start in range(_CHUNK, right.shape[0], _CHUNK):
        total = residues(total + residues(left[:, start : start + _CHUNK] @ right[start : start + _CHUNK]))
    return total


def inverses(values: Matrix) -> Matrix:
    """Elementwise inverses of non-zero residues, by Fermat's little theorem."""
    power, square, exponent = np.ones_like(values), values, PRIME - 2
    while exponent:
        if exponent & 1:
            power = residues(power * square)
        square = residues(square * square)
        exponent >>= 1
    return power


def row_basis(rows: Matrix, most: int) -> list[int]:
    """The rows that are independent of those before them, the first `most` of them."""
    reduced = np.empty((0, rows.shape[1]))  # the span so far, with an identity in the columns `pivots`
    pivots: list[int] = []
    chosen: list[int] = []
    for start in range(0, len(rows), _BLOCK):
        if len(chosen) >= most:
            break
        block = rows[start : start + _BLOCK]
        fresh, places, columns = _eliminate(residues(block - product(block[:, pivots], reduced)))
        reduced = np.concatenate([residues(reduced - product(reduced[:, columns], fresh)), fresh])
        pivots += columns
        chosen += [start + place for place in places]
    return chosen[:most]


def _eliminate(block: Matrix) -> tuple[Matrix, list[int], list[int]]:
    """The independent rows of a small block in reduced form, where they were, and their pivot columns."""
    places: list[int] = []
    columns: list[int] = []
    for place in range(len(block)):
        column = int(np.argmax(block[place] != 0))
        if block[place, column] == 0:
            continue
        row = residues(block[place] * pow(int(block[place, column]), -1, PRIME))
        factors = block[:, column].copy()
        factors[place] = 0
        block = residues(block - np.outer(factors, row))
        block[place] = row
        places.append(place)
        columns.append(column)
    return block[places], places, columns
