"""Pasted text -> commands of words: shells, Dockerfiles, Kubernetes, compose and JSON lists."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specsim.catalog.yaml_text import load_yaml
from specsim.errors import InputError, UsageError

_SEPARATORS = ";&|<>\n"
_VARIABLE = re.compile(
    r"\$\{(?P<braced>[A-Za-z_]\w*)(?::?[-=](?P<default>[^{}]*))?\}|\$(?P<plain>[A-Za-z_]\w*)"
    r"|\$\((?P<kubernetes>[A-Za-z_]\w*)\)"
)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
# Backslash (sh), backtick (PowerShell) and caret (cmd); the last two mean other things in sh.
_CONTINUED = re.compile(r"(?:\\|(?<=\s)[`^])[ \t]*(?:(?<=[ \t])#[^\n]*)?\n")
_CONTAINER = re.compile(r"^[ \t]*(?:- )?[\"']?(?:command|args|entrypoint)[\"']?:", re.MULTILINE)
_DOCKERFILE = re.compile(r"^[ \t]*(FROM|ENV|ENTRYPOINT|CMD)[ \t]+(.+)$", re.MULTILINE)
_WORD_PROCESSOR = str.maketrans(
    {
        "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2018": "'", "\u2019": "'",
        "\u2010": "-", "\u2011": "-", "\u2212": "-", "\u00a0": " ", "\u202f": " ",
        "\u200b": None, "\ufeff": None,
    }
)  # fmt: skip
_LONG_DASH = re.compile("(?<!\\S)-*[\u2012-\u2015][-\u2012-\u2015]*(?P<name>[A-Za-z][\\w-]*)")


def split_commands(text: str) -> list[list[str]]:
    """Split pasted text into commands of words; continuations, quotes and variables resolved.

    What a word processor made of dashes and quotes is undone. In a container's description,
    command and arguments are put together as the container runs them.
    """
    text = text.replace("\r\n", "\n").translate(_WORD_PROCESSOR)
    # What it made a long dash of is the -- of a flag; -tp and the like have one.
    text = _LONG_DASH.sub(lambda m: ("-" if len(m["name"]) <= 3 else "--") + m["name"], text)
    described = list(_described(text))
    return _with_variables(described or _shell_commands(text))


# Shells


def _shell_commands(text: str) -> list[list[str]]:
    lexer = shlex.shlex(
        _with_quoted_json(_joined(text).strip()), posix=True, punctuation_chars=_SEPARATORS
    )
    lexer.whitespace_split = True
    lexer.whitespace = " \t\r\f\v"
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError as error:
        raise UsageError(f"the command has an unclosed quote or escape ({error})") from error
    return _commands(words)


def _joined(text: str) -> str:
    """Join continued lines and drop comments.

    To a shell a comment ends a continued command, and the flags below it are lost; whoever wrote
    the comment there meant them all.
    """
    out: list[str] = []
    quote = ""
    i = 0
    while i < len(text):
        character = text[i]
        continued = _CONTINUED.match(text, i)
        if continued:
            out.append(" ")
            i = continued.end()
        elif character == "#" and not quote and (i == 0 or text[i - 1] in " \t\n;"):
            end = text.find("\n", i)
            end = len(text) if end < 0 else end
            alone = not text[text.rfind("\n", 0, i) + 1 : i].strip()
            # A line of its own leaves no trace; after words the line's continuation stays.
            if alone or text[i:end].rstrip().endswith("\\"):
                out.append(" ")
                end += 1
            i = end
        else:
            if character == "\\" and quote != "'" and i + 1 < len(text):
                out.append(character)
                i += 1
                character = text[i]
            elif character in "\"'" and quote in ("", character):
                quote = "" if quote else character
            out.append(character)
            i += 1
    return "".join(out)


def _with_quoted_json(text: str) -> str:
    """Quote JSON objects that stand bare: a command pasted into quotes loses its own.

    `-sc {"method": "eagle3"}` is one word to whoever wrote it; a shell would drop its quotes and
    split it at the space. Braces inside quotes are left alone. What looks like an object and is
    none is quoted up to its last brace, so that whoever reads it can show it as it was written.
    """
    out: list[str] = []
    quote = ""
    i = 0
    while i < len(text):
        end = i + 1
        if not quote and text[i] == "{" and text[i + 1 :].lstrip()[:1] == '"':
            end = _end_of_object(text, i)
            out.append(shlex.quote(text[i:end]) if end > i + 1 else text[i])
        else:
            if text[i] in "\"'" and quote in ("", text[i]):
                quote = "" if quote else text[i]
            out.append(text[i])
        i = end
    return "".join(out)


def _end_of_object(text: str, start: int) -> int:
    """Return the end of the JSON object that starts here, or start + 1 if it does not end."""
    try:
        _, end = json.JSONDecoder().raw_decode(text, start)
    except RecursionError:
        return start + 1
    except ValueError:
        depth = 0
        for end in range(start, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                return end + 1
        return start + 1
    return end


def _commands(words: Sequence[str]) -> list[list[str]]:
    commands: list[list[str]] = [[]]
    for position, word in enumerate(words):
        following = words[position + 1] if position + 1 < len(words) else ""
        if word and all(character in _SEPARATORS for character in word):
            # A line that starts with a flag continues the one before: a lost backslash.
            if not (set(word) <= {"\n"} and following.startswith("-")):
                commands.append([])
        elif not (word in ("1", "2") and following.startswith(">")):
            commands[-1].append(word)
    return [command for command in commands if command]


def _with_variables(commands: list[list[str]]) -> list[list[str]]:
    known: dict[str, str] = {}

    def value(match: re.Match[str]) -> str:
        name = match["braced"] or match["plain"] or match["kubernetes"]
        default: str | None = match["default"]
        return known.get(name, match[0] if default is None else default)

    resolved: list[list[str]] = []
    for command in commands:
        words: list[str] = []
        assigns = True
        for position, word in enumerate(command):
            words.append(_VARIABLE.sub(value, word))
            match = _ASSIGNMENT.fullmatch(words[-1])
            assigns = assigns and (match is not None or (position == 0 and word == "export"))
            if assigns and match is not None:
                known[match[1]] = match[2]
        resolved.append(words)
    return resolved


# Descriptions of containers


def _described(text: str) -> Iterator[list[str]]:
    """Yield the commands of a JSON list, a Dockerfile, or a Kubernetes or compose file."""
    stripped = text.strip()
    if stripped.startswith(("[", "{")):
        try:
            yield from _containers(json.loads(stripped))
        except (ValueError, RecursionError):
            pass
    elif re.search(r"^[ \t]*(?:CMD|ENTRYPOINT)[ \t]", text, re.MULTILINE):
        yield from _dockerfile(text)
    elif _CONTAINER.search(text):
        for document in re.split(r"^---.*$", text, flags=re.MULTILINE):
            try:
                parsed = load_yaml(textwrap.dedent(document), what="the command", words_only=True)
            except InputError:
                continue  # shell text, which happens to have a line that ends in `command:`
            yield from _containers(parsed)


def _containers(data: Any) -> Iterator[list[str]]:
    """Walk to every mapping that starts a container, or take a list of words as it is."""
    if isinstance(data, list):
        if data and all(isinstance(word, str) for word in data):
            yield from _started([], "", data)
            return
        for value in data:
            yield from _containers(value)
    elif isinstance(data, Mapping):
        fields = {str(key).lower(): value for key, value in data.items()}
        parts = [fields[key] for key in ("entrypoint", "command", "cmd", "args") if key in fields]
        if any(isinstance(part, list | str) for part in parts):
            words = [word for part in parts for word in _words(part)]
            environment = fields.get("env", fields.get("environment"))
            image = fields.get("image", "")
            yield from _started(_environment(environment), image, words)
        else:
            for value in data.values():
                yield from _containers(value)


def _words(part: Any) -> list[str]:
    if isinstance(part, str):
        # A compose file's command is split as a shell would, with $$ for a dollar sign.
        return [word for command in _shell_commands(part) for word in command]
    return [str(word) for word in part] if isinstance(part, list) else []


def _environment(described: Any) -> list[str]:
    if isinstance(described, Mapping):
        return [f"{name}={value}" for name, value in described.items()]
    found = []
    for entry in described if isinstance(described, list) else []:
        if isinstance(entry, str) and "=" in entry:
            found.append(entry)
        elif isinstance(entry, Mapping) and isinstance(entry.get("value"), str):
            found.append(f"{entry.get('name')}={entry['value']}")
    return found


def _started(environment: list[str], image: str, words: list[str]) -> Iterator[list[str]]:
    """Yield what a container runs, in the words of `docker run`."""
    if isinstance(image, str) and re.search(r"vllm|sglang", image):
        yield [*environment, "docker", "run", image, *words]
    elif words and words[0].startswith("-"):
        # Arguments alone: the engine shows in how the model is named.
        sglang = any(word.partition("=")[0] == "--model-path" for word in words)
        launcher = ["python", "-m", "sglang.launch_server"] if sglang else ["vllm", "serve"]
        yield [*environment, *launcher, *words]
    elif words:
        yield [*environment, *words]


def _dockerfile(text: str) -> Iterator[list[str]]:
    image, environment = "", []
    last: dict[str, list[str]] = {}
    for match in _DOCKERFILE.finditer(_joined(text)):
        instruction, rest = match[1], match[2].strip()
        if instruction == "FROM":
            image, last = rest.split()[0], {}
        elif instruction == "ENV":
            environment += [word for word in _words(rest) if "=" in word]
        else:
            try:
                listed = json.loads(rest)
            except ValueError:
                listed = rest
            last[instruction] = _words(listed)
    words = [*last.get("ENTRYPOINT", []), *last.get("CMD", [])]
    yield from _started(environment, image, words)
