"""The guarantees of `session` and `configure`, and the demo that users run first."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

import quorumlog
from quorumlog.spark import configure
from quorumlog.spark.sessions import MAX_BYTES_PER_BATCH, UNIX_SOCKETS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEMO = Path(__file__).parents[2] / "examples" / "flights.py"


@pytest.mark.oldest
def test_a_session_runs_this_python_on_this_machine_only(spark: "SparkSession") -> None:
    assert spark.sparkContext.pythonExec == sys.executable
    settings = dict(spark.sparkContext.getConf().getAll())
    assert settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert settings[UNIX_SOCKETS] == "true"
    assert spark.conf.get(MAX_BYTES_PER_BATCH[0]) == MAX_BYTES_PER_BATCH[1]


@pytest.mark.oldest
def test_configuring_again_changes_and_prints_nothing(spark: "SparkSession") -> None:
    configure(spark)
    assert spark.conf.get(MAX_BYTES_PER_BATCH[0]) == MAX_BYTES_PER_BATCH[1]


def test_a_filter_gives_the_same_rows_where_spark_offers_filters_to_sources(
    log: quorumlog.Log, topic: Any, spark: "SparkSession", broker: Any
) -> None:
    name = topic()
    with log.producer() as producer:
        for row in range(20):
            producer.send(name, value=str(row).encode())
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        reader = spark.read.format("quorumlog").option("bootstrap", broker.address)
        frame = reader.option("subscribe", name).load().where(f.col("offset") >= 15)
        assert [row.offset for row in frame.orderBy("offset").collect()] == [15, 16, 17, 18, 19]
    finally:
        spark.conf.unset(setting)


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the demo as a module."""
    monkeypatch.syspath_prepend(DEMO.parent)
    spec = importlib.util.spec_from_file_location("flights_demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["flights_demo"] = module
    spec.loader.exec_module(module)
    return module


def test_the_demo_gives_up_a_broker_that_does_not_get_ready(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    silent = (sys.executable, "-c", "import time; time.sleep(3600)")
    monkeypatch.setattr("flights_nodes.QUORUMLOG", silent)
    monkeypatch.setattr("flights_nodes.START_SECONDS_MAX", 0.2)
    broker = demo.Broker(str(tmp_path))
    with pytest.raises(SystemExit, match="the broker did not start"):
        broker.start()
    broker.stop()


def test_the_demo_fails_unless_every_check_holds(demo: ModuleType) -> None:
    nothing, good, bad = demo.Report(), demo.Report(), demo.Report()
    good.check("one", True)
    bad.check("one", True)
    bad.check("two", False)
    assert (nothing.verdict(1), good.verdict(1), bad.verdict(1)) == (1, 0, 1)


@pytest.mark.long
@pytest.mark.timeout(1_000)
def test_the_demo_runs_and_every_check_holds() -> None:
    run = subprocess.run([sys.executable, str(DEMO)], capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "All 14 checks hold" in run.stdout
