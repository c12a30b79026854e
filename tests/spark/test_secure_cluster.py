"""Reads and writes through Spark at a broker with TLS, passwords and ACLs."""

import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException

import quorumlog
from quorumlog.spark.pipelines import mirror
from quorumlog.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SECRET = "hunter2-top"  # of etl; dora has the same and no permissions
PATIENCE_S = 300
REFUSED_S = 60  # an error without retries, on a busy machine


class SecureCluster:
    """A secure broker with the user etl, and the source's options for its users."""

    def __init__(self, broker: Broker, admin: quorumlog.Log, secrets: Path) -> None:
        self.admin = admin
        self._broker = broker
        self._secrets = secrets

    def kafkas(self, user: str = "etl", password: str = SECRET) -> dict[str, str]:
        """Return the options in Kafka's names, with the password in an option."""
        return {
            "bootstrap": self._broker.grpc,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule"
            f' required username="{user}" password="{password}";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": self._broker.ca_file,
        }

    def own(self, user: str = "etl", password: str = SECRET) -> dict[str, str]:
        """Return the options in the names of the client settings, with the file of the password."""
        place = self._secrets / f"{user}.password"
        place.touch(mode=0o600)
        place.write_text(f"{password}\n")
        return {
            "bootstrap": self._broker.grpc,
            "securityProtocol": "SASL_SSL",
            "saslUser": user,
            "saslPassword": f"file:{place}",
            "tlsCaFile": self._broker.ca_file,
        }

    def allow(self, user: str, operation: str, resource_type: str, prefix: str) -> None:
        """Create an ACL for the names with a prefix."""
        acl = quorumlog.Acl(
            principal=f"User:{user}",
            operation=operation,
            resource_type=resource_type,
            resource=prefix,
            pattern="Prefixed",
        )
        self.admin.admin.create_acls([acl])

    def topic(self, name: str, partitions: int = 2) -> str:
        """Create a topic."""
        self.admin.admin.create_topic(name, partitions=partitions)
        return name

    def numbers(self, topic: str) -> list[int]:
        """Return the values of a topic, sorted."""
        with self.admin.consumer(topic, until_end=True) as consumer:
            return sorted(int(str(record.text)) for record in consumer)


@pytest.fixture(scope="module")
def secure(
    spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureCluster]:
    """Start one broker for all tests. The session comes first, as in the fixture `broker`."""
    with Broker(secure=True) as broker, broker.connect() as admin:
        cluster = SecureCluster(broker, admin, tmp_path_factory.mktemp("secrets"))
        for user in ("etl", "dora"):
            admin.admin.set_password(user, SECRET)
        for operation, resource_type, prefix in (
            ("Read", "Topic", "etl."),
            ("Write", "Topic", "etl."),
            ("Read", "Group", "etl"),
            ("Write", "TransactionalId", "spark/"),
            ("Write", "TransactionalId", "batch/"),
        ):
            cluster.allow("etl", operation, resource_type, prefix)
        yield cluster


