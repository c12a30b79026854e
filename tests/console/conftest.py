"""A broker, a console in a process of its own, and a headless Chromium, each once for a run."""

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from tests.console.browser import Browser
from tests.console.process import Console, console_process

from quorumlog.testing import Broker


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A broker with sample topics, for tests that do not stop it."""
    with Broker() as started:
        yield started


@pytest.fixture(scope="session")
def console(broker: Broker) -> Iterator[Console]:
    """A console of `broker`."""
    with console_process("--bootstrap", broker.grpc) as started:
        yield started


@pytest.fixture(scope="session")
def driver() -> Iterator[webdriver.Chrome]:
    """A headless Chromium."""
    binary, service = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or service is None:
        pytest.skip("no Chromium: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (
        "--headless=new",
        "--disable-gpu",
        "--hide-scrollbars",
        "--force-color-profile=srgb",
    ):
        options.add_argument(flag)
    if os.getuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    log = subprocess.DEVNULL
    started = webdriver.Chrome(options=options, service=Service(service, log_output=log))
    try:
        yield started
    finally:
        started.quit()


@pytest.fixture
def browser(driver: webdriver.Chrome, console: Console) -> Browser:
    """The browser, signed in at `console`."""
    found = Browser(driver)
    found.open_console(console)
    return found
