"""The access to a cluster: bootstrap addresses, encryption and credentials, and their options.

Security options have the names of Kafka's clients, with the prefix `kafka.`, or those of this
project's client settings. An access is pickled for executors. It has the places of files and of
secrets, which each process reads itself; a password in `kafka.sasl.jaas.config` is the exception.
No error has the text of that option. Pure; uses no Spark type.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn, Protocol

from quorumlog.errors import InvalidConfig

if TYPE_CHECKING:
    from quorumlog.clients.credentials import SCRAM, TLS, Token


class OptionTexts(Protocol):
    """The given options."""

    def text(self, name: str) -> str | None:
        """Return the option's text, None if it is not given; raise InvalidConfig if empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """The access of the clients of one process or of many. Hashable and picklable."""

    bootstrap: tuple[str, ...]  # "host:port", at least one; tried in this order
    tls: "TLS | None" = None  # None: no encryption
    credentials: "SCRAM | Token | None" = None  # None: no authentication


PROTOCOL: Final = "securityProtocol"
CA_FILE: Final = "tlsCaFile"
CERTIFICATE_FILE: Final = "tlsCertificateFile"
KEY_FILE: Final = "tlsKeyFile"
KEY_PASSWORD: Final = "tlsKeyPassword"
MECHANISM: Final = "saslMechanism"
USER: Final = "saslUser"
PASSWORD: Final = "saslPassword"

KAFKA_PROTOCOL: Final = "kafka.security.protocol"
KAFKA_TRUSTSTORE: Final = "kafka.ssl.truststore.location"
KAFKA_KEYSTORE: Final = "kafka.ssl.keystore.location"
KAFKA_KEY_PASSWORD: Final = "kafka.ssl.key.password"
KAFKA_MECHANISM: Final = "kafka.sasl.mechanism"
KAFKA_JAAS: Final = "kafka.sasl.jaas.config"
_KAFKA_TYPES: Final = {
    KAFKA_TRUSTSTORE: "kafka.ssl.truststore.type",
    KAFKA_KEYSTORE: "kafka.ssl.keystore.type",
}
_KAFKA_HOST_CHECK: Final = "kafka.ssl.endpoint.identification.algorithm"

_TLS_OPTIONS: Final = (
    *(CA_FILE, CERTIFICATE_FILE, KEY_FILE, KEY_PASSWORD),
    *(KAFKA_TRUSTSTORE, KAFKA_KEYSTORE, KAFKA_KEY_PASSWORD),
    *_KAFKA_TYPES.values(),
    _KAFKA_HOST_CHECK,
)
_SASL_OPTIONS: Final = (MECHANISM, USER, PASSWORD, KAFKA_MECHANISM, KAFKA_JAAS)

ACCESS_OPTIONS: Final = ("bootstrap", PROTOCOL, KAFKA_PROTOCOL, *_TLS_OPTIONS, *_SASL_OPTIONS)
"""The options of every read and write that choose the cluster and secure the connection."""

SECURITY_NAMES: Final = frozenset(name.lower() for name in ACCESS_OPTIONS if name != "bootstrap")
"""The names of the security options in lower case."""

_PEM_FILES: Final = "is not offered; give a PEM file"
ACCESS_REFUSED: Final[tuple[tuple[str, str], ...]] = (
    ("kafka.bootstrap.servers", "is the Kafka connector's; use 'bootstrap', host:port"),
    ("kafka.ssl.truststore.certificates", f"{_PEM_FILES} by {KAFKA_TRUSTSTORE!r}"),
    ("kafka.ssl.keystore.certificate.chain", f"{_PEM_FILES} by {KAFKA_KEYSTORE!r}"),
    ("kafka.ssl.keystore.key", f"{_PEM_FILES} by {KAFKA_KEYSTORE!r}"),
    ("kafka.ssl.truststore.password", "is for stores of Java, and a PEM file has none; remove it"),
    (
        "kafka.ssl.keystore.password",
        f"is for stores of Java; give the password of a key in a PEM file by {KAFKA_KEY_PASSWORD!r}"
        ", or remove it",
    ),
)
"""Options of other clients, each with its remedy."""

_UNSUPPORTED: Final = ("kafka.ssl.", "kafka.sasl.", "kafka.security.")


