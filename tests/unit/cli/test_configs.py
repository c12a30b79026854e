"""`configs`, `brokers`, `cluster` and `config show`: output, refusals and sources of settings."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.kit.command import COMMAND, WAIT_S, invoke

from quorumlog.cli.settings import CLIENT_SETTINGS, known_variables
from quorumlog.metadata import TOPIC_CONFIGS
from quorumlog.server.config import settings
from quorumlog.server.main import load_config
from quorumlog.settings import variable_of

FOREIGN_USER = 65_534


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("configs")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """The gRPC address of a node configured by a file, a variable and a flag."""
    file = folder / "node.toml"
    file.write_text(
        f'data.dir = "{folder}/data"\n[listeners]\ngrpc = "127.0.0.1:0"\n'
        'controller = "127.0.0.1:0"\n'
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("QUORUMLOG_")}
    environment["QUORUMLOG_FETCH_WAITS_MAX"] = "77"
    subprocess.run([*COMMAND, "storage", "format", "--config", file], check=True, timeout=WAIT_S)
    with subprocess.Popen(
        [*COMMAND, "server", "--config", file, "--set", "node.rack=r1", "-o", "json"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["grpc"]
        finally:
            process.terminate()
            process.wait(WAIT_S)


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Isolate the tests from the variables, files and umask of the user who runs them."""
    umask = os.umask(0o022)
    for name in known_variables():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)
    yield
    os.umask(umask)


def read(*arguments: str, address: str = "") -> list[dict[str, Any]]:
    result = invoke(*arguments, "-o", "json", address=address)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    return rows if isinstance(rows, list) else [rows]


def by_name(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {str(row["name"]): row for row in rows}


# --- configs -------------------------------------------------------------------------------------


def test_configs_of_a_topic_are_altered_and_described(address: str) -> None:
    assert invoke("topics", "create", "a", address=address).exit_code == 0
    (altered,) = read(
        "configs", "alter", "a", "--set", "retention.ms=7d", "--set", "segment.bytes=64MiB",
        address=address,
    )  # fmt: skip
    assert altered["configs"] == {"retention.ms": "604800000", "segment.bytes": "67108864"}
    result = invoke("configs", "alter", "a", "--delete", "retention.ms", address=address)
    assert result.stdout == "Non-default configs of topic a are: segment.bytes=67108864.\n"
    assert list(by_name(read("configs", "describe", "a", address=address))) == list(TOPIC_CONFIGS)
    (row,) = read("configs", "describe", "a", "--changed", address=address)
    assert (row["name"], row["value"], row["source"]) == ("segment.bytes", "67108864", "topic")
    assert (row["low"], row["unit"], row["changes"]) == (1024, "bytes", "at once")
    text = invoke("configs", "describe", "a", "--docs", address=address).stdout
    assert "\nsegment.bytes = 67108864 (topic)\n" in text
    assert "Retention deletes whole segments" in " ".join(text.split())
    assert (
        "Valid values: 1,024..2,147,483,647 bytes; default: 1073741824; a change applies: at once."
        in " ".join(text.split())
    )
    assert max(map(len, text.splitlines())) <= 80  # a table of sentences fits no terminal


def test_an_empty_cleanup_policy_is_set_and_described(address: str) -> None:
    created = invoke("topics", "create", "keep", "--config", "cleanup.policy=", address=address)
    assert created.exit_code == 0, created.output
    (row,) = read("configs", "describe", "keep", "--changed", address=address)
    assert (row["name"], row["value"], row["choices"]) == (
        "cleanup.policy",
        "",
        ["delete", "compact"],
    )
    text = invoke("configs", "describe", "keep", "--docs", address=address).stdout
    assert "any of delete, compact, or an empty list; default: delete" in " ".join(text.split())
    args = ("configs", "alter", "keep", "--set", "cleanup.policy=delete,compact")
    (altered,) = read(*args, address=address)
    assert altered["configs"] == {"cleanup.policy": "delete,compact"}


def test_validation_changes_nothing(address: str) -> None:
    assert invoke("topics", "create", "b", address=address).exit_code == 0
    result = invoke(
        "configs", "alter", "b", "--set", "retention.ms=1", "--validate-only", address=address
    )
    assert result.stdout == "Non-default configs of topic b would be: retention.ms=1.\n"
    assert read("configs", "describe", "b", "--changed", address=address) == []
    assert "All values are defaults." in (
        invoke("configs", "describe", "b", "--changed", address=address).stdout
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--set", "retention.m=1"], "did you mean retention.ms?"),
        (["--set", "retention.ms=x"], "retention.ms is 'x'; give a whole number"),
        (["--delete", "nothing.like"], "unknown topic config 'nothing.like'"),
    ],
)
def test_invalid_change_is_one_sentence_with_the_remedy(
    address: str, arguments: list[str], sentence: str
) -> None:
    assert invoke("topics", "create", "c", "--if-not-exists", address=address).exit_code == 0
    result = invoke("configs", "alter", "c", *arguments, address=address)
    assert (result.exit_code, result.stdout) == (1, "")
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert read("configs", "describe", "c", "--changed", address=address) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["configs", "alter", "t"],
        ["configs", "alter"],
        ["configs", "describe"],
        ["configs", "describe", "t", "--broker", "1"],
        ["brokers", "describe"],
        ["config", "show", "--client", "--set", "node.id=1"],
        ["config", "show", "--bootstrap", "h:1"],
    ],
)
def test_missing_or_excess_arguments_are_a_usage_error(arguments: list[str]) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2, result.output
    assert "Usage: " in result.stderr


