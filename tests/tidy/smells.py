"""Language and structure smells: `make smells` prints their counts, `test_smells.py` bounds them.

Each smell is a function from the parsed sources to a list of findings, one `path:line text` each.
`python -m tests.tidy.smells NAME` prints the findings of one smell.
"""

import ast
import io
import re
import subprocess
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("src/", "spark/")
SIMULATION = "tests/simulation/"
TESTS = ("tests/*.py", "benchmarks/*.py", ":!tests/simulation")
SMALL_MODULE_LINES = 120
PUBLIC_METHODS_MAX = 15

CLAUSE = re.compile(
    r"^((return )?(what|whether|how|where|who|whose|whom|which)|when|if|that|as|of|for|with|so|none"
    r"|this and)\b",
    re.IGNORECASE,
)
GENERATED_PAGES = ("docs/configuration.md", "docs/cli.md")
_VOCABULARY = tomllib.loads((Path(__file__).parent / "vocabulary.toml").read_text())
LISTED = re.compile(
    r"\b(?:" + "|".join(entry["word"] for entry in _VOCABULARY["entry"]) + r")\b", re.IGNORECASE
)
ALLOWED = re.compile("|".join(_VOCABULARY["allowed"]), re.IGNORECASE)


@dataclass(frozen=True)
class Module:
    """One parsed source file."""

    path: str
    text: str
    tree: ast.Module

    @property
    def stem(self) -> str:
        """The file name without its suffix."""
        return self.path.rsplit("/", 1)[-1].removesuffix(".py")

    @property
    def folder(self) -> str:
        """The path of the folder, without a trailing slash."""
        return self.path.rsplit("/", 1)[0]


@cache
def tracked(*patterns: str) -> list[str]:
    """Return the files of the working tree that match, ignored files apart."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    return sorted({name for name in listed if (ROOT / name).is_file()})


@cache
def modules() -> list[Module]:
    """Return the hand-written modules of the product and of the simulation scenarios."""
    found = []
    for path in tracked("src/*.py", "spark/*.py", "tests/simulation/*.py"):
        if not path.endswith("_pb2.py"):
            text = (ROOT / path).read_text()
            found.append(Module(path, text, ast.parse(text, filename=path)))
    return found


def product() -> list[Module]:
    """Return the modules of `src` and `spark`."""
    return [module for module in modules() if module.path.startswith(PRODUCT)]


@dataclass(frozen=True)
class TestTexts:
    """Findings in the tests and benchmarks; their trees are dropped, since a million nodes would
    slow down the garbage collector."""

    clauses: list[str]
    docstrings: list[str]
    comments: list[str]


@cache
def test_texts() -> TestTexts:
    """Return the findings in `tests`, without the simulation, and in `benchmarks`."""
    found = TestTexts([], [], [])
    for path in tracked(*TESTS):
        text = (ROOT / path).read_text()
        module = Module(path, text, ast.parse(text, filename=path))
        found.clauses.extend(_clauses(module))
        found.docstrings.extend(_listed_docstrings(module))
        found.comments.extend(_listed_comments(module))
    return found


def has_listed_word(text: str) -> bool:
    """Return True if the text contains a word of `vocabulary.toml`."""
    return LISTED.search(ALLOWED.sub(" ", text)) is not None


def bodies(node: ast.AST) -> Iterator[tuple[ast.AST, list[ast.stmt]]]:
    """Yield each node with a body, and its body, without a visit of expressions."""
    for field in ("body", "orelse", "finalbody"):
        body = getattr(node, field, None)
        if isinstance(body, list):
            yield node, body
            for statement in body:
                yield from bodies(statement)
    for field in ("handlers", "cases"):
        for part in getattr(node, field, ()):
            yield from bodies(part)


def docstring_nodes(module: Module) -> Iterator[ast.Constant]:
    """Yield the docstrings of the module, its classes and its functions."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node, body in bodies(module.tree):
        if isinstance(node, documented):
            yield from _strings(body[:1])


def field_docstring_nodes(module: Module) -> Iterator[ast.Constant]:
    """Yield every string that is a statement, such as a field's docstring."""
    for _, body in bodies(module.tree):
        yield from _strings(body)


