"""What setup.py compiles, by what compiled classes demand; it runs where nothing is compiled."""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import pytest

import quorumlog

ROOT = Path(__file__).parents[2]
PACKAGE = "quorumlog."


def compiled() -> frozenset[str]:
    """The names of the modules in setup.py's list."""
    tree = ast.parse((ROOT / "setup.py").read_text())
    (found,) = [
        statement.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "MODULES"
    ]
    return frozenset(PACKAGE + path.replace("/", ".") for path in ast.literal_eval(found))


def classes_of(module_name: str) -> Iterator[type]:
    """The classes of a module that mypyc makes native ones of."""
    module = importlib.import_module(module_name)
    for each in vars(module).values():
        if (
            isinstance(each, type)
            and each.__module__ == module_name
            and not getattr(each, "_is_protocol", False)
            and not issubclass(each, tuple | Enum | BaseException)
        ):
            yield each


def heirs(of: type) -> list[type]:
    """The classes that inherit from this one directly."""
    return of.__subclasses__()


@pytest.mark.slow
def test_who_inherits_from_a_compiled_class_is_compiled_too() -> None:
    """mypyc's classes have no other subclasses: what makes an instance of one gets a TypeError."""
    for module in pkgutil.walk_packages(quorumlog.__path__, PACKAGE):
        if not module.name.startswith(("quorumlog.spark", "quorumlog.testing")):
            importlib.import_module(module.name)
    names = compiled()
    found = {
        f"{heir.__module__}.{heir.__qualname__} inherits from {name}.{each.__qualname__}"
        for name in names
        for each in classes_of(name)
        for heir in heirs(each)
        if heir.__module__.startswith(PACKAGE) and heir.__module__ not in names
    }
    assert not found


def test_every_compiled_module_is_there() -> None:
    paths = [name.removeprefix(PACKAGE).replace(".", "/") for name in compiled()]
    assert paths
    assert [path for path in paths if not (ROOT / "src" / f"{path}.py").is_file()] == []
