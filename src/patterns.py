"""RE2 patterns from configurations and clients, compiled with a bound.

RE2 matches in time linear in the text and in the size of the compiled pattern: at worst about 5 ns
for each character and instruction (`programsize`).
"""

from typing import Any, Final, TypeVar

PATTERN_BYTES_MAX: Final = 64 << 10
"""Memory of a compiled pattern: at most about 2,700 instructions."""

P = TypeVar("P", str, bytes)


def compile_pattern(pattern: P) -> Any:
    """Compile with RE2, which is imported with the first pattern. Raise ValueError with the reason
    if the pattern is malformed or too large."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else ""
        said = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(said) from None
