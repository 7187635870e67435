"""`ngraph completion bash`: prints a script for completion of verbs and options in a shell, generated from the parser.

eval "$(ngraph completion bash)"                 in ~/.bashrc; zsh: the same in ~/.zshrc, behind compinit
ngraph completion fish > ~/.config/fish/completions/ngraph.fish
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from ngraph.tools.main import load_verbs, parser
from ngraph.verbs import Answer, verb


class Option(NamedTuple):
    """An option's names, its help, whether a value follows, and the choices; an argument has no names."""

    names: list[str]
    help: str
    value: bool
    choices: list[str]


def options(parser: argparse.ArgumentParser) -> list[Option]:
    """Returns the options and arguments of one verb."""
    return [
        Option(list(a.option_strings), re.sub(r"\s+", " ", a.help or ""), a.nargs != 0, [str(c) for c in a.choices or ()])
        for a in parser._actions
        if not isinstance(a, argparse._SubParsersAction)
    ]


def verbs(whole: argparse.ArgumentParser) -> dict[str, tuple[str, list[Option]]]:
    """Returns each verb with its help and its options."""
    (sub,) = [a for a in whole._actions if isinstance(a, argparse._SubParsersAction)]
    helps = {a.dest: a.help or "" for a in sub._choices_actions}
    return {name: (helps.get(name, ""), options(p)) for name, p in sub.choices.items()}


def bash(whole: argparse.ArgumentParser) -> str:
    cases = []
    for name, (_, found) in verbs(whole).items():
        values = [f"        {'|'.join(o.names)}) {_words(o.choices)} ;;" for o in found if o.names and o.value]
        free = " ".join([c for o in found if not o.names for c in o.choices])
        flags = " ".join([n for o in found for n in o.names])
        cases += [
            f"    {name})",
            '      case "$before" in',
            *values,
            f"        *) if [[ $now == -* ]]; then {_words([flags])}; else {_words([free])}; fi",
        ]
        cases += ["      esac ;;"]
    outer = " ".join([*verbs(whole), *[n for o in options(whole) for n in o.names]])
    return "\n".join(
        [
            "_ngraph() {",
            '  local now="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" verb="" word',
            '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
            '    if [[ $word != -* ]]; then verb="$word"; break; fi',
            "  done",
            "  COMPREPLY=()",  # without candidates, files are completed: `-o default`
            '  case "$verb" in',
            f'    "") {_words([outer])} ;;',
            *cases,
            "  esac",
            "}",
            "complete -o default -F _ngraph ngraph",
        ]
    )


def _words(words: list[str]) -> str:
    return f'COMPREPLY=($(compgen -W "{" ".join(words)}" -- "$now"))' if any(words) else ":"


def zsh(whole: argparse.ArgumentParser) -> str:
    lines = ["#compdef ngraph", "_ngraph() {", "  local -a verbs=("]
    lines += [f"    {_quoted(f'{name}:{help}')}" for name, (help, _) in verbs(whole).items()]
    lines += [
        "  )",
        "  if (( CURRENT == 2 )); then _describe verb verbs; return; fi",
        "  shift words; (( CURRENT-- ))",
        '  case "$words[1]" in',
    ]
    for name, (_, found) in verbs(whole).items():
        specs = []
        for o in found:
            about = re.sub(r"([\[\]:])", r"\\\1", o.help)
            value = f":value:({' '.join(o.choices)})" if o.choices else ":file:_files" if o.value else ""
            specs += [f"{n}[{about}]{value}" for n in o.names] if o.names else [f"*{value}"]
        lines.append(f"    {name}) _arguments -s {' '.join(map(_quoted, specs))} ;;")
    return "\n".join([*lines, "  esac", "}", "compdef _ngraph ngraph"])


def fish(whole: argparse.ArgumentParser) -> str:
    lines = []
    for name, (help, found) in verbs(whole).items():
        lines.append(f"complete -c ngraph -n __fish_use_subcommand -f -a {name} -d {_quoted(help)}")
        for o in found:
            parts = [f"complete -c ngraph -n '__fish_seen_subcommand_from {name}'"]
            parts += [f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in o.names]
            parts += [f"-x -a {_quoted(' '.join(o.choices))}" if o.names else f"-a {_quoted(' '.join(o.choices))}"] if o.choices else []
            parts += ["-r -F"] if o.names and o.value and not o.choices else []
            if o.names or o.choices:
                lines.append(" ".join([*parts, f"-d {_quoted(o.help)}"]))
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


SHELLS: dict[str, Callable[[argparse.ArgumentParser], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _arguments(parser: Any) -> None:
    parser.add_argument("shell", choices=list(SHELLS))


@verb("completion", "print what lets a shell complete this command", _arguments)
def completion(arguments: Any) -> Answer:
    """Runs `eval "$(ngraph completion bash)"`."""
    load_verbs()
    text = SHELLS[arguments.shell](parser())
    return Answer(text, {"shell": arguments.shell, "script": text})
