"""What the process of a node is told on its command line."""

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One life of a node."""

    config: str  # the path of the node's configuration
    parent: int  # the process that starts it, and looks after it
    routes: dict[str, str] = field(default_factory=dict)  # as `routes.routed` takes them

    def encode(self) -> str:
        """Return it as one argument."""
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str) -> "Task":
        """Read what `encode` returned."""
        return Task(**json.loads(text))
