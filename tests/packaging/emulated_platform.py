"""Runs a program as on another operating system, without the features that system lacks.

    python tests/packaging/emulated_platform.py macos|windows pytest|quorumlog ARGUMENT...

No part of quorumlog is replaced: names of `os` and `socket` are deleted, modules cannot be
imported, a file of /proc cannot be opened, and Windows' `msvcrt` uses this system's locks. So it
verifies the selection and the function of the fallbacks, not the behaviour of those systems.
"""

import errno
import fcntl
import os
import random  # noqa: F401  # registers at fork, by the presence of os.fork
import socket
import sys
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NoReturn

MACOS_LACKS: Final = ("RWF_NOWAIT", "fdatasync", "posix_fadvise", "preadv", "pwritev")
WINDOWS_LACKS: Final = (
    *MACOS_LACKS,
    *("EX_SOFTWARE", "O_CLOEXEC", "O_DIRECTORY", "pread", "pwrite"),
    *("register_at_fork", "sendfile"),
)
F_FULLFSYNC: Final = 51  # macOS's number; here it is EINVAL, as on macOS's network volumes

flock = fcntl.flock  # stored before the module is removed


class Absent:
    """An absent attribute, for classes with attributes that cannot be deleted."""

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError("no such call on this system")


def become_macos() -> None:
    """Remove the features that macOS lacks."""
    lose(MACOS_LACKS)
    fcntl.F_FULLFSYNC = F_FULLFSYNC  # type: ignore[attr-defined]  # not on Linux


def become_windows() -> None:
    """Remove the features that Windows lacks."""
    lose(WINDOWS_LACKS)
    socket.socket.sendmsg = Absent()  # type: ignore[assignment, method-assign]
    import asyncio  # before msvcrt exists: its `subprocess` detects Windows by it

    sys.modules["msvcrt"] = make_msvcrt()
    for name in ("fcntl", "resource", "termios", "uvloop"):
        sys.modules[name] = None  # type: ignore[assignment]  # import then raises ImportError

    def refuse(*_: object) -> NoReturn:
        raise NotImplementedError

    loop: Any = asyncio.SelectorEventLoop
    loop.add_signal_handler = loop.remove_signal_handler = refuse


def lose(names: tuple[str, ...]) -> None:
    """Delete what Linux alone, or every POSIX system, has; /proc cannot be opened."""
    for name in names:
        delattr(os, name)
    for name in ("MSG_MORE", "SOCK_NONBLOCK", "SOCK_CLOEXEC"):
        delattr(socket, name)

    def hide_proc(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith("/proc/sys/"):
            raise FileNotFoundError(errno.ENOENT, "no such file", arguments[0])

    sys.addaudithook(hide_proc)


def make_msvcrt() -> ModuleType:
    """Return Windows' module with its locks only."""

    def locking(descriptor: int, mode: int, size: int) -> None:
        assert (mode, size) == (2, 1)
        try:
            flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(errno.EACCES, "Permission denied") from None

    module: Any = ModuleType("msvcrt")
    module.LK_NBLCK = 2
    module.locking = locking
    made: ModuleType = module
    return made


def main() -> None:
    """Emulate the system, then run the program in this process."""
    system, program, *arguments = sys.argv[1:]
    with suppress(ImportError):  # a dependency of selenium, which hypothesis and anyio import
        import_module("trio")
    {"macos": become_macos, "windows": become_windows}[system]()
    sys.path.pop(0)  # the folder of this file
    sys.argv[:] = [program, *arguments]
    if program == "pytest":
        import pytest

        sys.exit(pytest.main(arguments))
    if program == "quorumlog":
        from quorumlog.cli.main import main as command

        command()
    exec(program, {"__name__": "__main__"})  # the program's source text


if __name__ == "__main__":
    main()
