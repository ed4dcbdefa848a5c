"""Where the command line starts: `membench` and `python -m membench`. Ctrl-C while it is imported is no traceback."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def main() -> None:
    """The command line, with an interruption before it is there taken care of."""
    signal.signal(signal.SIGINT, _end)
    from membench.cli import main as run

    run()


def _end(number: int, frame: Any) -> None:
    """At once: nothing has begun, and an exception in the middle of an import may turn into any other."""
    sys.stderr.write("membench: interrupted\n")
    sys.stderr.flush()
    os._exit(130)


if __name__ == "__main__":
    main()
