"""The rules about Dockerfiles: each with one that trips it and one that does not, and public shapes."""

import json
from pathlib import Path

import msgspec
import pytest
from builders import make_driver, make_site

from bareboat.lint.registry import GROUPS, MODULES, RULES
from bareboat.model import Site
from bareboat_images.lint import check, recipe
from bareboat_images.lint.rule import Finding

SHAPES = Path(__file__).parents[1] / "data" / "dockerfiles"
EXAMPLES = [rule for rule in RULES.values() if rule.bad]


def subject(text: str, *, site: Site | None = None, ignore: str | None = None) -> recipe.RecipeSubject:
    return recipe.read(text, name="Dockerfile", machine="x86_64", site=site, ignore=ignore)


def findings(text: str, *, site: Site | None = None, ignore: str | None = None) -> list[Finding]:
    return check.recipe(subject(text, site=site, ignore=ignore), rules=RULES)


def codes(text: str, *, site: Site | None = None, ignore: str | None = None) -> set[str]:
    return {each.code for each in findings(text, site=site, ignore=ignore)}


# The registry.


def test_codes_are_unique_and_in_groups() -> None:
    every = [rule.code for module in MODULES for rule in module.RULES]
    assert sorted(every) == list(RULES)
    for rule in RULES.values():
        assert rule.code[:4] in GROUPS
        assert rule.title.endswith(".")
        assert rule.why.endswith(".")
        assert rule.remedy
        assert rule.recipe or rule.image
        assert bool(rule.bad) == bool(rule.good)
        assert rule.bad or rule.image is not None or rule.site


@pytest.mark.parametrize("rule", EXAMPLES, ids=lambda rule: rule.code)
def test_the_bad_example_trips_the_rule_and_the_good_one_does_not(rule: object) -> None:
    assert rule.code in codes(rule.bad)  # type: ignore[attr-defined]
    assert rule.code not in codes(rule.good)  # type: ignore[attr-defined]


# Public shapes of Dockerfiles: all findings.


