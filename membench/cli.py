"""The command line: a thin parser; each verb is a file in membench/commands."""

from __future__ import annotations

import os
import signal
import sys

import click

import membench.threads  # noqa: F401  (first of all: it is too late once numpy is there)
from membench import __version__
from membench.commands import (
    baseline,
    bounds,
    capacity,
    compare,
    floor,
    leaderboard,
    models,
    plot,
    plugins,
    regress,
    report,
    reproduce,
    run,
    submit,
    sweep,
    tasks,
    verify,
)
from membench.errors import MembenchError

EPILOG = """\b
Start with:
  membench run --model aot --task bigram     measure an architecture
  membench leaderboard results               compare what was measured
  membench models aot                        see an architecture's options

\b
Exit codes: 0 ok, 1 capacity was lost or a verification failed, 2 usage,
  3 a plugin or trial failed, 130 interrupted."""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="membench")
def cli() -> None:
    """Measures how much a neural architecture can memorise, against what theory says it can."""


VERBS = (
    run,
    sweep,
    reproduce,
    plot,
    capacity,
    leaderboard,
    report,
    bounds,
    floor,
    baseline,
    regress,
    compare,
    models,
    tasks,
    plugins,
    submit,
    verify,
)
for verb in VERBS:
    cli.add_command(getattr(verb, verb.__name__.rpartition(".")[2]))


def main() -> None:
    """Run the command line and turn every ending into an exit code."""
    signal.signal(signal.SIGTERM, _interrupt)  # a scheduler that ends a job gets the same care as Ctrl-C
    try:
        code = cli.main(prog_name="membench", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except MembenchError as error:
        for line in str(error).splitlines():
            click.echo(f"membench: {line}", err=True)
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("membench: interrupted; finished trials are kept, and the same command continues", err=True)
        code = 130
    except BrokenPipeError:  # the reader of a pipe, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
