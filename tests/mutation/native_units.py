"""The parts of the compiled modules' sources that a mutant may change.

The sources are Cython, and C in the strings of `cdef extern from *`. A unit is a statement, a
condition, or a value: an end of a range, or what a declared variable starts with. No units are
declarations, assertions, raised errors, docstrings, macros, tables, and what frees memory.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

UNTOUCHED: Final = frozenset({"__dealloc__", "release", "ql_free"})
"""Functions that free memory: no result depends on them."""

TOKENS: Final = re.compile(
    r'(?P<text>[bfru]?(?:"""(?:[^\\]|\\.)*?"""|"(?:[^"\\\n]|\\.)*"))'
    r"|(?P<space>\s+|\\\n)"
    r"|(?P<number>0[xX][0-9a-fA-F]+[uUlL]*|\d+[uUlL]*)"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<operator><<=|>>=|\+\+|--|->|&&|\|\||<<|>>|//|[<>=!+\-*/&|^%]=|.)",
    re.DOTALL,
)
COMMENTS: Final = {
    "cython": re.compile(r"#[^\n]*"),
    "c": re.compile(r"/\*.*?\*/|#(?:[^\n]*\\\n)*[^\n]*", re.DOTALL),
}
OPENING, CLOSING = "([{", ")]}"


class Token(NamedTuple):
    """A token and its place in the text."""

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """The position after its text."""
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A part of a source that is written once for each of its mutants."""

    kind: str  # "statement", "condition" or "value"
    language: str
    function: str
    start: int
    end: int
    text: str  # on one line, without comments
    names: set[str] = field(compare=False)  # of the function


def tokens_of(source: str, language: str) -> list[Token]:
    """Return the tokens of a source, comments left out, white space kept."""
    found, at = [], 0
    while at < len(source):
        comment = COMMENTS[language].match(source, at)
        if comment:
            at = comment.end()
            continue
        match = TOKENS.match(source, at)
        assert match is not None
        found.append(Token(match.lastgroup or "", match[0], at))
        at = match.end()
    return found


def units_of(source: str) -> list[Unit]:
    """Return the units of a Cython source, in their order."""
    scopes: list[tuple[int, str, bool]] = []  # indentation, name, whether it is a function
    found: list[Unit] = []
    names: dict[str, set[str]] = {}
    for line in _logical_lines(source):
        first = line[0]
        column = first.start - (source.rfind("\n", 0, first.start) + 1)
        while scopes and scopes[-1][0] >= column:
            scopes.pop()
        if is_head := _names_a_scope(line):
            scopes.append((column, _name_of(line), is_head == "function"))
        function = ".".join(name for _, name, _ in scopes)
        known = names.setdefault(function, set())
        known.update(token.text for token in line if token.kind == "name")
        if is_head:
            continue
        if first.kind == "text":
            if not scopes and len(first.text) > 6:  # of `cdef extern from *`
                found += _units_of_c(source, first)
        elif any(inside for *_, inside in scopes) and scopes[-1][1] not in UNTOUCHED:
            found += _units_in(line, source, function, known)
    return found


def _logical_lines(source: str) -> Iterator[list[Token]]:
    line: list[Token] = []
    depth = 0
    for token in tokens_of(source, "cython"):
        if token.kind == "space":
            if depth == 0 and "\n" in token.text and not token.text.startswith("\\") and line:
                yield line
                line = []
            continue
        depth += (token.text in OPENING) - (token.text in CLOSING)
        line.append(token)
    if line:
        yield line


def _names_a_scope(line: list[Token]) -> str:
    words = [token.text for token in line]
    if words[-1] != ":" or words[0] not in ("def", "cdef", "cpdef", "class"):
        return ""
    if "class" in words[:2]:
        return "class"
    is_function = "(" in words and words[1] not in ("extern", "struct", "enum")
    return "function" if is_function else ""


def _name_of(line: list[Token]) -> str:
    words = [token.text for token in line]
    if "class" in words[:2]:
        return words[words.index("class") + 1]
    return words[words.index("(") - 1]


def _units_in(line: list[Token], source: str, function: str, names: set[str]) -> list[Unit]:
    """Return the units of a logical line inside a function."""

    def unit(kind: str, tokens: list[Token]) -> Unit:
        return _unit(kind, "cython", function, source, tokens, names)

    match line[0].text:
        case "if" | "elif" | "while" if line[-1].text == ":":
            return [unit("condition", line[1:-1])]
        case "for":
            places = [at for at, token in enumerate(line) if token.text == "range"]
            ends = _parts(line[places[0] + 2 : -2]) if places else []
            return [unit("value", each) for each in ends]
        case "cdef":
            parts = _parts(line[1:])
            assigned = [
                (part, at) for part in parts for at, token in enumerate(part) if token.text == "="
            ]
            return [unit("value", part[at + 1 :]) for part, at in assigned]
        case "assert" | "raise" | "pass" | "with" | "try" | "finally" | "except" | "else" | "@":
            return []
        case "from" | "import" | "del" | "if" | "elif" | "while" | "ctypedef" | "cimport":
            return []
        case _:
            return [unit("statement", line)]


