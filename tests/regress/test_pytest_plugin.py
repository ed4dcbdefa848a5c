"""The pytest plugin, as somebody's own tests would meet it: through its entry point, in a pytest of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import sys
from pathlib import Path

PLUGIN = Path(__file__).with_name("toy_plugin.py")


def test_it_holds_enough(assert_capacity):
    mean = assert_capacity(
        "toy", task="bigram", at_least=0.1, T={"N": 4}, P={"steps": 60}, seeds=2, plugins=[PLUGIN]
    )
    assert 0.1 <= mean <= 1
    assert "torch" not in sys.modules


def test_it_holds_too_little(assert_capacity):
    assert_capacity("toy", task="bigram", at_least=1.5, T={"N": 4}, seeds=[3], plugins=[PLUGIN])
"""


def test_the_fixture_passes_and_fails_with_the_numbers(pytester: pytest.Pytester, plugin_file: Path) -> None:
    pytester.makepyfile(toy_plugin=plugin_file.read_text("utf-8"), test_mine=TESTS)
    done = pytester.runpytest_subprocess("-W", "error")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.re_match_lines([r".*toy on bigram: accuracy is [\d.]+, but at least 1.5 is needed \(seed 3: .*"])


def test_other_peoples_tests_do_not_notice_it(pytester: pytest.Pytester) -> None:
    code = """
        import sys

        def test_nothing_is_imported():
            assert "membench.pytest_plugin" in sys.modules
            heavy = {"torch", "numpy", "pandas", "click", "rich", "membench.threads", "membench.interface.registry"}
            assert not heavy & set(sys.modules)
    """
    pytester.makepyfile(code)
    pytester.runpytest_subprocess("--strict-markers", "-W", "error", "-p", "no:hypothesispytest").assert_outcomes(
        passed=1
    )


def test_mistakes_are_said_without_measuring(pytester: pytest.Pytester) -> None:
    calls = (
        '"aott", task="bigram", at_least=0.5',
        '"aot", task="bigram"',
        '"aot", task="bigram", at_least=0.5, M={"K": 1}',
    )
    code = [f"def test_{i}(assert_capacity):\n    assert_capacity({words})\n" for i, words in enumerate(calls)]
    pytester.makepyfile("\n".join(code))
    done = pytester.runpytest_subprocess()
    done.assert_outcomes(failed=3)
    done.stdout.fnmatch_lines(
        [
            "*unknown architecture 'aott'; did you mean 'aot'*",
            "*assert_capacity needs at_least*",
            "*unknown option of aot 'K'*",
        ]
    )


def test_a_metric_that_should_be_low() -> None:
    from samples import make_record

    from membench.pytest_plugin import _judge

    records = [make_record(seed=seed, metrics={"kl": 0.2 + seed}) for seed in (1, 0)]
    assert _judge(records, "a on b", "kl", None, 0.7) == pytest.approx(0.7)
    with pytest.raises(pytest.fail.Exception, match=r"kl is 0.7000, but at most 0.6 is needed \(seed 0: 0.2000, se"):
        _judge(records, "a on b", "kl", None, 0.6)
    with pytest.raises(pytest.fail.Exception, match="there is no number for acc; there are: kl"):
        _judge(records, "a on b", "acc", 0.1, None)
    with pytest.raises(pytest.fail.Exception, match="seed 4 failed: broken"):
        _judge([make_record(seed=4, status="failed", error="broken")], "a on b", "kl", 0.1, None)
