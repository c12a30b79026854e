"""Puts logs on a disk: the owner of a data directory and its write lane."""

from .channel import Appended
from .directory import Directory

__all__ = ["Directory", "Appended"]
