"""The history of an image."""

from __future__ import annotations

import json

import pytest

from bareboat_base.errors import ImageError
from bareboat_images.inside import configuration as reading


def read(layers: int, history: list[dict[str, object]]) -> tuple[reading.Step, ...]:
    return reading.history(json.dumps({"history": history}).encode(), layers=layers, name="x")


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('/bin/sh -c #(nop)  CMD ["bash"]', 'CMD ["bash"]'),
        ("/bin/sh -c apt-get update", "RUN apt-get update"),
        ("RUN /bin/sh -c make # buildkit", "RUN make"),
        ("COPY a /b # buildkit", "COPY a /b"),
        ("|1 V=2 /bin/sh -c make $V", "RUN make $V"),
        ("RUN |2 V=a b W= /bin/sh -c make # buildkit", "RUN make"),
        ("/bin/bash -c a | b", "RUN a | b"),
        ("RUN make", "RUN make"),
        ("|", "|"),
        ("", ""),
    ],
)
def test_a_step_is_shown_as_in_a_dockerfile(written: str, shown: str) -> None:
    assert reading.as_instruction(written) == shown


def test_the_history_names_the_layers_of_its_steps() -> None:
    history: list[dict[str, object]] = [
        {"created_by": "ADD a"},
        {"created_by": "ENV A=1", "empty_layer": True},
        {"created_by": "RUN b", "created": "2026-01-02T03:04:05Z"},
    ]
    found = read(2, history)
    assert [step.layer for step in found] == [0, None, 1]
    assert [step.is_empty for step in found] == [False, True, False]
    assert [step.layer for step in read(3, history)] == [None] * 3


@pytest.mark.parametrize("data", [b"", b"[]", b'{"history": 1}', b'{"config": {"Env": {}}}', b"[" * 10**5])
def test_a_damaged_config_is_one_error(data: bytes) -> None:
    with pytest.raises(ImageError, match="cannot be read"):
        reading.history(data, layers=0, name="x")
