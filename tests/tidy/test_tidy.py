"""Rules of the repository; each failure names the rule and the position."""

import ast
import gc
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FUNCTION_LINES_MAX = 70
BLOB_BYTES_MAX = 256 * 1024

# Folders under the rules of the product; the simulation's levels and checkers count as product.
RULED = ("src/", "spark/", "tests/simulation/")

# Modules with the purpose of printing.
PRINTING = (
    "tests/simulation/pictures/__main__.py",
    "tests/simulation/workload.py",
    "src/cli/",
    "tests/simulation/__main__.py",
    "tests/simulation/marks.py",
    "src/server/main.py",
    "src/testing/node_program.py",
    "examples/",
    "benchmarks/",
)


@cache
def tracked(*patterns: str) -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\n")
    return [ROOT / name for name in listed if name and (ROOT / name).is_file()]


def written_modules() -> list[Path]:
    """Return the hand-written Python files: no generated messages, each file once (not through a
    link)."""
    return [path for path in tracked("*.py") if not path.name.endswith("_pb2.py")]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@cache
def parse(path: Path) -> ast.Module:
    """Return the tree of a file. Freeze it for the garbage collector: the two million nodes of all
    files would triple the duration of the tests."""
    gc.disable()
    try:
        return ast.parse(path.read_text(), filename=str(path))
    finally:
        gc.freeze()
        gc.enable()


def test_the_walk_sees_the_product() -> None:
    """Every other test in this file would pass on an empty list."""
    names = {name_of(path) for path in written_modules()}
    assert {"src/errors/__init__.py", "src/runtime/ports.py", "tests/tidy/test_tidy.py"} <= names
    assert len(names) > 50


def test_no_function_is_too_long() -> None:
    long = [
        f"{name_of(path)}:{node.lineno} {node.name} ({node.end_lineno - node.lineno + 1})"
        for path in written_modules()
        for node in functions(parse(path))
        if node.end_lineno is not None and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]
    assert not long, f"over {FUNCTION_LINES_MAX} lines: {long}"


def test_no_leftovers_of_work() -> None:
    word = re.compile(r"\b(FIXME|XXX|HACK|TODO)\b")
    found = [
        f"{name_of(path)}:{number}"
        for path in written_modules()
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if word.search(line)
    ]
    assert not found, f"finish it or file an issue: {found}"


def test_only_commands_print() -> None:
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in written_modules()
        if name_of(path).startswith(RULED) and not name_of(path).startswith(PRINTING)
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"print", "breakpoint"}
    ]
    assert not found, f"log it, return it or remove it: {found}"


def test_no_handler_keeps_a_base_exception() -> None:
    """A killed node of the simulation ends by a BaseException that must reach the top.

    A cleanup on its way is permitted: such a handler ends with a bare `raise`.
    """
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in written_modules()
        if name_of(path).startswith(RULED) and not name_of(path).startswith("src/simulation/")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or "BaseException" in {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)}
        )
        and not passes_on(node)
    ]
    assert not found, f"name the errors that are expected, or end in `raise`: {found}"


def passes_on(handler: ast.ExceptHandler) -> bool:
    """Return True if a handler re-raises its exception on every path: it ends with a bare `raise`,
    and no statement before leaves it otherwise."""
    last = handler.body[-1]
    leaving = ast.Return | ast.Break | ast.Continue
    others = [node for part in handler.body for node in ast.walk(part) if isinstance(node, leaving)]
    return isinstance(last, ast.Raise) and last.exc is None and not others


@pytest.mark.parametrize(
    ("body", "expected"),
    [("undo(); raise", True), ("undo()", False), ("if x: return\n        raise", False)],
)
def test_a_handler_that_reraises_is_distinguished_from_one_that_keeps(
    body: str, expected: bool
) -> None:
    body = body.replace("; ", "\n        ")
    code = f"def f():\n    try:\n        g()\n    except BaseException:\n        {body}\n"
    (handler,) = [n for n in ast.walk(ast.parse(code)) if isinstance(n, ast.ExceptHandler)]
    assert passes_on(handler) is expected


def test_no_async_generators() -> None:
    """The collector finalises an async generator that is not exhausted, at any time."""
    found = [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for path in written_modules()
        if name_of(path).startswith(("src/", "tests/simulation/"))
        for node in functions(parse(path))
        if isinstance(node, ast.AsyncFunctionDef) and any(yields(node))
    ]
    assert not found, f"use an object with an explicit end: {found}"


def yields(function: ast.AsyncFunctionDef) -> Iterator[ast.AST]:
    """Return the yield expressions of the function, except in inner functions and in an
    `@asynccontextmanager`, which is exhausted by its `async with`."""
    decorators = {ast.unparse(decorator).split(".")[-1] for decorator in function.decorator_list}
    if "asynccontextmanager" in decorators:
        return
    todo: list[ast.AST] = list(function.body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Yield | ast.YieldFrom):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            todo.extend(ast.iter_child_nodes(node))


