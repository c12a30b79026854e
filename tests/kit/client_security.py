"""Security settings of Kafka clients, in the names of each client library."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PASSWORD_LOGIN = "org.apache.kafka.common.security.{}LoginModule required username={} password={};"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """SASL_SSL: the authority of the brokers' certificates, and a user with a password."""

    ca: str
    user: str
    password: str
    mechanism: str = "SCRAM-SHA-256"

    def librdkafka(self) -> dict[str, str]:
        """Return the settings of librdkafka, its Python package, and kcat."""
        return {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.ca,
            "sasl.mechanism": self.mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password,
        }

    def java(self) -> dict[str, str]:
        """Return the settings of Kafka's own client and tools."""
        module = "plain.Plain" if self.mechanism == "PLAIN" else "scram.Scram"
        return {
            "security.protocol": "SASL_SSL",
            **java_truststore(self.ca),
            "sasl.mechanism": self.mechanism,
            "sasl.jaas.config": PASSWORD_LOGIN.format(
                module, json.dumps(self.user), json.dumps(self.password)
            ),
        }

    def python(self) -> dict[str, Any]:
        """Return the settings that kafka-python and aiokafka share: all but the authority."""
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
        }

    def kafkajs(self) -> dict[str, Any]:
        """Return the settings of KafkaJS, as JSON."""
        return {
            "ssl": {"ca": [Path(self.ca).read_text()]},
            "sasl": {
                "mechanism": self.mechanism.lower(),
                "username": self.user,
                "password": self.password,
            },
        }


def java_truststore(ca: str) -> dict[str, str]:
    """Return the settings with which a Java client trusts an authority."""
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca}


def write_properties(path: Path, settings: Mapping[str, str]) -> Path:
    """Write the settings of a Java program to a file; return its path."""
    escaped = {name: value.replace("\\", "\\\\") for name, value in settings.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in escaped.items()))
    return path
