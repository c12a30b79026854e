"""Shell completion: scripts for bash, zsh and fish, and the candidates that they request.

A script runs the command with the line up to the cursor in `main.LINE_VARIABLE`. The command prints
one candidate per line, followed by a tab and a description if there is one. The script passes the
whole line, not the shell's words, because bash splits addresses at the colon.

Nothing is written to stderr and failures are silent: the user is typing a command line.
"""

import contextlib
import os
import shlex
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer

from .output import print_raw

TOPICS_TIMEOUT_MS = 1_000  # no candidates from a slower broker

EXAMPLES = """\b
Install for every new shell:
  bash:  quorumlog completion bash > ~/.local/share/bash-completion/completions/quorumlog
  zsh:   quorumlog completion zsh > "${fpath[1]}/_quorumlog"
  fish:  quorumlog completion fish > ~/.config/fish/completions/quorumlog.fish

\b
Enable in the current shell:
  source <(quorumlog completion bash)
"""

BASH = r"""
_quorumlog_complete() {
    local line="${COMP_LINE:0:COMP_POINT}" word="${COMP_WORDS[COMP_CWORD]}" candidate
    COMPREPLY=()
    while IFS=$'\t' read -r candidate _; do
        COMPREPLY+=("$candidate")
    done < <(_QUORUMLOG_COMPLETE="$line" "${COMP_WORDS[0]}" 2>/dev/null)
    # bash replaces only what follows the last colon or equals sign of the word
    local typed="${line##* }"
    local kept="${typed%"$word"}"
    if [[ -n "$kept" && "$kept" == *[:=] ]]; then
        COMPREPLY=("${COMPREPLY[@]#"$kept"}")
    fi
}
complete -o bashdefault -o default -F _quorumlog_complete quorumlog
"""

ZSH = r"""#compdef quorumlog
_quorumlog() {
    local -a candidates
    local line value text
    for line in "${(@f)$(_QUORUMLOG_COMPLETE="${BUFFER[1,$CURSOR]}" quorumlog 2>/dev/null)}"; do
        [[ -n "$line" ]] || continue
        value="${line%%$'\t'*}"
        text="${line#*$'\t'}"
        [[ "$text" == "$line" ]] && text=""
        candidates+=("${value//:/\\:}:$text")
    done
    if (( ${#candidates} )); then
        _describe 'quorumlog' candidates
    else
        _files
    fi
}
if [[ "${funcstack[1]}" == "_quorumlog" ]]; then
    _quorumlog "$@"
else
    compdef _quorumlog quorumlog
fi
"""

FISH = r"""
function __quorumlog_complete
    _QUORUMLOG_COMPLETE=(commandline --cut-at-cursor) quorumlog 2>/dev/null
end
complete --command quorumlog --arguments '(__quorumlog_complete)'
"""


class Shell(StrEnum):
    """The supported shells."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


SCRIPTS = {Shell.BASH: BASH, Shell.ZSH: ZSH, Shell.FISH: FISH}


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish")],
) -> None:
    """Print a script that completes commands, options and topic names."""
    print_raw(SCRIPTS[shell].lstrip("\n"))


def answer(app: typer.Typer, line: str) -> None:
    """Print the candidates for the end of a command line."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)
    with contextlib.suppress(Exception):
        for value, text in candidates(typer.main.get_command(app), line):
            print_raw(f"{value}\t{text}\n" if text else f"{value}\n")
    sys.stdout.flush()


def candidates(root: Any, line: str) -> Iterator[tuple[str, str]]:
    """Yield (value, description) of each candidate for the last word of a line, without
    duplicates."""
    words, incomplete = split_line(line)
    command, ctx, option, rest = _walk(root, words)
    if option is None and incomplete.startswith("--") and "=" in incomplete:
        name, _, incomplete = incomplete.partition("=")
        option = _option_named(command, name)
        if option is None:
            return
        found = _values_of(option, ctx, incomplete)
        yield from ((f"{name}={value}", text) for value, text in found)
    elif option is not None:
        yield from _values_of(option, ctx, incomplete)
    elif incomplete.startswith("-"):
        yield from _options_of(command, ctx, incomplete)
    elif hasattr(command, "commands"):
        yield from _commands_of(command, incomplete)
    else:
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        if arguments:
            place = min(len(rest), len(arguments) - 1)
            if len(rest) < len(arguments) or arguments[place].nargs == -1:
                yield from _values_of(arguments[place], ctx, incomplete)


def split_line(line: str) -> tuple[list[str], str]:
    """Return the complete words after the program's name, and the incomplete last word, "" if there
    is none."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        words.extend(lexer)
    except ValueError:  # an open quote: the quoted text is the incomplete word
        words.append(lexer.token)
        return words[1:-1], words[-1]
    if line[-1:].isspace() or len(words) < 2:
        return words[1:], ""
    return words[1:-1], words[-1]


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the cluster's topics that start with `incomplete`."""
    from .settings import open_log

    with open_log(
        bootstrap=ctx.params.get("bootstrap"),
        connect_timeout_ms=TOPICS_TIMEOUT_MS,
        call_timeout_ms=TOPICS_TIMEOUT_MS,
    ) as log:
        names = [topic.name for topic in log.admin.list_topics(internal=True)]
    return [name for name in names if name.startswith(incomplete)]


def _walk(root: Any, words: list[str]) -> tuple[Any, Any, Any, list[str]]:
    """Return the command of the words, its context, the option that still needs its value, and the
    arguments so far."""
    command, ctx = root, _context(root, [], None)
    own: list[str] = []  # the words of `command`
    rest: list[str] = []
    option = None
    for word in words:
        if option is not None:
            option = None
        elif word.startswith("-") and len(word) > 1:
            found = _option_named(command, word.partition("=")[0])
            if found is not None and not found.is_flag and "=" not in word:
                option = found
        elif hasattr(command, "commands") and word in command.commands:
            parent = _context(command, own, ctx.parent)
            command = command.commands[word]
            ctx = _context(command, [], parent)
            own = []
            continue
        else:
            rest.append(word)
        own.append(word)
    known = own[:-1] if option is not None else own
    return command, _context(command, known, ctx.parent), option, rest


def _context(command: Any, words: list[str], parent: Any) -> Any:
    return command.make_context(command.name, list(words), parent=parent, resilient_parsing=True)


def _option_named(command: Any, name: str) -> Any:
    for parameter in command.params:
        if parameter.param_type_name == "option" and name in parameter.opts:
            return parameter
    return None


def _values_of(parameter: Any, ctx: Any, incomplete: str) -> Iterator[tuple[str, str]]:
    for item in parameter.shell_complete(ctx, incomplete):
        if item.value != incomplete or item.type == "plain":
            yield item.value, item.help or ""


def _options_of(command: Any, ctx: Any, incomplete: str) -> Iterator[tuple[str, str]]:
    for parameter in command.get_params(ctx):
        if parameter.param_type_name != "option" or getattr(parameter, "hidden", False):
            continue
        names = [*parameter.opts, *parameter.secondary_opts]
        wanted = [name for name in names if name.startswith(incomplete)]
        text = " ".join((parameter.help or "").split()).partition(". ")[0]
        long_ones = [name for name in wanted if name.startswith("--")]
        yield from ((name, text) for name in (long_ones or wanted))


def _commands_of(group: Any, incomplete: str) -> Iterator[tuple[str, str]]:
    for name, command in group.commands.items():
        if name.startswith(incomplete) and not command.hidden:
            yield name, command.get_short_help_str(60)
