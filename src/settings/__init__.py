"""How a setting gets its value, the same way for nodes, topics and the command line.

`rows` says what one setting takes and turns text into a checked value; `sources` orders the places
that values come from (flag, environment, file, default) and remembers the place of each. Pure,
except for `files`: the environment and the text of files are handed in.
"""

from .files import read_settings
from .rows import Setting, check_value, nearest, parse_value, range_text
from .sources import (
    DEFAULT,
    Origin,
    Resolved,
    Source,
    environment_source,
    file_source,
    flag_source,
    resolve,
    split_assignments,
    unknown_name,
    unknown_variables,
    variable_of,
)

__all__ = [
    "DEFAULT",
    "Origin",
    "Resolved",
    "Setting",
    "Source",
    "check_value",
    "environment_source",
    "file_source",
    "flag_source",
    "nearest",
    "parse_value",
    "range_text",
    "read_settings",
    "resolve",
    "split_assignments",
    "unknown_name",
    "unknown_variables",
    "variable_of",
]
