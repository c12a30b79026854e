"""Which systems can be started here, and what is missing for the others."""

from benchmarks.kafka_wire import apache_kafka, generator, ours, peers
from benchmarks.kafka_wire.systems import Kind

EITHER = frozenset({1, 3})
KEPT = {"retention.ms": "-1"}
"""All records have one time, which is long ago: a round of retention would take them."""

GONE_SOON = {"file.delete.delay.ms": "1000"}
"""Files of removed topics go before their bytes are written to the disk, which others use then."""

OURS = Kind(
    name=ours.NAME,
    open=ours.nodes,
    brokers=EITHER,
    configs={"flush.policy": "replicated", **KEPT, **GONE_SOON},
)
FSYNC = Kind(
    name=ours.FSYNC,
    open=ours.nodes,
    brokers=EITHER,
    configs={"flush.policy": "fsync", **KEPT, **GONE_SOON},
)


def kinds() -> tuple[list[Kind], list[str]]:
    """Those that speak the Kafka protocol, ours first, and a line for each that is missing."""
    found, missing = [OURS, FSYNC], []
    if apache_kafka.is_here():
        found.append(
            Kind(
                name=apache_kafka.NAME,
                open=apache_kafka.kafka,
                brokers=EITHER,
                configs=KEPT,
                warms_up=True,
            )
        )
    else:
        missing.append(apache_kafka.MISSING)
    for name, program, open_ in (
        (peers.TANSU, peers.tansu_program(), peers.tansu),
        (peers.NOIDA, peers.noida_program(), peers.noida),
    ):
        if program is None:
            missing.append(peers.MISSING[name])
        else:
            found.append(Kind(name=name, open=open_, holds_bytes=peers.HOLDS_BYTES.get(name)))
    if not generator.is_here():
        missing.append(generator.MISSING)
    return found, missing
