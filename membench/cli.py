"""The command line: a thin parser; each verb is a file in membench/commands, and is loaded when it is called."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import Any

import click

from membench import __version__
from membench.errors import MembenchError
from membench.printing import printable
from membench.threads import limit_threads

limit_threads()  # before a verb imports numpy: it is too late then

# Here and not in the files of the verbs, so that --help need not load them; a test keeps the two alike.
VERBS = {
    "Measure": {
        "run": "Measure how much of each task an architecture memorises.",
        "sweep": "Measure a grid of models and tasks, in random order.",
        "capacity": "Find how many facts one model memorises.",
        "tune": "Find the shape that holds most within a budget, and measure it.",
        "board": "Run what is missing from the board.",
        "reproduce": "Run the paper's experiments and check whether its claims hold.",
    },
    "Look": {
        "leaderboard": "Show the published board, with your records alongside.",
        "report": "Write the board as one HTML file.",
        "plot": "Plot any column of the records against any other.",
        "ask": "Ask a measured model, and see what is right.",
        "models": "List the architectures, or show one with its options.",
        "tasks": "List the tasks, or show one with its options.",
        "plugins": "List the plugins and what each provides.",
    },
    "Theory": {
        "bounds": "Show what is proven about an architecture on a task.",
        "floor": "Bound the best divergence that rank-d logits can reach.",
    },
    "Trust": {
        "submit": "Gather records and their weights for a pull request.",
        "verify": "Check records against their weights.",
        "baseline": "Write the baseline that `membench regress` compares with.",
        "regress": "Measure a suite again; exit code 1 if capacity was lost.",
        "compare": "Compare two sets of records; exit code 1 if capacity was lost.",
        "results": "Merge, check and pack folders of records.",
    },
    "Extend": {
        "new": "Make a plugin package: an architecture, a task or a bound.",
        "check": "Test an architecture against all that membench expects of it.",
    },
}

EPILOG = """\b
Start with:
  membench run --model aot --task bigram     measure an architecture
  membench leaderboard results               compare what was measured
  membench models aot                        see an architecture's options

\b
Exit codes: 0 ok, 1 capacity was lost, verification or a check failed, 2 usage error,
  3 a plugin, a trial or a file failed, 4 not everything could be verified,
  130 interrupted."""


class _ReaderLeft(Exception):
    """The reader of a pipe, such as head, has seen enough."""


class Verbs(click.Group):
    """The verbs in groups, each loaded when it is called."""

    def list_commands(self, context: click.Context) -> list[str]:
        return [verb for verbs in VERBS.values() for verb in verbs]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(context):
            return None
        command: click.Command = getattr(importlib.import_module(f"membench.commands.{name}"), name)
        return command

    def invoke(self, context: click.Context) -> Any:
        try:
            result = super().invoke(context)
            sys.stdout.flush()  # here, where a full disk or a closed pipe still has an exit code
            return result
        except BrokenPipeError:
            raise _ReaderLeft from None  # of the pipe itself, click would make exit code 1: that capacity was lost

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        for group, verbs in VERBS.items():
            with formatter.section(group):
                formatter.write_dl([(f"{verb:<11}", summary) for verb, summary in verbs.items()])


@click.group(
    cls=Verbs, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="membench")
def cli() -> None:
    """Measures how much a neural architecture can memorise, and compares it with what theory guarantees."""


def main() -> None:
    """Run the command line and turn every ending into an exit code."""
    for number in _asked_to_end():
        signal.signal(number, _interrupt)
    try:
        code = _run()
    except BaseException as error:
        if not _interruptions or isinstance(error, SystemExit):
            raise
        code = _interrupted()  # an import that is interrupted may end in any error
    _nothing_left_to_interrupt()
    sys.exit(code if isinstance(code, int) else 0)


def _run() -> object:
    try:
        return cli.main(prog_name="membench", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except MembenchError as error:
        for line in str(error).splitlines():
            click.echo(f"membench: {printable(line)}", err=True)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return _interrupted()
    except _ReaderLeft:
        _close_stdout()
        return 0
    except OSError as error:  # a disk that is full, a file that cannot be read: nobody's regression
        where = f"'{error.filename}': " if error.filename else ""
        click.echo(f"membench: {printable(f'{where}{error.strerror or error}')}", err=True)
        _close_stdout()
        return 3


def _asked_to_end() -> list[int]:
    """A scheduler that ends a job, or a terminal that closes, gets the same care as Ctrl-C; `nohup` keeps its word."""
    hang_up = [signal.SIGHUP] if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN else []
    return [signal.SIGINT, signal.SIGTERM, *hang_up]


def _nothing_left_to_interrupt() -> None:
    """Ctrl-C is ignored from here on; the others may still end a process that does not end by itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in _asked_to_end()[1:]:
        signal.signal(number, signal.SIG_DFL)


def _interrupted() -> int:
    _nothing_left_to_interrupt()  # once is enough
    exec("")  # Python ends by SIGINT itself, whatever our exit code, if the last exec() was interrupted: a dataclass's
    click.echo("membench: interrupted; finished trials are kept; rerun the command to continue", err=True)
    return 130


def _close_stdout() -> None:
    """What is left to print goes nowhere: it would fail once more when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


_interruptions: list[int] = []  # signals that asked us to end


def _interrupt(number: int, frame: Any) -> None:
    _interruptions.append(number)
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
