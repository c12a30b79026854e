"""The systems that can run on this machine, and the reasons for missing ones."""

from benchmarks.kafka_wire import apache_kafka, ceiling, generator, ours, peers
from benchmarks.kafka_wire.systems import Kind

EITHER = frozenset({1, 3})
KEPT = {"retention.ms": "-1"}
"""Without it, retention would delete the records: all have one old timestamp."""

GONE_SOON = {"file.delete.delay.ms": "1000"}
"""Deletes the files of deleted topics before the kernel writes their pages back."""

OURS = Kind(
    name=ours.NAME,
    open=ours.nodes,
    brokers=EITHER,
    configs={"flush.policy": "replicated", **KEPT, **GONE_SOON},
    ends_by_bytes=True,
    syncs=True,  # the recovery points of its checkpoints, every second
)
FSYNC = Kind(
    name=ours.FSYNC,
    open=ours.nodes,
    brokers=EITHER,
    configs={"flush.policy": "fsync", **KEPT, **GONE_SOON},
)
KAFKA = Kind(
    name=apache_kafka.NAME,
    open=apache_kafka.kafka,
    brokers=EITHER,
    configs=KEPT,
    warms_up=True,
    ends_by_bytes=True,
)
CEILING = Kind(name=ceiling.NAME, open=ceiling.opened, ends_by_bytes=True, has_topics=False)


def kinds() -> tuple[list[Kind], list[str]]:
    """Return the systems of the protocol, quorumlog and Kafka first, and a line for each missing
    one."""
    found, missing = [OURS], []
    if apache_kafka.is_here():
        found.append(KAFKA)
    else:
        missing.append(apache_kafka.MISSING)
    found.append(FSYNC)
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
