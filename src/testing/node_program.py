"""The process of a node that a test started: `python -m quorumlog.testing.node_program TASK`.

Its first line on stdout is one JSON object: the ready line, or the error that kept the node from
serving. All else that it says goes to stderr.
"""

import json
import os
import sys

from ..errors import QuorumlogError
from ..runtime import Runtime
from ..server.main import serve
from .routes import routed
from .task import Task

EXIT_ALONE = 3  # the process that started this one has gone


def run(task: Task) -> int:
    """Run the node until SIGTERM; returns the exit code."""
    if os.getppid() != task.parent:
        return EXIT_ALONE  # nobody would ever end this node

    def over(runtime: Runtime) -> Runtime:
        return routed(runtime, task.routes) if task.routes else runtime

    return serve(task.config, as_json=True, tell=_tell, format_new=True, over=over)


def _tell(error: QuorumlogError) -> None:
    print(json.dumps({"error": error.name, "message": str(error)}), flush=True)


if __name__ == "__main__":
    sys.exit(run(Task.decode(sys.argv[1])))
