"""The login token, cookies, Host, Origin, CSRF, framing, redirects, and hostile text."""

import http.client

import pytest
from tests.console.browser import Browser
from tests.console.process import Console, Visitor, console_process
from tests.kit.certificates import Certificates

from quorumlog.clients.admin.security import Acl
from quorumlog.testing import Broker

FORM = {"name": "made-by-a-test", "partitions": "1"}


@pytest.fixture
def visitor(console: Console) -> Visitor:
    """A program with a session."""
    found = Visitor(console)
    found.login()
    return found


def topics_of(broker: Broker) -> set[str]:
    with broker.connect() as log:
        return {topic.name for topic in log.admin.list_topics()}


def test_session_needs_the_login_token(console: Console) -> None:
    stranger = Visitor(console)
    for path in ("/", "/topics", "/live", "/live/topics", "/login", "/login?token=wrong"):
        reply = stranger.get(path)
        assert reply.status == 401, path
        assert "set-cookie" not in reply.headers
    port = console.address.rpartition(":")[2]
    stranger.cookie = f"quorumlog-session-{port}=guessed"
    assert stranger.get("/").status == 401
    assert stranger.post("/topics/new", FORM).status == 401


def test_cookie_is_out_of_reach_of_scripts_and_other_sites(console: Console) -> None:
    reply = Visitor(console).login()
    flags = {flag.strip().lower() for flag in reply.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= flags


def test_console_with_tls_has_a_secure_cookie_and_no_plain_text(
    broker: Broker, tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = Certificates.create(tmp_path_factory.mktemp("tls"))
    own = files.server()
    arguments = ["--tls-certificate", own.certificate, "--tls-key", own.key]
    with console_process("--bootstrap", broker.grpc, *arguments) as console:
        visitor = Visitor(console, ca=files.ca)
        flags = visitor.login().headers["set-cookie"].lower()
        assert "; secure" in flags
        assert visitor.get("/topics").status == 200
        plain = {"Origin": console.base.replace("https", "http")}
        assert visitor.post("/topics/new", FORM, plain).status == 403
        with pytest.raises((http.client.HTTPException, OSError)):
            Visitor(console).get("/topics")


def test_session_ends_with_a_sign_out(visitor: Visitor) -> None:
    assert visitor.post("/sign-out", {}, {"Origin": "https://evil.example"}).status == 403
    assert visitor.get("/topics").status == 200
    assert visitor.post("/sign-out", {}).status == 200
    assert visitor.get("/topics").status == 401


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil:1"])
def test_foreign_host_is_refused(visitor: Visitor, host: str) -> None:
    assert visitor.get("/", Host=host).status == 421
    port = visitor.console.address.rpartition(":")[2]
    assert visitor.get("/topics", Host=f"localhost:{port}").status == 200


@pytest.mark.parametrize("origin", ["", "null", "https://evil.example", "http://127.0.0.1:1"])
def test_change_from_another_origin_is_refused(
    visitor: Visitor, broker: Broker, origin: str
) -> None:
    assert visitor.post("/topics/new", FORM, {"Origin": origin}).status == 403
    assert FORM["name"] not in topics_of(broker)


def test_change_needs_the_token_of_its_session(visitor: Visitor, broker: Broker) -> None:
    other = Visitor(visitor.console)
    other.login()
    for token in ("", "guessed", other.csrf):
        assert visitor.post("/topics/new", {**FORM, "csrf": token}).status == 403
    kinds = {"Content-Type": "text/plain"}
    assert visitor.post("/topics/new", FORM, kinds).status == 403
    assert visitor.send("DELETE", "/topics", {}).status == 405
    assert FORM["name"] not in topics_of(broker)
    assert visitor.post("/topics/new", FORM).status == 303
    assert FORM["name"] in topics_of(broker)


def test_body_is_bounded(visitor: Visitor) -> None:
    assert visitor.post("/topics/new", {**FORM, "configs": "x" * 1_100_000}).status == 403
    assert visitor.post("/topics/new", {str(n): "" for n in range(300)}).status == 403


def test_every_response_has_the_headers(visitor: Visitor) -> None:
    for path in ("/", "/static/console.js", "/no-such-page", "/login"):
        headers = visitor.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert visitor.get("/").headers["cache-control"] == "no-store"


def test_page_cannot_be_framed(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> None:
    page = tmp_path_factory.mktemp("evil") / "evil.html"
    page.write_text(f'<iframe src="{browser.console.base}/topics"></iframe>', encoding="utf-8")
    browser.driver.get(page.as_uri())
    browser.driver.switch_to.frame(0)
    assert browser.texts("header nav") == []
    browser.driver.switch_to.default_content()
    browser.errors()


def test_paths_do_not_redirect_to_other_sites(visitor: Visitor) -> None:
    for path in ("//evil.example", "//evil.example/topics", "/topic//evil.example", "/topics/"):
        reply = visitor.get(path)
        target = reply.headers.get("location", "")
        assert "evil" not in target.partition("//")[2].partition("/")[0], (path, target)
        assert not target.startswith("//"), (path, target)


HOSTILE = "\u202egnp.exe<script>document.title='taken'</script>\x1b[31m"


def test_hostile_text_is_shown_and_not_run(browser: Browser, broker: Broker) -> None:
    topic = broker.create_topic()
    with broker.connect() as log:
        with log.producer() as producer:
            producer.send(topic, b"1").result()
        group = f"<img src=x onerror=\"document.title='taken'\">{HOSTILE}"
        log.admin.reset_offsets(group, "earliest", topics=[topic])
    browser.go("/")
    shown = browser.wait_for("#lags td.name", "onerror")
    assert "\\u202egnp.exe<script>" in shown
    assert "\\x1b[31m" in shown
    browser.go(f"/topics?filter=%22%3E{'%3Cscript%3Edocument.title=1%3C/script%3E'}%E2%80%AE")
    assert "\\u202e" in browser.text("#live")
    browser.go(f"/topic/{topic}/config/%3Cscript%3Ealert(1)")
    assert "<script>alert(1)" in browser.text("main")
    browser.go("/topics/new")
    browser.fill("name", "<b>\"'")
    browser.press("Create topic")
    browser.wait_for("#failure", "INVALID_TOPIC")
    assert browser.is_visible("#failure")
    assert browser.property("main [name=name]", "value") == "<b>\"'"
    assert "quorumlog" in browser.driver.title
    errors = [each for each in browser.errors() if "Failed to load resource" not in each]
    assert errors == []


@pytest.mark.slow
def test_user_signs_in_with_their_own_rights(browser: Browser) -> None:
    with Broker(secure=True) as broker:
        with broker.connect() as log:
            log.admin.set_password("alice", "wonderland")
            for name in ("orders", "secrets"):
                log.admin.create_topic(name)
            rights = {"principal": "User:alice", "resource_type": "Topic", "resource": "orders"}
            log.admin.create_acls([Acl(operation="Read", **rights)])
        environment = {
            "QUORUMLOG_SECURITY_PROTOCOL": "SASL_SSL",
            "QUORUMLOG_TLS_CA_FILE": broker.ca_file,
        }
        with console_process("--bootstrap", broker.grpc, environment=environment) as console:
            browser.driver.get(console.url)
            browser.console = console
            browser.wait_for("[name=password]")
            before = browser.driver.get_cookies()
            for password, shown in (("wrong", "#failure"), ("wonderland", "header nav")):
                browser.fill("user", "alice")
                browser.fill("password", password)
                browser.press("Sign in")
                browser.wait_for(shown)
            assert browser.driver.get_cookies() != before
            browser.go("/topics")
            assert "orders" in browser.text("#live")
            assert "secrets" not in browser.text("#live")
            browser.go("/topic/orders/delete")
            browser.fill("confirmation", "orders")
            browser.press("Delete topic")
            browser.wait_for("#failure", "TOPIC_AUTHORIZATION_FAILED")
            browser.go("/")
            browser.wait_for("#live .health")
