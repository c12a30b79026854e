"""Logs on a disk: data directories with their lanes and tasks."""

from .append_queue import Appended
from .data_directory import DataDirectory

__all__ = ["DataDirectory", "Appended"]
