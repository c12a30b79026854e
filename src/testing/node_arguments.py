"""The command-line argument of a node's process."""

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeArguments:
    """The parameters of one process of a node."""

    config: str  # the path of the node's configuration
    parent: int  # the process that starts and supervises it
    routes: dict[str, str] = field(default_factory=dict)  # see `routed`
    secure: bool = False  # as `quorumlog dev --secure`
    password_file: str = ""  # of the administrator of a new cluster; "": none

    def encode(self) -> str:
        """Return the parameters as one argument."""
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: str) -> "NodeArguments":
        """Parse the result of `encode`."""
        return NodeArguments(**json.loads(text))
