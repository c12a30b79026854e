"""Templates: escaping is always on, and hidden characters of every value become visible."""

from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined, UndefinedError
from markupsafe import Markup, escape

from .. import __version__
from ..visible_text import visible
from . import charts, formats

NAVIGATION: Final[tuple[tuple[str, str, str], ...]] = (
    ("overview", "Overview", "/"),
    ("topics", "Topics", "/topics"),
    ("records", "Records", "/records"),
    ("groups", "Groups", "/groups"),
    ("transactions", "Transactions", "/transactions"),
    ("brokers", "Brokers", "/brokers"),
    ("access", "Access", "/access"),
    ("settings", "Settings", "/settings"),
)
"""(section, title, path) of every page of the navigation; it shows those that have a route."""


def finalize(value: object) -> object:
    """Return a value of an expression with its hidden characters as escapes. Markup is ready."""
    if isinstance(value, Markup):
        return value
    return visible(value) if isinstance(value, str) else value


def exact(text: str) -> Markup:
    """Return a text for an attribute that is sent back, such as the value of a field: hidden
    characters stay as they are."""
    return Markup(escape(text))


def lines(text: str) -> Markup:
    """Return a text of several lines for `pre`: its line ends stay, other hidden characters are
    escapes."""
    return Markup("\n").join(visible(line) for line in text.split("\n"))


def documentation(text: str) -> Markup:
    """Return a text of the documentation, with the parts between backquotes as code."""
    parts = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(visible(part)) if index % 2 else escape(visible(part))
        for index, part in enumerate(parts)
    )


@cache
def environment() -> Environment:
    """Return the environment of all templates."""
    made = Environment(
        loader=PackageLoader(__package__, "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        number=formats.number,
        rate=formats.rate,
        size=formats.size,
        duration=formats.duration,
        ms=formats.milliseconds,
        time=formats.time,
        count=formats.count,
        exact=exact,
        lines=lines,
        documentation=documentation,
    )
    made.globals.update(
        sparkline=charts.sparkline,
        line_chart=charts.line_chart,
        bar=charts.bar,
        dash=formats.DASH,
        group_states=formats.GROUP_STATES,
        transaction_states=formats.TRANSACTION_STATES,
        config_value=formats.config_value,
        size_text=formats.size,
        version=__version__,
    )
    made.globals["ui"] = made.get_template("macros.html").module
    return made


def compile_templates() -> None:
    """Compile every template, so that no first request does."""
    for name in environment().list_templates():
        environment().get_template(name)


def render(template: str, values: Mapping[str, Any]) -> str:
    """Return a whole page."""
    return environment().get_template(template).render(values)


def render_block(template: str, block: str, values: Mapping[str, Any]) -> str:
    """Return one block of a template: the changing part of a page."""
    found = environment().get_template(template)
    context = found.new_context(dict(values))
    return "".join(found.blocks[block](context))


def render_head(template: str, values: Mapping[str, Any]) -> dict[str, Markup]:
    """Return the blocks above the values of a page, by name. They need no values of the cluster, so
    that a page without them has the same head; a block that needs some is left out."""
    found = {}
    for block in {"heading", "actions", "tools"} & environment().get_template(
        template
    ).blocks.keys():
        with suppress(UndefinedError):
            found[block] = Markup(render_block(template, block, values))
    return found
