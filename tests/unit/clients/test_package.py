"""`import quorumlog` imports nothing else; names are loaded at their first use."""

import asyncio
import inspect
import re
import subprocess
import sys

import pytest

import quorumlog
from quorumlog.errors import (
    ConnectionFailed,
)

LIGHT = """
import sys
before = set(sys.modules)
import quorumlog
assert quorumlog.__version__
new = set(sys.modules) - before
heavy = {"asyncio", "grpc", "google", "uvloop", "tenacity", "pyarrow", "threading", "logging"}
print(sorted(name for name in new if name.startswith("quorumlog.") or name in heavy))
"""
NO_COLUMNS = """
import sys
import quorumlog
quorumlog.connect, quorumlog.aio.connect, quorumlog.errors, quorumlog.Record
heavy = {"pyarrow", "numpy", "pandas", "pyspark", "rich", "typer"}
heavy |= {"grpc_health.v1", "quorumlog.runtime.grpc_introspection"}  # what servers offer
print(sorted(heavy & set(sys.modules)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("code", [LIGHT, NO_COLUMNS], ids=["package", "clients"])
def test_import_loads_no_heavy_module(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_every_public_name_exists() -> None:
    for name in quorumlog.__all__:
        assert getattr(quorumlog, name) is not None
        assert name in dir(quorumlog)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        quorumlog.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_types_of_client_objects_are_in_the_root_package() -> None:
    names = {name for name in quorumlog.__all__ if isinstance(getattr(quorumlog, name), type)}
    for method in (quorumlog.Log.producer, quorumlog.Log.consumer, quorumlog.Log.group_consumer):
        assert inspect.get_annotations(method, eval_str=False)["return"].__name__ in names
    returned = set()
    for method in vars(quorumlog.Admin).values():
        if inspect.isfunction(method) and not method.__name__.startswith("_"):
            returned |= set(re.findall(r"[A-Z]\w+", str(method.__annotations__["return"])))
    assert returned <= names | {"None"}


def test_asyncio_names_are_those_of_the_blocking_client() -> None:
    for name in ("Admin", "BulkDelivery", "Consumer", "GroupConsumer", "Log", "Producer"):
        assert name in quorumlog.__all__
        assert f"Async{name}" in quorumlog.aio.__all__


def test_asyncio_connect_raises_if_no_broker_answers() -> None:
    async def main() -> None:
        with pytest.raises(ConnectionFailed, match="quorumlog dev"):
            await quorumlog.aio.connect("127.0.0.1:1", connect_timeout_ms=100)

    asyncio.run(main())
