"""For the tests of a plugin: what membench expects of an architecture, as one parametrised test of pytest.

from membench.testing import check_architecture

test_my_arch = check_architecture("my-arch")
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from membench.verbs.arguments import Model, Options, Paths, selection_of
from membench.verbs.check import MEMORY, TIMEOUT, checked, limits_of

if TYPE_CHECKING:
    from membench.conformance.checks import Check

__all__ = ["check_architecture", "checks"]


def checks() -> Sequence[Check]:
    """All checks in their order. Each has a name, and is called with a subject."""
    from membench.conformance.checks import CHECKS

    return CHECKS


def check_architecture(
    model: Model,
    *,
    M: Options = None,
    timeout: float = TIMEOUT,
    memory: str | int = MEMORY,
    plugins: Paths = (),
    without: Sequence[str] = (),
) -> Callable[[Check], None]:
    """A test for pytest with a case for every check; give it a name that starts with `test`.

    The words are those of `membench.check`. A check named in `without` is left out. Advice does not fail a test: it is
    shown as its reason to be skipped.
    """
    import pytest

    known = {one.name: one for one in checks()}
    unknown = sorted(set(without) - set(known))
    if unknown:
        raise ValueError(f"without={unknown}: the checks are {', '.join(known)}")
    chosen = [one for name, one in known.items() if name not in without]
    limits = limits_of(timeout, memory)

    @pytest.mark.parametrize("check", chosen, ids=lambda one: one.name)
    def test(check: Check) -> None:
        __tracebackhide__ = True
        (result,) = checked(model, M, limits, selection_of(plugins), [check]).results
        words = f"{result.what}\n  why it matters: {result.why}\n  how to fix it: {result.mend}"
        if result.outcome == "failed":
            pytest.fail(words, pytrace=False)
        elif result.outcome != "passed":
            pytest.skip(words if result.why else result.what)

    return test
