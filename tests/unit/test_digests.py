"""Digests: what is one, what is none, and what they are of."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bareboat_base import digests

ALGORITHMS = st.sampled_from(sorted(digests.DIGITS))
BYTES = st.binary(max_size=300)


@st.composite
def right(draw: st.DrawFn) -> str:
    algorithm = draw(ALGORITHMS)
    count = digests.DIGITS[algorithm]
    return algorithm + ":" + draw(st.text("0123456789abcdef", min_size=count, max_size=count))


@given(BYTES, ALGORITHMS)
def test_a_digest_is_what_hashlib_says(data: bytes, algorithm: str) -> None:
    found = digests.of(data, algorithm)
    assert found == f"{algorithm}:{hashlib.new(algorithm, data).hexdigest()}"
    hashed = digests.hasher_for(found)
    hashed.update(data)
    assert digests.written(hashed) == found


@given(BYTES, BYTES, ALGORITHMS)
def test_a_digest_is_of_its_bytes_alone(data: bytes, other: bytes, algorithm: str) -> None:
    assert digests.is_of(digests.of(data, algorithm), data)
    assert digests.is_of(digests.of(data, algorithm), other) == (data == other)


@given(right())
def test_a_digest_has_two_parts_and_a_place(digest: str) -> None:
    algorithm, digits = digests.split(digest)
    assert digests.is_digest(digest)
    assert f"{algorithm}:{digits}" == digest
    assert (digests.algorithm(digest), digests.hexed(digest)) == (algorithm, digits)
    assert digests.place(digest) == f"{algorithm}/{digits}"
    assert digests.at(algorithm, digits) == digest == digests.of_digits(digits)
    assert digests.short(digest) == f"{algorithm}:{digits[:12]}"


@given(right(), st.integers(0, 200), st.characters())
def test_one_character_more_or_another_makes_it_none(digest: str, at: int, character: str) -> None:
    for changed in (digest[:at] + character + digest[at:], digest[:at] + character + digest[at + 1 :]):
        if digests.is_digest(changed):
            assert len(changed) == len(digest)
            assert character in "0123456789abcdef" or changed == digest


@pytest.mark.parametrize(
    "text",
    ["", ":", "sha256", "sha256:", "sha512:", "sha256:" + "a" * 128, "sha512:" + "a" * 64,
     "sha512:" + "a" * 127, "sha512:" + "a" * 129, "sha512:" + "A" * 128, "SHA512:" + "a" * 128,
     "sha384:" + "a" * 96, "md5:" + "a" * 32, "sha1:" + "a" * 40, "sha512-" + "a" * 128,
     "sha512:" + "a" * 128 + "\n", "\nsha512:" + "a" * 128, "sha512:" + "../" * 42 + "aa",
     "sha512:" + "\u0661" * 128, "sha512:" + "\uff41" * 128, "sha512:+" + "a" * 127, "sha512+b64:" + "a" * 9,
     "sha512:sha256:" + "a" * 64, "blake3:" + "a" * 64],
    ids=lambda text: ascii(text[:24]),
)  # fmt: skip
def test_what_is_no_digest(text: str) -> None:
    assert not digests.is_digest(text)
    assert not digests.is_of(text, b"")
    for read in (digests.split, digests.algorithm, digests.hexed, digests.place, digests.hasher_for):
        with pytest.raises(ValueError, match="is not a digest"):
            read(text)


@pytest.mark.parametrize("algorithm", ["sha384", "md5", "sha1", "", "SHA512", "shake_128"])
def test_an_algorithm_that_oci_does_not_register(algorithm: str) -> None:
    assert digests.at(algorithm, "a" * 64) is None
    with pytest.raises(KeyError):
        digests.hasher(algorithm)


@given(right(), right(), st.integers(6, 128))
def test_a_beginning_finds_what_begins_with_it(one: str, two: str, count: int) -> None:
    algorithm, digits = digests.split(one)
    assert one in (digests.beginning_with(digits[:count], [one, two]) or ())
    count = min(count, len(digits))
    found = digests.beginning_with(f"{algorithm}:{digits[:count]}", [one, two])
    assert found is not None
    assert one in found
    assert all(each.startswith(f"{algorithm}:{digits[:count]}") for each in found)


@pytest.mark.parametrize(
    "text", ["", "a" * 5, "sha256:", "sha512:" + "a" * 5, "A" * 12, "sha384:" + "a" * 12, "a" * 129,
             "sha256:" + "a" * 65, "sha512:" + "a" * 129, "../../a", "aaaaaa*", "aaaaaa\n"],
)  # fmt: skip
def test_what_is_no_beginning_of_a_digest(text: str) -> None:
    assert digests.beginning_with(text, ["sha256:" + "a" * 64]) is None


def test_both_algorithms_can_begin_alike() -> None:
    known = ["sha256:" + "a" * 64, "sha512:" + "a" * 128]
    assert digests.beginning_with("aaaaaa", known) == known
    assert digests.beginning_with("sha512:aaaaaa", known) == known[1:]


def test_the_pattern_has_no_groups_of_its_own() -> None:
    assert re.compile(digests.PATTERN).groups == 0
