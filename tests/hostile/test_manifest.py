"""Documents that lie, overflow or are not documents: one clear ImageError, soon, in little memory."""

import json
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from builders import fake_digest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bareboat_base.errors import ImageError
from bareboat_images.oci import manifest
from bareboat_images.oci.source import LARGEST_DOCUMENT, Document

NAME = "quay.io/a/b:1"
A = fake_digest("a")


def document(data: bytes, media_type: str = manifest.OCI_MANIFEST) -> Document:
    return Document(data=data, media_type=media_type, digest=A)


def read_all(data: bytes, media_type: str = "", machine: str = "x86_64") -> list[str]:
    """Everything that can be made of some bytes; the messages of what is refused."""
    found = document(data, media_type)

    def offers() -> None:
        offered = manifest.platforms(found, name=NAME)
        if offered is not None:
            chosen = manifest.choose(offered, machine=machine, name=NAME)
            assert chosen.digest.startswith("sha256:")
            assert -1 <= chosen.size < 2**63

    def image() -> None:
        made = manifest.manifest(found, name=NAME)
        for each in (made.config, *made.layers):
            assert each.digest.startswith("sha256:")
            assert len(each.digest) == 71
            assert -1 <= each.size < 2**63

    def config() -> None:
        made = manifest.config(found, name=NAME)
        assert all("\0" not in value and name for name, value in made.environment.items())
        assert made.process.workdir.startswith("/")
        assert all(comment == "" or comment.isprintable() for comment in made.comments)
        manifest.check_machine(made.architecture, os=made.os, machine=machine, name=NAME)

    return [message for each in (offers, image, config) if (message := refused(each))]


def refused(read: Callable[[], object]) -> str:
    try:
        read()
    except ImageError as error:
        message = error.message
    else:
        return ""
    assert NAME in message
    assert len(message) < 5000
    assert message.isprintable()
    return message


def index_of(entries: str) -> bytes:
    return b'{"schemaVersion":2,"manifests":[' + entries.encode() + b"]}"


def image_of(layers: str) -> bytes:
    return (
        b'{"schemaVersion":2,"config":{"digest":"'
        + A.encode()
        + b'","size":1},"layers":['
        + layers.encode()
        + b"]}"
    )


SIZES = ["-2", "-1e400", "1e400", "9223372036854775808", "1" + "0" * 40, "-1" + "0" * 40, "1" + "0" * 5000,
         "1.5", '"1"', "null", "true", "[]", "NaN", "Infinity", "0x10", "01"]  # fmt: skip


@pytest.mark.parametrize("size", SIZES, ids=lambda text: text[:30])
def test_sizes_that_are_none(size: str) -> None:
    entry = f'{{"digest":"{A}","size":{size}}}'
    assert refused(lambda: manifest.platforms(document(index_of(entry)), name=NAME))
    assert refused(lambda: manifest.manifest(document(image_of(entry)), name=NAME))


DIGESTS = ["", "sha256:", "sha256:" + "a" * 63, "sha256:" + "a" * 65, "sha256:" + "A" * 64, A + "\n", " " + A,
           "sha512:" + "a" * 127, "sha512:" + "a" * 129, "sha512:" + "a" * 64, "sha256:" + "a" * 128,
           "sha512:" + "A" * 128, "SHA512:" + "a" * 128, "sha384:" + "a" * 96, "sha512-" + "a" * 128,
           "sha512:" + "a" * 128 + "\n", "sha512:" + "a" * 127 + "/", "sha512:../" + "a" * 125,
           "md5:" + "a" * 32, "../../../etc/passwd", "sha256:" + "../" * 21 + "a",
           "a" * 64, "sha256:" + "\0" * 64, "sha256:" + "\u0661" * 64, "x" * 10**6]  # fmt: skip


@pytest.mark.parametrize("digest", DIGESTS, ids=lambda text: ascii(text[:20]))
def test_digests_that_are_none(digest: str) -> None:
    entry = json.dumps({"digest": digest, "size": 1})
    for read in (
        lambda: manifest.platforms(document(index_of(entry)), name=NAME),
        lambda: manifest.manifest(document(image_of(entry)), name=NAME),
        lambda: manifest.manifest(document(f'{{"config":{entry},"layers":[]}}'.encode()), name=NAME),
        lambda: manifest.config(document(json.dumps({"rootfs": {"diff_ids": [digest]}}).encode()), name=NAME),
    ):
        assert "not a SHA-256 digest" in refused(read)


WRONG: list[Any] = [None, True, 1, -1.5, "text", [], {}, [None], [[]], [{}], {"a": 1}, "\0", "ÿ"]


