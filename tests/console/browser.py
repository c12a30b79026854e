"""Chromium at a console: pages, forms, sizes, screenshots, and checks of what is shown."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from selenium import webdriver
from selenium.common.exceptions import (
    JavascriptException,
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait
from tests.console.process import Console

PICTURES: Final = Path("build/console")
WAIT_S: Final = 60
WIDTHS: Final = (1280, 390)
SCHEMES: Final = ("light", "dark")
REPLACED: Final = (JavascriptException, NoSuchElementException, StaleElementReferenceException)
T = TypeVar("T")

FAULTS_SCRIPT, ACCESSIBILITY_SCRIPT, KEYBOARD_SCRIPT = (
    Path(__file__).with_name(name).read_text(encoding="utf-8")
    for name in ("faults.js", "accessibility.js", "keyboard.js")
)


class Browser:
    """The browser of a test."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open_console(self, console: Console) -> None:
        """Open the URL with the login token in a browser without cookies."""
        self.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        self.console = console
        self.driver.get(console.url)
        self.wait_for("header nav")
        self.errors()  # those of the test before

    def go(self, path: str) -> None:
        """Open a page."""
        self.driver.get(self.console.base + path)

    def texts(self, selector: str) -> list[str]:
        """Return the visible texts of all elements of a selector, read at one moment: an update of
        the page replaces its elements, so that tests keep none."""
        script = "return [...document.querySelectorAll(arguments[0])].map((each) => each.innerText)"
        found: list[str] = self.driver.execute_script(script, selector)
        return found

    def text(self, selector: str = "body") -> str:
        """Return the visible text of the first element of a selector."""
        return self.texts(selector)[0]

    def property(self, selector: str, name: str) -> str:
        """Return a property of an element, such as the value of a field."""
        script = "return document.querySelector(arguments[0])[arguments[1]]"
        return str(self.driver.execute_script(script, selector, name))

    def is_visible(self, selector: str) -> bool:
        """Report whether an element is visible."""
        script = "return document.querySelector(arguments[0]).checkVisibility()"
        return bool(self.driver.execute_script(script, selector))

    def wait_for(self, selector: str, text: str = "") -> str:
        """Return the visible text of an element once it is there with a text."""
        script = """const found = [...document.querySelectorAll(arguments[0])].find(
            (each) => each.textContent.includes(arguments[1]));
            return found ? [found.innerText] : null"""

        def find(driver: webdriver.Chrome) -> list[str] | None:
            found: list[str] | None = driver.execute_script(script, selector, text)
            return found

        return self._until(find, f"{selector} with {text!r}")[0]

    def fill(self, name: str, text: str) -> None:
        """Enter a text in a field, or choose its option with the text."""

        def enter(driver: webdriver.Chrome) -> bool:
            box = driver.find_element(By.CSS_SELECTOR, f"main [name={name}]")
            if box.tag_name == "select":
                Select(box).select_by_visible_text(text)
            else:
                box.clear()
                box.send_keys(text)
            return True

        self._until(enter, f"a field {name} for {text!r}")

    def press(self, text: str) -> None:
        """Press the button or follow the link with a text."""
        self.click("main button, main a.button, main a", text)

    def click(self, selector: str, text: str = "") -> None:
        """Click the first element of a selector, and with a text, once it is there."""

        def click(driver: webdriver.Chrome) -> bool:
            found = driver.find_elements(By.CSS_SELECTOR, selector)
            next(each for each in found if text in ("", each.text.strip())).click()
            return True

        self._until(click, f"{selector} with {text!r}")

    def _until(self, action: Callable[[webdriver.Chrome], T | None], message: str) -> T:
        """Repeat an action until it returns a value: an update of the page may replace an element
        between two calls, or the element is not there yet."""
        absent = [StopIteration, *REPLACED]
        wait = WebDriverWait(self.driver, WAIT_S, poll_frequency=0.05, ignored_exceptions=absent)
        found = wait.until(action, message)
        assert found is not None
        return found

    def look(self, width: int, scheme: str) -> None:
        """Set the width of the page and the colour scheme."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        self._size(width, 900)

    def _size(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def check_looks(self, name: str) -> None:
        """Check the open page in every scheme and width, and store its pictures."""
        for scheme in SCHEMES:
            for width in WIDTHS:
                self.look(width, scheme)
                assert self.faults() == [], (name, scheme, width)
                self._picture(f"{name}-{scheme}-{width}", width)
        self.look(1280, "light")

    def _picture(self, name: str, width: int) -> None:
        """Store a screenshot of the whole page."""
        height = self.driver.execute_script("return document.documentElement.scrollHeight")
        self._size(width, min(int(height), 6_000))
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(PICTURES / f"{name}.png"))

    def faults(self) -> list[str]:
        """Return overflows and overlaps on the page, and what keeps people from using it."""
        found: list[str] = self.driver.execute_script(FAULTS_SCRIPT)
        found += self.driver.execute_script(ACCESSIBILITY_SCRIPT)
        return found

    def keyboard_faults(self) -> list[str]:
        """Press Tab through the whole page; return the controls that it does not reach, or that do
        not show the focus, and the control that keeps it. Live updates stop before."""
        state = self.driver.execute_script(KEYBOARD_SCRIPT, True)
        reached, faults = {state["place"]}, []
        for _ in range(state["count"] + 1):
            for kind in ("rawKeyDown", "keyUp"):
                key = {"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
                self.driver.execute_cdp_cmd("Input.dispatchKeyEvent", key)
            state = self.driver.execute_script(KEYBOARD_SCRIPT, False)
            if state["fault"]:
                faults.append(f"{state['text']} {state['fault']}")
            if state["place"] in reached or state["place"] < 0:
                break  # after the last control the focus leaves the page
            reached.add(state["place"])
        script = "return window.stops.map((each) => each.outerHTML.slice(0, 110))"
        stops = self.driver.execute_script(script)
        return faults + [
            f"{text} is not reached by keyboard"
            for place, text in enumerate(stops)
            if place not in reached
        ]

    def errors(self) -> list[str]:
        """Return the messages of the browser's console since the last call."""
        entries: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]
