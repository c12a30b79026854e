"""Settings of nodes, topics and the command line: declaration, parsing, and sources of values.

`declaration` declares settings as dataclass fields and checks their values. `sources` orders the
sources of values (flag, environment, file, default) and records the origin of each. Pure, except
for `files`: callers pass the environment and the text of files.
"""

from .declaration import (
    Setting,
    check_value,
    check_values,
    declared,
    from_values,
    nearest,
    parse_value,
    range_text,
    setting,
    value_of,
    value_text,
)
from .files import read_settings
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
    toml_tree,
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
    "check_values",
    "declared",
    "environment_source",
    "file_source",
    "flag_source",
    "from_values",
    "nearest",
    "parse_value",
    "range_text",
    "read_settings",
    "resolve",
    "setting",
    "split_assignments",
    "toml_tree",
    "unknown_name",
    "unknown_variables",
    "value_of",
    "value_text",
    "variable_of",
]
