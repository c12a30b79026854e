"""Puts logs on a disk: the owner of a data directory and its write lane."""

from .directory import Directory
from .writer import Appended

__all__ = ["Directory", "Appended"]
