"""The API keys of consumer groups: a row each, and a module for each handler.

A module is imported at the first request of its key: a broker without groups starts without them.
"""

from .rows import GROUP_APIS

__all__ = ["GROUP_APIS"]
