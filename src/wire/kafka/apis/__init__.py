"""The API keys that are offered, one module each; a new one gets a row in `table`."""

from .table import APIS

__all__ = ["APIS"]