@pytest.mark.parametrize("value", WRONG, ids=ascii)
def test_wrong_types_anywhere(value: Any) -> None:
    """One value of a good document at a time is replaced; nothing but ImageError ever comes of it."""
    good_index = {"schemaVersion": 2, "mediaType": manifest.OCI_INDEX, "manifests": [
        {"mediaType": "x", "digest": A, "size": 1, "platform": {"architecture": "amd64", "os": "linux",
         "variant": "v1"}, "annotations": {"a": "b"}, "urls": ["x"]}]}  # fmt: skip
    good_image = {"schemaVersion": 2, "mediaType": manifest.OCI_MANIFEST, "config": {"digest": A, "size": 1},
                  "layers": [{"mediaType": "x.tar", "digest": A, "size": 1, "urls": ["x"]}]}  # fmt: skip
    good_config = {"architecture": "amd64", "os": "linux", "config": {"Env": ["A=b"], "Entrypoint": ["a"],
                   "Cmd": ["b"], "WorkingDir": "/", "User": "u"},
                   "rootfs": {"type": "layers", "diff_ids": [A]},
                   "history": [{"created_by": "x", "empty_layer": False}]}  # fmt: skip
    for good in (good_index, good_image, good_config):
        assert len(read_all(json.dumps(good).encode())) < 3
        for changed in replacements(good, value):
            read_all(json.dumps(changed).encode())


def replacements(good: Any, value: Any) -> list[Any]:
    """The document with one of its values, at any depth, replaced."""
    if isinstance(good, dict):
        return [value, *({**good, key: new} for key in good for new in replacements(good[key], value))]
    if isinstance(good, list):
        return [
            value,
            *(
                [*good[:at], new, *good[at + 1 :]]
                for at in range(len(good))
                for new in replacements(good[at], value)
            ),
        ]
    return [value]


@pytest.mark.parametrize(
    "data",
    [
        b"", b" ", b"\0", b"null", b"[]", b"1", b'"text"', b"{", b"{}{}", b"{},", b"{'a': 1}", b'{"a":}',
        b"\xef\xbb\xbf{}", b"\xff\xfe{\0}\0", b'{"mediaType":"\xff\xfe"}', b'{"\xff":1}',
        b'{"architecture":"\\ud800","rootfs":{"diff_ids":[]}}', b"<html>404</html>", b"\x1f\x8b\x08\0",
        b'{"schemaVersion":1}', b'{"schemaVersion":"2"}', b'{"schemaVersion":2e0}',
        b'{"schemaVersion":99999999999999999999999}',
    ],
)  # fmt: skip
def test_what_is_no_document(data: bytes) -> None:
    assert len(read_all(data)) >= 2


@pytest.mark.parametrize(
    "opening", [b"[", b'{"a":', b'[{"a":', b'{"manifests":[', b'{"config":', b'{"rootfs":']
)
@pytest.mark.parametrize("closed", [True, False])
def test_deep_nesting(opening: bytes, closed: bool) -> None:
    closing = {"[": b"]", "{": b"}"}
    depth = LARGEST_DOCUMENT // len(opening) // 3
    data = opening * depth + b"1"
    if closed:
        data += b"".join(closing[c] for c in reversed(opening.decode()) if c in closing) * depth
    for wrapped in (data, b'{"x":' + data + b"}", b'{"config":{"x":' + data + b"}}"):
        assert read_all(wrapped[:LARGEST_DOCUMENT])


def test_duplicate_keys_are_read_the_same_way_by_all_of_us() -> None:
    """Which of the two counts does not matter, since the digest is that of the bytes; but one must."""
    b = fake_digest("b")
    data = (
        f'{{"config":{{"digest":"{A}","size":1}},"layers":[],'
        f'"config":{{"digest":"{b}","size":1,"digest":"{b}"}}}}'
    ).encode()
    assert {manifest.manifest(document(data), name=NAME).config.digest for _ in range(10)} == {b}
    twice = f'{{"manifests":[],"layers":[],"manifests":[{{"digest":"{A}","size":1}}]}}'.encode()
    assert "at once" in read_all(twice)[0]


def test_more_than_a_document_holds_is_not_even_read() -> None:
    huge = b'{"x":"' + b" " * LARGEST_DOCUMENT + b'"}'
    assert [message.rpartition("; ")[2] for message in read_all(huge)] == [
        "that is not a manifest", "that is not a manifest", "that is not a config",
    ]  # fmt: skip


