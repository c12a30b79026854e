"""The transaction coordinator of a broker: stores decisions, and has their markers written."""

from .coordinator import TransactionCoordinator

__all__ = ["TransactionCoordinator"]
