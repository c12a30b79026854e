"""What tests of programs that use quorumlog need, and its own tests too.

```python
from quorumlog.testing import Broker, Cluster

with Broker() as broker:
    print(broker.kafka, broker.grpc)
```
`Broker` is one broker in a process of its own, `Cluster` several, with faults; `ForwardingProxy`
is a bad wire between any two programs. The fixtures of pytest: docs/testing_with_quorumlog.md.

The outermost room beside the command line: nothing of the product imports it. Each name is loaded
at its first use, so that the nodes' own processes load none.
"""

TYPE_CHECKING = False  # as in the package's own __init__

if TYPE_CHECKING:
    from .broker import Broker as Broker
    from .cluster import Cluster as Cluster
    from .cluster import ClusterNode as ClusterNode
    from .proxy import ForwardingProxy as ForwardingProxy
    from .relay import Direction as Direction

_HOMES = {
    "Broker": ".broker",
    "Cluster": ".cluster",
    "ClusterNode": ".cluster",
    "Direction": ".relay",
    "ForwardingProxy": ".proxy",
}

__all__ = [*_HOMES]


if not TYPE_CHECKING:  # a checker must go on refusing names that do not exist

    def __getattr__(name: str) -> object:
        """Load a public name at its first use (PEP 562)."""
        from importlib import import_module

        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(home, __name__), name)
        return value


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted([*globals(), *__all__])
