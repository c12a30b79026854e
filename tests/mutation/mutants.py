"""Mutants of decisions: functions with one small change each.

The changes are those of mutmut, and several for decisions: one side of an `and` or `or` removed, a
condition that is always true or false, a removed call or assignment, `min` for `max`. Properties
are changed too, which mutmut excludes. With `orders` also two consecutive statements in the
opposite order, and a `replace(...)` without one field.

Not changed, because they make no decision: the assertions and `check_invariants` (planted bugs
cover their findings, see `tests/planted`), the texts of errors and events, docstrings, annotations,
defaults, and the tables and numbers at the level of a module or a class.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import Any, Final

import libcst as cst
import libcst.matchers as m
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "src"
MODULES: Final = (
    "raftlog.candidate",
    "raftlog.follower",
    "raftlog.leader",
    "raftlog.writes",
    "raftlog.voters",
    "raftlog.progress",
    "raftlog.state",
    "raftlog.messages",
    "raftlog.log_view",
    "raftlog.raft",
)
"""The pure modules of the consensus core with decisions. Excluded: values (config, ready, status)
and the transition table (roles), from which `docs/raft.md` is generated."""

UNTOUCHED: Final = frozenset(
    {"check_invariants", "__str__", "drop", "_report_role_change", "_voters_changed"}
)
"""Functions without decisions: checks, names, events."""

STATEMENTS: Final = (cst.SimpleStatementLine, cst.If, cst.For, cst.While, cst.Match)
LEFT_OUT: Final = (
    m.Expr(m.Call())
    | m.Assign([m.AssignTarget(m.Attribute())])
    | m.AugAssign()
    | m.Return(value=None)
    | m.Continue()
    | m.Break()
)
"""Statements that may be removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of one function."""

    module: str
    function: str  # its qualified name
    lines: tuple[int, int]  # first and last of the statement that is changed
    change: str  # "before -> after", on one line; with a number if the function has it twice
    code: str  # the function within its classes, to be compiled
    whole: Callable[[], str]  # returns the module's source

    @property
    def place(self) -> str:
        """Return the module and function, without a line number, which changes too often."""
        return f"{self.module}.{self.function}"


def file_of(module: str) -> Path:
    """Return the path of a module's source."""
    return SOURCE.joinpath(*module.split(".")).with_suffix(".py")


def mutants_of(module: str, *, orders: bool = False) -> list[Mutant]:
    """Return every mutant of a module, such as "raftlog.leader", in the order of its lines."""
    wrapper = MetadataWrapper(cst.parse_module(file_of(module).read_text()))
    finder = _Finder(wrapper.resolve(PositionProvider), orders=orders)
    wrapper.module.visit(finder)
    found: list[Mutant] = []
    seen: set[tuple[str, str]] = set()
    times: Counter[tuple[str, str]] = Counter()
    for each in finder.found:
        before = wrapper.module.code_for_node(each.function)
        after = wrapper.module.code_for_node(_replaced(each.function, each.node, each.mutated))
        if after == before or (each.name, after) in seen:
            continue
        seen.add((each.name, after))
        code = after
        for name in reversed(each.name.split(".")[:-1]):
            code = f"class {name}:\n{indent(code, '    ')}"
        try:
            compile(code, module, "exec")
        except SyntaxError:  # such as a pattern after one that matches everything
            continue
        change = _difference(before, after)
        times[each.name, change] += 1
        number = times[each.name, change]
        found.append(
            Mutant(
                module=module,
                function=each.name,
                lines=each.lines,
                change=change if number == 1 else f"{change} ({number})",
                code=code,
                whole=partial(_whole, wrapper.module, each),
            )
        )
    return found


@dataclass(slots=True)
class _Found:
    """A node and its replacement."""

    name: str
    function: cst.FunctionDef
    lines: tuple[int, int]
    node: cst.CSTNode
    mutated: Any


def _replaced(inside: cst.CSTNode, node: cst.CSTNode, mutated: Any) -> cst.CSTNode:
    replaced = inside.deep_replace(node, mutated)
    assert isinstance(replaced, cst.CSTNode), "a node was removed"
    return replaced


def _whole(module: cst.Module, found: _Found) -> str:
    replaced = _replaced(module, found.node, found.mutated)
    assert isinstance(replaced, cst.Module)
    return replaced.code