def test_a_million_manifests_are_refused_soon_and_in_little_memory() -> None:
    million = index_of(",".join(['{"digest":""}'] * 10**6))
    largest = index_of(",".join(['{"digest":""}'] * ((LARGEST_DOCUMENT - 100) // 14)))
    assert len(largest) <= LARGEST_DOCUMENT
    tracemalloc.start()
    began = time.monotonic()
    assert "not a manifest" in refused(lambda: manifest.platforms(document(million), name=NAME))
    assert "that is not an image" in refused(lambda: manifest.platforms(document(largest), name=NAME))
    took_s, (_, peak) = time.monotonic() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took_s < 10
    assert peak < 200 * 2**20


def test_layers_and_words_without_end() -> None:
    layers = ",".join([f'{{"digest":"{A}"}}'] * 40_000)
    assert "40,000 layers" in refused(lambda: manifest.manifest(document(image_of(layers)), name=NAME))
    history = json.dumps({"rootfs": {"diff_ids": []}, "history": [{"created_by": "x" * 4_000_000}]}).encode()
    assert len(manifest.config(document(history), name=NAME).comments[0]) == 1000


@pytest.mark.parametrize("where", ["Entrypoint", "Cmd", "WorkingDir", "User"])
def test_a_nul_byte_never_reaches_a_command_line(where: str) -> None:
    value: Any = "a\0b" if where in ("WorkingDir", "User") else ["a", "b\0"]
    data = json.dumps({"rootfs": {"diff_ids": []}, "config": {where: value}}).encode()
    assert "NUL byte" in refused(lambda: manifest.config(document(data), name=NAME))


def test_a_terminal_is_not_played_with() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\n\u202e"
    for data in (
        index_of(json.dumps({"digest": A, "platform": {"os": evil, "architecture": evil, "variant": evil}})),
        image_of(json.dumps({"digest": A, "mediaType": evil})),
        image_of(json.dumps({"digest": evil, "size": 1})),
        json.dumps({"rootfs": {"diff_ids": [evil]}}).encode(),
        json.dumps({"rootfs": {"diff_ids": []}, "os": evil, "architecture": evil}).encode(),
        json.dumps({"schemaVersion": 2, evil: evil}).encode(),
    ):
        assert read_all(data)  # refused() checks that the message is printable


def test_schema_1_is_told_from_damage() -> None:
    old = {"schemaVersion": 1, "name": "library/debian", "tag": "12", "architecture": "amd64",
           "fsLayers": [{"blobSum": A}], "history": [{"v1Compatibility": "{}"}],
           "signatures": [{"header": {"alg": "ES256"}, "signature": "x", "protected": "y"}]}  # fmt: skip
    for data, media_type in (
        (json.dumps(old).encode(), ""),
        (b"anything", "application/vnd.docker.distribution.manifest.v1+json"),
        (b"anything", "application/vnd.docker.distribution.manifest.v1+prettyjws"),
    ):
        found = document(data, media_type)
        with pytest.raises(ImageError, match="schema 1") as caught:
            manifest.platforms(found, name=NAME)
        assert "push" in caught.value.remedy


# -- fuzzing -------------------------------------------------------------------------------------------

_text = st.sampled_from(["amd64", "linux", "windows", "", A, "A=b", "unknown", "\0", "\x1b[2J"]) | st.text(
    max_size=8
)
_KEYS = [
    "schemaVersion", "mediaType", "manifests", "config", "layers", "digest", "size", "platform", "urls",
    "annotations", "architecture", "os", "variant", "rootfs", "diff_ids", "history", "created_by", "Env",
    "empty_layer", "Entrypoint", "Cmd", "WorkingDir", "User",
]  # fmt: skip
_keys = st.sampled_from(_KEYS) | st.text(max_size=4)
_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | _text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_keys, inner, max_size=6),
    max_leaves=25,
)
_digests = st.just(A) | _text
_platforms = st.fixed_dictionaries({}, optional={"architecture": _text, "os": _text, "variant": _text})
_descriptors = st.fixed_dictionaries(
    {"digest": _digests},
    optional={"size": st.integers() | _json, "mediaType": _text, "platform": _platforms | _json,
              "urls": st.lists(_text) | _json, "annotations": st.dictionaries(_text, _text) | _json},
)  # fmt: skip
_documents = st.fixed_dictionaries(
    {},
    optional={
        "schemaVersion": st.sampled_from([1, 2, 3]) | _json,
        "manifests": st.lists(_descriptors, max_size=4) | _json,
        "config": _descriptors | _json,
        "layers": st.lists(_descriptors, max_size=4) | _json,
        "architecture": _text,
        "os": _text,
        "rootfs": st.fixed_dictionaries({"diff_ids": st.lists(_digests, max_size=3) | _json}) | _json,
        "history": st.lists(st.fixed_dictionaries({}, optional={"created_by": _text})) | _json,
    },
)


@settings(max_examples=400, deadline=None)
@given(_documents | _json, st.sampled_from(["x86_64", "aarch64", "sparc64", ""]))
def test_any_json_is_read_or_refused(content: Any, machine: str) -> None:
    read_all(json.dumps(content).encode(), machine=machine)


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=200))
@example(b'{"manifests":[{"digest":"sha256:')
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    read_all(data)


