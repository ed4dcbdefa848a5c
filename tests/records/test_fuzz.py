"""A short run of the fuzzer, with a fixed seed; see tests/fuzzing.py for a long one."""

from __future__ import annotations

from collections import Counter

from fuzzing import fuzz, originals


def test_no_damaged_file_is_more_than_a_sentence() -> None:
    outcomes, findings = fuzz(1080)
    assert findings == []
    readers: Counter[str] = Counter()
    for name, times in outcomes.items():
        readers[name.partition(":")[0]] += times
    assert readers.keys() == originals().keys()
    assert sum(readers.values()) == 1080
