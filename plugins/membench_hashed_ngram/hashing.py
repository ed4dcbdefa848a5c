"""The hash functions, by operations that numpy and torch have in common: the model and its bounds use the same."""

from __future__ import annotations

from typing import Any

PRIME = 2**31 - 1  # products of two smaller numbers fit into int64
FACTORS = (1_103_515_245, 69_069_069, 48_271_013)  # odd, and of no further meaning


def slot(tokens: Any, number: int, M: int) -> Any:
    """The slot in 0..M-1 of each context of tokens, int64[batch, S], by the hash function of this number.

    Tokens are absorbed one by one, so that their order counts. Folding the high bits back and multiplying again makes
    contexts that differ in one token as likely to collide as any others: about one pair in M.
    """
    state = tokens[:, 0] * 0 + (number + 1) * FACTORS[0] % PRIME
    for position in range(tokens.shape[1]):
        state = _mixed(state + (tokens[:, position] + 1) * FACTORS[1] % PRIME)
    return state % M


def _mixed(state: Any) -> Any:
    for factor in FACTORS:
        state = (state ^ (state >> 15)) % PRIME * factor % PRIME
    return state ^ (state >> 13)
