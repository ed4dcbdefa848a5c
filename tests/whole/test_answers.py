"""Facts whose answers are not their tokens, from the command line to a verified record."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from membench.interface.registry import Registry


@pytest.mark.parametrize("answers", [3, 40])
def test_other_answers_than_tokens_are_measured_and_verified(membench: Any, tmp_path: Path, answers: int) -> None:
    words = ("-T", "N=6", "-T", f"A={answers}", "--protocol", "quick", "-P", "steps=20", "--seeds", "1")
    done = membench("run", "--model", "all", "--task", "bigram", *words, "--keep-weights")
    assert done.returncode == 0, done.stderr
    records = [json.loads(path.read_text("utf-8")) for path in (tmp_path / "results").rglob("*.json")]
    installed = [one for one in Registry().architectures.values() if not one.missing]
    assert len(records) == len(installed)
    for record in records:
        values = {bound["name"]: bound["value"] for bound in record["bounds"]}
        assert values["chance"] == 1 / answers
        assert values["required-bits"] == pytest.approx(36 * math.log2(answers) / record["size"]["parameters"])
        accuracy, associations = record["metrics"]["accuracy"], record["metrics"]["associations"]
        assert accuracy == pytest.approx(1 / answers + (1 - 1 / answers) * associations / 36)
    assert membench("submit", "results").returncode == 0
    verified = membench("verify", "submission")
    assert verified.returncode == 0, verified.stdout + verified.stderr
    assert f"{len(installed)} verified" in verified.stdout
