"""The store of backups: a directory, or a bucket of an S3-compatible service.

The only module that imports obstore. A put is atomic: an object has its whole content, or does not
exist. In a directory it is also durable once `put` returns, and a deletion once `delete` returns.
Below the directory, links and files that are not regular are refused with StoreUnavailable.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from ..errors import (
    BackupDamaged,
    BackupNotFound,
    DiskFull,
    EnvironmentUnusable,
    InvalidConfig,
    QuorumlogError,
    StoreUnavailable,
)
from ..runtime import Runtime
from ..runtime.private_files import replace_file
from ..runtime.system import sync_names
from ..runtime.tls import secret_of

if TYPE_CHECKING:
    from obstore.store import LocalStore, S3Store

LIST_CHUNK: Final = 1_000
DELETE_CHUNK: Final = 500
RETRIES_MAX: Final = 5
RETRY_TIMEOUT: Final = timedelta(seconds=60)
CONNECT_TIMEOUT: Final = timedelta(seconds=5)
REQUEST_TIMEOUT: Final = timedelta(minutes=5)  # of one object
REASON_MAX: Final = 500  # characters of the library's messages
LANE: Final = "read"  # four threads

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700

_PARTIAL: Final = re.compile(r"#[0-9]+\Z|\A\..*\.new\Z", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Options:
    """The access to an S3-compatible service. What is empty comes from the variables AWS_REGION,
    AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""

    endpoint: str = ""  # URL of the service; empty: that of Amazon
    region: str = ""
    access_key: str = ""  # file:PATH or env:NAME
    secret_key: str = ""


class StoredObject(NamedTuple):
    """An object of a listing."""

    path: str
    size: int  # bytes


class ObjectStore:
    """One store; paths are relative to its URL."""

    def __init__(self, runtime: Runtime, store: "LocalStore | S3Store", url: str, folder: str):
        """See `open_store`. `folder` is that of a directory, empty for a bucket."""
        self.url = url
        self._runtime = runtime
        self._store = store
        self._folder = folder

    async def put(self, path: str, content: bytes) -> None:
        """Store an object; replace one of the same path."""
        obstore = _library()
        with self._errors(path):
            if self._folder:
                put = partial(_put_file, self._folder, path, content)
                await self._runtime.tasks.offload(LANE, put)
            else:
                await obstore.put_async(self._store, path, content, use_multipart=False)

    async def get(self, path: str, *, size_max: int) -> bytes | None:
        """Return an object's content, None if there is none. Raises BackupDamaged if it is larger
        than `size_max`, before it is read."""
        obstore = _library()
        with self._errors(path):
            await self._check_files([path])
            try:
                found = await obstore.get_async(self._store, path)
            except FileNotFoundError:
                return None
            if found.meta["size"] > size_max:
                raise BackupDamaged(
                    f"{self.url}/{path}: {found.meta['size']} bytes; the limit is {size_max}; it is"
                    " not an object of a backup"
                )
            return bytes(await found.bytes_async())

    async def get_end(self, path: str, size: int, *, of: int) -> bytes:
        """Return the last bytes of an object of `of` bytes; none if there is no such object."""
        obstore = _library()
        with self._errors(path):
            await self._check_files([path])
            try:
                found = await obstore.get_range_async(self._store, path, start=of - size, end=of)
            except FileNotFoundError:
                return b""
        return bytes(found)

    async def visit_objects(self, prefix: str, visit: Callable[[StoredObject], None]) -> None:
        """Call `visit` for each object below a prefix, in any order."""
        obstore = _library()
        if self._folder:
            with self._errors(prefix):
                await self._runtime.tasks.offload(
                    LANE, lambda: _visit_files(self._folder, prefix, visit)
                )
            return
        with self._errors(prefix), suppress(FileNotFoundError):
            async for chunk in obstore.list(self._store, f"{prefix}/", chunk_size=LIST_CHUNK):
                for each in chunk:
                    visit(StoredObject(each["path"], each["size"]))

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete objects; one that does not exist is deleted."""
        obstore = _library()
        for at in range(0, len(paths), DELETE_CHUNK):
            chunk = list(paths[at : at + DELETE_CHUNK])
            with self._errors(chunk[0]):
                await self._check_files(chunk)
                try:
                    await obstore.delete_async(self._store, chunk)
                except FileNotFoundError:
                    for path in chunk:
                        with suppress(FileNotFoundError):
                            await obstore.delete_async(self._store, path)
                if self._folder:
                    await self._runtime.tasks.offload(LANE, partial(self._sync_folders, chunk))

    def _sync_folders(self, paths: Sequence[str]) -> None:
        """Make the deletion of objects durable."""
        for folder in {os.path.dirname(os.path.join(self._folder, path)) for path in paths}:
            with suppress(FileNotFoundError):
                sync_names(folder)

    async def delete_partial(self, prefix: str) -> None:
        """Delete the files of puts that a killed process left in a directory. No put may run."""
        if self._folder:
            with self._errors(prefix):
                await self._runtime.tasks.offload(
                    LANE, lambda: _delete_partial(self._folder, prefix)
                )

    async def _check_files(self, paths: Sequence[str]) -> None:
        """Raise StoreUnavailable if a path of a directory is, or is below, a link, or if it is no
        regular file."""
        if self._folder:
            check = partial(_check_files, self._folder, paths)
            await self._runtime.tasks.offload(LANE, check)

    @contextmanager
    def _errors(self, path: str) -> Iterator[None]:
        """Raise the product's errors for those of the library."""
        obstore = _library()
        try:
            yield
        except (OSError, obstore.exceptions.BaseError) as error:
            raise self._error(path, error) from error

    def _error(self, path: str, error: Exception) -> QuorumlogError:
        """Return the error of the product for one of the library."""
        reason = " ".join(str(error).split())[:REASON_MAX]
        if "No space left on device" in str(error) or "os error 28" in str(error):
            return DiskFull(f"{self.url}: no space is left; free some and run the command again")
        return StoreUnavailable(f"{self.url}: {path}: {reason}")


