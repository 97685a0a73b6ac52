"""Names of nodes in short, and back."""

import pytest

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
