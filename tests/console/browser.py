"""Chromium at a console: pages, forms, sizes, screenshots, and checks of what is shown."""

from pathlib import Path
from typing import Any, Final

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait
from tests.console.process import Console

PICTURES: Final = Path("build/console")
WAIT_S: Final = 60
WIDTHS: Final = (1280, 390)
SCHEMES: Final = ("light", "dark")

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

    def find(self, selector: str) -> WebElement:
        """Return an element; fail if there is none."""
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def find_all(self, selector: str) -> list[WebElement]:
        """Return all elements of a selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str = "body") -> str:
        """Return the visible text of an element."""
        script = "return document.querySelector(arguments[0]).innerText"
        return str(self.driver.execute_script(script, selector))

    def wait_for(self, selector: str, text: str = "") -> WebElement:
        """Return an element once it is there with a text."""

        def is_there(driver: webdriver.Chrome) -> Any:
            found = driver.find_elements(By.CSS_SELECTOR, selector)
            return next(
                (each for each in found if text in str(each.get_property("textContent"))), None
            )

        wait = WebDriverWait(
            self.driver, WAIT_S, poll_frequency=0.05, ignored_exceptions=[Exception]
        )
        found: WebElement = wait.until(is_there, f"{selector} with {text!r}")
        return found

    def fill(self, name: str, text: str) -> None:
        """Enter a text in a field."""
        box = self.find(f"main [name={name}]")
        box.clear()
        box.send_keys(text)

    def press(self, text: str) -> None:
        """Press the button or follow the link with a text."""
        self.click("main button, main a.button, main a", text)

    def click(self, selector: str, text: str = "") -> None:
        """Click the first element of a selector, and with a text, once it is there; again if a
        refresh replaced it in between."""

        def click(driver: webdriver.Chrome) -> bool:
            found = driver.find_elements(By.CSS_SELECTOR, selector)
            next(each for each in found if text in ("", each.text.strip())).click()
            return True

        absent = [StaleElementReferenceException, StopIteration]
        wait = WebDriverWait(self.driver, WAIT_S, poll_frequency=0.05, ignored_exceptions=absent)
        wait.until(click, f"{selector} with {text!r}")

    def look(self, width: int, scheme: str) -> None:
        """Set the width of the page and the colour scheme."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        self._size(width, 900)

    def _size(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def picture(self, name: str, width: int) -> None:
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
