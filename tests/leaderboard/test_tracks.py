"""The definitions of the tracks."""

from __future__ import annotations

import itertools
import math

import pytest

from membench.engine.protocols.protocol import get_protocol
from membench.interface.options import assignments, expand, label
from membench.interface.registry import Registry
from membench_leaderboard.tracks import ACCURACY, FACTS, GRID, TRACKS, N


@pytest.mark.parametrize("track", TRACKS.values(), ids=lambda track: track.name)
def test_configs_are_spelled_as_tables_spell_them(track):
    registry = Registry()
    for one in track.tasks:
        task = registry.task(one.task)
        words = one.config.split() + ([f"T0={FACTS}"] if track.searched else [])
        (config,) = expand(task.config, assignments(words), task.name, "")
        row = {"task": task.name, "task_version": task.version, "task_config": label(config)}
        assert one.asks(row, track.searched)
        assert not one.asks({**row, "task_version": task.version + 1}, track.searched)
    protocol = get_protocol(track.protocol)
    (config,) = expand(protocol.config, assignments(track.protocol_config.split()), protocol.name, "")
    assert track.trains({"protocol": protocol.name, "protocol_config": label(config)})


def test_the_grid_is_geometric_and_its_middle_is_at_load_two():
    ratios = [larger / smaller for smaller, larger in itertools.pairwise(GRID)]
    assert (GRID[0], GRID[-1], len(GRID) >= 8) == (500, 30_000, True)
    assert max(ratios) / min(ratios) < 1.01
    assert FACTS * math.log2(N) / GRID[len(GRID) // 2] == pytest.approx(2, rel=1e-3)


def test_a_model_is_of_the_smallest_size_that_it_fits():
    assert ACCURACY.slot(1) == ACCURACY.slot(500) == 0
    assert ACCURACY.slot(501) == 1
    assert ACCURACY.slot(30_001) is None
