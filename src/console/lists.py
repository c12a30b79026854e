"""Lists that the server filters, sorts and cuts into parts of PAGE_SIZE rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

T = TypeVar("T")

PAGE_SIZE: Final = 50
FILTER_MAX: Final = 200  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPart(Generic[T]):
    """The visible rows of a list, with what its links need."""

    rows: Sequence[T]
    count: int  # rows that the filter selects
    all_count: int  # rows without the filter
    number: int  # of this part, from 1
    parts: int
    filter: str
    sort: str  # a column; a leading "-" for descending order
    path: str
    query: Mapping[str, str]  # every parameter of the page

    def url(self, **changes: object) -> str:
        """Return the URL of the page with some parameters changed; an empty value removes one."""
        query = {**self.query, **{name: str(value) for name, value in changes.items()}}
        text = urlencode({name: value for name, value in query.items() if value})
        return f"{self.path}?{text}" if text else self.path

    def sort_url(self, column: str) -> str:
        """Return the URL that sorts by a column, in the other direction if it already does."""
        return self.url(sort=f"-{column}" if self.sort == column else column, page="")

    def sort_mark(self, column: str) -> str:
        """Return "ascending" or "descending" for the sorted column, else "none"."""
        return {column: "ascending", f"-{column}": "descending"}.get(self.sort, "none")


def part_of(
    rows: Sequence[T],
    *,
    path: str,
    query: Mapping[str, str],
    text: Callable[[T], str],
    columns: Mapping[str, Callable[[T], Any]],
    size: int = PAGE_SIZE,
) -> ListPart[T]:
    """Return the part of a list that a query selects: `filter` is text that `text` of a row
    contains, `sort` a key of `columns` (default: the first one), `page` a number from 1. Invalid
    values count as absent."""
    wanted = query.get("filter", "").strip()[:FILTER_MAX]
    found = [row for row in rows if wanted.casefold() in text(row).casefold()] if wanted else rows
    sort = query.get("sort", "")
    column = sort.removeprefix("-")
    if column not in columns:
        sort = column = next(iter(columns))
    ordered = sorted(found, key=columns[column], reverse=sort.startswith("-"))
    parts = max(1, -(-len(ordered) // size))
    number = min(max(1, _number(query.get("page", ""))), parts)
    return ListPart(
        rows=ordered[(number - 1) * size : number * size],
        count=len(ordered),
        all_count=len(rows),
        number=number,
        parts=parts,
        filter=wanted,
        sort=sort,
        path=path,
        query=query,
    )


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1
