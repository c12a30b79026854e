"""The supported API keys, one module each; a new key gets a row in `table`."""

from .table import APIS

__all__ = ["APIS"]
