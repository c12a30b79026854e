"""Credentials of browsers: tokens of an issuer, the console's own token, client certificates."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from tests.console.browser import Browser
from tests.console.process import Console, Visitor, console_process
from tests.kit.certificates import Certificates
from tests.kit.command import COMMAND
from tests.kit.issuer import AUDIENCE, ISSUER, TokenIssuer

import quorumlog
from quorumlog.clients.admin.security import Acl
from quorumlog.clients.credentials import TLS
from quorumlog.errors import InvalidConfig
from quorumlog.testing import Broker


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority."""
    return Certificates.create(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def issuer(certificates: Certificates) -> Iterator[TokenIssuer]:
    """An issuer of tokens."""
    with TokenIssuer(certificates.server()) as started:
        yield started


@pytest.fixture(scope="module")
def broker_of_tokens(
    issuer: TokenIssuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A broker that accepts tokens, with a topic that alice may read and one that she may not."""
    public = issuer.key.public_key()
    assert isinstance(public, RSAPublicKey)
    key = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(public)) | {"kid": issuer.key_id}
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_text(json.dumps({"keys": [key]}), encoding="utf-8")
    settings = {
        "sasl.enabled.mechanisms": ["SCRAM-SHA-256", "OAUTHBEARER"],
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": [AUDIENCE],
    }
    with Broker(secure=True, settings=settings) as started:
        with started.connect() as log:
            for name in ("orders", "secrets"):
                log.admin.create_topic(name)
            rights = {"principal": "User:alice", "resource_type": "Topic", "resource": "orders"}
            log.admin.create_acls([Acl(operation="Read", **rights)])
        yield started


@contextmanager
def console_of(
    broker: Broker, *arguments: str, mechanism: str = "OAUTHBEARER"
) -> Iterator[Console]:
    """Run a console of a secure broker."""
    environment = {
        "QUORUMLOG_SECURITY_PROTOCOL": "SASL_SSL",
        "QUORUMLOG_SASL_MECHANISM": mechanism,
        "QUORUMLOG_TLS_CA_FILE": broker.ca_file,
    }
    with console_process(
        "--bootstrap", broker.grpc, *arguments, environment=environment
    ) as started:
        yield started


@pytest.mark.long
def test_user_signs_in_with_a_token_and_has_its_rights(
    browser: Browser, broker_of_tokens: Broker, issuer: TokenIssuer
) -> None:
    with console_of(broker_of_tokens) as console:
        browser.driver.get(console.url)
        browser.console = console
        browser.wait_for("[name=token]")
        before = browser.driver.get_cookies()
        token = issuer.token("alice")
        forged = token[:-8] + "AAAAAAAA"
        for given, shown in (
            ("not a token", "three parts"),
            (forged, "SASL_AUTHENTICATION_FAILED"),
            (issuer.token("alice", exp=1), "SASL_AUTHENTICATION_FAILED"),
        ):
            browser.fill("token", given)
            browser.press("Sign in")
            browser.wait_for("#failure", shown)
            assert browser.property("[name=token]", "value") == ""
        browser.fill("token", token)
        browser.press("Sign in")
        browser.wait_for("header .where", "alice")
        after = browser.driver.get_cookies()
        assert [each["value"] for each in after] != [each["value"] for each in before]
        former = Visitor(console, cookie=f"{before[0]['name']}={before[0]['value']}")
        assert former.get("/topics").status == 401, "a fixed session id has the user's rights"
        browser.go("/topics")
        browser.wait_for("#topics", "orders")
        assert "secrets" not in browser.text("#live")
        assert token not in browser.driver.page_source
        browser.go("/access")
        browser.wait_for("#live", "User:alice")
        assert browser.faults() == []
        browser.click("header button", "Sign out")
        browser.wait_for("main", "You are signed out")
        browser.errors()


@pytest.mark.long
def test_token_of_the_console_is_read_anew_for_every_browser(
    broker_of_tokens: Broker, issuer: TokenIssuer, tmp_path: Path
) -> None:
    file = tmp_path / "console.token"
    file.touch(mode=0o600)
    file.write_text(issuer.token("alice"), encoding="utf-8")
    with console_of(broker_of_tokens, "--token", f"file:{file}") as console:
        visitor = Visitor(console)
        visitor.login()
        shown = visitor.get("/topics").body
        assert "orders" in shown
        assert "secrets" not in shown
        assert visitor.post("/sign-in", {"user": "a", "password": "b"}).status == 303
        file.write_text(issuer.token("stranger"), encoding="utf-8")
        assert "orders" not in visitor.get("/topics").body
        file.write_text(issuer.token("alice", exp=1), encoding="utf-8")
        refused = visitor.get("/topics")
        assert "credentials are not accepted" in refused.body
        file.write_text(issuer.token("alice"), encoding="utf-8")
        assert "orders" in visitor.get("/topics").body


def test_session_id_of_a_stranger_is_never_adopted(console: Console) -> None:
    port = console.address.rpartition(":")[2]
    visitor = Visitor(console, cookie=f"quorumlog-session-{port}=chosen-by-a-stranger")
    path = console.url.removeprefix(console.base)
    given = visitor.get(path).headers["set-cookie"].partition(";")[0]
    assert "chosen-by-a-stranger" not in given
    assert visitor.get("/topics").status == 401
    own = Visitor(console, cookie=given)
    assert own.get("/topics").status == 200
    again = own.get(path).headers["set-cookie"].partition(";")[0]
    assert again != given, "each login has an id of its own"


def failed_start(*arguments: str, **environment: str) -> str:
    """Return the error of a console that does not start."""
    done = subprocess.run(
        [*COMMAND, "console", "--output", "json", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert json.loads(done.stderr)["error"] == InvalidConfig.name
    return done.stderr


@pytest.mark.long
def test_token_needs_tls_and_the_name_of_its_place() -> None:
    plain = {"QUORUMLOG_SECURITY_PROTOCOL": "SASL_PLAINTEXT"}
    assert "over TLS only" in failed_start("--token", "env:HOME", **plain)
    assert "file:PATH or env:NAME" in failed_start("--token", "ey.J0.x", **plain)
    tokens = {**plain, "QUORUMLOG_SASL_MECHANISM": "OAUTHBEARER"}
    assert "over TLS only" in failed_start(**tokens)


@pytest.mark.long
def test_client_certificate_is_shared_by_browsers_on_request_only(
    certificates: Certificates,
) -> None:
    own, admin = certificates.server(client_auth="required"), certificates.client("admin")
    settings = {
        "grpc.security.protocol": "SSL",
        "ssl.client.auth": "required",
        "ssl.certificate.file": own.certificate,
        "ssl.key.file": own.key,
        "ssl.ca.file": own.ca,
        "super.users": ["User:CN=admin"],
    }
    environment = {
        "QUORUMLOG_SECURITY_PROTOCOL": "SSL",
        "QUORUMLOG_TLS_CA_FILE": certificates.ca,
        "QUORUMLOG_TLS_CERTIFICATE_FILE": admin.certificate,
        "QUORUMLOG_TLS_KEY_FILE": admin.key,
    }
    assert "every browser would have the rights" in failed_start(**environment)
    with Broker(settings=settings) as broker:
        tls = TLS(ca=certificates.ca, certificate=admin.certificate, key=admin.key)
        with quorumlog.connect(broker.grpc, tls=tls) as log:
            log.admin.create_topic("orders")
        arguments = ["--bootstrap", broker.grpc, "--share-certificate"]
        with console_process(*arguments, environment=environment) as console:
            visitor = Visitor(console)
            visitor.login()
            assert "orders" in visitor.get("/topics").body
        own_rights = {
            **environment,
            "QUORUMLOG_TLS_CERTIFICATE_FILE": "",
            "QUORUMLOG_TLS_KEY_FILE": "",
        }
        with console_process("--bootstrap", broker.grpc, environment=own_rights) as console:
            visitor = Visitor(console)
            visitor.login()
            assert "orders" not in visitor.get("/topics").body
