"""The environment of Python processes that this process starts."""

from collections.abc import Mapping


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child that runs Python, from the environment of this process.

    With `-m` and `-c`, Python searches the current folder for modules first, so that another user
    with write access to the folder would run code as this user. PYTHONSAFEPATH, from Python 3.11,
    prevents it in the child and in the processes that the child starts. PYTHONPATH still applies.
    """
    return {**environment, "PYTHONSAFEPATH": "1"}