@settings(max_examples=400, deadline=None)
@given(_documents, st.data())
def test_any_damage_to_a_document_is_read_or_refused(content: Any, data: st.DataObject) -> None:
    whole = bytearray(json.dumps(content).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(whole)))
        whole[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    read_all(bytes(whole))


# What no program can be started with.

_LONGEST = (1 << 17) - 1


def config_of(**execution: Any) -> Document:
    return document(json.dumps({"rootfs": {"diff_ids": []}, "config": execution}).encode())


@pytest.mark.parametrize(
    ("execution", "reason"),
    [
        ({"Env": ["A=" + "x" * (_LONGEST - 1)]}, "environment variable A to 131,072 bytes"),
        ({"Env": ["PATH=/bin", "A=" + "x" * 4_000_000]}, "environment variable A to 4,000,002 bytes"),
        ({"Env": ["A=" + "\u00e9" * (_LONGEST // 2)]}, "environment variable A"),
        ({"Env": ["N" * _LONGEST + "="]}, "environment variable NNN"),
        ({"Env": [f"V{number}=" + "x" * 10_000 for number in range(110)]}, "arguments and environment"),
        ({"Env": [f"V{number}=" for number in range(100_000)]}, "arguments and environment"),
        ({"Entrypoint": ["x" * (_LONGEST + 1)]}, "argument of 131,072 bytes"),
        ({"Cmd": ["sh", "-c", "x" * 200_000]}, "argument of 200,000 bytes"),
        ({"Cmd": ["x"] * 120_000}, "arguments and environment"),
        ({"Cmd": ["x" * 100_000] * 5, "Env": [f"V{n}=" + "x" * 100_000 for n in range(6)]}, "arguments and"),
    ],
    ids=["variable", "huge", "two bytes", "name", "many long", "many", "entrypoint", "cmd", "words", "both"],
)
def test_what_linux_starts_no_program_with_is_refused_when_pulled(
    execution: dict[str, Any], reason: str
) -> None:
    message = refused(lambda: manifest.config(config_of(**execution), name=NAME))
    assert reason in message
    assert len(message) < 400


@pytest.mark.parametrize(
    "execution",
    [{"Env": ["A=" + "x" * (_LONGEST - 2)]}, {"Cmd": ["x" * _LONGEST]}, {"Env": ["A=b"] * 300_000}],
    ids=["variable", "cmd", "one again and again"],
)
def test_the_longest_that_linux_takes_are_taken(execution: dict[str, Any]) -> None:
    found = manifest.config(config_of(**execution), name=NAME)
    words = (*found.process.command, "true")
    if found.process.command:
        done = subprocess.run(["/bin/true", *words], env={}, check=False)
    else:
        done = subprocess.run(["/bin/true"], env=found.environment, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    "entry",
    ["=x", "", "WITHOUT", "NUL=a\0b", "N\0UL=a", "NEW\nLINE=a", "ESC\x1b[2J=a", "\u202eRTL=a", "\x7f=x"],
)
def test_a_variable_that_no_program_can_be_given_is_left_out_with_a_note(entry: str) -> None:
    found = manifest.config(config_of(Env=["A=b", entry, entry, "LINES=one\ntwo"]), name=NAME)
    assert found.environment == {"A": "b", "LINES": "one\ntwo"}
    (note,) = found.notes
    assert note.startswith("environment variables were left out")
    assert note.isprintable()


def test_the_note_of_variables_left_out_stays_short() -> None:
    found = manifest.config(config_of(Env=[f"=value {number}" for number in range(50_000)]), name=NAME)
    (note,) = found.notes
    assert "(50,000 in all)" in note
    assert len(note) < 600


@pytest.mark.parametrize(
    "size",
    [
        "-2",
        "1.5",
        "1e3",
        "true",
        "null",
        '"5"',
        "[]",
        "9223372036854775808",
        "9" * 30,
        "9" * 5000,
        "NaN",
    ],
)
@pytest.mark.parametrize("where", ["config", "layers", "manifests"])
def test_sizes_that_are_none_are_refused(where: str, size: str) -> None:
    one = f'{{"digest": "{A}", "size": {size}}}'
    good = f'{{"digest": "{A}", "size": 1}}'
    text = {
        "config": f'{{"config": {one}, "layers": [{good}]}}',
        "layers": f'{{"config": {good}, "layers": [{one}]}}',
        "manifests": f'{{"manifests": [{one}]}}',
    }[where]
    read = manifest.platforms if where == "manifests" else manifest.manifest
    with pytest.raises(ImageError):
        read(Document(data=text.encode(), media_type="", digest=A), name=NAME)
    without = text.replace(f', "size": {size}', "")
    with pytest.raises(ImageError, match="does not give the size"):
        read(Document(data=without.encode(), media_type="", digest=A), name=NAME)