def open_store(
    runtime: Runtime, url: str, options: S3Options | None = None, *, creates: bool = False
) -> ObjectStore:
    """Return the store of a URL: a path, file:///PATH, or s3://BUCKET/PREFIX.

    `creates`: create the directory. Raises EnvironmentUnusable without the extra, BackupNotFound
    without the directory, InvalidConfig for another URL, StoreUnavailable if the directory cannot
    be created.
    """
    obstore = _library()
    parts = urlsplit(url)
    if parts.scheme == "s3":
        store = _bucket(parts.netloc, parts.path.strip("/"), options or S3Options(), url)
        return ObjectStore(runtime, store, url.rstrip("/"), "")
    if parts.scheme not in ("", "file") or (parts.scheme == "file" and parts.netloc):
        raise InvalidConfig(f"{url}: not a store; give a path, file:///PATH, or s3://BUCKET/PREFIX")
    folder = os.path.abspath(unquote(parts.path) if parts.scheme else url)
    try:
        if creates:
            os.makedirs(folder, mode=FOLDER_MODE, exist_ok=True)
        elif not os.path.isdir(folder):
            raise BackupNotFound(f"{folder}: there is no such directory; give the store of --to")
        return ObjectStore(runtime, obstore.store.LocalStore(folder), folder, folder)
    except OSError as error:
        raise StoreUnavailable(f"{folder}: {error.strerror or error}") from error


