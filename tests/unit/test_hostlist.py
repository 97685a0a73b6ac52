"""Names of nodes in short, and back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareboat.hostlist import shortened


@pytest.mark.parametrize(
    ("names", "short"),
    [
        ([], ""),
        (["c1"], "c1"),
        (["c1", "c2", "c3"], "c[1-3]"),
        (["c3", "c1", "c2", "c5"], "c[1-3,5]"),
        (["c9", "c10"], "c[9-10]"),
        (["n098", "n099", "n100", "n7"], "n[098-100],n7"),
        (["login", "c1"], "login,c1"),
        (["a.b.c", "a.b.c"], "a.b.c"),
    ],
)
def test_what_it_looks_like(names: list[str], short: str) -> None:
    assert shortened(names) == short


def long(short: str) -> list[str]:
    found = []
    for beginning, numbers, single in re.findall(r"([^,\[]*)\[([^\]]*)\]|([^,]+)", short):
        if single:
            found.append(single)
        for part in numbers.split(",") if numbers else ():
            first, _, last = part.partition("-")
            found += [f"{beginning}{n:0{len(first)}d}" for n in range(int(first), int(last or first) + 1)]
    return found


@given(st.lists(st.from_regex(r"[a-c.x-]{0,2}[0-9]{0,4}", fullmatch=True).filter(bool), max_size=40))
def test_every_name_is_told_once(names: list[str]) -> None:
    assert sorted(long(shortened(names))) == sorted(set(names))