def test_unknown_topic_is_reported(address: str) -> None:
    for command in (["describe", "no-such"], ["alter", "no-such", "--set", "retention.ms=1"]):
        result = invoke("configs", *command, address=address)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "no-such" in result.stderr


# --- brokers -------------------------------------------------------------------------------------


def test_settings_of_a_broker_have_their_sources(address: str, folder: Path) -> None:
    found = by_name(read("configs", "describe", "--broker", "1", "--changed", address=address))
    places = {name: (row["value"], row["source"], row["place"]) for name, row in found.items()}
    assert places == {
        "data.dir": (f"{folder}/data", "file", f"{folder}/node.toml:1"),
        "listeners.grpc": ("127.0.0.1:0", "file", f"{folder}/node.toml:3"),
        "listeners.controller": ("127.0.0.1:0", "file", f"{folder}/node.toml:4"),
        "node.rack": ("r1", "flag", "--set node.rack"),
        "fetch.waits.max": ("77", "environment", "QUORUMLOG_FETCH_WAITS_MAX"),
    }


def test_brokers_are_listed_and_described(address: str, folder: Path) -> None:
    assert invoke("topics", "create", "d", "-p", "2", address=address).exit_code == 0
    expected = {
        "id": 1, "grpc": address, "rack": "r1", "state": "active", "is_controller": True,
        "kafka": {},
    }  # fmt: skip
    (listed,) = read("brokers", "list", address=address)
    assert listed.pop("broker_epoch") >= 0
    assert listed == expected
    (broker,) = read("brokers", "describe", "1", address=address)
    (directory,) = broker.pop("directories")
    assert broker.pop("broker_epoch") >= 0
    assert broker == expected
    assert directory["path"] == f"{folder}/data"
    assert directory["capacity_bytes"] >= directory["free_bytes"] > directory["size_bytes"]
    assert [log["partition"] for log in directory["logs"] if log["topic"] == "d"] == [0, 1]
    assert address in invoke("brokers", "list", address=address).stdout
    assert f"{folder}/data" in invoke("brokers", "describe", "1", address=address).stdout
    for command in (["brokers", "describe", "9"], ["configs", "describe", "--broker", "9"]):
        result = invoke(*command, address=address)
        assert result.exit_code == 1
        assert "broker 9 is not registered; registered brokers: 1" in result.stderr


def test_the_cluster_is_described(address: str) -> None:
    (cluster,) = read("cluster", "describe", address=address)
    assert (cluster["controller"], len(str(cluster["cluster_id"]))) == (1, 22)
    text = invoke("cluster", "describe", address=address).stdout
    assert str(cluster["cluster_id"]) in text
    assert "brokers     1\n" in text


# --- config show ---------------------------------------------------------------------------------


