"""The security options of reads and writes: both naming schemes, and their errors."""

import pickle

import pytest

from quorumlog import SCRAM, TLS, Token
from quorumlog.errors import InvalidConfig
from quorumlog.spark.cluster_access import ClusterAccess
from quorumlog.spark.options import Mode, parse_options
from quorumlog.spark.source import QuorumlogSource
from quorumlog.spark.write_options import parse_write_options

SECRET = "hunter2-top"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{SCRAM_MODULE} required username="alice" password="{SECRET}";'
LEAST = {"bootstrap": "b1:9094,b2:9094", "subscribe": "t"}
KAFKAS = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "SCRAM-SHA-512",
    "kafka.sasl.jaas.config": JAAS,
    "kafka.ssl.truststore.type": "PEM",
    "kafka.ssl.truststore.location": "/ca.pem",
    "kafka.ssl.endpoint.identification.algorithm": "https",
}
OWN = {"securityProtocol": "SASL_SSL", "saslUser": "alice", "saslPassword": "env:PASSWORD"}


def access(options: dict[str, str]) -> ClusterAccess:
    """Return the access of a read, which equals that of a write."""
    read = parse_options(LEAST | options, Mode.BATCH).access
    written = {"bootstrap": LEAST["bootstrap"], **options}
    assert parse_write_options(written, Mode.STREAM).access == read
    assert pickle.loads(pickle.dumps(read)) == read
    return read


def jaas(text: str, mechanism: str = "") -> SCRAM | Token | None:
    options = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": text}
    if mechanism:
        options["kafka.sasl.mechanism"] = mechanism
    return access(options).credentials


def test_connections_are_plain_without_security_options() -> None:
    assert access({}) == ClusterAccess(bootstrap=("b1:9094", "b2:9094"))
    assert access({"securityProtocol": "plaintext"}).tls is None


def test_options_of_kafka_are_taken_as_they_are() -> None:
    assert access(KAFKAS) == ClusterAccess(
        bootstrap=("b1:9094", "b2:9094"),
        tls=TLS(ca="/ca.pem"),
        credentials=SCRAM(user="alice", password=SECRET, mechanism="SCRAM-SHA-512"),
    )
    keystore = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": "/own.pem",
        "kafka.ssl.key.password": "file:/own.password",
    }
    assert access(keystore).tls == TLS(
        certificate="/own.pem", key="/own.pem", key_password="file:/own.password"
    )


def test_options_have_the_names_of_client_settings_too() -> None:
    files = {
        "TLScafile": "/ca.pem",
        "tlsCertificateFile": "/own.pem",
        "tlsKeyFile": "/own.key",
        "tlsKeyPassword": "env:KEY",
    }
    found = access(OWN | files)
    assert found.credentials == SCRAM(user="alice", password="env:PASSWORD")
    assert found.tls == TLS(
        ca="/ca.pem", certificate="/own.pem", key="/own.key", key_password="env:KEY"
    )
    token = {"securityProtocol": "SASL_SSL", "saslMechanism": "OAUTHBEARER"}
    assert access(token | {"saslPassword": "file:/token"}).credentials == Token("file:/token")


@pytest.mark.parametrize(
    ("text", "password"),
    [
        (JAAS, SECRET),
        (f"  {SCRAM_MODULE}\n required\n username=alice\n password = '{SECRET}' ;\n", SECRET),
        (f'kafkashaded.{SCRAM_MODULE} required password="a\\"b=\\\\ \\101;" username=alice;',
         'a"b=\\ A;'),
        (f'{SCRAM_MODULE} REQUIRED username="alice" password="file:/alice.password";',
         "file:/alice.password"),
    ],
)  # fmt: skip
def test_login_module_has_the_user_and_the_password(text: str, password: str) -> None:
    assert jaas(text) == SCRAM(user="alice", password=password)


def test_plain_password_is_proved_by_scram() -> None:
    text = JAAS.replace(SCRAM_MODULE, PLAIN_MODULE)
    for mechanism in ("", "PLAIN"):
        assert jaas(text, mechanism) == SCRAM(user="alice", password=SECRET)