def _strings(statements: list[ast.stmt]) -> Iterator[ast.Constant]:
    for statement in statements:
        if (
            isinstance(statement, ast.Expr)
            and isinstance(statement.value, ast.Constant)
            and isinstance(statement.value.value, str)
        ):
            yield statement.value


def _finding(module: Module, line: int, text: str) -> str:
    return f"{module.path}:{line} {' '.join(text.split())[:160]}"


def _clauses(module: Module) -> Iterator[str]:
    for node in docstring_nodes(module):
        if CLAUSE.match(str(node.value).strip()):
            yield _finding(module, node.lineno, str(node.value))


def _listed_docstrings(module: Module) -> Iterator[str]:
    for node in field_docstring_nodes(module):
        if has_listed_word(str(node.value)):
            yield _finding(module, node.lineno, str(node.value))


def _listed_comments(module: Module) -> Iterator[str]:
    if not any("#" in line and has_listed_word(line) for line in module.text.splitlines()):
        return
    for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
        if token.type == tokenize.COMMENT and has_listed_word(token.string):
            yield _finding(module, token.start[0], token.string)


def docstrings_opening_with_a_clause() -> list[str]:
    """Docstrings with a subordinate clause at the start of their first line."""
    return [finding for module in modules() for finding in _clauses(module)]


def docstrings_with_listed_words() -> list[str]:
    """Docstrings, of fields too, with a word of the vocabulary list."""
    return [finding for module in modules() for finding in _listed_docstrings(module)]


def strings_with_listed_words() -> list[str]:
    """String literals, docstrings apart, with a word of the vocabulary list."""
    found = []
    for module in modules():
        docs = {id(node) for node in field_docstring_nodes(module)}
        inside = {
            id(part)
            for node in ast.walk(module.tree)
            if isinstance(node, ast.JoinedStr)
            for part in node.values
        }
        for node in ast.walk(module.tree):
            if isinstance(node, ast.JoinedStr):
                text = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "{}"
                    for part in node.values
                )
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in docs
                and id(node) not in inside
            ):
                text = node.value
            else:
                continue
            if " " in text and has_listed_word(text):
                found.append(_finding(module, node.lineno, text))
    return found


def comments_with_listed_words() -> list[str]:
    """Comments with a word of the vocabulary list, one finding for each line."""
    return [finding for module in modules() for finding in _listed_comments(module)]


def test_docstrings_opening_with_a_clause() -> list[str]:
    """Docstrings of tests and benchmarks with a subordinate clause at the start."""
    return test_texts().clauses


def test_docstrings_with_listed_words() -> list[str]:
    """Docstrings of tests and benchmarks, of fields too, with a word of the vocabulary list."""
    return test_texts().docstrings


def test_comments_with_listed_words() -> list[str]:
    """Comments of tests and benchmarks with a word of the vocabulary list."""
    return test_texts().comments


def pages_with_listed_words() -> list[str]:
    """Lines of pages and of proto comments with a word of the vocabulary list, code apart."""
    found = []
    for path in tracked("*.md", "proto/*.proto"):
        fenced = False
        for number, line in enumerate((ROOT / path).read_text().splitlines(), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
            elif path.endswith(".proto"):
                _, mark, comment = line.partition("//")
                if mark and has_listed_word(comment):
                    found.append(f"{path}:{number} {comment.strip()[:160]}")
            elif not fenced and has_listed_word(line):
                found.append(f"{path}:{number} {line.strip()[:160]}")
    return found


def repeated_class_names() -> list[str]:
    """Public class names defined in more than one module, asyncio and blocking twins apart."""
    places = defaultdict(list)
    for module in product():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(module.path)
    found = []
    for name, paths in sorted(places.items()):
        others = [path for path in paths if not path.startswith("src/clients/blocking/")]
        if len(others) > 1 or (len(paths) - len(others) > 1):
            found.append(f"{name}: {', '.join(paths)}")
    return found


def stems_in_ing() -> list[str]:
    """Module stems in -ing."""
    return [module.path for module in product() if module.stem.endswith("ing")]


def _import_path(module: Module, node: ast.ImportFrom) -> str:
    """Return the file or folder path, without suffix, that `from ... import` names."""
    if node.level:
        parts = module.path.split("/")[: -node.level]
        return "/".join([*parts, *(node.module or "").split(".")]).rstrip("/")
    name = node.module or ""
    if name.startswith("quorumlog.spark"):
        return name.removeprefix("quorumlog.").replace(".", "/")
    return "src" + name.removeprefix("quorumlog").replace(".", "/") if name else ""


@cache
def importers() -> dict[str, set[str]]:
    """Return, for each module path, the paths of the modules that import it."""
    paths = {module.path for module in product()}
    found: dict[str, set[str]] = defaultdict(set)
    for module in product():
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ImportFrom):
                continue
            base = _import_path(module, node)
            if f"{base}.py" in paths:
                found[f"{base}.py"].add(module.path)
            for alias in node.names:
                if f"{base}/{alias.name}.py" in paths:
                    found[f"{base}/{alias.name}.py"].add(module.path)
    return found


