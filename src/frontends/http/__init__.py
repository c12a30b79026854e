"""The HTTP front end: metrics and health checks.

HTTP/1.1 by h11 over the runtime's byte connections, so that the simulation runs it too. It answers
GET and HEAD of a few paths, bounded in connections, time and bytes. It imports nothing of the node.
The parser and the metrics formats are imported at their first use, so that they do not slow a
node's start.
"""

from .messages import HttpRequest, HttpResponse, Route
from .server import HttpServer, local_access

__all__ = [
    "HttpRequest",
    "HttpResponse",
    "HttpServer",
    "Route",
    "local_access",
]
