"""Apache Kafka with one node as the cluster: it verifies the expectations of the suites."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final

from tests.kit.client_security import ClientSecurity

from quorumlog.records import BatchHeader

from ..interop.kafka_process import Kafka
from .clients.kafka_python import KafkaPython
from .cluster import headers_in, until
from .driving import Admin, NewTopic, Refused

BROKER: Final = 1


class RealKafka:
    """A `Cluster`."""

    replication = 1
    security: ClientSecurity | None = None

    def __init__(self, folder: Path) -> None:
        self._kafka = Kafka(folder / "kafka")

    def __enter__(self) -> "RealKafka":
        self._kafka.start()
        with KafkaPython(self.bootstrap).admin() as admin:
            until("the broker is registered", lambda: BROKER in admin.brokers().addresses)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._kafka.kill()

    @property
    def bootstrap(self) -> str:
        return self._kafka.address

    @property
    def addresses(self) -> Mapping[int, str]:
        return {BROKER: self._kafka.address}

    def create(self, topic: NewTopic) -> None:
        with KafkaPython(self.bootstrap).admin() as admin:
            admin.create(topic)
            until("its partitions are led", lambda: _is_led(admin, topic.name))

    def leader(self, topic: str, partition: int) -> int:
        return BROKER

    def batches(self, topic: str, partition: int) -> list[BatchHeader]:
        return headers_in(self._kafka.data / f"{topic}-{partition}")

    def check(self) -> None:
        """Do nothing: Kafka is not under test."""

    def requests(self) -> Counter[tuple[str, str]]:
        return Counter()


def _is_led(admin: Admin, topic: str) -> bool:
    try:
        return all(one.leader == BROKER for one in admin.describe(topic).values())
    except Refused:
        return False
