"""Logs on a disk: data directories with their lanes and tasks."""

from .channel import Appended
from .directory import Directory

__all__ = ["Directory", "Appended"]