def _bucket(bucket: str, prefix: str, options: S3Options, url: str) -> "S3Store":
    if not bucket:
        raise InvalidConfig(f"{url}: no bucket; give s3://BUCKET/PREFIX")
    if bool(options.access_key) != bool(options.secret_key):
        raise InvalidConfig("the access key and the secret key are given together")
    config: dict[str, Any] = {}
    if options.endpoint:
        config["endpoint"] = options.endpoint
    if options.region:
        config["region"] = options.region
    if options.access_key:
        config["access_key_id"] = secret_of(options.access_key)
        config["secret_access_key"] = secret_of(options.secret_key)
    endpoint = options.endpoint or os.environ.get("AWS_ENDPOINT_URL", "")
    obstore = _library()
    try:
        found: S3Store = obstore.store.S3Store(
            bucket,
            prefix=prefix or None,
            config=config,
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": CONNECT_TIMEOUT,
                "timeout": REQUEST_TIMEOUT,
            },
            retry_config={"max_retries": RETRIES_MAX, "retry_timeout": RETRY_TIMEOUT},
        )
    except (obstore.exceptions.BaseError, ValueError) as error:
        raise InvalidConfig(f"{url}: {error}") from error
    return found


def _library() -> Any:
    """Return the package obstore. Raises EnvironmentUnusable if it is not installed."""
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise EnvironmentUnusable(
            f"backups need the package obstore ({error}); run: pip install 'quorumlog[backup]'"
        ) from None
    return obstore


def _check_files(folder: str, paths: Sequence[str]) -> None:
    """Raise StoreUnavailable for a path at, or below, a link, and for one of no regular file."""
    parents: dict[str, None] = {}
    for path in paths:
        names = path.split("/")
        parents.update(
            (os.path.join(folder, *names[:depth]), None) for depth in range(1, len(names))
        )
    for parent in parents:
        _check_kind(parent, stat.S_ISDIR)
    for path in paths:
        _check_kind(os.path.join(folder, path), stat.S_ISREG)


def _check_kind(path: str, is_kind: Callable[[int], bool]) -> None:
    """Raise StoreUnavailable for a link or a special file. A missing file is accepted."""
    with suppress(FileNotFoundError):
        if not is_kind(os.lstat(path).st_mode):
            raise _unexpected(path)


def _unexpected(path: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{path}: a link, a special file, or a folder in place of a file; a store has regular files"
        " in folders; remove it, or move its files into the store"
    )


def _files(folder: str, prefix: str) -> Iterator["os.DirEntry[str]"]:
    """Yield the files below a folder of a store. Raises StoreUnavailable for links and special
    files."""
    top = os.path.join(folder, prefix)
    _check_files(folder, [f"{prefix}/x"])
    folders = [top]
    while folders:
        with suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
            for each in entries:
                if each.is_dir(follow_symlinks=False):
                    folders.append(each.path)
                elif each.is_file(follow_symlinks=False):
                    yield each
                else:
                    raise _unexpected(each.path)


def _visit_files(folder: str, prefix: str, visit: Callable[[StoredObject], None]) -> None:
    """Call `visit` for each file below a folder of a store."""
    for each in _files(folder, prefix):
        with suppress(FileNotFoundError):
            size = each.stat(follow_symlinks=False).st_size
            visit(StoredObject(os.path.relpath(each.path, folder).replace(os.sep, "/"), size))


def _put_file(folder: str, path: str, content: bytes) -> None:
    """Replace a file, which only its owner can read, and sync it with the names of its folders up
    to the store's."""
    names = path.split("/")
    parents = [os.path.join(folder, *names[:depth]) for depth in range(len(names))]
    _check_files(folder, [path])
    for parent in parents[1:]:
        with suppress(FileExistsError):
            os.mkdir(parent, FOLDER_MODE)
    replace_file(Path(folder, path), content, FILE_MODE)
    for parent in reversed(parents):
        sync_names(parent)


def _delete_partial(folder: str, prefix: str) -> None:
    """Delete the files that a put renames at its end: ".NAME.new", in earlier versions
    "NAME#NUMBER"."""
    for each in _files(folder, prefix):
        if _PARTIAL.search(each.name):
            with suppress(FileNotFoundError):
                os.unlink(each.path)
