"""The documentation site: its navigation, its Python API, and no files from other hosts.

The site is built as by `make site`: a broken link or anchor fails the build.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

import quorumlog
import quorumlog.aio
import quorumlog.spark
import quorumlog.spark.pipelines
import quorumlog.testing

ROOT = Path(__file__).parents[2]
MODULES = (
    quorumlog,
    quorumlog.aio,
    quorumlog.spark,
    quorumlog.spark.pipelines,
    quorumlog.testing,
)
BUILD_S = 300

LOADING = {  # attributes by which an element loads a file
    "audio": ("src",),
    "embed": ("src",),
    "iframe": ("src",),
    "img": ("src", "srcset"),
    "link": ("href",),
    "object": ("data",),
    "script": ("src",),
    "source": ("src", "srcset"),
    "video": ("src", "poster"),
}
OTHER_HOST = re.compile(r"\s*(?:https?:)?//")
IN_STYLES = re.compile(r"(?:@import\s+|url\()\s*[\"']?\s*(?:https?:)?//")


def entries(nav: Any) -> Iterator[str]:
    """Yield the pages of a navigation."""
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        for part in nav.values():
            yield from entries(part)
    else:
        for part in nav:
            yield from entries(part)


def test_every_page_is_in_the_navigation_once() -> None:
    listed = list(entries(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))
    assert len(listed) == len(set(listed))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= set(listed)


def test_the_page_of_the_python_api_has_every_public_name_once() -> None:
    listed = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "python_api.md").read_text(), re.MULTILINE)
    assert len(listed) == len(set(listed))
    public = {f"{module.__name__}.{name}" for module in MODULES for name in module.__all__}
    submodules = {f"quorumlog.{name}" for name in ("aio", "errors", "processing")}
    assert public - set(listed) == submodules


class Loads(HTMLParser):
    """The addresses of the files that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect the addresses of an element."""
        self.found += [value or "" for name, value in attrs if name in LOADING.get(tag, ())]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site and return its folder."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(folder),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BUILD_S)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_no_page_loads_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").glob("*.md")))
    loaded = []
    for page in pages:
        parser = Loads()
        parser.feed(page.read_text())
        loaded += [(page.relative_to(site), address) for address in parser.found]
    assert any(address.endswith(".js") for _, address in loaded)
    assert [each for each in loaded if OTHER_HOST.match(each[1])] == []
    styles = [*pages, *site.rglob("*.css"), *site.rglob("*.svg")]
    assert [path for path in styles if IN_STYLES.search(path.read_text())] == []


@pytest.mark.parametrize(
    "page",
    [
        '<script src="https://a.example/x.js"></script>',
        '<link rel="stylesheet" href="//a.example/x.css">',
        '<img src="http://a.example/x.png">',
    ],
)
def test_an_element_that_loads_from_another_host_is_found(page: str) -> None:
    parser = Loads()
    parser.feed(page)
    assert [address for address in parser.found if OTHER_HOST.match(address)]


def test_a_style_that_loads_from_another_host_is_found() -> None:
    assert IN_STYLES.search("@font-face { src: url('//a.example/x.woff2') }")
    assert not IN_STYLES.search("a { background: url(data:image/svg+xml,http://www.w3.org/2000) }")
