"""The certificate authority of a folder, and its replacement."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from quorumlog.errors import DirectoryUnusable, InvalidConfig
from quorumlog.server.certificates import (
    CertificateFacts,
    create_authority,
    inspect,
    issue,
    renew,
    renew_all,
    trust_both,
    trust_new,
)

HOSTS = ("localhost", "127.0.0.1", "::1")
URI = "quorumlog://cluster/node/1?roles=broker"
FOREIGN_USER = 65_534

STEPS: dict[str, Callable[[Path], object]] = {
    "init-ca": lambda folder: create_authority(folder, name="authority"),
    "issue": lambda folder: issue(folder, "bob", name="bob"),
    "renew": lambda folder: renew(folder, "alice"),
    "trust-both": trust_both,
    "renew-all": renew_all,
    "trust-new": trust_new,
}


def facts(folder: Path, name: str) -> CertificateFacts:
    """Return the properties of one certificate."""
    return inspect(folder / f"{name}.pem")[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An authority with certificates of a node and a client, and an unrelated file."""
    create_authority(tmp_path, name="authority")
    issue(tmp_path, "node-1", name="node 1", hosts=HOSTS, uris=[URI])
    issue(tmp_path, "alice", name="alice")
    (tmp_path / "parameters.pem").write_text("none")
    return tmp_path


def test_change_of_an_authority_keeps_names_hosts_and_identities(folder: Path) -> None:
    old, before = facts(folder, "ca"), facts(folder, "node-1")
    trust_both(folder)
    assert facts(folder, "node-1") == before
    issue(folder, "bob", name="bob")  # still signed by the old authority
    assert [paths.certificate.stem for paths in renew_all(folder)] == ["alice", "bob", "node-1"]
    assert renew_all(folder) == []
    assert old in inspect(folder / "ca.pem")
    trust_new(folder)
    (new,) = inspect(folder / "ca.pem")
    after = facts(folder, "node-1")
    assert (new.subject, new.fingerprint == old.fingerprint) == (old.subject, False)
    assert (after.subject, sorted(after.hosts), after.uris) == (
        before.subject,
        sorted(HOSTS),
        (URI,),
    )
    renew(folder, "node-1")
    issue(folder, "node-2", name="node 2")
    assert not (folder / "ca-next.key").exists()


def test_steps_out_of_order_change_nothing_and_name_the_next_one(folder: Path) -> None:
    def contents() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    def refused(step: Callable[[Path], object], remedy: str) -> None:
        before = contents()
        with pytest.raises(InvalidConfig, match=f"rotate {folder} {remedy}"):
            step(folder)
        assert contents() == before

    refused(renew_all, "trust-both")
    refused(trust_new, "trust-both")
    trust_both(folder)
    refused(trust_both, "renew")
    refused(trust_new, "renew")
    old = (folder / "alice.pem").read_bytes()
    renew_all(folder)
    refused(trust_both, "trust-new")
    (folder / "alice.pem").write_bytes(old)  # as after an interrupted `renew`
    refused(trust_new, "renew")
    assert [paths.certificate.stem for paths in renew_all(folder)] == ["alice"]
    trust_new(folder)


def test_key_of_another_authority_is_refused_with_the_remedy(folder: Path, tmp_path: Path) -> None:
    other = create_authority(tmp_path / "other", name="authority")
    (folder / "ca.pem").write_bytes(other.certificate.read_bytes())
    with pytest.raises(InvalidConfig, match=r"not the key of .*ca\.pem; put the ca\.key"):
        renew(folder, "node-1")


@pytest.mark.parametrize("mode", [0o020, 0o002])
@pytest.mark.parametrize("name", STEPS)
def test_authority_in_a_folder_that_others_can_write_is_refused(
    name: str, mode: int, folder: Path
) -> None:
    """Another user can have put an authority with a known key there."""
    if name == "init-ca":
        (folder / "ca.pem").unlink()
        (folder / "ca.key").unlink()
    elif name in ("renew-all", "trust-new"):
        trust_both(folder)
    if name == "trust-new":
        renew_all(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    folder.chmod(0o700 | mode)
    with pytest.raises(DirectoryUnusable, match=rf"{folder}: other users .*chmod -R go-w {folder}"):
        STEPS[name](folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    folder.chmod(0o700)
    STEPS[name](folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("place", [".", "ca.pem", "ca.key", "ca-next.key", "alice.pem"])
def test_authority_of_another_user_is_refused(place: str, folder: Path) -> None:
    trust_both(folder)
    os.chown(folder / place, FOREIGN_USER, -1)
    with pytest.raises(DirectoryUnusable, match="it belongs to user"):
        renew_all(folder)
    assert (folder / "ca-next.key").exists()
    os.chown(folder / place, 0, -1)
    renew_all(folder)


def test_folder_of_a_new_authority_is_private_for_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        create_authority(tmp_path / "new", name="authority")
    finally:
        os.umask(before)
    issue(tmp_path / "new", "alice", name="alice")
