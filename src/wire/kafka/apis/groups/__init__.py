"""The API keys of consumer groups: a row each, and a module for what it does.

A module is imported when its key is first asked for: a broker without groups starts without them.
"""

from .rows import GROUP_APIS

__all__ = ["GROUP_APIS"]