def test_every_setting_of_a_node_is_shown_with_its_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "n.toml").write_text('[data]\ndir = "/d"\n')
    monkeypatch.setenv("QUORUMLOG_NODE_RACK", "r")
    found = by_name(read("config", "show", "--config", "n.toml", "--set", "fetch.bytes.max=1MiB"))
    assert list(found) == [row.name for row in settings()]
    shown = {
        name: (row["value"], row["source"], row["place"])
        for name, row in found.items()
        if row["source"] != "default"
    }
    assert shown == {
        "data.dir": ("/d", "file", "n.toml:2"),
        "node.rack": ("r", "environment", "QUORUMLOG_NODE_RACK"),
        "fetch.bytes.max": (1 << 20, "flag", "--set fetch.bytes.max"),
    }
    docs = invoke("config", "show", "--config", "n.toml", "--docs", "--changed").stdout
    assert docs.startswith("data.dir = /d (file n.toml:2, QUORUMLOG_DATA_DIR)\n    The node's data")
    text = invoke("config", "show", "--config", "n.toml", "--changed").stdout
    assert "n.toml:2" in text
    assert "shutdown.grace.ms" not in text


def test_a_setting_that_is_missing_is_shown_as_missing() -> None:
    row = by_name(read("config", "show"))["data.dir"]
    assert (row["value"], row["source"]) == (None, "missing")
    assert "required" in invoke("config", "show").stdout


def test_settings_that_a_node_refuses_are_refused(tmp_path: Path) -> None:
    (tmp_path / "n.toml").write_text('data.dir = "/d"\nlisteners.grpc = "0.0.0.0:1"\n')
    result = invoke("config", "show", "--config", "n.toml")
    assert result.exit_code == 1
    assert "n.toml:2: listeners.grpc: it is on every interface" in result.stderr
    result = invoke("config", "show", "--set", "listeners.grpc=foo")  # also without a data.dir
    assert result.exit_code == 1
    assert "--set listeners.grpc: listeners.grpc: " in result.stderr


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("environment", [True, False])
@pytest.mark.parametrize("file", [None, "named", "here", "home"])
def test_command_line_settings_have_one_order_of_sources(
    flag: bool,
    environment: bool,
    file: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected: tuple[str, str, str | None] = ("127.0.0.1:9094", "default", None)
    if file is not None:
        places = {
            "named": tmp_path / "own.toml",
            "here": tmp_path / "quorumlog.toml",
            "home": tmp_path / "xdg" / "quorumlog" / "config.toml",
        }
        for at, (name, path) in enumerate(places.items()):
            if at >= list(places).index(file):  # later sources are ignored
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f'node.id = 5\n[client]\nbootstrap = "{name}:1"\n')
        if file == "named":
            monkeypatch.setenv("QUORUMLOG_CONFIG", str(places["named"]))
        shown = "quorumlog.toml" if file == "here" else str(places[file])
        expected = (f"{file}:1", "file", f"{shown}:3")
    if environment:
        monkeypatch.setenv("QUORUMLOG_BOOTSTRAP", "env:1")
        expected = ("env:1", "environment", "QUORUMLOG_BOOTSTRAP")
    if flag:
        expected = ("flag:1", "flag", "--bootstrap")
    more = ["--bootstrap", "flag:1"] if flag else []
    row = by_name(read("config", "show", "--client", *more))["bootstrap"]
    assert (row["value"], row["source"], row["place"]) == expected


def test_a_command_obeys_the_file(address: str, tmp_path: Path) -> None:
    (tmp_path / "quorumlog.toml").write_text(
        f'[client]\nbootstrap = "{address}"\noutput = "json"\n'
    )
    result = invoke("brokers", "list")
    assert json.loads(result.stdout)[0]["id"] == 1
    assert json.loads(invoke("config", "show", "--client").stdout)[1]["place"] == (
        "quorumlog.toml:3"
    )


@pytest.mark.parametrize(
    ("mode", "owner", "remedy"),
    [
        (0o620, None, "chmod go-w"),
        (0o602, None, "chmod go-w"),
        (0o600, FOREIGN_USER, "use a file of your own"),
    ],
)
def test_file_of_the_current_folder_that_another_user_can_write_is_refused(
    mode: int, owner: int | None, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "quorumlog.toml"
    file.write_text('[client]\nbootstrap = "foreign:1"\n')
    file.chmod(mode)
    if owner is not None:
        if os.getuid():
            pytest.skip("only root can give a file away")
        os.chown(file, owner, -1)
    result = invoke("config", "show", "--client")
    assert result.exit_code == 1
    assert f"{file}: another user can write" in result.stderr
    assert remedy in result.stderr
    monkeypatch.setenv("QUORUMLOG_CONFIG", "quorumlog.toml")  # the user's choice
    assert by_name(read("config", "show", "--client"))["bootstrap"]["value"] == "foreign:1"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[client]\nbootstrp = 'h:1'\n", "quorumlog.toml:2: unknown setting bootstrp; did you"),
        ("[client]\noutput = 'xml'\n", "quorumlog.toml:2: output is 'xml'; give one of human"),
        ("[client]\nconnect_timeout_ms = 0\n", "connect_timeout_ms is 0; give 1.."),
        ("[client\n", "quorumlog.toml is not TOML"),
    ],
)
def test_invalid_file_is_one_sentence_with_its_line(
    text: str, sentence: str, tmp_path: Path
) -> None:
    (tmp_path / "quorumlog.toml").write_text(text)
    result = invoke("topics", "list")
    assert (result.exit_code, result.stdout) == (1, "")
    assert sentence in result.stderr