@pytest.mark.parametrize("path", sorted(SHAPES.glob("*.Dockerfile")), ids=lambda path: path.stem)
def test_public_shapes(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    found = [f"{each.line} {each.code}" for each in sorted(findings(text), key=lambda f: (f.line, f.code))]
    expected = json.loads((SHAPES / "expected.json").read_text())
    if request.config.getoption("--update-golden"):
        expected[path.stem] = found
        (SHAPES / "expected.json").write_text(json.dumps(dict(sorted(expected.items())), indent=1) + "\n")
    assert found == expected[path.stem]


# Secrets.


@pytest.mark.parametrize(
    ("command", "tripped"),
    [
        ("export AWS_SECRET_ACCESS_KEY=abcdefghij && ./fetch", True),
        ("API_TOKEN=abcdefghij ./fetch", True),
        ("echo 'machine h.org login me password s3cr3t' > /etc/netrc", True),
        ('export API_TOKEN="$(cat /run/secrets/token)" && ./fetch', False),
        ("export TOKENIZERS_PARALLELISM=false && ./fetch", False),
        ('echo "machine h.org login me password $(cat /run/secrets/p)" > /etc/netrc', False),
    ],
)
def test_secrets_in_commands(command: str, tripped: bool) -> None:
    assert ("BB1703" in codes(f"FROM debian:12.7\nRUN {command}\n")) is tripped


# Sites.


def test_cuda_of_the_base_is_compared_with_the_driver() -> None:
    site = make_site(gpu_drivers=(make_driver(version="525.60.13", cuda="12.0"),))
    assert "BB1303" in codes("FROM nvidia/cuda:13.0.1-base-ubuntu24.04\n", site=site)
    assert "BB1303" in codes("ARG V=13.0.1\nFROM nvidia/cuda:${V}-base\n", site=site)
    assert "BB1303" not in codes("FROM nvidia/cuda:12.4.1-base-ubuntu22.04\n", site=site)
    wheel = "FROM debian:12.7\nRUN pip install torch==2.9.0 --index-url https://e.org/whl/cu130\n"
    assert "BB1303" in codes(wheel, site=site)


def test_processors() -> None:
    site = make_site()  # EPYC 7543: x86-64-v3
    assert "BB1306" in codes("FROM debian:12.7\nENV CFLAGS=-march=znver4\n", site=site)
    assert "BB1306" in codes("FROM debian:12.7\nRUN spack install x target=skylake_avx512\n", site=site)
    assert "BB1306" in codes("FROM debian:12.7\nRUN icc -xCORE-AVX512 x.c\n", site=site)
    assert "BB1306" not in codes("FROM debian:12.7\nENV CFLAGS=-march=haswell\n", site=site)
    text = "FROM debian:12.7\nRUN make CFLAGS=-march=native\n"
    assert "x86-64-v3" in findings(text, site=site)[0].remedy


def test_platforms() -> None:
    assert "BB1307" in codes("FROM --platform=linux/arm64 debian:12.7\n", site=make_site())
    assert "BB1307" not in codes("FROM --platform=linux/amd64 debian:12.7\n", site=make_site())
    arm = msgspec.structs.replace(make_site(), architecture="aarch64")
    assert "BB1307" in codes("FROM --platform=linux/amd64 debian:12.7\n", site=arm)


# Ignoring.


def test_comments_ignore_rules() -> None:
    text = "FROM debian:12.7\n# bareboat ignore=BB1101, BB1006\nCOPY a /root/a\nCOPY a /root/a\n"
    assert [each.line for each in findings(text) if each.code == "BB1101"] == [4]
    assert "BB1308" not in codes("# bareboat ignore=BB1308\n\nFROM alpine:3.20\n")
    inside = "FROM debian:12.7\nCOPY a \\\n  # bareboat ignore=BB1101\n  /root/a\n"
    assert "BB1101" not in codes(inside)


def test_a_dockerignore_is_enough() -> None:
    assert "BB1006" in codes("FROM debian:12.7\nCOPY . /a\n")
    assert "BB1006" not in codes("FROM debian:12.7\nCOPY . /a\n", ignore=".git\n")


def test_only_layers_of_the_image_count() -> None:
    text = "FROM debian:12.7 AS a\nCOPY x /root/x\nFROM debian:12.7\nCOPY --from=a /x /x\n"
    assert "BB1101" not in codes(text)
    assert "BB1101" in codes("FROM debian:12.7 AS a\nCOPY x /root/x\nFROM a\n")


def test_a_base_that_only_the_build_names_is_no_fault() -> None:
    found = findings('ARG BASE\nFROM ${BASE} AS a\nCOPY x /root/x\nFROM "${BASE:-}"\nCOPY x /root/x\n')
    assert [(each.code, each.line) for each in found] == [("BB1101", 5)]


# Definition files.


def test_a_definition_file_is_checked() -> None:
    text = (
        "Bootstrap: docker\nFrom: debian:12.7\n\n%environment\n  export API_TOKEN=abcdefghij\n\n"
        "%post\n  make CFLAGS=-march=native\n"
    )
    found = findings(text)
    lines = {each.code: each.line for each in found}
    assert (lines["BB1306"], lines["BB1703"]) == (7, 5)


@pytest.mark.parametrize(
    "written", ["${A:-}" * 600, "$A" * 1000, "${A}" * 900], ids=["default", "bare", "braces"]
)
def test_variables_of_variables_do_not_multiply(written: str) -> None:
    """Each of these lines alone would give 16 MB, and two of them more than the memory."""
    values = {"A": "$B" * 1000, "B": "x" * 4096, "C": "x" * 5000}
    assert recipe.expand(written, values) == written
    assert recipe.expand("$C ${C:-other} $B", {"B": "b", "C": values["C"]}) == "$C other b"
