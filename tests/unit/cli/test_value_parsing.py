"""Values are parsed as Typer parses them, for each parameter of a command."""

from typing import Any

import pytest
import typer

from quorumlog.cli.main import ENTRIES, load
from quorumlog.cli.plain_values import OTHER, convert_plain_values, plain_value

TYPED: tuple[str, ...] = (
    "",
    "0",
    "1",
    "-1",
    "-",
    "--",
    "007",
    "+5",
    " 5",
    "5 ",
    "1_000",
    "65535",
    "65536",
    "0.5",
)
TYPED += ("9" * 18, "9" * 30, "abc", "é", "٣", "json", "JSON", "all", "lines", "zstd", "1e3", "inf")


def parameters(command: Any) -> list[Any]:
    """Return every parameter of a command and of its subcommands."""
    found = list(command.params)
    for below in getattr(command, "commands", {}).values():
        found += parameters(below)
    return found


@pytest.mark.slow
def test_every_value_is_what_typer_makes_of_it() -> None:
    looked_at = taken = 0
    seen = set()
    for name in ENTRIES:
        for parameter in parameters(load(name)):
            described = getattr(parameter, "type_descriptor", None)
            if described is None:
                pytest.skip("this Typer converts values in another way")
            info, is_many = described.parameter_info, parameter.multiple or parameter.nargs != 1
            key = (str(described.annotation), info.min, info.max, is_many)
            if key in seen:
                continue
            seen.add(key)
            given: list[Any] = [None, parameter.default]
            given += [(text, "x") for text in TYPED] if is_many else list(TYPED)
            for value in given:
                if callable(value):
                    continue
                looked_at += 1
                plain = plain_value(parameter, described, value)
                if plain is not OTHER:
                    taken += 1
                    usual = parameter.get_runtime_param().coerce(value, parameter, None)
                    assert (type(plain), plain) == (type(usual), usual), (parameter.name, value)
    assert looked_at > taken > 100


@pytest.mark.parametrize(
    ("typed", "said"), [("0", "0 None"), ("9", "9 None"), ("10", None), ("x", None), ("", None)]
)
def test_typer_reports_invalid_values(
    typed: str, said: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer(rich_markup_mode=None, add_completion=False)

    @app.command()
    def show(number: int = typer.Option(1, min=0, max=9), text: str | None = None) -> None:
        typer.echo(f"{number} {text}")

    outcomes = []
    for is_plain in (False, True):
        command = typer.main.get_command(app)
        if is_plain:
            convert_plain_values(command)
        with pytest.raises(SystemExit) as ending:
            command.main(["--number", typed], "show")
        outcomes.append((ending.value.code, *capsys.readouterr()))
    assert outcomes[0] == outcomes[1]
    code, out, _ = outcomes[0]
    assert (code, out) == ((2, "") if said is None else (0, f"{said}\n"))