CONTEXTS = """\
data.dir = "/d"
current-context = "test"
[client]
bootstrap = "plain:1"
call_timeout_ms = 7
[context.test]
bootstrap = "test:1"
[context."prod.eu"]
bootstrap = "prod:1"
"""


@pytest.mark.parametrize(
    ("flag", "variable", "expected"),
    [
        ("", "", ("test:1", "quorumlog.toml:7")),
        ("", "prod.eu", ("prod:1", "quorumlog.toml:9")),
        ("default", "prod.eu", ("plain:1", "quorumlog.toml:4")),
        ("prod.eu", "test", ("prod:1", "quorumlog.toml:9")),
    ],
)
def test_context_is_chosen_by_flag_then_variable_then_file(
    flag: str,
    variable: str,
    expected: tuple[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QUORUMLOG_CONTEXT", variable)
    (tmp_path / "quorumlog.toml").write_text(CONTEXTS)
    words = ["--context", flag] if flag else []
    rows = by_name(read(*words, "config", "show", "--client"))
    assert (rows["bootstrap"]["value"], rows["bootstrap"]["place"]) == expected
    is_default = flag == "default"  # no context has settings of another
    assert (rows["call_timeout_ms"]["source"] == "file") == is_default
    assert load_config(str(tmp_path / "quorumlog.toml")).data_dir == "/d"


def test_file_of_a_flag_has_the_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QUORUMLOG_CONFIG", "QUORUMLOG_CONTEXT"):
        monkeypatch.setenv(name, "")
    file = tmp_path / "other.toml"
    file.write_text(CONTEXTS)
    rows = by_name(read("--config", str(file), "--context", "test", "config", "show", "--client"))
    assert rows["bootstrap"]["place"] == f"{file}:7"


@pytest.mark.parametrize(
    ("text", "context", "sentence"),
    [
        (CONTEXTS, "prod", "context 'prod': not in quorumlog.toml; its contexts are default, pro"),
        (None, "prod", "context 'prod': there is no configuration file; name it with --config"),
        ("current-context = 'x'", "", "its contexts are default\n"),
        ("current-context = 1", "", "current-context is 1; give the name of a context"),
        ("context = 'x'", "", "context is not a table of contexts; give [context.NAME]"),
        ("[context.default]", "", "and [client] for the context default"),
        ("context.test = 'x'", "test", "context.test is 'x'; make it a table, [context.test]"),
        ("[context.test]\nx = 1", "test", "quorumlog.toml:2: unknown setting x"),
    ],
)
def test_wrong_context_is_one_sentence(
    text: str | None,
    context: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("QUORUMLOG_CONTEXT", context)
    if text is not None:
        (tmp_path / "quorumlog.toml").write_text(text)
    result = invoke("topics", "list")
    assert (result.exit_code, result.stdout) == (1, "")
    assert sentence in result.stderr


def test_given_file_must_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORUMLOG_CONFIG", "/no/such.toml")
    result = invoke("config", "show", "--client")
    assert result.exit_code == 1
    assert "/no/such.toml (named by QUORUMLOG_CONFIG) cannot be read" in result.stderr


def test_unknown_variable_is_reported_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORUMLOG_BOOTSTRP", "h:1")
    output = (
        "quorumlog: warning: environment variable QUORUMLOG_BOOTSTRP is not known and was ignored;"
        " did you mean QUORUMLOG_BOOTSTRAP?\n"
    )
    for command in (["brokers", "list"], ["config", "show"], ["config", "show", "--client"]):
        result = invoke(*command, address=address)
        assert (result.exit_code, result.stderr) == (0, output), command


def test_no_variable_of_the_command_line_is_one_of_a_node() -> None:
    node = {variable_of(row.name) for row in settings()}
    assert node.isdisjoint(variable_of(row.name) for row in CLIENT_SETTINGS)
