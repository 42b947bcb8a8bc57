"""How the command speaks: results on stdout, progress and errors on stderr, JSON for machines, exit codes."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from walksum.paper.report.text import WIDE

UNEXPECTED, BAD_INPUT, INTERRUPTED = 1, 2, 130
EVERY = 5.0  # seconds between progress lines where there is no terminal

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")]


class Interrupted(Exception):
    """Ctrl-C after something worth keeping was kept."""


class Stdout(Console):
    """As wide as tables need where there is no terminal to ask; a reader who leaves early is no failure."""

    def __init__(self) -> None:
        asked = sys.stdout.isatty() or "COLUMNS" in os.environ
        super().__init__(soft_wrap=True, highlight=False, width=None if asked else WIDE)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Voice:
    """One command's way of speaking."""

    def __init__(self, as_json: bool = False, quiet: bool = False, debug: bool = False):
        self.as_json, self.quiet, self.debug = as_json, quiet, debug
        self.out = Stdout()
        self.err = Console(stderr=True, soft_wrap=True, highlight=False)
        self._last = 0.0

    def say(self, text: Any = "", always: bool = False) -> None:
        """For people, on stdout; ``always``: even with --quiet."""
        if not self.as_json and (always or not self.quiet):
            self.out.print(text, markup=False)

    def table(self, table: Table, always: bool = False) -> None:
        if not self.as_json and (always or not self.quiet):
            self.out.print(table)

    def result(self, record: dict[str, Any]) -> None:
        """For machines, with --json."""
        if self.as_json:
            from walksum._files import to_json

            print(to_json(record), flush=True)

    def progress(self, text: str, last: bool = False) -> None:
        """One line on stderr: rewritten in a terminal, now and then elsewhere."""
        if self.quiet:
            return
        if self.err.is_terminal:
            sys.stderr.write("\r\x1b[2K" + text[: self.err.width - 1] + ("\n" if last else ""))
            sys.stderr.flush()
        elif last or time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    def fail(self, message: str, code: int) -> None:
        self.err.print(f"error: {message}", style="red" if self.err.is_terminal else None, markup=False)
        self.result({"error": message, "exit_code": code})


def speak(voice: Voice, action: Callable[[], None]) -> None:
    """Run a command; its end is an exit code, and a stack trace only with --debug."""
    if not voice.debug:
        warnings.simplefilter("ignore")  # numerical trouble is reported by status, not by warnings of libraries
    # a shell may start background jobs with Ctrl-C ignored; whoever sends it here means it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 0
    try:
        action()
    except Interrupted:
        code = INTERRUPTED
    except KeyboardInterrupt:
        code = INTERRUPTED
        voice.fail("interrupted; nothing was written", code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the exit does not complain again
    except (ValueError, OSError) as error:
        code = BAD_INPUT
        _failed(voice, _words(error), code)
    except Exception as error:
        code = UNEXPECTED
        _failed(voice, f"unexpected {type(error).__name__}: {error}; run again with --debug to see where", code)
    if code:
        raise typer.Exit(code)


def _failed(voice: Voice, message: str, code: int) -> None:
    if voice.debug:
        traceback.print_exc()
    voice.fail(message, code)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.args and isinstance(error.args[0], int):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}; nothing half-written was left behind"
    return str(error)
