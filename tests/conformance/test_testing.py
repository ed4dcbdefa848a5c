"""`membench.testing` in somebody's tests."""

from __future__ import annotations

import pytest

import membench_lookup
from membench.testing import check_architecture, checks

pytest_plugins = ("pytester",)

TESTS = """
from torch import nn

from membench.testing import check_architecture


class Model(nn.Module):
    def __init__(self, vocab: int, answers: int, d: int = 4):
        super().__init__()
        self.word, self.out, self.spare = nn.Embedding(vocab, d), nn.Linear(d, answers), nn.Linear(d, d)

    def forward(self, tokens):
        return self.out(self.word(tokens).mean(1))


test_model = check_architecture(Model)
test_all_but_one = check_architecture(Model, without=["gradients"])
"""


def test_each_check_is_a_test_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-rs")
    result.assert_outcomes(passed=20, failed=1, skipped=4)  # of a class, neither config nor declaration is asked
    result.stdout.fnmatch_lines(["*no gradient reaches 'spare.weight', 'spare.bias'*", "*how to fix it:*"])


FATAL = """
import os

from membench.testing import check_architecture

test_fatal = check_architecture("fatal.py:build", without=["budget"])
"""


def test_a_model_that_ends_its_process_fails_a_test_and_not_all_of_them(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(fatal="import os\n\ndef build(vocab, answers):\n    os._exit(1)\n")
    pytester.makepyfile(FATAL)
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-k", "logits or seed")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*it did not come to its end: its process ended with code 1*"])


def test_a_check_that_does_not_exist_cannot_be_left_out() -> None:
    with pytest.raises(ValueError, match="the checks are logits, batch-size"):
        check_architecture(membench_lookup.ARCHITECTURE.name, without=["gradient"])
    assert len(checks()) == 13
