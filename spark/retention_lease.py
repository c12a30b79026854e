"""The retention lease of a query, which exempts unread records from retention until it expires.

It is an entry of the topic config `retention.holds`, renewed twice a day. Brokers use the committed
offsets of the query's group. After the query ends its lease expires.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from quorumlog.errors import QuorumlogError
from quorumlog.proto import admin_pb2
from quorumlog.services import ADMIN_ALTER_CONFIGS
from quorumlog.settings.query_groups import (
    HOLD_MS_MAX,
    RETENTION_HOLDS,
    Hold,
    holds_text,
    outdated,
    parse_holds,
)
from quorumlog.spark.broker_calls import Cluster

RENEW_MS: Final = 12 * 3600 * 1000
"""Age at which a lease is renewed; after a failure it is retried every minute."""
AGAIN_MS: Final = 60 * 1000

logger = logging.getLogger(__name__)


def _wall_ms() -> int:
    return round(time.time() * 1000)


class RetentionLease:
    """The lease of one run of a query. Not thread-safe."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        bytes_max: int,
        wall_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        """`wall_ms` returns milliseconds since 1970 (UTC), by which a lease expires even while the
        machine sleeps."""
        self._cluster = cluster
        self._group = group
        self._bytes_max = bytes_max
        self._wall_ms = wall_ms
        self._due_ms: dict[str, int] = {}  # by topic
        self._ids: dict[str, bytes] = {}  # by topic

    def take(self, topics: Mapping[str, bytes]) -> None:
        """Take the lease on new topics, given with their ids; raise the error of a rejection."""
        self._forget_others(topics)
        for topic, text in self._lists(topics.keys() - self._due_ms.keys()).items():
            self._set(topic, text)

    def renew(self, topics: Mapping[str, bytes]) -> None:
        """Renew due leases, and take those of new and recreated topics. Raises no error."""
        self._forget_others(topics)
        now_ms = self._wall_ms()
        due = {topic for topic in topics if self._is_due(topic, now_ms)}
        self._due_ms |= dict.fromkeys(due, now_ms + AGAIN_MS)
        try:
            lists = self._lists(due)
        except QuorumlogError as error:
            logger.warning("spark.lease group=%s topics=%s: %s", self._group, sorted(due), error)
            return
        for topic, text in lists.items():
            try:
                self._set(topic, text)
            except QuorumlogError as error:
                logger.warning("spark.lease group=%s topic=%s: %s", self._group, topic, error)
                if error.retriable:  # retried for long already, and the query waits
                    return

    def _forget_others(self, topics: Mapping[str, bytes]) -> None:
        for topic, topic_id in topics.items():
            if self._ids.setdefault(topic, topic_id) != topic_id:
                self._ids[topic] = topic_id
                self._due_ms.pop(topic, None)

    def _is_due(self, topic: str, now_ms: int) -> bool:
        due_ms = self._due_ms.get(topic, now_ms)
        return not now_ms < due_ms <= now_ms + RENEW_MS  # later: the clock was set back

    def _lists(self, topics: Collection[str]) -> dict[str, str]:
        """Return retention.holds of each of these topics that exists, by name."""
        configs = self._cluster.configs(sorted(topics)) if topics else {}
        return {topic: configs[topic].get(RETENTION_HOLDS, "") for topic in sorted(configs)}

    def _set(self, topic: str, text: str) -> None:
        """Take the lease on a topic with these holds, unless an earlier run took it recently."""
        now_ms = self._wall_ms()
        hold = Hold(self._group, now_ms + HOLD_MS_MAX, self._bytes_max)
        try:
            present = parse_holds(text)
        except ValueError:  # written by a newer release
            present = ()
        for each in present:
            old_ms = hold.end_ms - each.end_ms
            is_same = (each.group, each.bytes_max) == (hold.group, hold.bytes_max)
            if is_same and 0 <= old_ms < RENEW_MS:
                self._due_ms[topic] = now_ms + RENEW_MS - old_ms
                return
        gone = outdated(present, hold, now_ms)
        others = [each for each in gone if each.group != self._group]
        own = [each for each in gone if each.group == self._group]
        # Other queries change the list concurrently, so each change is incremental. Expired leases
        # are removed first, to make space; the old lease is removed after the new one is set.
        self._change(topic, admin_pb2.CONFIG_OPERATION_SUBTRACT, others)
        self._change(topic, admin_pb2.CONFIG_OPERATION_APPEND, [hold])
        self._change(topic, admin_pb2.CONFIG_OPERATION_SUBTRACT, own)
        self._due_ms[topic] = now_ms + RENEW_MS

    def _change(
        self, topic: str, operation: admin_pb2.ConfigOperation, holds: Sequence[Hold]
    ) -> None:
        if not holds:
            return
        change = admin_pb2.ConfigChange(
            name=RETENTION_HOLDS, value=holds_text(holds), operation=operation
        )
        request = admin_pb2.AlterConfigsRequest(topic=topic, changes=[change])
        self._cluster.call("alter_configs", ADMIN_ALTER_CONFIGS, request)
