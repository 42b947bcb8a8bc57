"""The command's output: results on stdout, progress and errors on stderr, JSON for machines, exit codes."""

from __future__ import annotations

import atexit
import os
import re
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console as RichConsole
from rich.table import Table

UNEXPECTED, BAD_INPUT, INTERRUPTED, TERMINATED = 1, 2, 130, 143
EVERY = 5.0  # seconds between progress lines where there is no terminal
WIDE = 160  # columns of a table where there is no terminal to ask

OTHER_NAMES = {"max_epochs": "epochs"}  # arguments whose option is called otherwise
# an argument in a text: lr=1, drop_unknown=True, split= (alone), device='cpu'
_ARGUMENT = re.compile(r"""(?<![\w-])(?P<name>[a-z_]+)=(?:(?P<none>True\b|(?=[\s;,:)]|$))|'(?P<word>[\w./,+-]+)')?""")
_options: set[str] = set()  # of the command that runs

# packages that an extra brings, by the name they are imported by
EXTRAS = {"pyamg": "multigrid", "pyarrow": "parquet", "optuna": "search", "tensorboard": "tensorboard"}
EXTRAS |= {"dash": "explore", "dash_cytoscape": "explore", "ray": "ray"}
EXTRAS |= {"openpyxl": "excel", "pymetis": "dist"}

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no notes.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the stack trace of an error.")]

# options that several commands have
Device = Annotated[str, typer.Option(help="cpu, cuda, or auto: cuda where there is one.")]
DropUnknown = Annotated[bool, typer.Option("--drop-unknown", help="Leave out edges to unknown ids.")]
Encoding = Annotated[str, typer.Option(help="Encoding of text tables.")]
Root = Annotated[Path | None, typer.Option(help="Folder with raw dataset files in PyG's layout.")]


class Interrupted(Exception):
    """Ctrl-C after results were saved; its text, if any, is the message."""


@contextmanager
def resumable(kept: str) -> Iterator[None]:
    """What Ctrl-C ends here, the same command goes on with."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {kept}, and the same command goes on there") from None


class Stdout(RichConsole):
    """Standard output: wide enough for tables without a terminal; a closed pipe is no failure."""

    def __init__(self) -> None:
        asked = sys.stdout.isatty() or "COLUMNS" in os.environ
        super().__init__(soft_wrap=True, highlight=False, width=None if asked else WIDE)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def as_command(function: Callable[..., Any]) -> Callable[..., None]:
    """``function(console, ...)`` as a command: with --json, --quiet and --debug, its errors as messages and exit codes.

    An int that is returned is the exit code.
    """
    flags = {"as_json": Json, "quiet": Quiet, "debug": Debug}
    own = signature(function, eval_str=True).parameters.values()
    parameters = [each for each in own if each.name != "console"]
    parameters += [Parameter(name, Parameter.KEYWORD_ONLY, default=False, annotation=flags[name]) for name in flags]

    @wraps(function)
    def begin(**options: Any) -> None:
        _options.clear()
        _options.update(options)
        console = Console(*(options.pop(name) for name in flags))
        run_command(console, lambda: function(console, **options))

    begin.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    begin.__annotations__ = {each.name: each.annotation for each in parameters}
    return begin


def with_flags(text: str, options: Iterable[str] | None = None) -> str:
    """Rewrite the arguments in a message of the library as options of the command: lr=1 becomes --lr 1."""
    known = set(_options if options is None else options)

    def flag(found: re.Match[str]) -> str:
        name = found["name"] if found["name"] in known else OTHER_NAMES.get(found["name"])
        if name not in known:
            return found[0]
        option = f"--{name.replace('_', '-')}"
        return option if found["none"] is not None else f"{option} {found['word'] or ''}"

    return _ARGUMENT.sub(flag, text)


class Console:
    """What one command prints."""

    def __init__(self, as_json: bool = False, quiet: bool = False, debug: bool = False):
        self.as_json, self.quiet, self.debug = as_json, quiet, debug
        self.out = Stdout()
        self.err = RichConsole(stderr=True, soft_wrap=True, highlight=False)
        self._last = 0.0

    def say(self, text: Any = "", always: bool = False) -> None:
        """Print for people, on stdout; ``always``: even with --quiet."""
        if not self.as_json and (always or not self.quiet):
            self.out.print(text, markup=False)

    def note(self, text: str) -> None:
        """A note of the library, for people."""
        self.say(f"note: {with_flags(text)}")

    def table(self, table: Table, always: bool = False) -> None:
        if not self.as_json and (always or not self.quiet):
            self.out.print(table)

    def result(self, record: dict[str, Any]) -> None:
        """Print as JSON, if --json was given."""
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


def _terminate(*_: Any) -> None:
    """End by an exception, so that half-written files and folders are removed."""
    raise SystemExit(TERMINATED)


def run_command(console: Console, action: Callable[[], int | None]) -> None:
    """Run a command and turn what it raises into a message and an exit code; a stack trace only with --debug."""
    if not console.debug:
        warnings.simplefilter("ignore")  # numerical trouble is reported by status, not by warnings of libraries
    # a shell may start background jobs with Ctrl-C ignored; whoever sends it here means it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminate)
    code = 0
    try:
        code = action() or 0
    except Interrupted as kept:
        code = INTERRUPTED
        if kept.args:
            console.fail(str(kept), code)
    except KeyboardInterrupt:
        code = INTERRUPTED
        console.fail("interrupted; nothing was written", code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the exit does not complain again
    except (ValueError, OSError) as error:
        code = BAD_INPUT
        _failed(console, _words(error), code)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        code = BAD_INPUT if package in EXTRAS else UNEXPECTED
        needs = f"this needs the package {package}: pip install 'walksum[{EXTRAS.get(package)}]'"
        _failed(console, needs if package in EXTRAS else f"unexpected {type(error).__name__}: {error}", code)
    except Exception as error:
        code = UNEXPECTED
        _failed(console, f"unexpected {type(error).__name__}: {error}; run again with --debug to see where", code)
    if code:
        raise typer.Exit(code)


def leave(code: int) -> None:
    """Exit without destroying Python's objects one by one, which takes a second with torch loaded."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:
        sys.exit(code)  # Python's own exit reports what went wrong
    os._exit(code)


def _failed(console: Console, message: str, code: int) -> None:
    if console.debug:
        traceback.print_exc()
    console.fail(message, code)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.args and isinstance(error.args[0], int):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}; nothing half-written was left behind"
    return with_flags(str(error))


def missing_folders(path: Path) -> str | None:
    """The outermost folder that must be made before ``path`` can be written; None where all are there."""
    missing = [parent for parent in path.absolute().parents if not parent.exists()]
    return f"{missing[-1]}/" if missing else None
