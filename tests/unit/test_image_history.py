"""The history of an image."""

import pytest

from bareboat_base.errors import ImageError
from bareboat_images.inside import configuration as reading
from bareboat_images.oci import documents


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


@pytest.mark.parametrize("data", [b"", b"[]", b'{"history": 1}', b'{"config": {"Env": {}}}', b"[" * 10**5])
def test_a_damaged_config_is_one_error(data: bytes) -> None:
    with pytest.raises(ImageError, match="cannot be read"):
        documents.config(data, name="x")