@pytest.mark.parametrize(
    ("options", "naming"),
    [
        ({"kafka.sasl.mechanism": "GSSAPI"}, "'kafka.sasl.mechanism' is 'GSSAPI'; it must be one"),
        ({"kafka.sasl.jaas.config": SECRET}, "'kafka.sasl.jaas.config' is not a JAAS config.*give"),
        ({"kafka.sasl.jaas.config": JAAS[:-3]}, "'kafka.sasl.jaas.config' is not a JAAS config"),
        (
            {"kafka.sasl.jaas.config": JAAS.replace("Scram", "Krb5")},
            "'kafka.sasl.jaas.config' has another login module; give one of ScramLoginModule",
        ),
        (
            {"kafka.sasl.jaas.config": JAAS.replace(";", f' {SECRET}="true";')},
            "'kafka.sasl.jaas.config' must have username and password, and no other option",
        ),
        ({"kafka.sasl.jaas.config": JAAS.replace("alice", "")}, "has an empty username"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "has ScramLoginModule, which is not for PLAIN"),
        ({"kafka.sasl.mechanism": "OAUTHBEARER"}, "has no token; give its place by 'saslPassword'"),
        ({"saslUser": "alice"}, "'saslUser' is given by 'kafka.sasl.jaas.config' too; remove one"),
        ({"kafka.ssl.truststore.type": "JKS"}, "'kafka.ssl.truststore.type' is 'JKS'; convert"),
        ({"tlsCaFile": "/ca"}, "'kafka.ssl.truststore.location' is the same setting as 'tlsCaFile"),
        ({"securityProtocol": "SSL"}, "'kafka.security.protocol' is the same setting as 'security"),
        ({"kafka.ssl.endpoint.identification.algorithm": "none"}, "must be https"),
        ({"kafka.ssl.keystore.location": "/k"}, "must be a PEM file; set 'kafka.ssl.keystore.type"),
        ({"kafka.ssl.keystore.key": SECRET}, "'kafka.ssl.keystore.key' is not offered; give a PEM"),
        ({"kafka.ssl.keystore.password": SECRET}, "is for stores of Java; give the password of a"),
        ({"kafka.ssl.key.password": SECRET}, "'kafka.ssl.key.password' must be the place of the"),
        ({"kafka.ssl.key.password": "env:A"}, "is of a key; give 'tlsKeyFile' or 'kafka.ssl"),
        ({"kafka.ssl.cipher.suites": "A"}, "'kafka.ssl.cipher.suites' is not offered; remove it"),
        ({"kafka.sasl.kerberos.service.name": "k"}, "is not offered; remove it, or use one of"),
        ({"tlsKeyFile": "/own.key"}, "'tlsKeyFile' needs 'tlsCertificateFile'; give both"),
        ({"saslPasword": "env:A"}, "'saslPasword' is unknown; did you mean 'saslPassword'"),
    ],
)
def test_wrong_security_options_are_refused_by_name(options: dict[str, str], naming: str) -> None:
    for parse in (
        lambda: parse_options(LEAST | KAFKAS | options, Mode.BATCH),
        lambda: parse_write_options({"bootstrap": "b:1", **KAFKAS, **options}, Mode.BATCH),
    ):
        with pytest.raises(InvalidConfig, match=naming) as caught:
            parse()
        assert SECRET not in f"{caught.value}{caught.value!r}"


@pytest.mark.parametrize(
    ("options", "naming"),
    [
        ({"tlsCaFile": "/ca"}, "'tlsCaFile' needs 'securityProtocol' SSL or SASL_SSL, not PLAINTE"),
        ({"securityProtocol": "SSL", "saslUser": "a"}, "'saslUser' needs .* SASL_SSL or SASL_PLAI"),
        ({"securityProtocol": "TLS"}, "'securityProtocol' is 'TLS'; it must be one of PLAINTEXT"),
        ({"securityProtocol": "SASL_SSL"}, "'saslUser' is missing"),
        (OWN | {"saslPassword": SECRET}, "'saslPassword' must be the place of the secret"),
        (
            OWN | {"securityProtocol": "SASL_PLAINTEXT", "saslMechanism": "OAUTHBEARER"},
            "'saslMechanism' is OAUTHBEARER, and a token is sent over TLS only",
        ),
    ],
)
def test_contradictory_security_options_are_refused(options: dict[str, str], naming: str) -> None:
    with pytest.raises(InvalidConfig, match=naming) as caught:
        parse_options(LEAST | options, Mode.BATCH)
    assert SECRET not in str(caught.value)


def test_no_representation_has_the_password() -> None:
    read, written = parse_options(LEAST | KAFKAS, Mode.BATCH), {"bootstrap": "b:1", **KAFKAS}
    source = QuorumlogSource(LEAST | KAFKAS)
    shown = (read, parse_write_options(written, Mode.BATCH), source, source.reader(source.schema()))
    for each in shown:
        assert SECRET not in f"{each}{each!r}"
