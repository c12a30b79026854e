"""Mutants of the compiled modules: one small change of one statement, condition or value each.

Changed are comparisons, bounds, integer constants, arithmetic, signs of casts, conditions, guards,
returned constants, arguments and fields in pairs; assignments and calls are left out.

`selected` writes a source in which `ql_is(n)` chooses mutant n at run time, so that one binary has
all mutants of a module.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from .native_units import CLOSING, OPENING, Token, Unit, tokens_of, units_of

WEAKER: Final = {
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "==": ("!=", ">="),
    "!=": ("==", "<", ">"),
}
ARITHMETIC: Final = {
    **{"+": "-", "-": "+", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "|"},
    **{"+=": "-=", "-=": "+=", "|=": "&=", "&=": "|=", "^=": "|=", "<<=": ">>=", ">>=": "<<="},
    **{"*=": "+=", "++": "--", "--": "++"},
}
WORDS: Final = {
    **{"True": "False", "False": "True", "and": "or", "or": "and", "&&": "||", "||": "&&"},
    **{"min": "max", "max": "min"},
}
PAIRS: Final = (
    ("start", "end"),
    ("first", "last"),
    ("first", "second"),
    ("key", "value"),
    ("keys", "values"),
    ("low", "high"),
    ("min", "max"),
    ("head", "tail"),
    ("oldest", "newest"),
    ("offset", "timestamp"),
    ("position", "size"),
)
"""Parts of names of which one may stand for the other."""

CASTS: Final = {
    **{f"int{bits}_t": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}_t": f"int{bits}_t" for bits in (8, 16, 32, 64)},
}

KEYWORDS: Final = frozenset({"return", "and", "or", "not", "if", "else", "in", "is", "elif"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeMutant:
    """A unit and what stands in its place."""

    file: str  # below src
    line: int
    unit: Unit
    after: str

    @property
    def change(self) -> str:
        """The text before and after, on one line."""
        return f"{self.unit.text} -> {self.after}"


def mutants_of(file: str, source: str, names: frozenset[str]) -> list[NativeMutant]:
    """Return every mutant of a source; `names` are the fields and functions that it may name."""
    return [
        NativeMutant(
            file=file, line=source.count("\n", 0, unit.start) + 1, unit=unit, after=changed
        )
        for unit in units_of(source)
        for changed in dict.fromkeys(_changes(unit, names))
        if changed != unit.text
    ]


def names_in(source: str) -> frozenset[str]:
    """Return every name of a source."""
    return frozenset(re.findall(r"[A-Za-z_]\w*", source))


# --- changes --------------------------------------------------------------------------------------


def _changes(unit: Unit, names: frozenset[str]) -> Iterator[str]:
    """Return the texts that may replace a unit."""
    tokens = [token for token in tokens_of(unit.text, "cython") if token.kind != "space"]
    if unit.kind == "condition":
        true, false = ("True", "False") if unit.language == "cython" else ("1", "0")
        yield from (false, true)
    for at, token in enumerate(tokens):
        for start, end, text in _edits(tokens, at, unit, names):
            yield unit.text[:start] + text + unit.text[end:]
        if token.text in ("and", "or", "&&", "||"):
            yield from _sides(unit.text, tokens, at)
        if token.text == "," and unit.language == "cython":
            yield from _swapped(unit.text, tokens, at)
    if unit.kind == "statement":
        yield from _other_statements(unit, tokens)


def _edits(
    tokens: list[Token], at: int, unit: Unit, names: frozenset[str]
) -> Iterator[tuple[int, int, str]]:
    """Return the changes of one token: start, end, text."""
    token = tokens[at]
    before = tokens[at - 1].text if at else ""
    if token.text == "is":
        is_not = tokens[at + 1].text == "not"
        yield token.start, tokens[at + is_not].end, "is" if is_not else "is not"
    elif token.text == "!" or (token.text == "not" and before != "is"):
        yield token.start, tokens[at + 1].start, ""
    elif token.kind == "number":
        yield from ((token.start, token.end, each) for each in _near(token.text, before))
    elif token.kind == "name":
        is_known = before in (".", "->") or (at + 1 < len(tokens) and tokens[at + 1].text == "(")
        others = _other_names(token.text, before, names if is_known else unit.names)
        yield from ((token.start, token.end, each) for each in others)
    elif not _in_cast(tokens, at, unit.language):
        operators = _other_operators(tokens, at)
        yield from ((token.start, token.end, each) for each in operators)


def _near(number: str, before: str) -> list[str]:
    """Return the constants next to one."""
    digits = number.rstrip("uUlL")
    value, least = int(digits, 0), 1 if before in ("+=", "-=") else 0
    return [f"{each}{number[len(digits) :]}" for each in (value + 1, value - 1) if each >= least]


def _other_names(name: str, before: str, names: Collection[str]) -> list[str]:
    if name in WORDS:
        return [WORDS[name]]
    if name in CASTS and before == "<":
        return [CASTS[name]]
    return list(_paired(name, names))


def _other_operators(tokens: list[Token], at: int) -> tuple[str, ...]:
    operator = tokens[at].text
    is_binary = at > 0 and _is_operand(tokens[at - 1])
    if operator in WEAKER and is_binary:
        is_pointer = tokens[at + 1].text in ("NULL", "None")
        return WEAKER[operator][:1] if is_pointer else WEAKER[operator]
    if operator in ARITHMETIC and (is_binary or operator in ("++", "--")):
        return (ARITHMETIC[operator],)
    return (WORDS[operator],) if operator in WORDS else ()


def _is_operand(token: Token) -> bool:
    if token.kind in ("number", "text"):
        return True
    return token.text in (")", "]") or (token.kind == "name" and token.text not in KEYWORDS)


def _in_cast(tokens: list[Token], at: int, language: str) -> bool:
    """Return True for a bracket of a cast such as `<char*>`, or the sign after `(char *)`."""
    if language == "c":
        return at > 0 and tokens[at - 1].text == ")" and _is_c_cast(tokens, at - 2)
    if tokens[at].text == "<":
        return at == 0 or not _is_operand(tokens[at - 1])
    if tokens[at].text != ">":
        return False
    while tokens[at - 1].kind == "name" or tokens[at - 1].text in ("*", "?"):
        at -= 1
    return tokens[at - 1].text == "<" and _in_cast(tokens, at - 1, language)


def _is_c_cast(tokens: list[Token], at: int) -> bool:
    inside: list[str] = []
    while at >= 0 and tokens[at].text != "(":
        inside.append(tokens[at].text)
        at -= 1
    kinds = r"\**(u?int\d+_t|s?size_t|off_t|uintptr_t|char|void|int)"
    return bool(re.fullmatch(kinds, "".join(inside)))


def _paired(name: str, names: Collection[str]) -> Iterator[str]:
    parts = name.split("_")
    for pair in PAIRS:
        for one, other in (pair, pair[::-1]):
            if one in parts:
                changed = "_".join(other if part == one else part for part in parts)
                if changed in names:
                    yield changed


def _operand(tokens: list[Token], at: int, step: int, ends: frozenset[str]) -> tuple[int, int]:
    """Return the first and last place of the operand on one side of a token."""
    inward, outward = (OPENING, CLOSING) if step > 0 else (CLOSING, OPENING)
    depth, last = 0, at
    each = at + step
    while 0 <= each < len(tokens):
        text = tokens[each].text
        if depth == 0 and (text in outward or text in ends):
            break
        depth += (text in inward) - (text in outward)
        last = each
        each += step
    return min(at + step, last), max(at + step, last)


AROUND_SIDES: Final = frozenset(
    {"and", "or", "&&", "||", ",", "=", "if", "else", "?", ":", ";", "return"}
)
AROUND_PARTS: Final = frozenset({",", "=", ";", "return"})


def _sides(text: str, tokens: list[Token], at: int) -> Iterator[str]:
    """Return the text without one side of an `and` or `or`."""
    first, _ = _operand(tokens, at, -1, AROUND_SIDES)
    _, last = _operand(tokens, at, 1, AROUND_SIDES)
    if first < at < last:
        yield text[: tokens[first].start] + text[tokens[at + 1].start :]
        yield text[: tokens[at - 1].end] + text[tokens[last].end :]


def _swapped(text: str, tokens: list[Token], at: int) -> Iterator[str]:
    """Return the text with the two arguments or fields around a comma in the other order."""
    first, _ = _operand(tokens, at, -1, AROUND_PARTS)
    _, last = _operand(tokens, at, 1, AROUND_PARTS)
    if not first < at < last:
        return
    before = tokens[first - 1].text if first else ""
    after = tokens[last + 1].text if last + 1 < len(tokens) else ""
    depth = sum((each.text in OPENING) - (each.text in CLOSING) for each in tokens[:first])
    if after == "=" or (before == "=" and depth):  # targets, or arguments by their names
        return
    left = text[tokens[first].start : tokens[at - 1].end]
    right = text[tokens[at + 1].start : tokens[last].end]
    yield f"{text[: tokens[first].start]}{right}, {left}{text[tokens[last].end :]}"


def _other_statements(unit: Unit, tokens: list[Token]) -> Iterator[str]:
    words = [token.text for token in tokens]
    if words[0] != "return":
        yield "pass" if unit.language == "cython" else ";"
    elif len(words) == 1 or words[1] == ";":
        return
    elif re.fullmatch(r"(?!NULL)[A-Z_0-9]{3,};?", "".join(words[1:])):
        end = "".join(words[2:])
        others = [f"return {words[1]} + 1{end}", f"return 0{end}"]
        yield from others[:1] if words[1] == "FINE" else others


# --- one source with all mutants ------------------------------------------------------------------


def selected(source: str, mutants: Iterable[tuple[int, NativeMutant]]) -> str:
    """Return a source that has mutants by their numbers, each on a line of its own."""
    by_unit: dict[Unit, list[tuple[int, str]]] = {}
    for number, mutant in mutants:
        by_unit.setdefault(mutant.unit, []).append((number, mutant.after))
    out, at = [], 0
    for unit in sorted(by_unit, key=lambda each: each.start):
        out += [source[at : unit.start], _choice(unit, by_unit[unit], source)]
        at = unit.end
    return "".join([*out, source[at:]])


def _choice(unit: Unit, cases: list[tuple[int, str]], source: str) -> str:
    match unit.language, unit.kind:
        case "cython", "statement":
            column = unit.start - (source.rfind("\n", 0, unit.start) + 1)
            indent = "\n" + " " * column
            lines = [
                f"{'elif' if at else 'if'} ql_is({number}): {after}"
                for at, (number, after) in enumerate(cases)
            ]
            return indent.join([*lines, f"else: {unit.text}"])
        case "cython", kind:
            wrap = "not not ({})" if kind == "condition" else "({})"
            lines = [f"{wrap.format(after)} if ql_is({number}) else" for number, after in cases]
            return "(\n" + "\n".join([*lines, wrap.format(unit.text)]) + "\n)"
        case _, "statement":
            lines = [f"if (ql_is({number})) {{ {after} }} else" for number, after in cases]
            return "{ " + "\n".join([*lines, f"{{ {unit.text} }} }}"])
        case _:
            lines = [f"ql_is({number}) ? ({after}) :" for number, after in cases]
            return "(" + "\n".join([*lines, f"({unit.text}))"])
