"""The checks of accessibility find planted faults; test_pictures makes them on every page."""

import pytest
from tests.console.browser import Browser

PLANTED = {
    '<p style="color: #999">pale</p>': "has a contrast of",
    '<input name="planted">': "has no name",
    "<h4>too deep</h4>": "follows a heading of level",
    "<table><tbody><tr><td>1</td></tr></tbody></table>": "has no headers",
    '<p id="main">twice</p>': "the id main is there twice",
    '<nav aria-label="Pages"><a href="/">x</a></nav>': "the landmarks nav have the names",
    '<label>Name <input placeholder="x" class="planted"></label>': "its placeholder has a contrast",
    '<img src="/static/icon.svg">': "has no alternative text",
}
STYLE = ".planted::placeholder { color: #bbb; } .trap:focus { outline: none; }"


@pytest.mark.parametrize("html", PLANTED)
def test_planted_fault_is_found(browser: Browser, html: str) -> None:
    browser.look(1280, "light")
    browser.go("/topics/new")
    assert browser.faults() == []
    script = """
        const style = new CSSStyleSheet();
        style.replaceSync(arguments[1]);
        document.adoptedStyleSheets = [style];
        const main = document.querySelector("main");
        main.insertAdjacentHTML("beforeend", arguments[0]);
        for (const each of main.querySelectorAll("[style]")) each.style.color = "#999";
    """
    browser.driver.execute_script(script, html, STYLE)
    assert PLANTED[html] in " ".join(browser.faults())
    browser.errors()


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ('each.style.outline = "none"', "shows no focus"),
        ('each.addEventListener("keydown", (event) => event.preventDefault())', "is not reached"),
        ("each.addEventListener('focus', () => each.blur())", "is not reached"),
    ],
)
def test_planted_fault_of_the_keyboard_is_found(browser: Browser, change: str, fault: str) -> None:
    browser.look(1280, "light")
    browser.go("/topics/new")
    assert browser.keyboard_faults() == []
    browser.go("/topics/new")
    script = f"const each = document.querySelector('main [name=partitions]'); {change}"
    browser.driver.execute_script(script)
    assert fault in " ".join(browser.keyboard_faults())
    browser.errors()
