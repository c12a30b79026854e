"""What a node tells of itself over HTTP: `/metrics`, `/health` and `/ready`. Collectors look at the
node's parts when somebody asks; nothing is pushed, and without a listener nothing runs."""

from .observing import Observing

__all__ = ["Observing"]
