"""The words of an instruction: quotes, flags, JSON lists, pairs of name and value."""

from __future__ import annotations

import json
from collections.abc import Iterator


def split_words(text: str, escape: str, *, most: int = 0) -> list[str]:
    """Split at white space; quotes and escapes keep a word together and are not removed. `most`: the number
    of words that are wanted, from the first; 0: all."""
    found: list[str] = []
    word: list[str] = []
    quote = ""
    at = 0
    while at < len(text):
        char = text[at]
        if not quote and char.isspace():
            if word:
                found.append("".join(word))
                word = []
                if len(found) == most:
                    return found
        elif char == escape and at + 1 < len(text) and quote != "'":
            word += (char, text[at + 1])
            at += 1
        else:
            if quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            word.append(char)
        at += 1
    if word:
        found.append("".join(word))
    return found


def unquoted(word: str, escape: str) -> str:
    """A word without its quotes and escapes; variables are not replaced."""
    found: list[str] = []
    quote = ""
    at = 0
    while at < len(word):
        char = word[at]
        if char == escape and quote != "'" and at + 1 < len(word):
            following = word[at + 1]
            if quote and following not in ('"', "$", escape):
                found.append(char)
            found.append(following)
            at += 1
        elif quote and char == quote:
            quote = ""
        elif not quote and char in "'\"":
            quote = char
        else:
            found.append(char)
        at += 1
    return "".join(found)


def split_flags(text: str, escape: str) -> tuple[tuple[tuple[str, str | None], ...], str]:
    """The flags at the beginning, as name and value (None without `=`), and the text after them."""
    found: list[tuple[str, str | None]] = []
    rest = text.lstrip()
    while rest.startswith("--"):
        word = split_words(rest, escape, most=1)[0]
        rest = rest[len(word) :].lstrip()
        if word == "--":
            break
        name, equals, value = unquoted(word, escape)[2:].partition("=")
        found.append((name, value if equals else None))
    return tuple(found), rest


def json_list(text: str) -> tuple[str, ...] | None:
    """The words of the JSON form; None for the other form, which includes lists that are not valid JSON.

    Raises ValueError for a list that contains other types than strings.
    """
    stripped = text.strip()
    if not stripped.startswith("["):
        return None
    try:
        found = json.loads(stripped)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list):
        return None
    if not all(isinstance(each, str) for each in found):
        raise ValueError("a list in JSON form may only hold strings")
    return tuple(found)


def pairs(text: str, escape: str) -> Iterator[tuple[str, str]]:
    """Parse `NAME=VALUE …`, or the old form `NAME VALUE`, whose value is the rest of the line; quotes stay.

    Raises ValueError.
    """
    words = split_words(text, escape)
    if not words:
        return
    if "=" not in words[0]:
        parts = text.split(None, 1)
        if len(parts) < 2:
            raise ValueError(f"{parts[0]!r} has no value")
        yield parts[0], parts[1].strip()
        return
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} has no =")
        yield name, value
