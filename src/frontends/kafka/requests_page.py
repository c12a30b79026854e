"""The table of requests in docs/kafka.md, from the supported APIs. `make docs` writes it between
the page's markers; a test compares the page with it."""

import re
from importlib import import_module
from typing import Final

from .api import KafkaApi
from .apis import APIS

MARKED: Final = re.compile(r"(<!-- made by `make docs`: keys -->\n).*?(<!-- end -->)", re.DOTALL)


def with_table(page: str) -> str:
    """Return the page with its table regenerated."""
    return MARKED.sub(lambda mark: f"{mark[1]}{key_table()}{mark[2]}", page)


def key_table() -> str:
    """Return the table, by ascending key."""
    head = "| key | request | versions | what it does |\n|---|---|---|---|\n"
    return head + "".join(_row(api) for api in APIS)


def _row(api: KafkaApi) -> str:
    versions = str(api.low) if api.low == api.high else f"{api.low} to {api.high}"
    return f"| {api.key} | {api.name} | {versions} | {_about(api)} |\n"


def _about(api: KafkaApi) -> str:
    """Return the first sentence of the docstring of a request's module, without the name."""
    text = import_module(api.handle.__module__).__doc__ or ""
    opening = " ".join(text.partition("\n\n")[0].split())
    sentence = re.split(r"(?<=\.)\s", opening.removeprefix(f"{api.name}: "), maxsplit=1)[0]
    return sentence[:1].upper() + sentence[1:]
