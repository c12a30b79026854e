"""How a command ends when something went wrong: one sentence on stderr, and an exit code.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | an operational error, or a part of the work failed |
| 2 | the command line itself is wrong |
| 130 | Ctrl-C |
| 141 | the reader of the output has gone (128 + the signal's number, as shells count) |

With `--output json` the sentence of an operational error is a JSON object on stderr:
`{"error", "message", "retriable", "topic", "partition"}`, `error` being the error's name in the
field. A wrong command line is told in words in any case: no option has been read then.
"""

import errno
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from ..errors import QuorumlogError

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

DEVICE_ERRORS = (errno.ENOSPC, errno.EIO, errno.EFBIG, errno.EDQUOT, errno.EBADF)
DEBUG_VARIABLE = "QUORUMLOG_DEBUG"
IS_JSON = "quorumlog.is_json"  # in the context's `meta`: whether --output json was read


@contextmanager
def ending_well(ctx: Any) -> Iterator[None]:
    """Turn the errors that a command may meet into what they say and an exit code."""
    try:
        yield
    except QuorumlogError as error:
        if is_debugging():
            raise
        tell(error, as_json=ctx is not None and bool(ctx.meta.get(IS_JSON)))
        raise typer.Exit(EXIT_ERROR) from None
    except typer.BadParameter as error:
        error.message = _plain(error)
        raise
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    except BrokenPipeError:
        leave_pipe()
        raise typer.Exit(EXIT_BROKEN_PIPE) from None


def _plain(error: typer.BadParameter) -> str:
    """Return what is wrong with an argument; what a validator below the options says of a number
    names neither the value nor a remedy."""
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


def tell(error: QuorumlogError, *, as_json: bool) -> None:
    """Print an operational error on stderr, as a sentence or as the JSON contract."""
    if not as_json:
        typer.echo(f"quorumlog: {error}", err=True)
        return
    typer.echo(json.dumps(error_json(error), ensure_ascii=False), err=True)


def error_json(error: QuorumlogError) -> dict[str, Any]:
    """Return the JSON contract of an operational error."""
    return {
        "error": error.name,
        "message": str(error),
        "retriable": error.retriable,
        "topic": error.topic or None,
        "partition": error.partition,
    }


def unexpected(error: Exception) -> int:
    """Tell of an error that no command foresees, in one line, and return the exit code."""
    if isinstance(error, BrokenPipeError):
        leave_pipe()
        return EXIT_BROKEN_PIPE
    detail = " ".join(str(error).split())
    if isinstance(error, OSError) and error.errno in DEVICE_ERRORS and error.filename is None:
        text = f"the output cannot be written: {error.strerror}"
        leave_pipe()
    elif isinstance(error, OSError):
        text = f"{detail}; {DEBUG_VARIABLE}=1 shows where"
    elif isinstance(error, UnicodeEncodeError):  # bytes of the command line that were not UTF-8
        text = f"{error.object!r} is not UTF-8 text; give it as text"
    else:
        text = (
            f"unexpected {type(error).__name__}: {detail}: this is a bug; "
            f"{DEBUG_VARIABLE}=1 shows the traceback, please report it"
        )
    try:
        typer.echo(f"quorumlog: {text}", err=True)
    except BrokenPipeError:
        leave_pipe()
    except OSError:
        pass  # stderr cannot be written: nobody can be told
    return EXIT_ERROR


def is_debugging() -> bool:
    """Whether tracebacks are wanted: --debug or QUORUMLOG_DEBUG."""
    return os.environ.get(DEBUG_VARIABLE, "").lower() not in ("", "0", "no", "false", "off")


def leave_pipe() -> None:
    """Point the closed outputs at nothing: the interpreter's last flush must not fail on them."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None:
            continue
        try:
            stream.flush()
        except (OSError, ValueError):
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())
            os.close(nothing)
