"""A store in a directory: modes of its files, interrupted puts, links and special files."""

import os
import stat
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest

from quorumlog.backup.objectstore import ObjectStore, open_store
from quorumlog.errors import StoreUnavailable
from quorumlog.runtime import Runtime
from quorumlog.runtime.real import run

pytest.importorskip("obstore")

T = TypeVar("T")
OBJECT = "data/00000000000000000000000000000001/0/object"


def on_store(folder: Path, work: Callable[[ObjectStore], Coroutine[Any, Any, T]]) -> T:
    """Run work on the store of a folder, which is created."""

    async def main(runtime: Runtime) -> T:
        return await work(open_store(runtime, str(folder), creates=True))

    return run(main, name="store")


def modes(folder: Path) -> dict[str, int]:
    """The mode of each file and folder below a folder."""
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("umask", [0, 0o022])
def test_files_and_folders_are_private_in_any_folder(umask: int, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(umask)
    try:
        on_store(tmp_path, lambda store: store.put(OBJECT, b"first"))
        on_store(tmp_path, lambda store: store.put(OBJECT, b"second"))
    finally:
        os.umask(before)
    found = modes(tmp_path)
    assert found.pop(OBJECT) == 0o600
    assert found == dict.fromkeys((str(each) for each in list(Path(OBJECT).parents)[:-1]), 0o700)
    assert (tmp_path / OBJECT).read_bytes() == b"second"


def test_partial_files_of_this_and_earlier_versions_are_deleted(tmp_path: Path) -> None:
    on_store(tmp_path, lambda store: store.put(OBJECT, b"content"))
    whole = tmp_path / OBJECT
    for name in (".object.new", "object#1"):
        whole.with_name(name).write_bytes(b"part")
    on_store(tmp_path, lambda store: store.delete_partial("data"))
    assert list(whole.parent.iterdir()) == [whole]


async def listed(store: ObjectStore) -> list[str]:
    found: list[str] = []
    await store.visit_objects("data", lambda each: found.append(each.path))
    return found


OPERATIONS: dict[str, Callable[[ObjectStore], Coroutine[Any, Any, object]]] = {
    "put": lambda store: store.put(OBJECT, b"other"),
    "get": lambda store: store.get(OBJECT, size_max=100),
    "get_end": lambda store: store.get_end(OBJECT, 1, of=7),
    "list": listed,
    "delete": lambda store: store.delete([OBJECT]),
    "delete_partial": lambda store: store.delete_partial("data"),
}


@pytest.mark.long
@pytest.mark.parametrize("depth", range(1, 5))
@pytest.mark.parametrize("name", OPERATIONS)
def test_links_are_not_followed(name: str, depth: int, tmp_path: Path) -> None:
    """The owner of a store has replaced a folder or a file by a link to one of another store."""
    store, other = tmp_path / "store", tmp_path / "other"
    for each in (store, other):
        on_store(each, lambda opened: opened.put(OBJECT, b"content"))
        (each / OBJECT).with_name("object#1").write_bytes(b"part")
    assert on_store(store, listed) != []
    link = Path(*Path(OBJECT).parts[:depth])
    (store / link).rename(store / "former")
    (store / link).symlink_to(other / link)
    with pytest.raises(StoreUnavailable, match=f"{store / link}: a link"):
        on_store(store, OPERATIONS[name])
    assert (other / OBJECT).read_bytes() == b"content"
    assert (other / OBJECT).with_name("object#1").exists()


@pytest.mark.parametrize("name", OPERATIONS)
def test_special_files_block_no_operation(name: str, tmp_path: Path) -> None:
    """An open of a FIFO without a writer would wait."""
    (tmp_path / OBJECT).parent.mkdir(parents=True)
    os.mkfifo(tmp_path / OBJECT)
    with pytest.raises(StoreUnavailable, match="special file"):
        on_store(tmp_path, OPERATIONS[name])


def test_folder_of_a_store_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "link").symlink_to("store")
    on_store(tmp_path / "link", lambda store: store.put(OBJECT, b"content"))
    assert on_store(tmp_path / "link", listed) == [OBJECT]
