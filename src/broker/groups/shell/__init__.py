"""The group coordinator of a broker: stores the decisions of the groups and answers requests."""

from .coordinator import GroupCoordinator

__all__ = ["GroupCoordinator"]
