"""Users, ACLs and quotas in a browser, with hostile names."""

from collections.abc import Iterator

import pytest
from tests.console.browser import Browser
from tests.console.process import console_process

from quorumlog.testing import Broker

HOSTILE = "<img src=x onerror=\"document.title='taken'\">"
SECRET = "wonderland-of-alice"
PAGES = {
    "access": ("/access", "#rights tbody tr"),
    "access-explain": (
        "/access?principal=User:alice&operation=Read&resource_type=Topic&resource=orders",
        "#decision",
    ),
    "users": ("/access/users", "#users tbody tr"),
    "user-new": ("/access/users/new", "form.form"),
    "user-delete": ("/access/users/delete?user=admin", "form.form"),
    "acls": ("/access/acls", "#acls tbody tr"),
    "acl-new": ("/access/acls/new", "form.form"),
    "quotas": ("/access/quotas", "#quotas tbody tr"),
    "quota": ("/access/quotas/alter", "form.form"),
}


@pytest.fixture(scope="module")
def secure() -> Iterator[Broker]:
    """A broker with an authorizer."""
    with Broker(secure=True) as started:
        yield started


@pytest.fixture
def admin(browser: Browser, secure: Broker) -> Iterator[Browser]:
    """The browser, signed in as the administrator."""
    environment = {
        "QUORUMLOG_SECURITY_PROTOCOL": "SASL_SSL",
        "QUORUMLOG_TLS_CA_FILE": secure.ca_file,
    }
    with console_process("--bootstrap", secure.grpc, environment=environment) as started:
        browser.console = started
        browser.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        browser.driver.get(started.url)
        browser.wait_for("[name=password]")
        browser.fill("user", "admin")
        browser.fill("password", secure.password)
        browser.press("Sign in")
        browser.wait_for("header nav")
        browser.errors()
        yield browser


def follow(browser: Browser, selector: str) -> None:
    """Open the page of a link in the part of a page that refreshes."""
    script = "const to = document.querySelector(arguments[0]); return to.pathname + to.search"
    browser.go(browser.driver.execute_script(script, selector))


@pytest.mark.slow
def test_users_acls_and_quotas_with_hostile_names(admin: Browser, secure: Broker) -> None:
    admin.go("/access/users/new")
    admin.fill("name", HOSTILE)
    admin.fill("password", SECRET)
    admin.fill("repeated", "another")
    admin.press("Create user")
    admin.wait_for("#failure", "differ")
    assert SECRET not in admin.driver.page_source
    assert admin.property("main [name=name]", "value") == HOSTILE
    admin.fill("password", SECRET)
    admin.fill("repeated", SECRET)
    admin.press("Create user")
    admin.wait_for("#users td.name", HOSTILE)
    assert SECRET not in admin.driver.page_source + admin.driver.current_url
    with secure.connect() as log:
        assert HOSTILE in [user.name for user in log.admin.describe_users()]

    admin.go("/access/acls/new")
    assert admin.driver.execute_script("return document.activeElement.selectionStart") == 5
    admin.fill("principal", f"User:{HOSTILE}")
    admin.fill("operation", "Read")
    admin.fill("resource", "orders")
    admin.press("Create ACL")
    admin.wait_for("#acls td.name", HOSTILE)
    follow(admin, "#acls td a")
    admin.fill("confirmation", "User:alice")
    admin.press("Remove ACL")
    admin.wait_for("#failure", "Not confirmed")
    admin.fill("confirmation", f"User:{HOSTILE}")
    admin.press("Remove ACL")
    admin.wait_for(".notice.good", "Removed the ACL")

    admin.go("/access/quotas/alter")
    admin.fill("user", HOSTILE)
    admin.fill("producer_byte_rate", "0")
    admin.press("Set quotas")
    admin.wait_for("#failure", "above 0")
    admin.fill("producer_byte_rate", "1MiB")
    admin.press("Set quotas")
    admin.wait_for("#quotas td", "1.0 MiB/s")
    follow(admin, "#quotas td a")
    admin.press("Remove all")
    admin.wait_for(".notice.good", "Removed the quotas")

    admin.go("/access/users")
    follow(admin, "#users td a[href*=img][href*=delete]")
    admin.fill("confirmation", HOSTILE)
    admin.press("Delete user")
    admin.wait_for(".notice.good", "Deleted user")
    assert "quorumlog" in admin.driver.title
    errors = [each for each in admin.errors() if "Failed to load resource" not in each]
    assert errors == []


@pytest.mark.long
def test_access_pages_have_no_fault_in_any_look(admin: Browser, secure: Broker) -> None:
    from quorumlog.clients.admin.security import Acl

    with secure.connect() as log:
        log.admin.set_password("a-user-with-a-long-name" + "-that-never-ends" * 8, SECRET)
        rule = {"principal": "User:alice", "resource_type": "Topic", "resource": "orders"}
        log.admin.create_acls([Acl(operation="Read", **rule)])
        log.admin.create_acls([Acl(operation="Write", permission="Deny", host="10.0.0.7", **rule)])
        log.admin.alter_quotas({"user": "alice", "client_id": None}, {"producer_byte_rate": 1e6})
    for name, (path, shown) in PAGES.items():
        admin.go(path)
        admin.wait_for(shown)
        admin.check_looks(name)
    admin.go(PAGES["access-explain"][0])
    assert "allowed by: Allow User:alice Read Topic orders" in admin.text("#decision")
    assert admin.errors() == []
