"""Marks of rare situations in the cores, and the seeds that reach them.

A mark is a comment before a statement. It names a situation that simulated runs have to reach:

    # sometimes: a vote that arrives late
    # sometimes if partition.is_moving: an election during a reassignment

It costs nothing in production. `install` makes the import of a module with marks compile a call
before each marked statement, with the condition evaluated in the marked function. The lines of the
module and its calls of the ports stay the same, and so does the event hash of every seed.

`make test-all` fails if a mark is reached by fewer than SEEDS_MIN of its seeds:
`python -m tests.simulation.marks` compares the marks with what the last run of each level reached.
"""

import ast
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "src"
FOLDER: Final = ROOT / "build" / "reach"
SEEDS_MIN: Final = 3  # that have to reach a mark
MARK: Final = re.compile(r"(?P<indent> *)# sometimes(?: if (?P<condition>.+?))?: (?P<name>.+)")
CALLED: Final = "__reached__"  # the name of `_reached.add` in a marked module

_reached: set[str] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A comment that names a situation."""

    name: str
    condition: str  # an expression; "" if reaching the statement is the situation
    line: int  # from 1
    column: int

    def call(self) -> ast.stmt:
        """Return the statement that notes the situation."""
        text = f"{CALLED}({self.name!r})"
        return ast.parse(f"if {self.condition}: {text}" if self.condition else text).body[0]


def marks_of(text: str) -> list[Mark]:
    """Return the marks of a module's source."""
    return [
        Mark(
            name=found["name"],
            condition=found["condition"] or "",
            line=number,
            column=len(found["indent"]),
        )
        for number, line in enumerate(text.splitlines(), 1)
        if (found := MARK.fullmatch(line))
    ]


def all_marks() -> Iterator[tuple[Path, Mark]]:
    """Yield every mark of the source tree with its file."""
    for path in sorted(SOURCE.rglob("*.py")):
        for mark in marks_of(path.read_text()):
            yield path, mark


def marked(text: str, path: str) -> ast.Module:
    """Return the tree of a module with a call before each marked statement.

    Raises ValueError if no statement follows a mark at its indentation.
    """
    tree = ast.parse(text, path)
    for mark in marks_of(text):
        block, position = _place(tree, mark, path)
        call = mark.call()
        for node in ast.walk(call):
            ast.copy_location(node, block[position])
        block.insert(position, call)
    return tree


def _place(tree: ast.Module, mark: Mark, path: str) -> tuple[list[ast.stmt], int]:
    """Return the block and the position of the first statement after a mark."""
    after = [
        (statement.lineno, block, position)
        for block in _blocks(tree)
        for position, statement in enumerate(block)
        if statement.lineno > mark.line and not isinstance(statement, ast.FunctionDef)
    ]
    if after:
        _, block, position = min(after, key=lambda place: place[0])
        if block[position].col_offset == mark.column:
            return block, position
    raise ValueError(f"{path}:{mark.line}: no statement follows the mark {mark.name!r}")


def _blocks(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                yield block


# --- the import of marked modules -----------------------------------------------------------------


class _Loader(SourceFileLoader):
    """Compiles a module with the calls of its marks, without a file of bytecode."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        return compile(marked(Path(path).read_text(), path), path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__[CALLED] = _reached.add
        super().exec_module(module)


class _Finder(MetaPathFinder):
    """Finds the modules of the package that have marks."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("quorumlog."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        if not marks_of(Path(spec.loader.path).read_text()):
            return None
        spec.loader = _Loader(fullname, spec.loader.path)
        return spec


def install() -> None:
    """Make marked modules that are imported from now on note their marks."""
    sys.meta_path.insert(0, _Finder())


def reached() -> list[str]:
    """Return the names of the marks that this process has reached."""
    return sorted(_reached)


# --- the seeds that reach them --------------------------------------------------------------------


def store(level: str, seeds: Iterable[Sequence[str]]) -> None:
    """Write the number of seeds that reached each mark; `seeds` has the names of each seed."""
    counts = Counter(name for names in seeds for name in names)
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{level}.json").write_text(json.dumps(counts, indent=1, sort_keys=True))


def main() -> int:
    """Print the marks with their seeds, the rarest first; return 1 if one has too few."""
    counts: Counter[str] = Counter()
    by_level: dict[str, dict[str, Any]] = {}
    for path in sorted(FOLDER.glob("*.json")):
        by_level[path.stem] = json.loads(path.read_text())
        counts.update(by_level[path.stem])
    names = [mark.name for _, mark in all_marks()]
    for name in sorted(names, key=lambda name: counts[name]):
        levels = " ".join(level for level, found in by_level.items() if name in found)
        print(f"{counts[name]:>6} {name:<80} {levels}")
    rare = [name for name in names if counts[name] < SEEDS_MIN]
    print(f"{len(names)} marks, {len(rare)} of them reached by fewer than {SEEDS_MIN} seeds")
    return 1 if rare else 0


if __name__ == "__main__":
    sys.exit(main())
