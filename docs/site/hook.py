"""The hook of mkdocs.yml: pages of the site for files of the repository outside of docs/.

The pages of docs/ link to such files by relative paths, as a repository host expects them. On the
site each linked file is a page of its own: Markdown as it is, any other file as a block of code.
Anchors are those of repository hosts, so that a link works in both places.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).parents[2]
DOCS = "docs/"
LINK = re.compile(r"(?<=\]\()([^)#:\s]+)(?=[)#])")
"""The path of a relative link."""

LANGUAGES = {".js": "javascript", ".json": "json", ".proto": "protobuf", ".py": "python"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Set the function that makes the anchor of a heading."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages at the root of the repository, and a page for each file outside of docs/ to
    which a page links. Links of added pages count too."""
    waiting = [f"{DOCS}{page.src_uri}" for page in files.documentation_pages()]
    waiting += [path.name for path in ROOT.glob("*.md") if path.name != "README.md"]
    seen: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        if not path.startswith(DOCS):
            files.append(File.generated(config, site_path(path), content=content_of(path)))
        if path.endswith(".md"):
            waiting += [each for each in links_of(path) if not each.startswith(DOCS)]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to files of the repository to the pages that show them."""
    here = repository_path(page.file.src_uri)
    folder = posixpath.dirname(page.file.src_uri)

    def point(match: re.Match[str]) -> str:
        target = target_of(here, match[1])
        if not (ROOT / target).is_file():
            return match[1]
        return posixpath.relpath(site_path(target), folder or ".")

    return LINK.sub(point, markdown)


def links_of(path: str) -> list[str]:
    """Return the files of the repository to which a page links."""
    targets = (target_of(path, link) for link in LINK.findall((ROOT / path).read_text()))
    return [target for target in targets if (ROOT / target).is_file()]


def target_of(path: str, link: str) -> str:
    """Return the target of a relative link in a file. Both paths are from the root."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def site_path(path: str) -> str:
    """Return the path on the site of a file of the repository."""
    if path.startswith(DOCS):
        return path.removeprefix(DOCS)
    return path if path.endswith(".md") else f"{path}.md"


def repository_path(uri: str) -> str:
    """Return the file of the repository that a page of the site shows."""
    if (ROOT / DOCS / uri).is_file():
        return DOCS + uri
    return uri if (ROOT / uri).is_file() else uri.removesuffix(".md")


def content_of(path: str) -> str:
    """Return the Markdown of the page of a file outside of docs/."""
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        return text
    return f"# `{path}`\n\n````{LANGUAGES.get(Path(path).suffix, 'text')}\n{text}````\n"
