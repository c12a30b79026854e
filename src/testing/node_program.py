"""The process of a test's node: `python -m quorumlog.testing.node_program TASK`.

Its first line on stdout is a JSON object: the ready line, or the error that prevented the start.
All other output goes to stderr.
"""

import json
import os
import sys

from ..errors import QuorumlogError
from ..server.main import serve
from .node_arguments import NodeArguments

EXIT_ALONE = 3  # the parent process has ended


def run(task: NodeArguments) -> int:
    """Run the node until SIGTERM; returns the exit code."""
    if os.getppid() != task.parent:
        return EXIT_ALONE  # no process would end this node

    return serve(
        task.config,
        as_json=True,
        tell=_tell,
        format_new=True,
        secure=task.secure,
        password_file=task.password_file,
        routes=task.routes,
    )


def _tell(error: QuorumlogError) -> None:
    print(json.dumps({"error": error.name, "message": str(error)}), flush=True)


if __name__ == "__main__":
    sys.exit(run(NodeArguments.decode(sys.argv[1])))