def unsupported_access(name: str) -> str | None:
    """Return the remedy for an option of Kafka's security that is not offered here, None for any
    other option."""
    if not name.lower().startswith(_UNSUPPORTED):
        return None
    offered = ", ".join(each for each in ACCESS_OPTIONS if each.startswith("kafka."))
    return f"is not offered; remove it, or use one of {offered}"


# --- options -> access ---------------------------------------------------------------------------


def parse_access(given: OptionTexts) -> ClusterAccess:
    """Return the access that the options give; raise InvalidConfig. Reads no file and no secret."""
    bootstrap = _bootstrap(given)
    protocol = _choice(
        given,
        (PROTOCOL, KAFKA_PROTOCOL),
        ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    has_tls, has_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    for options, is_used, needed in (
        (_TLS_OPTIONS, has_tls, "SSL or SASL_SSL"),
        (_SASL_OPTIONS, has_sasl, "SASL_SSL or SASL_PLAINTEXT"),
    ):
        for name in options:
            if given.text(name) is not None and not is_used:
                _refuse(name, f"needs {PROTOCOL!r} {needed}, not {protocol}; set it")
    return ClusterAccess(
        bootstrap=bootstrap,
        tls=_tls(given) if has_tls else None,
        credentials=_credentials(given, has_tls=has_tls) if has_sasl else None,
    )


def _bootstrap(given: OptionTexts) -> tuple[str, ...]:
    value = given.text("bootstrap")
    if value is None:
        _refuse("bootstrap", "is missing; give a broker's gRPC address, e.g. localhost:9094")
    addresses = tuple(part.strip() for part in value.split(",") if part.strip())
    for address in addresses:
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            _refuse("bootstrap", f"has {address!r}; an address is host:port")
    if not addresses:
        _refuse("bootstrap", "names no address; give host:port, e.g. localhost:9094")
    return addresses


def _tls(given: OptionTexts) -> "TLS":
    from quorumlog.clients.credentials import TLS  # loads protobuf; unsecured reads plan without

    for location, kind in _KAFKA_TYPES.items():
        found = given.text(kind)
        if found is not None and found.upper() != "PEM":
            _refuse(kind, f"is {found!r}; convert the store to a PEM file and give PEM")
        if given.text(location) is not None and found is None:
            _refuse(location, f"must be a PEM file; set {kind!r} to PEM")
    check = given.text(_KAFKA_HOST_CHECK)
    if check is not None and check.lower() != "https":
        _refuse(_KAFKA_HOST_CHECK, "must be https: the broker's name is always verified; remove it")
    certificate, key = given.text(CERTIFICATE_FILE), given.text(KEY_FILE)
    keystore = given.text(KAFKA_KEYSTORE)
    for name, other, is_missing in (
        (CERTIFICATE_FILE, KEY_FILE, certificate is not None and key is None),
        (KEY_FILE, CERTIFICATE_FILE, key is not None and certificate is None),
    ):
        if is_missing:
            _refuse(name, f"needs {other!r}; give both")
    if keystore is not None and key is not None:
        _refuse(KAFKA_KEYSTORE, f"has the key of {KEY_FILE!r} too; remove one of them")
    _, ca = _one_of(given, (CA_FILE, KAFKA_TRUSTSTORE))
    name, key_password = _one_of(given, (KEY_PASSWORD, KAFKA_KEY_PASSWORD))
    if key_password is not None:
        _check_reference(name, key_password)
        if keystore is None and key is None:
            _refuse(name, f"is of a key; give {KEY_FILE!r} or {KAFKA_KEYSTORE!r} too")
    return TLS(
        ca=ca or "",
        certificate=certificate or keystore or "",
        key=key or keystore or "",
        key_password=key_password or "",
    )


def _credentials(given: OptionTexts, *, has_tls: bool) -> "SCRAM | Token":
    from quorumlog.clients.credentials import SCRAM, Token

    name, mechanism = _one_of(given, (MECHANISM, KAFKA_MECHANISM))
    offered = ("SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "PLAIN")
    if mechanism is not None and mechanism not in offered:
        _refuse(name, f"is {mechanism!r}; it must be one of {', '.join(offered)}")
    jaas = given.text(KAFKA_JAAS)
    if mechanism == "OAUTHBEARER":
        if jaas is not None:
            _refuse(KAFKA_JAAS, f"has no token; give its place by {PASSWORD!r} and remove it")
        if not has_tls:
            _refuse(name, f"is OAUTHBEARER, and a token is sent over TLS only; set {PROTOCOL!r}"
                          " to SASL_SSL")  # fmt: skip
        return Token(_secret_place(given, "token"))
    if jaas is not None:
        for own in (USER, PASSWORD):
            if given.text(own) is not None:
                _refuse(own, f"is given by {KAFKA_JAAS!r} too; remove one of them")
        user, password = _parse_jaas(jaas, mechanism)
    else:
        found = given.text(USER)
        if found is None:
            _refuse(USER, f"is missing; give the user's name, or {KAFKA_JAAS!r}")
        user, password = found, _secret_place(given, "password")
    # A PLAIN password is proved by SCRAM too: brokers have its SCRAM keys only.
    scram = mechanism if mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512") else "SCRAM-SHA-256"
    return SCRAM(user=user, password=password, mechanism=scram)


def _secret_place(given: OptionTexts, what: str) -> str:
    place = given.text(PASSWORD)
    if place is None:
        _refuse(PASSWORD, f"is missing; give the place of the {what}, file:PATH or env:NAME")
    _check_reference(PASSWORD, place)
    return place


def _check_reference(name: str, value: str) -> None:
    if not value.startswith(("file:", "env:")):
        _refuse(name, "must be the place of the secret, file:PATH or env:NAME, not the secret")


# --- JAAS ----------------------------------------------------------------------------------------

_VALUE: Final = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;"']+)"""
_JAAS: Final = re.compile(
    rf"\s*([\w.$]+)\s+(?:required|requisite|sufficient|optional)"
    rf"((?:\s+[\w.-]+\s*=\s*{_VALUE})*)\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
_JAAS_OPTION: Final = re.compile(rf"([\w.-]+)\s*=\s*({_VALUE})", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_MECHANISMS: Final = {
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "PlainLoginModule": ("PLAIN",),
}


def _parse_jaas(text: str, mechanism: str | None) -> tuple[str, str]:
    """Return the user and the password of a JAAS configuration with one login module."""
    matched = _JAAS.fullmatch(text)
    if matched is None:
        _refuse(
            KAFKA_JAAS,
            "is not a JAAS configuration; give org.apache.kafka.common.security.scram."
            'ScramLoginModule required username="USER" password="file:PATH";',
        )
    module = matched[1].rpartition(".")[2]
    if module not in _MECHANISMS:
        _refuse(
            KAFKA_JAAS, f"has another login module; give one of {', '.join(_MECHANISMS)}, or"
            f" {USER!r} and {PASSWORD!r}"
        )  # fmt: skip
    if mechanism is not None and mechanism not in _MECHANISMS[module]:
        _refuse(KAFKA_JAAS, f"has {module}, which is not for {mechanism}; change one of them")
    found = {name: _unquoted(value) for name, value in _JAAS_OPTION.findall(matched[2])}
    if found.keys() != {"username", "password"}:  # another name may be a part of a password
        _refuse(KAFKA_JAAS, "must have username and password, and no other option; correct it")
    if not all(found.values()):
        _refuse(KAFKA_JAAS, "has an empty username or password; correct it")
    return found["username"], found["password"]


def _unquoted(value: str) -> str:
    if value[0] not in "\"'":
        return value
    return _ESCAPE.sub(_unescaped, value[1:-1])


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code, 8)) if code[0] in "01234567" else _ESCAPED.get(code, code)


# --- two names of one setting --------------------------------------------------------------------


def _one_of(given: OptionTexts, names: tuple[str, str]) -> tuple[str, str | None]:
    """Return the name and the value of the one of two options that is given."""
    own, kafkas = names
    found, other = given.text(own), given.text(kafkas)
    if found is not None and other is not None:
        _refuse(kafkas, f"is the same setting as {own!r}; remove one of them")
    return (own, found) if other is None else (kafkas, other)


def _choice(given: OptionTexts, names: tuple[str, str], choices: tuple[str, ...]) -> str:
    """Return the value of one of two options; the default is the first choice."""
    name, value = _one_of(given, names)
    if value is None:
        return choices[0]
    if value.upper() not in choices:
        _refuse(name, f"is {value!r}; it must be one of {', '.join(choices)}")
    return value.upper()


def _refuse(name: str, what: str) -> NoReturn:
    raise InvalidConfig(f"option {name!r} {what}")
