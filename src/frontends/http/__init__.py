"""The HTTP front door: metrics and health for machines that speak neither gRPC nor Kafka.

HTTP/1.1 by h11 over the runtime's byte connections, so that it runs simulated too. Answers GET and
HEAD of a few paths, bounded in connections, time and bytes; knows no room of the node. The parser
and the metrics' text formats are loaded at their first use: a node that starts pays for neither.
"""

from .messages import HttpRequest, HttpResponse, Route
from .server import HttpServer

__all__ = ["HttpServer", "HttpRequest", "HttpResponse", "Route"]
