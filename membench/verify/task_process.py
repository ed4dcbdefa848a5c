"""The process of a plugin's task: draws the facts that a record is about, and hands them over as numbers.

Built-in tasks are drawn by the process that compares; a task of a plugin would bring the plugin's code there.
"""

from __future__ import annotations

from dataclasses import asdict
from multiprocessing.connection import Connection

import numpy as np

from membench.errors import MembenchError
from membench.interface.facts import Facts, draw_facts
from membench.interface.options import canonical, shown_options
from membench.interface.registry import Registry
from membench.verify.processes import Draw, Failed, hear, hear_bytes, say, words


def draw_and_send(draw: Draw, asker: Connection) -> None:
    """Say what the task is, then send contexts, targets and prior."""
    try:
        task = Registry(draw.selection).task(draw.task)
        config = task.config(**draw.config)
        facts = draw_facts(task, config, draw.seed)
        say(
            asker,
            version=task.version,
            origin=asdict(task.origin),
            config=canonical(config, task.name),
            shown=shown_options(config),
            vocab=facts.vocab,
            answers=facts.answers,
            length=facts.shape.length,
            association=facts.is_association,
        )
        for array in (facts.inputs, facts.targets, facts.prior):
            asker.send_bytes(np.ascontiguousarray(array).tobytes())
    except (EOFError, BrokenPipeError):
        raise
    except MembenchError as error:
        say(asker, unavailable=str(error))
    except Exception as error:
        say(asker, error=words(error))


def hear_facts(asked: Connection) -> tuple[dict[str, object], Facts]:
    """What the process says of its task, and the facts that it drew."""
    told = hear(asked, "task")
    try:
        length, answers = int(told["length"]), int(told["answers"])
        raw = [hear_bytes(asked, "task") for _ in range(3)]
        inputs = np.frombuffer(raw[0], np.int64).reshape(-1, length)
        targets = np.frombuffer(raw[1], np.int64 if told["association"] else np.float64)
        targets = targets if told["association"] else targets.reshape(-1, answers)
        return told, Facts(inputs, targets, np.frombuffer(raw[2], np.float64), int(told["vocab"]), answers)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Failed(f"the process of its task sent no facts: {words(error)}") from None
