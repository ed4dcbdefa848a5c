"""Ranks over a prime field."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from membench.theory import modular


def rational_rank(rows: list[list[int]]) -> int:
    """Gaussian elimination in exact fractions."""
    matrix = [[Fraction(entry) for entry in row] for row in rows]
    rank = 0
    for column in range(len(rows[0])):
        pivot = next((i for i in range(rank, len(matrix)) if matrix[i][column]), None)
        if pivot is None:
            continue
        matrix[rank], matrix[pivot] = matrix[pivot], matrix[rank]
        for i in range(rank + 1, len(matrix)):
            factor = matrix[i][column] / matrix[rank][column]
            matrix[i] = [a - factor * b for a, b in zip(matrix[i], matrix[rank], strict=True)]
        rank += 1
    return rank


@given(st.integers(1, 6).flatmap(lambda n: st.lists(st.lists(st.integers(-2, 2), min_size=n, max_size=n), min_size=1)))
def test_row_basis_has_the_rank_of_a_small_integer_matrix(rows: list[list[int]]) -> None:
    # Minors of such matrices are far smaller than the prime, so that reducing them loses nothing.
    assert len(modular.row_basis(np.array(rows, dtype=float), 99)) == rational_rank(rows)


@pytest.mark.parametrize("size", [5, 23, 24, 25, 70])
def test_row_basis_takes_the_first_independent_rows(size: int) -> None:
    rng = np.random.default_rng(size)
    rows = modular.draw(rng, size, size)
    rows[4] = modular.residues(rows[0] + 2 * rows[3])
    assert modular.row_basis(rows, size) == [i for i in range(size) if i != 4]
    assert modular.row_basis(rows, 3) == [0, 1, 2]


def test_products_of_more_columns_than_a_chunk_are_exact() -> None:
    rng = np.random.default_rng(0)
    left, right = modular.draw(rng, 2, 5000), modular.draw(rng, 5000, 2)
    exact = [
        [sum(int(a) * int(b) for a, b in zip(row, column, strict=True)) % modular.PRIME for column in right.T]
        for row in left
    ]
    assert (modular.product(left, right) % modular.PRIME).astype(int).tolist() == exact


def test_inverses_invert() -> None:
    values = modular.draw(np.random.default_rng(0), 200)
    assert np.all(modular.residues(values * modular.inverses(values)) == 1)


def test_the_modulus_is_prime_and_small_enough_for_float64() -> None:
    assert all(modular.PRIME % divisor for divisor in range(2, int(modular.PRIME**0.5) + 1))
    assert 2**11 * (modular.PRIME / 2) ** 2 < 2**53