def write(spark: "SparkSession", rows: range, **options: str) -> None:
    frame = spark.range(rows.start, rows.stop, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    frame.write.format("quorumlog").options(**options).mode("append").save()


def read(spark: "SparkSession", **options: str) -> Any:
    return spark.read.format("quorumlog").options(**options).load()


def copy(
    spark: "SparkSession", access: dict[str, str], source: str, to: str, checkpoint: Path
) -> "StreamingQuery":
    reader = spark.readStream.format("quorumlog").options(**access)
    reader = reader.option("subscribe", source).option("groupId", "etl")
    rows = reader.option("startingOffsets", "earliest").load().select("key", "value")
    writer = rows.writeStream.format("quorumlog").options(**access).option("topic", to)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    return writer.start()


@pytest.mark.parametrize("names", ["kafkas", "own"])
def test_batches_and_streams_work_with_the_least_rights(
    spark: "SparkSession", secure: SecureCluster, tmp_path: Path, names: str
) -> None:
    access = secure.kafkas() if names == "kafkas" else secure.own()
    source, to = secure.topic(f"etl.{names}"), secure.topic(f"etl.{names}.copy")
    for _ in range(2):  # exactly once
        write(spark, range(100), topic=source, commitName=names, commitNumber="1", **access)
    rows = read(spark, subscribe=source, **access).selectExpr("CAST(value AS STRING) AS value")
    assert sorted(int(row.value) for row in rows.collect()) == list(range(100))
    assert copy(spark, access, source, to, tmp_path / "checkpoint").awaitTermination(PATIENCE_S)
    write(spark, range(100, 150), topic=source, **access)
    query = copy(spark, access, source, to, tmp_path / "checkpoint")
    assert query.awaitTermination(PATIENCE_S)
    assert secure.numbers(to) == list(range(150))
    groups = [group.name for group in secure.admin.admin.list_groups()]
    assert "etl" in groups


def test_mirror_reads_and_writes_with_the_options_of_each_side(
    spark: "SparkSession", secure: SecureCluster, tmp_path: Path
) -> None:
    source = secure.topic("etl.mirrored")
    secure.topic(f"etl.{source}")
    bootstrap, kafkas = secure.kafkas().pop("bootstrap"), secure.kafkas()
    own = secure.own()
    del kafkas["bootstrap"], own["bootstrap"]
    write(spark, range(100), topic=source, **secure.kafkas())
    report = mirror(
        bootstrap=bootstrap,
        to=bootstrap,
        subscribe=source,
        prefix="etl.",
        create=False,
        checkpoint=str(tmp_path / "checkpoint"),
        options=kafkas,
        to_options=own,
        spark=spark,
    )
    assert report.records == 100
    assert report.details["verified"] == "yes: 100 records are equal"
    assert SECRET not in repr(report)


def test_password_is_in_no_plan_and_no_error(
    spark: "SparkSession", secure: SecureCluster, tmp_path: Path
) -> None:
    access = secure.kafkas()
    source, to = secure.topic("etl.hidden"), secure.topic("etl.hidden.copy")
    write(spark, range(10), topic=source, **access)
    batch = read(spark, subscribe=source, **access).select("value")
    reader = spark.readStream.format("quorumlog").options(**access)
    stream = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
    given = ", ".join(f"`{key}` '{value}'" for key, value in access.items())
    spark.sql(
        f"CREATE TEMPORARY VIEW hidden USING quorumlog OPTIONS ({given}, subscribe '{source}')"
    )
    assert spark.sql("SELECT value FROM hidden").count() == 10
    query = copy(spark, access, source, to, tmp_path / "checkpoint")
    assert query.awaitTermination(PATIENCE_S)
    shown = StringIO()
    with redirect_stdout(shown):
        for frame in (batch, stream, spark.table("hidden")):
            frame.explain(True)
        query.explain(True)
    assert "kafka.sasl.jaas.config=*********(redacted)" in shown.getvalue()
    texts = [shown.getvalue(), repr(batch), repr(stream), repr(query.lastProgress)]
    with pytest.raises(AnalysisException) as caught:
        spark.sql("SELECT absent FROM hidden")
    texts += [str(caught.value), repr(caught.value), *executions(spark)]
    assert [text for text in texts if SECRET in text] == []


def executions(spark: "SparkSession") -> list[str]:
    """Return the texts of each execution in Spark's UI."""
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    assert found.size() > 0
    texts = []
    for number in range(found.size()):
        each = found.apply(number)
        texts += [str(each.description()), str(each.details()), str(each.physicalPlanDescription())]
    return texts


def test_wrong_password_and_missing_rights_are_typed_errors_at_once(
    spark: "SparkSession", secure: SecureCluster, tmp_path: Path
) -> None:
    source, to = secure.topic("etl.refused"), secure.topic("etl.refused.copy")
    write(spark, range(10), topic=source, **secure.kafkas())

    def stream(access: dict[str, str], name: str) -> None:
        copy(spark, access, source, to, tmp_path / name).awaitTermination(PATIENCE_S)

    jobs: tuple[Callable[[dict[str, str]], object], ...] = (
        lambda access: read(spark, subscribe=source, **access).count(),
        lambda access: write(spark, range(10), topic=source, **access),
        lambda access: stream(access, str(time.monotonic_ns())),
    )
    wrong = f"{SECRET}-wrong"
    for access, name in (
        (secure.kafkas(password=wrong), "SaslAuthenticationFailed: SCRAM-SHA-512: the user or"),
        (secure.own(user="nobody"), "SaslAuthenticationFailed: SCRAM-SHA-256: the user or"),
        (secure.own(user="dora"), "TopicAuthorizationFailed: etl.refused: User:dora"),
    ):
        for job in jobs:
            began_s = time.monotonic()
            with pytest.raises((PySparkException, StreamingQueryException)) as caught:
                job(access)
            assert time.monotonic() - began_s < REFUSED_S
            assert name in str(caught.value)
            assert SECRET not in str(caught.value)
    assert secure.numbers(to) == []
