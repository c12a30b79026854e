"""The faults that the chaos runs preload into a node."""

import time
from pathlib import Path

import pytest
from tests.kit.node_process import NodeProcess

import quorumlog
from quorumlog.errors import InvalidTimestamp

from .fault_library import NodeFaults, NoFaultLibrary, build_fault_library, write_faults

pytestmark = pytest.mark.slow

END_S = 60.0


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    """Build the library and return the file of the faults."""
    try:
        build_fault_library(tmp_path / "faults.so")
    except NoFaultLibrary as why:
        pytest.skip(str(why))
    write_faults(tmp_path / "faults", NodeFaults())
    return tmp_path / "faults"


def node(faults: Path) -> NodeProcess:
    environment = {"LD_PRELOAD": str(faults.with_suffix(".so")), "FAULTS_FILE": str(faults)}
    return NodeProcess(faults.parent / "node", environment=environment)


def test_a_node_whose_wall_clock_jumps_back_rejects_records_of_its_future(faults: Path) -> None:
    with node(faults) as running, quorumlog.connect(running.address) as log:
        log.admin.create_topic("orders", partitions=1)
        with log.producer() as producer:
            producer.send("orders", b"before").result()
            write_faults(faults, NodeFaults(wall_clock_s=-2 * 3_600))
            with pytest.raises(InvalidTimestamp):
                producer.send("orders", b"during").result()
            write_faults(faults, NodeFaults())
            producer.send("orders", b"after").result()


@pytest.mark.long
def test_a_failed_write_ends_a_node_and_short_writes_do_not(faults: Path) -> None:
    with node(faults) as running, quorumlog.connect(running.address, call_timeout_ms=5_000) as log:
        log.admin.create_topic("orders", partitions=1)
        write_faults(faults, NodeFaults(short_writes=50))
        values = [b"%d" % number for number in range(200)]
        with log.producer(linger_ms=0) as producer:
            for value in values:
                producer.send("orders", value).result()
        with log.consumer("orders", until_end=True) as consumer:
            assert [record.value for record in consumer] == values
        write_faults(faults, NodeFaults(write_errors=100))
        with pytest.raises(quorumlog.QuorumlogError):
            log.admin.create_topic("payments", partitions=1)
        deadline_s = time.monotonic() + END_S
        while running.ended() is None:
            assert time.monotonic() < deadline_s, running.complaints()
            time.sleep(0.1)
        assert "Traceback" not in running.complaints()
