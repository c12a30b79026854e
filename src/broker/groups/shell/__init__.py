"""Groups on a node: what this broker coordinates, kept in the log and answered for."""

from .coordinator import GroupCoordinator

__all__ = ["GroupCoordinator"]
