"""What tasks of papers and of real facts refuse: one sentence that says what is wrong and what would do, and code 2."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from membench.cli import cli
from membench.errors import MembenchError

CASES = {
    "--task recall -T N=10 -T A=11": "recall: A=11 is more answers than there are inputs, N=10",
    "--task facts -T subjects=4 -T D=5": "facts: D=5 is more answers than a relation has facts (subjects=4)",
    "--task facts -T D=9 -T A=8": "facts: D=9 is more than the A=8 answers of all relations",
    "--task facts -T D=1": "facts: D=1: a whole number of at least 2 is needed",
    "--task bigram -T A=1": "bigram: A=1: a whole number of at least 2, or auto is needed",
    "--task recall -T A=1": "recall: A=1: a whole number of at least 2, or auto is needed",
    "--task facts -T A=1": "facts: A=1: a whole number of at least 2, or auto is needed",
    "--task text -T N=201": "text: N=201: a whole number from 2 to 200 is needed",
    "--task text -T S=3": "text: S=3: a whole number from 1 to 2 is needed",
    "--task world -T T0=1248": "world: T0=1248: a whole number from 1 to 1247, or auto is needed",
}


@pytest.mark.parametrize(("options", "sentence"), CASES.items(), ids=list(CASES))
def test_an_option_that_makes_no_sense_is_refused_before_anything_is_trained(options: str, sentence: str) -> None:
    result = CliRunner().invoke(cli, ["run", "--model", "aot", *options.split()])
    assert isinstance(result.exception, MembenchError)
    assert (str(result.exception), result.exception.exit_code) == (sentence, 2)


@pytest.mark.parametrize("metric", ["recall@0", "recall@3", "recall@-1"])
def test_a_recall_that_is_not_measured_is_refused(metric: str) -> None:
    words = ["capacity", "--model", "linear-memory", "--task", "recall", "--at", f"{metric}=0.99"]
    result = CliRunner().invoke(cli, words)
    assert isinstance(result.exception, MembenchError)
    assert str(result.exception).startswith(f"unknown metric of --at '{metric}'")
    assert str(result.exception).endswith("there are: accuracy, recall@2, recall@5, recall@10")
    assert result.exception.exit_code == 2