class _Finder(cst.CSTVisitor):
    """Visits a module and collects the replacements."""

    def __init__(self, positions: Any, *, orders: bool) -> None:
        self.found: list[_Found] = []
        self._orders = orders
        self._positions = positions
        self._names: list[str] = []
        self._functions: list[cst.FunctionDef] = []
        self._statements: list[tuple[int, int]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _decides_nothing(node):
            return False
        if isinstance(node, cst.ClassDef | cst.FunctionDef):
            self._names.append(node.name.value)
        if isinstance(node, cst.FunctionDef):
            self._functions.append(node)
        if isinstance(node, STATEMENTS):
            self._statements.append(self._lines(node))
        if not self._functions:
            return True
        if m.matches(node, m.Call(func=m.Attribute(attr=m.Name("drop")))):
            self._add(node, [cst.Name("None")])  # no event; its text is not changed
            return False
        self._add(node, _changes(node))
        if self._orders:
            self._add(node, _orders(node))
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if _decides_nothing(original_node):
            return
        if isinstance(original_node, cst.ClassDef | cst.FunctionDef):
            self._names.pop()
        if isinstance(original_node, cst.FunctionDef):
            self._functions.pop()
        if isinstance(original_node, STATEMENTS):
            self._statements.pop()

    def _add(self, node: cst.CSTNode, changes: Iterable[cst.CSTNode | Any]) -> None:
        name, function = ".".join(self._names), self._functions[0]
        lines = self._statements[-1] if self._statements else self._lines(node)
        self.found.extend(_Found(name, function, lines, node, mutated) for mutated in changes)

    def _lines(self, node: cst.CSTNode) -> tuple[int, int]:
        """Return the first and last line of a statement; of a compound one, of its header."""
        place = self._positions[node]
        if isinstance(node, cst.If | cst.For | cst.While):
            return place.start.line, max(
                place.start.line, self._positions[node.body].start.line - 1
            )
        return place.start.line, place.end.line


def _decides_nothing(node: cst.CSTNode) -> bool:
    match node:
        case cst.FunctionDef():
            return node.name.value in UNTOUCHED
        case cst.SimpleStatementLine():
            return m.matches(node.body[0], m.Expr(m.SimpleString()))
        case cst.Assert() | cst.Raise() | cst.Annotation() | cst.Param() | cst.Decorator():
            return True
        case cst.MatchPattern() | cst.FormattedString() | cst.ConcatenatedString():
            return True
        case _:
            return False


def _changes(node: cst.CSTNode) -> Iterator[cst.CSTNode | Any]:
    """Yield the replacements of a node."""
    if m.matches(node, m.SimpleString()) and not m.matches(node, m.SimpleString('""')):
        return  # text
    for kind, operator in mutation_operators:
        if isinstance(node, kind):
            yield from operator(node)
    yield from _own_changes(node)


def _own_changes(node: cst.CSTNode) -> Iterator[cst.CSTNode | Any]:
    if isinstance(node, cst.If | cst.While):
        yield from _conditions(node)
    elif m.matches(node, LEFT_OUT):
        yield cst.Pass()
    match node:
        case cst.BooleanOperation(left=left, right=right):
            yield from (_bracketed(left), _bracketed(right))
        case cst.MatchCase(guard=cst.BaseExpression()):
            nothing = cst.SimpleWhitespace("")
            yield node.with_changes(
                guard=None, whitespace_before_if=nothing, whitespace_after_if=nothing
            )
        case cst.Call(func=cst.Name(value="min" | "max" as name)):
            yield node.with_changes(func=cst.Name("max" if name == "min" else "min"))
        case cst.Call(func=cst.Name(value="bool")):
            yield from (cst.Name("True"), cst.Name("False"))
        case cst.Integer(value=value) if value != "0":
            yield cst.Integer(str(int(value) - 1))
        case _:
            pass


def _conditions(node: cst.If | cst.While) -> Iterator[cst.CSTNode]:
    yield node.with_changes(test=cst.Name("False"))
    if isinstance(node, cst.If):
        yield node.with_changes(test=cst.Name("True"))
    if not isinstance(node.test, cst.BooleanOperation | cst.UnaryOperation):
        yield node.with_changes(test=cst.UnaryOperation(cst.Not(), _bracketed(node.test)))


EFFECT: Final = m.SimpleStatementLine(
    [
        m.Expr(m.Call() | m.Await())
        | m.Assign([m.AssignTarget(m.Attribute())])
        | m.AugAssign(target=m.Attribute())
    ]
)
"""A statement with an effect beyond the local variables."""


def _orders(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield replacements with effects in another order, or without one field."""
    if isinstance(node, cst.IndentedBlock):
        body = list(node.body)
        for at in range(len(body) - 1):
            if m.matches(body[at], EFFECT) and m.matches(body[at + 1], EFFECT):
                swapped = [*body[:at], body[at + 1], body[at], *body[at + 2 :]]
                yield node.with_changes(body=swapped)
    elif m.matches(node, m.Call(func=m.Name("replace"))):
        assert isinstance(node, cst.Call)
        named = [each for each in node.args if each.keyword is not None]
        for left_out in named if len(named) > 1 else ():
            kept = [each for each in node.args if each is not left_out]
            kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            yield node.with_changes(args=kept)


def _bracketed(node: cst.BaseExpression) -> cst.BaseExpression:
    if node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _difference(before: str, after: str) -> str:
    """Return the lines that differ, each side on one line."""
    old, new = before.splitlines(), after.splitlines()
    while old and new and old[0] == new[0]:
        del old[0], new[0]
    while old and new and old[-1] == new[-1]:
        del old[-1], new[-1]
    return f"{_one_line(old)} -> {_one_line(new)}"


def _one_line(lines: list[str]) -> str:
    return " ".join(" ".join(line.partition("  #")[0].split()) for line in lines).strip()
