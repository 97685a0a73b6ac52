"""JSON: canonical, the same after a round trip, whatever bytes a command line holds."""

import json
import os
import subprocess
import sys

import pytest
from builders import make_image, make_job, make_records, make_site, make_study
from hypothesis import given
from hypothesis import strategies as st

from bareboat.model import Image, Job, Record, Site, Study
from bareboat_base import codec
from bareboat_base.errors import StoreError


@pytest.mark.parametrize(
    ("value", "kind"),
    [(make_job(), Job), (make_image(), Image), (make_site(), Site), (make_study(), Study),
     (make_records(make_study(runs=2))[0], Record)],
)  # fmt: skip
def test_what_was_written_is_read_back(value: object, kind: type) -> None:
    data = codec.to_json(value)
    assert codec.from_json(data, kind, what="it") == value
    assert codec.to_json(codec.from_json(data, kind, what="it")) == data
    assert codec.from_json(codec.to_pretty_json(value).encode(), kind, what="it") == value


def test_the_order_of_a_dict_does_not_count() -> None:
    first, second = {"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}
    assert codec.to_json(first) == b'{"a":1,"b":{"c":2,"d":3}}'
    assert codec.digest(first) == codec.digest(second)
    assert codec.digest(first) != codec.digest({"a": 1, "b": {"c": 2, "d": 4}})
    assert codec.digest(first).startswith("sha256:")


@given(st.lists(st.binary(max_size=8).map(os.fsdecode) | st.text(max_size=8), min_size=1))
def test_bytes_that_are_not_utf8_survive(words: list[str]) -> None:
    job = make_job(command=("x", *(word.replace("\0", "") for word in words)))
    data = codec.to_json(job)
    assert codec.from_json(data, Job, what="it") == job
    assert json.loads(data)["command"] == list(job.command)
    assert json.loads(codec.to_pretty_json(job)) == json.loads(data)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"name": 1}', b"\xff", b'{"name": "\\udcff"', b'{"name": "\\udcff"}']
)
def test_what_is_damaged_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(StoreError, match="the study's design cannot be read") as caught:
        codec.from_json(data, Job, what="the study's design")
    assert caught.value.remedy


#: The annotation of a field takes a while, in which another thread goes on.
_AT_ONCE = """
from __future__ import annotations
import sys, threading, time
from msgspec import Struct
from bareboat_base import codec

class Slow:
    def __class_getitem__(cls, kind):
        time.sleep(0.2)
        return kind

class Inner(Struct):
    value: Slow[int]
    other: int = 2

class Outer(Struct):
    first: Inner
    second: Slow[Inner]

text = b'{"first": {"value": 1}, "second": {"value": 3}}'
read = []
threads = [threading.Thread(target=lambda: read.append(codec.decode(text, Outer))) for _ in range(8)]
for each in threads:
    each.start()
    time.sleep(0.05)
for each in threads:
    each.join()
print(len(read), read[0].second.value)
"""


def test_threads_that_first_decode_a_type_at_once_wait_for_each_other() -> None:
    done = subprocess.run([sys.executable, "-c", _AT_ONCE], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "8 3\n"), done.stderr
