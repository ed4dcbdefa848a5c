"""`membench ask`: answers by name, and what it says of questions that make no sense."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

Membench = Callable[..., CompletedProcess[str]]
TRAIN = ("run", "--task", "world", "--protocol", "quick", "--seeds", "1", "--keep-weights")


@pytest.fixture
def trained(membench: Membench) -> Membench:
    done = membench(*TRAIN, "--model", "pair-mlp", "-M", "w=8", "-T", "T0=60", "-P", "steps=100")
    assert done.returncode == 0, done.stderr
    return membench


def test_a_model_is_asked_by_name_and_what_is_wrong_is_shown(trained: Membench) -> None:
    whole = json.loads(trained("ask", "results", "--count", "60", "--json").stdout)
    answers = whole["answers"]
    assert len(answers) == 60
    right = sum(one["is_right"] for one in answers) / 60
    assert right == pytest.approx(whole["metrics"]["accuracy"])
    wrong = json.loads(trained("ask", "results", "--wrong", "--count", "60", "--json").stdout)["answers"]
    assert len(wrong) == sum(not one["is_right"] for one in answers)
    one = next(one for one in answers if one["is_right"])
    shown = trained("ask", "results", *one["question"])
    assert shown.returncode == 0
    assert one["answer"] in shown.stdout
    assert "yes" in shown.stdout
    assert "beyond the best guess by the last token" in " ".join(shown.stdout.split())


def test_questions_that_make_no_sense_are_one_sentence_and_code_2(trained: Membench, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    cases = {
        ("results", "Frence", "capital"): "unknown word of task 'world' 'Frence'; did you mean 'France'",
        ("results", "France"): "a question to task 'world' has 2 words, not 1; one is:",
        ("nowhere", "France", "capital"): "'nowhere' does not exist",
        ("empty",): "no record in 'empty' has its weights beside it",
    }
    for words, sentence in cases.items():
        done = trained("ask", *words)
        assert (done.returncode, sentence in " ".join(done.stderr.split())) == (2, True), done.stderr
        assert "Traceback" not in done.stderr
