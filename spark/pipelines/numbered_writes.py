"""The writes of a pipeline's micro-batches to topics, each once under its number."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from quorumlog.errors import InvalidConfig, TransactionalIdNotFound

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_RESERVED: Final = frozenset({"bootstrap", "topic", "commitname", "commitnumber"})


class NumberedWrites:
    """Writes the micro-batches of a query by the sink, under the query's name and their numbers."""

    def __init__(
        self,
        pipeline: str,
        bootstrap: str,
        topic: str | None = None,
        options: Mapping[str, str] | None = None,
        *,
        reserved: Collection[str] = (),
    ) -> None:
        """Raise InvalidConfig for a wrong option. `reserved` are options that the pipeline has no
        use for, in lower case. Calls no broker."""
        from quorumlog.spark.options import Mode
        from quorumlog.spark.write_options import DeliveryGuarantee, parse_write_options

        for name in options or {}:
            if name.lower() in _RESERVED or name.lower() in reserved:
                raise InvalidConfig(
                    f"option {name!r} of the sink is fixed by {pipeline}; remove it"
                )
        self._pipeline = pipeline
        self._given = {"bootstrap": bootstrap, **(options or {})}
        if topic is not None:
            self._given["topic"] = topic
        self._options = parse_write_options(self._given, Mode.BATCH)
        self._is_exactly_once = self._options.delivery is DeliveryGuarantee.EXACTLY_ONCE
        self._is_first = True

    def write(self, records: "DataFrame", number: int, query_id: str) -> int | None:
        """Write a micro-batch. Return 0 if it was written before, else None."""
        writer = records.write.format("quorumlog").options(**self._given)
        was_written = False
        if self._is_exactly_once:
            name = f"{self._pipeline}/{query_id}"
            writer = writer.option("commitName", name).option("commitNumber", str(number))
            # Spark repeats only the first micro-batch of a run. The sink compares its size again.
            was_written = self._is_first and number <= self._last_committed(name)
        self._is_first = False
        writer.mode("append").save()
        return 0 if was_written else None

    def _last_committed(self, commit_name: str) -> int:
        """Return the number of the last committed micro-batch, -1 if there is none."""
        from quorumlog.spark.process_client import client_of

        commits = replace(self._options, commit_name=commit_name).batch_name()
        assert commits is not None, "a commit name gives the commits a name"
        try:
            return client_of(self._options.bootstrap).admin.describe_commits(commits).last_committed
        except TransactionalIdNotFound:
            return -1
