"""Settings of nodes, topics and the command line: declaration, parsing, and sources of values.

`rows` declares a setting and parses its text into a checked value; `sources` orders the sources of
values (flag, environment, file, default) and records the origin of each. Pure, except for `files`:
callers pass the environment and the text of files.
"""

from .files import read_settings
from .rows import Setting, check_value, nearest, parse_value, range_text
from .sources import (
    DEFAULT,
    Resolved,
    SettingSource,
    ValueOrigin,
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
    "ValueOrigin",
    "Resolved",
    "Setting",
    "SettingSource",
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
