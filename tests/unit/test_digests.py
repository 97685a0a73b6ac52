"""Digests: what is one, what is none, and what they are of."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareboat_base import digests

BYTES = st.binary(max_size=300)


def right() -> st.SearchStrategy[str]:
    return st.text("0123456789abcdef", min_size=64, max_size=64).map(lambda digits: f"sha256:{digits}")


@given(BYTES)
def test_a_digest_is_what_hashlib_says(data: bytes) -> None:
    found = digests.of(data)
    assert found == f"sha256:{hashlib.sha256(data).hexdigest()}"
    hashed = digests.hasher()
    hashed.update(data)
    assert digests.written(hashed) == found


@given(right())
def test_a_digest_has_two_parts_and_a_place(digest: str) -> None:
    digits = digests.hexed(digest)
    assert digests.is_digest(digest)
    assert f"sha256:{digits}" == digest
    assert digests.place(digest) == f"sha256/{digits}"
    assert digests.of_digits(digits) == digest
    assert digests.short(digest) == f"sha256:{digits[:12]}"


@given(right(), right(), st.integers(6, 64))
def test_a_beginning_finds_what_begins_with_it(one: str, two: str, count: int) -> None:
    digits = digests.hexed(one)
    for text in (digits[:count], f"sha256:{digits[:count]}"):
        found = digests.beginning_with(text, [one, two])
        assert found is not None
        assert one in found
        assert all(each.startswith(f"sha256:{digits[:count]}") for each in found)


@pytest.mark.parametrize(
    "text", ["", "a" * 5, "sha256:", "sha512:" + "a" * 5, "A" * 12, "sha384:" + "a" * 12, "a" * 129,
             "sha256:" + "a" * 65, "sha512:" + "a" * 129, "../../a", "aaaaaa*", "aaaaaa\n"],
)  # fmt: skip
def test_what_is_no_beginning_of_a_digest(text: str) -> None:
    assert digests.beginning_with(text, ["sha256:" + "a" * 64]) is None