def _parts(tokens: list[Token], between: str = ",") -> list[list[Token]]:
    """Split at the commas outside of brackets."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text in OPENING) - (token.text in CLOSING)
        if token.text == between and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def _unit(
    kind: str, language: str, function: str, source: str, tokens: list[Token], names: set[str]
) -> Unit:
    text = tokens[0].text
    for before, token in pairwise(tokens):
        text += (" " if token.start > before.end else "") + token.text
    return Unit(
        kind=kind,
        language=language,
        function=function,
        start=tokens[0].start,
        end=tokens[-1].end,
        text=text,
        names=names,
    )


# --- C -----------------------------------------------------------------------------------------


def _units_of_c(source: str, block: Token) -> list[Unit]:
    """Return the units of the C functions in a string."""
    content = source[: block.end - 3]
    tokens = [
        Token(token.kind, token.text, token.start + block.start + 3)
        for token in tokens_of(content[block.start + 3 :], "c")
        if token.kind != "space"
    ]
    return _C(source, tokens).units()


class _C:
    """Walks over the statements of C functions."""

    def __init__(self, source: str, tokens: list[Token]) -> None:
        self._source = source
        self._tokens = tokens
        self._at = 0
        self._function = ""
        self._names: set[str] = set()
        self._found: list[Unit] = []

    def units(self) -> list[Unit]:
        """Return the units of all functions."""
        while self._at < len(self._tokens):
            if self._text(0) == "{":
                if self._at and self._text(-1) == ")":
                    opening = self._opening_before(self._at - 1)
                    self._function = self._tokens[opening - 1].text
                    whole = self._tokens[opening : self._closing(self._at)]
                    self._names = {token.text for token in whole if token.kind == "name"}
                    self._statement()
                else:
                    self._at = self._closing(self._at) + 1
            else:
                self._at += 1
        return [each for each in self._found if each.function not in UNTOUCHED]

    def _text(self, ahead: int) -> str:
        return self._tokens[self._at + ahead].text

    def _closing(self, at: int) -> int:
        depth = 0
        while True:
            depth += (self._tokens[at].text in OPENING) - (self._tokens[at].text in CLOSING)
            if depth == 0:
                return at
            at += 1

    def _opening_before(self, at: int) -> int:
        depth = 0
        while True:
            depth += (self._tokens[at].text in CLOSING) - (self._tokens[at].text in OPENING)
            if depth == 0:
                return at
            at -= 1

    def _add(self, kind: str, tokens: list[Token]) -> None:
        if tokens and "#" not in self._source[tokens[0].start : tokens[-1].end]:
            unit = _unit(kind, "c", self._function, self._source, tokens, self._names)
            self._found.append(unit)

    def _statement(self) -> None:
        match self._text(0):
            case "{":
                self._at += 1
                while self._text(0) != "}":
                    self._statement()
                self._at += 1
            case "if" | "while" | "for" as word:
                end = self._closing(self._at + 1)
                inside = self._tokens[self._at + 2 : end]
                parts = self._split(inside)
                if word != "for":
                    self._add("condition", inside)
                elif len(parts) == 3:
                    self._add("condition", parts[1])
                self._at = end + 1
                self._statement()
                if word == "if" and self._text(0) == "else":
                    self._at += 1
                    self._statement()
            case _:
                begin = self._at
                while self._text(0) != ";":
                    self._at = self._closing(self._at) + 1
                self._at += 1
                self._simple(self._tokens[begin : self._at])

    @staticmethod
    def _split(tokens: list[Token]) -> list[list[Token]]:
        parts: list[list[Token]] = [[]]
        for token in tokens:
            if token.text == ";":
                parts.append([])
            else:
                parts[-1].append(token)
        return parts

    def _simple(self, tokens: list[Token]) -> None:
        words = [token.text for token in tokens]
        is_word = tokens[0].kind == "name" and words[0] not in ("return", "break", "continue")
        is_declared = is_word and (tokens[1].kind == "name" or words[1] == "*")
        if not is_declared:
            if words[:2] != ["(", "void"] and len(words) > 1:
                self._add("statement", tokens)
        elif not {"static", "const", "struct", "["} & set(words[:4]):
            for part in _parts(tokens[:-1]):
                at = next((at for at, token in enumerate(part) if token.text == "="), len(part))
                if part[at + 1 :] and part[at + 1].text != "{":
                    self._add("value", part[at + 1 :])
