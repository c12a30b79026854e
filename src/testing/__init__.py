"""Brokers and clusters for tests of programs that use quorumlog.

```python
from quorumlog.testing import Broker, Cluster

with Broker() as broker:
    print(broker.kafka, broker.grpc)
```
`Broker` is one broker in a process of its own, `Cluster` several, with faults. `ForwardingProxy` is
a faulty connection between any two programs. `ClientHistory` finds lost, repeated and reordered
records in the history of an application; the checks are those of `quorumlog.testing.checkers`.
pytest fixtures: docs/testing_with_quorumlog.md.

No module of the product imports this package. Each name is loaded at its first use, so that the
processes of nodes load none of them.
"""

TYPE_CHECKING = False  # as in the package's own __init__

if TYPE_CHECKING:
    from .broker import Broker as Broker
    from .client_history import ClientHistory as ClientHistory
    from .cluster import Cluster as Cluster
    from .cluster import ClusterNode as ClusterNode
    from .proxy import ForwardingProxy as ForwardingProxy
    from .relay import Direction as Direction

_HOMES = {
    "Broker": ".broker",
    "ClientHistory": ".client_history",
    "Cluster": ".cluster",
    "ClusterNode": ".cluster",
    "Direction": ".relay",
    "ForwardingProxy": ".proxy",
}

__all__ = [*_HOMES]


if not TYPE_CHECKING:  # type checkers must keep rejecting unknown names

    def __getattr__(name: str) -> object:
        """Load a public name at its first use (PEP 562)."""
        from importlib import import_module

        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(home, __name__), name)
        return value


def __dir__() -> list[str]:
    """Return the public names, loaded or not."""
    return sorted([*globals(), *__all__])
