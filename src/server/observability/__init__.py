"""A node's HTTP endpoints: `/metrics`, `/health` and `/ready`. Collectors read the node's parts at
each request; without a listener nothing runs."""

from .http_endpoints import HttpEndpoints

__all__ = ["HttpEndpoints"]
