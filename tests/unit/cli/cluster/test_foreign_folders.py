"""Folders and files of a local cluster, and of one node, that other users can change."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from quorumlog.cli import settings
from quorumlog.cli.cluster.formation import Shape, form, new_cluster
from quorumlog.cli.cluster.processes import spawn
from quorumlog.cli.cluster.state import LocalCluster, load, locked, store
from quorumlog.errors import DirectoryUnusable, InvalidConfig, InvalidRequest
from quorumlog.server.main import DevOptions, dev, format_storage, load_config
from quorumlog.server.node import ListenerAddresses
from quorumlog.server.secure_defaults import open_security_folder

FOREIGN_USER = 65_534
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def formed(folder: Path) -> LocalCluster:
    return form(new_cluster(str(folder), Shape(nodes=1)))


PLACES = [".", "cluster.json", "node-1", "node-1/node.toml"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mode", [0o020, 0o002])
def test_cluster_that_others_can_write_is_refused(place: str, mode: int, tmp_path: Path) -> None:
    formed(tmp_path)
    path = tmp_path / place
    path.chmod(path.stat().st_mode | mode)
    with pytest.raises(DirectoryUnusable, match=rf"{path}: other users .*chmod -R go-w {path}"):
        load(str(tmp_path))
    path.chmod(path.stat().st_mode & ~0o022)
    load(str(tmp_path))


@needs_root
@pytest.mark.parametrize("place", PLACES)
def test_cluster_of_another_user_is_refused(place: str, tmp_path: Path) -> None:
    formed(tmp_path)
    path = tmp_path / place
    os.chown(path, FOREIGN_USER, -1)
    with pytest.raises(
        DirectoryUnusable, match=rf"{path}: it belongs to user .*{FOREIGN_USER}.*chown -Rh 0"
    ):
        load(str(tmp_path))


@needs_root
def test_foreign_link_to_an_own_cluster_is_refused(tmp_path: Path) -> None:
    formed(tmp_path / "own")
    link = tmp_path / "link"
    link.symlink_to("own")
    load(str(link))
    os.chown(link, FOREIGN_USER, -1, follow_symlinks=False)
    with pytest.raises(DirectoryUnusable, match=f"{link}: it belongs to user"):
        load(str(link))


def test_new_cluster_starts_in_no_folder_that_others_can_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(DirectoryUnusable, match="other users"), locked(str(tmp_path), make=True):
        pytest.fail("the lock is held")
    assert not list(tmp_path.iterdir())
    tmp_path.chmod(0o700)
    node = tmp_path / "node-1"
    node.mkdir()
    node.chmod(0o777)
    with pytest.raises(DirectoryUnusable, match=f"{node}: other users"):
        formed(tmp_path)
    assert not list(node.iterdir())


def test_new_folders_are_private_for_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with locked(str(tmp_path / "c"), make=True):
            formed(tmp_path / "c")
    finally:
        os.umask(before)
    assert len(load(str(tmp_path / "c")).nodes) == 1


def test_files_of_a_cluster_are_not_written_through_links(tmp_path: Path) -> None:
    folder, other = tmp_path / "c", tmp_path / "other"
    (folder / "node-1").mkdir(parents=True)
    other.write_text("content")
    for name in ("cluster.json", "node-1/node.toml"):
        for temporary in (f"{name}.new", f"{Path(name).parent}/.{Path(name).name}.new"):
            (folder / temporary).symlink_to(other)
    cluster = formed(folder)
    store(cluster)
    log = folder / "node-1" / "node.log"
    log.symlink_to(other)
    with pytest.raises(DirectoryUnusable, match=rf"{log} cannot be opened .*remove it"):
        spawn(["true"], output=str(log), folder=str(folder), environment={})
    assert other.read_text() == "content"


@needs_root
def test_dev_refuses_data_of_another_user(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, FOREIGN_USER, -1)
    found: list[str] = []

    def serves(addresses: ListenerAddresses, profile: str | None) -> NoReturn:
        raise InvalidRequest("the node serves")

    options = DevOptions(data_dir=str(data), grpc_port=0, controller_port=0)
    assert dev(options, tell=lambda error: found.append(str(error)), beside=serves) == 1
    assert f"{data}: it belongs to user" in found[0]
    assert not list(data.iterdir())


@needs_root
def test_only_root_and_the_owner_format_a_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, file = tmp_path / "data", tmp_path / "node.toml"
    data.mkdir()
    file.write_text(f'"data.dir" = "{data}"\n')
    os.chown(data, FOREIGN_USER, -1)
    monkeypatch.setattr(os, "geteuid", lambda: FOREIGN_USER - 1)
    with pytest.raises(DirectoryUnusable, match=f"{data}: it belongs to user"):
        format_storage(load_config(str(file)), standalone=True)
    assert not list(data.iterdir())
    monkeypatch.setattr(os, "geteuid", lambda: FOREIGN_USER)
    format_storage(load_config(str(file)), standalone=True)
    monkeypatch.undo()  # root: the folder is that of a service, or mounted into a container
    format_storage(load_config(str(file)), standalone=True)


@needs_root
def test_security_folder_behind_a_foreign_link_is_refused(tmp_path: Path) -> None:
    open_security_folder(tmp_path / "own")
    link = tmp_path / "link"
    link.symlink_to("own")
    open_security_folder(link)
    os.chown(link, FOREIGN_USER, -1, follow_symlinks=False)
    with pytest.raises(InvalidConfig, match="could replace the authority"):
        open_security_folder(link)


def test_security_folder_at_a_dangling_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("missing")
    with pytest.raises(InvalidConfig, match="link: cannot be used"):
        open_security_folder(tmp_path / "link")


def test_configuration_file_is_read_from_the_descriptor_that_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "quorumlog.toml"
    file.write_text('[client]\nbootstrap = "own:1"\n')
    other = tmp_path / "other.toml"
    other.write_text('[client]\nbootstrap = "foreign:1"\n')
    other.chmod(0o666)
    status_of: Callable[[str], os.stat_result] = os.lstat

    def replaced_afterwards(path: str) -> os.stat_result:
        status = status_of(path)
        if path == "quorumlog.toml" and other.exists():
            other.replace(file)
        return status

    monkeypatch.setattr(os, "lstat", replaced_afterwards)
    assert settings.load().bootstrap == "own:1"
    assert not other.exists(), "the file was not replaced"
