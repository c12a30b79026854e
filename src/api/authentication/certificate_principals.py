"""The user that a certificate's distinguished name stands for (KIP-371)."""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from ...errors import InvalidConfig
from ...patterns import compile_pattern

_SETTING: Final = "ssl.principal.mapping.rules"
_RULE: Final = re.compile(
    r"RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?)"
)
_GROUP: Final = re.compile(r"\$(\d)")


class PrincipalRule(NamedTuple):
    """One rule; `pattern` None: the name itself."""

    pattern: Any = None  # a compiled pattern of RE2, which takes linear time
    replacement: str = ""  # with $1 for the first group
    case: str = ""  # "L": lower, "U": upper


def parse_rules(text: str) -> tuple[PrincipalRule, ...]:
    """Return the rules of a setting; raise InvalidConfig for a malformed one."""
    rules: list[PrincipalRule] = []
    at, text = 0, text.strip()
    while at < len(text):
        if text.startswith("DEFAULT", at):
            rules.append(PrincipalRule())
            at += len("DEFAULT")
        elif (found := _RULE.match(text, at)) is not None:
            pattern = found["pattern"].replace("\\/", "/")
            rules.append(PrincipalRule(_compile(pattern), found["replacement"], found["case"]))
            at = found.end()
        else:
            raise InvalidConfig(
                f"{_SETTING}: {text[at:]!r} is no rule; give DEFAULT or"
                " RULE:pattern/replacement/[LU]"
            )
        rest = text[at:].lstrip()
        if rest and rest[0] != ",":
            raise InvalidConfig(f"{_SETTING}: {rest!r} follows a rule; separate rules by commas")
        text, at = rest[1:].lstrip(), 0
    if not rules:
        raise InvalidConfig(f"{_SETTING}: empty; give DEFAULT")
    return tuple(rules)


def user_of(subject: str, rules: tuple[PrincipalRule, ...]) -> str | None:
    """Return the user's name of a distinguished name, or None if no rule matches the whole of
    it."""
    for rule in rules:
        if rule.pattern is None:
            return subject
        found = rule.pattern.fullmatch(subject)
        if found is None:
            continue
        name = _fill(rule.replacement, (found.group(0), *found.groups()))
        if rule.case:
            name = name.lower() if rule.case == "L" else name.upper()
        return name or None
    return None


def _fill(replacement: str, groups: Sequence[str | None]) -> str:
    """Put groups in the place of $0, $1, and so on."""

    def group_of(reference: re.Match[str]) -> str:
        number = int(reference[1])
        return (groups[number] or "") if number < len(groups) else ""

    return _GROUP.sub(group_of, replacement)


def _compile(pattern: str) -> Any:
    try:
        return compile_pattern(pattern)
    except ValueError as error:
        raise InvalidConfig(f"{_SETTING}: the pattern {pattern!r} is not valid; {error}") from error