def single_importer_modules() -> list[str]:
    """Modules under 120 lines that only one module imports, from the same folder."""
    found = []
    for module in product():
        if module.stem.startswith("__") or "/apis/" in module.path:
            continue
        lines = module.text.count("\n")
        users = importers().get(module.path, set())
        if lines < SMALL_MODULE_LINES and len(users) == 1:
            (user,) = users
            if user.rsplit("/", 1)[0] == module.folder and not user.endswith("__init__.py"):
                found.append(f"{module.path} ({lines} lines) <- {user}")
    return found


def _is_pass_through(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    body = [
        part
        for part in node.body
        if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
    ]
    if len(body) != 1 or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    value = body[0].value
    if isinstance(value, ast.Await):
        value = value.value
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return False
    owner = value.func.value
    return (
        value.func.attr == node.name
        and isinstance(owner, ast.Attribute)
        and isinstance(owner.value, ast.Name)
        and owner.value.id == "self"
    )


def pass_throughs() -> list[str]:
    """Public methods that only call the like-named method of an owned object."""
    return [
        f"{module.path}:{method.lineno} {node.name}.{method.name}"
        for module in product()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef)
        and not method.name.startswith("_")
        and _is_pass_through(method)
    ]


def classes_with_many_methods() -> list[str]:
    """Classes with more than 15 public methods, properties included."""
    found = []
    for module in product():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                names = {
                    part.name
                    for part in node.body
                    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef)
                    and not part.name.startswith("_")
                }
                if len(names) > PUBLIC_METHODS_MAX:
                    found.append(f"{module.path}:{node.lineno} {node.name} ({len(names)})")
    return found


def all_modules() -> list[str]:
    """Modules of `src` and `spark`."""
    return [module.path for module in product()]


def folders() -> list[str]:
    """Folders of `src` and `spark` that hold modules."""
    return sorted({module.folder for module in product()})


def simulation_lines() -> list[str]:
    """Lines of `src/simulation`, one finding for each."""
    return [
        f"{module.path}:{number}"
        for module in product()
        if module.path.startswith("src/simulation/")
        for number in range(1, module.text.count("\n") + 1)
    ]


SMELLS: dict[str, Callable[[], list[str]]] = {
    smell.__name__: smell
    for smell in (
        docstrings_opening_with_a_clause,
        docstrings_with_listed_words,
        strings_with_listed_words,
        comments_with_listed_words,
        test_docstrings_opening_with_a_clause,
        test_docstrings_with_listed_words,
        test_comments_with_listed_words,
        pages_with_listed_words,
        repeated_class_names,
        stems_in_ing,
        single_importer_modules,
        pass_throughs,
        classes_with_many_methods,
        all_modules,
        folders,
        simulation_lines,
    )
}


def main(names: list[str]) -> None:
    """Print the counts, or the findings of the smells named on the command line."""
    for name in names:
        print("\n".join(SMELLS[name]()))
    if names:
        return
    width = max(map(len, SMELLS))
    for name, smell in SMELLS.items():
        found = smell()
        inside = sum(not finding.startswith(SIMULATION) for finding in found)
        print(f"{name:{width}}  {inside:6}  {len(found) - inside:6}")


if __name__ == "__main__":
    main(sys.argv[1:])