def test_the_package_imports_itself_relatively() -> None:
    """An absolute import would give type checkers a second copy of each class."""
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in written_modules()
        if name_of(path).startswith("src/")
        for node in ast.walk(parse(path))
        if (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "quorumlog")
        or (
            isinstance(node, ast.Import)
            and any(alias.name.split(".")[0] == "quorumlog" for alias in node.names)
        )
    ]
    assert not found, f"write `from ..storage import Log`: {found}"


def test_no_test_module_is_imported() -> None:
    """Shared helpers belong in tests/kit or in a helper module of the folder."""
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in written_modules()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Import | ast.ImportFrom) and imports_a_test_module(node)
    ]
    assert not found, f"move the shared helper to tests/kit or to a helper module: {found}"


def imports_a_test_module(node: ast.Import | ast.ImportFrom) -> bool:
    """Return True if the statement imports a module named test_* or a name of one."""
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    names = [module, *(alias.name for alias in node.names)]
    return any(part.startswith("test_") for name in names for part in name.split("."))


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("from .test_bytes import connected", True),
        ("from tests.unit import test_errors", True),
        ("import tests.unit.test_errors", True),
        ("from tests.kit.waits import AMPLE_S", False),
    ],
)
def test_an_import_of_a_test_module_is_found(statement: str, expected: bool) -> None:
    (node,) = ast.parse(statement).body
    assert isinstance(node, ast.Import | ast.ImportFrom)
    assert imports_a_test_module(node) is expected


def test_packages_only_re_export() -> None:
    """`__init__.py` has imports, `__all__` and a docstring; the three that users import from also
    have lazy names."""
    users = ("src/__init__.py", "src/testing/__init__.py", "spark/pipelines/__init__.py")
    lazy = [ROOT / each for each in users]
    found = [
        f"{name_of(path)}:{node.lineno}"
        for path in written_modules()
        if path.name == "__init__.py" and path not in lazy
        for node in parse(path).body
        if not isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.Expr)
    ]
    assert not found, f"move the code into a module with a name: {found}"


def test_every_module_is_used() -> None:
    """A module of the product without a reference is dead."""
    entry_points = {"main", "__main__", "demo", "pytest_plugin"}
    words = {
        path: set(re.findall(r"\w+", path.read_text()))
        for path in tracked("*.py", "*.toml", "Makefile", "*.pyi")
    }
    naming = Counter(word for those_of_a_file in words.values() for word in those_of_a_file)
    dead = []
    for path in written_modules():
        if not name_of(path).startswith(RULED) or path.name.startswith(("__init__", "test_")):
            continue
        used = naming[path.stem] > (path.stem in words[path])
        if not used and path.stem not in entry_points:
            dead.append(name_of(path))
    assert not dead


def test_the_files_that_are_tested_first_exist() -> None:
    """A renamed file in `LONGEST_FILES` of tests/conftest.py would run last."""
    (assigned,) = (
        node.value
        for node in parse(ROOT / "tests/conftest.py").body
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "LONGEST_FILES"
    )
    assert assigned is not None
    names = ast.literal_eval(assigned)
    assert [name for name in names if not (ROOT / "tests" / name).is_file()] == []
    assert len(names) == len(set(names)) > 5


def test_no_large_files() -> None:
    large = {
        name_of(path): size for path in tracked() if (size := path.stat().st_size) > BLOB_BYTES_MAX
    }
    assert not large


@pytest.mark.parametrize("path", tracked("*.md"), ids=name_of)
def test_a_page_has_one_title(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    titles = [line for line in text.splitlines() if line.startswith("# ")]
    assert len(titles) == 1, titles


def test_the_links_that_make_the_package_exist() -> None:
    """Without them the wheel would be empty (CONTRIBUTING.md, "Find a module")."""
    assert (ROOT / ".pkg/quorumlog").is_symlink()
    assert (ROOT / ".pkg/quorumlog").resolve() == ROOT / "src"
    assert (ROOT / "src/spark").is_symlink()
    assert (ROOT / "src/spark").resolve() == ROOT / "spark"


def test_every_field_of_the_protocol_has_its_first_version() -> None:
    found = []
    for path in tracked("proto/*.proto"):
        lines = path.read_text().splitlines()
        field = re.compile(r"^\s+(?!rpc|option|reserved)[\w. ]+ = \d+;")
        for number, line in enumerate(lines):
            if not field.match(line):
                continue
            comment, at = [], number - 1
            while lines[at].strip().startswith("//"):
                comment.append(lines[at])
                at -= 1
            if not any("Since " in part for part in comment):
                found.append(f"{name_of(path)}:{number + 1}")
    assert not found


def test_no_path_of_a_machine_in_the_repository() -> None:
    """The content must be valid on every machine."""
    mine = re.compile(re.escape(str(ROOT)) + "/")
    binary = {".png", ".gz", ".bin"}
    found = [
        name_of(path)
        for path in tracked()
        if path.suffix not in binary and mine.search(path.read_text(errors="replace"))
    ]
    assert not found
