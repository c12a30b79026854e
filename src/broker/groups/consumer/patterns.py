"""Subscriptions by pattern: RE2's syntax, which no pattern can make slow.

A pattern has to match the whole name of a topic. The cluster's own topics are matched by none:
whoever reads the topic that its own commits go to would never come to an end.
"""

from typing import Any, Final

from ....errors import InvalidPattern
from ..config import OFFSETS_TOPIC

INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, "__transaction_state"})
PATTERN_LENGTH_MAX: Final = 10_000  # characters; RE2 bounds its memory by itself


def check_pattern(pattern: str) -> None:
    """Raises InvalidPattern where it is none."""
    _compiled(pattern)


def matching(pattern: str, names: list[str]) -> frozenset[str]:
    """The names that a pattern matches. About 2 microseconds a name."""
    matches = _compiled(pattern).fullmatch
    return frozenset(
        name for name in names if matches(name) is not None and name not in INTERNAL_TOPICS
    )


def _compiled(pattern: str) -> Any:
    """RE2's object; the library is loaded when the first pattern comes."""
    import re2

    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidPattern(
            f"the pattern has {len(pattern)} characters, more than {PATTERN_LENGTH_MAX}: name the "
            "topics instead"
        )
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else ""
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise InvalidPattern(f"{pattern!r} is no regular expression of RE2: {said}") from None
