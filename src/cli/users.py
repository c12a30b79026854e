"""`quorumlog users create|alter|list|delete`: passwords of users."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..errors import InvalidConfig, InvalidRequest
from ..scram_keys import PASSWORD_MAX
from .confirmation import confirmed
from .options import BootstrapOption, Output, OutputOption
from .output import echo, print_json, print_table

app = typer.Typer(
    help="Set passwords of users, list and delete them. Brokers store salted keys only.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

UserArgument = Annotated[str, typer.Argument(metavar="USER", help="Name of the user")]
PasswordOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="File with the password in one line, - for standard input; default: ask for it",
    ),
]
IterationsOption = Annotated[
    int | None, typer.Option("--iterations", help="Rounds of PBKDF2, 4096..16384")
]


@app.command(
    "create",
    short_help="Create a user",
    epilog="""\b
Examples:
  quorumlog users create alice                          # asks for the password
  quorumlog users create alice --password-file - < secret
""",
)
def create(
    user: UserArgument,
    password_file: PasswordOption = None,
    iterations: IterationsOption = None,
    bootstrap: BootstrapOption = None,
) -> None:
    """Create a user with a password, for SCRAM-SHA-256 and SCRAM-SHA-512. Fails if it exists."""
    _set(user, password_file, iterations, bootstrap, is_new=True)
    echo(f"Created user {user}.")


@app.command("alter", short_help="Change a password")
def alter(
    user: UserArgument,
    password_file: PasswordOption = None,
    iterations: IterationsOption = None,
    bootstrap: BootstrapOption = None,
) -> None:
    """Change a user's password. Connections with the old one end."""
    _set(user, password_file, iterations, bootstrap, is_new=False)
    echo(f"Changed the password of user {user}.")


@app.command("list", short_help="List users")
def list_users(bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """List users with the mechanisms and iterations of their passwords."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        users = log.admin.describe_users()
    if output is Output.JSON:
        print_json([{"user": each.name, "iterations": dict(each.iterations)} for each in users])
        return
    print_table(
        ("user", "mechanisms", "iterations"),
        [
            (
                each.name,
                ", ".join(each.iterations),
                ", ".join(str(count) for count in each.iterations.values()),
            )
            for each in users
        ],
        empty="No user has a password.",
    )


@app.command("delete", short_help="Delete a user")
def delete(
    user: UserArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt")] = False,
    bootstrap: BootstrapOption = None,
) -> None:
    """Delete a user's passwords and end the user's connections. ACLs stay. Asks for confirmation on
    a terminal."""
    from . import settings

    with settings.open_log(bootstrap=bootstrap) as log:
        found = next((each for each in log.admin.describe_users() if each.name == user), None)
        if found is None:
            raise InvalidConfig(f"user {user} does not exist")
        if not yes and not confirmed(f"Delete user {user}?"):
            raise InvalidRequest(f"user {user} was not deleted: not confirmed")
        log.admin.delete_user(user, mechanisms=list(found.iterations))
    echo(f"Deleted user {user}.")


def read_password(path: Path | None) -> str:
    """Return the password of a file, of standard input, or of a prompt. Raise InvalidConfig if a
    file can be read by every user, or if there is no terminal for the prompt."""
    if path is None:
        if sys.stdin is None or not sys.stdin.isatty():
            raise InvalidConfig(
                "the password cannot be asked for: standard input is not a terminal; give"
                " --password-file FILE, or --password-file - to read standard input"
            )
        entered: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
        return entered
    if str(path) == "-":
        try:
            password = sys.stdin.read().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise InvalidConfig(f"{path}: no password can be read: {error}") from error
    else:
        from ..runtime.tls import secret_of  # needed with a file only

        password = secret_of(f"file:{path}")
    if not password or "\n" in password or len(password) > PASSWORD_MAX:
        raise InvalidConfig(f"{path}: give one line of 1..{PASSWORD_MAX} characters")
    return password


def _set(
    user: str,
    path: Path | None,
    iterations: int | None,
    bootstrap: str | None,
    *,
    is_new: bool,
) -> None:
    """Set the password of a user that exists, or that does not."""
    from ..scram_keys import ITERATIONS_DEFAULT
    from . import settings

    given = None if path is None else read_password(path)
    with settings.open_log(bootstrap=bootstrap) as log:
        exists = any(each.name == user for each in log.admin.describe_users())
        if exists and is_new:
            raise InvalidConfig(f"user {user} exists; change the password by `users alter`")
        if not (exists or is_new):
            raise InvalidConfig(f"user {user} does not exist; create it by `users create`")
        rounds = ITERATIONS_DEFAULT if iterations is None else iterations
        password = read_password(None) if given is None else given
        log.admin.set_password(user, password, iterations=rounds)
