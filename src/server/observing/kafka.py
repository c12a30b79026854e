"""The collector of the Kafka listeners."""

from ...frontends.kafka import KafkaServer
from ...metrics import Scrape
from ...metrics import table as rows


def collect_kafka(scrape: Scrape, server: KafkaServer) -> None:
    """Write the metrics of Kafka clients' requests; visits every key that was requested."""
    figures = server.figures
    for name, listener in figures.listeners.items():
        scrape.put(rows.KAFKA_CONNECTIONS, listener.open, name)
        scrape.put(rows.KAFKA_ACCEPTED, listener.accepted, name)
        scrape.put(rows.KAFKA_REFUSED, listener.refused, name)
        for reason, count in listener.ended.items():
            scrape.put(rows.KAFKA_ENDED, count, name, reason)
    for name, api in figures.apis.items():
        scrape.put(rows.KAFKA_REQUESTS, api.answered, name, "answered")
        scrape.put(rows.KAFKA_REQUESTS, api.unanswered, name, "unanswered")
        if api.took_ms.count:
            scrape.put_histogram(rows.KAFKA_REQUEST_SECONDS, api.took_ms, name)
        for code, count in api.errors.items():
            scrape.put(rows.KAFKA_ERRORS, count, name, code)
    scrape.put(rows.KAFKA_OPEN, figures.open)
    scrape.put(rows.KAFKA_HELD, server.memory.taken)
    scrape.put(rows.KAFKA_RECEIVED, figures.received_bytes)
    scrape.put(rows.KAFKA_SENT, figures.sent_bytes)
