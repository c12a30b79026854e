"""Error output and exit codes of commands: one line, or one JSON object, on stderr.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | an operational error, or a partial failure |
| 2 | invalid arguments |
| 3, 4 | `quorumlog doctor`: warnings; something is critical |
| 130 | Ctrl-C |
| 141 | broken pipe: the reader of the output has exited (128 + the signal's number) |

With `--output json` an operational error is one JSON object on stderr: `{"error", "message",
"retriable", "topic", "partition"}`, where `error` is Kafka's name of the error. Invalid arguments
are always reported as text, because they are found before --output is read.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from ..errors import QuorumlogError
from .output import echo, print_json

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

DEVICE_ERRORS = (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT, errno.EBADF)
DEBUG_VARIABLE = "QUORUMLOG_DEBUG"
IS_JSON = "quorumlog.is_json"  # key in the context's `meta`: True if the output is JSON


@contextmanager
def exit_on_errors(ctx: Any) -> Iterator[None]:
    """Print the errors that a command expects, and exit with their code."""
    try:
        yield
    except QuorumlogError as error:
        if is_debugging():
            raise
        print_error(error, as_json=ctx is not None and bool(ctx.meta.get(IS_JSON)))
        raise typer.Exit(EXIT_ERROR) from None
    except typer.BadParameter as error:
        error.message = _bad_parameter_text(error)
        raise
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        discard_output()
        raise typer.Exit(EXIT_BROKEN_PIPE) from None


def _bad_parameter_text(error: typer.BadParameter) -> str:
    """Return the message of an invalid argument, with the value and the bound. The messages of the
    validator below Typer have neither."""
    cause: Any = error.__cause__
    if not hasattr(cause, "errors"):
        return error.message
    found = cause.errors()[0]
    given, context = found["input"], found.get("ctx", {})
    match found["type"]:
        case "int_parsing" | "int_type" | "int_from_float":
            return f"{given!r} is not a whole number"
        case "float_parsing" | "float_type":
            return f"{given!r} is not a number"
        case "greater_than_equal":
            return f"{given} is too small: give {context['ge']} or more"
        case "less_than_equal":
            return f"{given} is too large: give {context['le']} or less"
        case "value_error":
            return str(context["error"])
        case _:
            return error.message


def print_error(error: QuorumlogError, *, as_json: bool) -> None:
    """Print an operational error on stderr, as text or as its JSON object."""
    if not as_json:
        echo(f"quorumlog: {error}", err=True)
        return
    print_json(error_json(error), err=True)


def error_json(error: QuorumlogError) -> dict[str, Any]:
    """Return the JSON object of an operational error."""
    return {
        "error": error.name,
        "message": str(error),
        "retriable": error.retriable,
        "topic": error.topic or None,
        "partition": error.partition,
    }


def print_unexpected(error: Exception) -> int:
    """Print an error that no command expects, in one line, and return the exit code."""
    if isinstance(error, BrokenPipeError):
        discard_output()
        return EXIT_BROKEN_PIPE
    detail = " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno in DEVICE_ERRORS and error.filename is None:
        text = f"the output cannot be written: {error.strerror}"
        discard_output()
    elif isinstance(error, OSError):
        text = f"{detail}; {DEBUG_VARIABLE}=1 shows the traceback"
    elif isinstance(error, UnicodeEncodeError):  # bytes of the command line that were not UTF-8
        text = f"{error.object!r} is not valid UTF-8; give UTF-8 text"
    else:
        text = (
            f"unexpected {type(error).__name__}: {detail}; this is a bug, please report it with "
            f"the traceback that {DEBUG_VARIABLE}=1 prints"
        )
    try:
        echo(f"quorumlog: {text}", err=True)
    except BrokenPipeError:
        discard_output()
    except OSError:
        pass  # stderr cannot be written: there is no place to report to
    return EXIT_ERROR


def is_debugging() -> bool:
    """Return True if --debug or QUORUMLOG_DEBUG asks for tracebacks."""
    return os.environ.get(DEBUG_VARIABLE, "").lower() not in ("", "0", "no", "false", "off")


def discard_output() -> None:
    """Redirect closed outputs to /dev/null, so that the interpreter's last flush succeeds."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except (OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
