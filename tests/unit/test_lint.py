"""The rules about Dockerfiles: each with one that trips it and one that does not, and public shapes."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from builders import make_driver, make_site

from bareboat.lint.registry import GROUPS, MODULES, RULES
from bareboat.model import Site
from bareboat_images.lint import check, fix, recipe
from bareboat_images.lint.rule import Finding

SHAPES = Path(__file__).parents[1] / "data" / "dockerfiles"
EXAMPLES = [rule for rule in RULES.values() if rule.bad]


def subject(text: str, *, site: Site | None = None, ignore: str | None = None) -> recipe.RecipeSubject:
    return recipe.read(text, name="Dockerfile", machine="x86_64", site=site, ignore=ignore)


def findings(text: str, *, site: Site | None = None, ignore: str | None = None) -> list[Finding]:
    return check.recipe(subject(text, site=site, ignore=ignore), rules=RULES)


def codes(text: str, *, site: Site | None = None, ignore: str | None = None) -> set[str]:
    return {each.code for each in findings(text, site=site, ignore=ignore)}


def run(commands: str, *, before: str = "") -> set[str]:
    return codes(f"FROM debian:12.7\n{before}RUN {commands}\n") - {"BB1602", "BB1604", "BB1606"}


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


@pytest.mark.parametrize(
    "rule", [rule for rule in EXAMPLES if not rule.site or not rule.fixes], ids=lambda rule: rule.code
)
def test_what_is_called_fixable_is_fixed(rule: object) -> None:
    text, done = fix.fixed(rule.bad, lambda each: [f for f in findings(each) if f.code == rule.code])  # type: ignore[attr-defined]
    assert bool(done) is rule.fixes  # type: ignore[attr-defined]
    assert not done or rule.code not in codes(text)  # type: ignore[attr-defined]


# Public shapes of Dockerfiles: all findings, and that --fix keeps them Dockerfiles.


@pytest.mark.parametrize("path", sorted(SHAPES.glob("*.Dockerfile")), ids=lambda path: path.stem)
def test_public_shapes(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    found = [f"{each.line} {each.code}" for each in sorted(findings(text), key=lambda f: (f.line, f.code))]
    expected = json.loads((SHAPES / "expected.json").read_text())
    if request.config.getoption("--update-golden"):
        expected[path.stem] = found
        (SHAPES / "expected.json").write_text(json.dumps(dict(sorted(expected.items())), indent=1) + "\n")
    assert found == expected[path.stem]
    after, done = fix.fixed(text, findings)
    assert {each.code for each in done} <= {rule.code for rule in RULES.values() if rule.fixes}
    again = findings(after)
    assert not [each for each in again if each.edits]
    left = {each.code for each in again}
    assert left <= {each.code for each in findings(text)}
    before = [step.name for step in subject(text).steps]
    assert [step.name for step in subject(after).steps] == before


# Caches.


@pytest.mark.parametrize(
    "commands",
    [
        "apt-get update && apt-get install -y gcc && rm -rf /var/lib/apt/lists/*",
        "apt-get update; apt-get install -y gcc; rm -rf /var/lib/apt/lists",
        "apt-get update \\\n # a comment\n && apt-get install gcc \\\n && rm -fr /var/lib/apt/*",
        "--mount=type=cache,target=/var/lib/apt apt-get update && apt-get install gcc",
        "--mount=type=tmpfs,target=/var/lib/apt/lists apt-get update",
        "bash -c 'apt-get update && rm -rf /var/lib/apt/lists/*'",
        "echo apt-get update",
        "echo 'x && apt-get update'",
        "apt-get update && cd /var/lib/apt && rm -rf lists",
        "apt-get update && find /var/lib/apt/lists -type f -delete",
        "pip install --no-cache-dir a==1",
        "pip --no-cache-dir install a==1",
        "PIP_NO_CACHE_DIR=1 pip install a==1",
        "export PIP_NO_CACHE_DIR=yes; pip install a==1",
        "pip install a==1 && rm -rf ~/.cache",
        "pip install a==1 && rm -rf $HOME/.cache/pip",
        "pip install a==1 && pip cache purge",
        "--mount=type=cache,target=/root/.cache pip install a==1",
        "conda install -y a=1 && conda clean -afy",
        "dnf -y install gcc-13.1 && dnf clean all",
        "apk add --no-cache bash",
        "npm ci && npm cache clean --force",
        "uv pip install --no-cache a==1",
    ],
)  # fmt: skip
def test_no_cache_is_left(commands: str) -> None:
    assert run(commands) & {"BB1001", "BB1002"} == set()


@pytest.mark.parametrize(
    ("commands", "code"),
    [
        ("apt-get update && apt-get clean", "BB1001"),
        ("apt-get -qq update", "BB1001"),
        ("sudo -E apt-get update", "BB1001"),
        ("set -ex; if true; then apt-get update; fi", "BB1001"),
        ("rm -rf /var/lib/apt/lists/* && apt-get update", "BB1001"),
        ("bash -c 'apt-get update'", "BB1001"),
        ('["apt-get", "update"]', "BB1001"),
        ('["/bin/bash", "-c", "apt-get update"]', "BB1001"),
        ("<<EOF\napt-get update\nEOF", "BB1001"),
        ("<<EOF bash -e\napt-get update\nEOF", "BB1001"),
        ("dnf install -y gcc-13.1", "BB1001"),
        ("apk add bash", "BB1001"),
        ("zypper -n in gcc", "BB1001"),
        ("pip3.11 install a==1", "BB1002"),
        ("python3 -m pip install a==1", "BB1002"),
        ("/opt/venv/bin/pip install a==1", "BB1002"),
        ("PIP_NO_CACHE_DIR=0 pip install a==1", "BB1002"),
        ("mamba env create -f e.yml", "BB1002"),
        ("npm install -g x@1", "BB1002"),
        ("go build ./...", "BB1002"),
    ],
)
def test_a_cache_is_left(commands: str, code: str) -> None:
    assert code in run(commands)


def test_only_layers_of_the_image_count() -> None:
    text = "FROM debian:12.7 AS a\nRUN apt-get update\nFROM debian:12.7\nCOPY --from=a /x /x\n"
    assert "BB1001" not in codes(text)
    assert "BB1001" in codes("FROM debian:12.7 AS a\nRUN apt-get update\nFROM a\n")


def test_variables_of_the_environment_count() -> None:
    assert run("pip install a==1", before="ENV PIP_NO_CACHE_DIR=1\n") == set()
    assert "BB1002" in run("pip install a==1", before="ENV PIP_NO_CACHE_DIR=off\n")


# Leftovers.


@pytest.mark.parametrize(
    ("commands", "tripped"),
    [
        ("wget https://e.org/a.tar.gz && tar xf a.tar.gz", True),
        ("wget https://e.org/a.tar.gz && tar xf a.tar.gz && rm a.tar.gz", False),
        ("cd /tmp && wget https://e.org/a.tar.gz && tar xf a.tar.gz && rm -rf /tmp/*", False),
        ("wget -O /opt/a.tgz https://e.org/x && tar xf /opt/a.tgz", True),
        ("wget -qO- https://e.org/a.tar.gz | tar xz", False),
        ("curl https://e.org/a.tar.gz | tar xz", False),
        ("curl -fsSLo a.zip https://e.org/a", True),
        ("curl -O https://e.org/a.deb && dpkg -i a.deb && rm *.deb", False),
        ("wget -P /tmp https://e.org/a.tar.gz", True),
        ("curl -o /usr/local/bin/tool.bin https://e.org/t", False),
        ("--mount=type=tmpfs,target=/tmp cd /tmp && wget https://e.org/a.tar.gz", False),
        ("git clone https://e.org/a.git /tmp/a && make -C /tmp/a install", True),
        ("git clone https://e.org/a.git /tmp/a && make -C /tmp/a install && rm -r /tmp/a", False),
    ],
)
def test_temporary_files(commands: str, tripped: bool) -> None:
    assert ("BB1003" in run(commands)) is tripped


def test_a_removal_in_a_later_layer_saves_nothing() -> None:
    text = "FROM debian:12.7\nRUN apt-get update\nRUN rm -rf /var/lib/apt/lists/*\n"
    (found,) = [each for each in findings(text) if each.code == "BB1004"]
    assert (found.line, "line 2" in found.remedy) == (3, True)
    assert "BB1004" not in codes("FROM debian:12.7\nRUN rm -rf /var/lib/apt/lists/*\n")


def test_a_changed_owner_becomes_a_flag_of_copy() -> None:
    text = 'FROM debian:12.7\nCOPY app /opt/app\nRUN chown -R a:b /opt/app\nCMD ["x"]\n'
    after, _ = fix.fixed(text, findings)
    assert after == 'FROM debian:12.7\nCOPY --chown=a:b app /opt/app\nCMD ["x"]\n'
    kept = text.replace("RUN chown", "RUN true && chown")
    assert fix.fixed(kept, findings)[0] == kept


@pytest.mark.parametrize(
    "text",
    [
        "RUN apt-get update\nRUN apt-get install -y gcc\n",  # the lists are needed
        "RUN apt-get update\nRUN ./install.sh\n",
        "RUN cd /tmp && wget https://e.org/a.tar.gz\nRUN tar -xf /tmp/a.tar.gz -C /opt\n",
        "RUN git clone https://e.org/a.git /tmp/a\nRUN make -C /tmp/a install\n",
        "RUN sudo apt-get update\n",  # as another user than root
        "USER app\nRUN apt-get update\n",
        "RUN apt-get update; exit 0\n",  # not reached
        "RUN apt-get update # the end\n",
        'RUN ["apt-get", "update"]\n',
        "RUN go mod download\n",  # a later step builds
        "USER app\nRUN pip install --no-cache-dir --user a==1\n",
        "COPY a /app/a\nCOPY b /app\nRUN chown -R x /app\n",  # more is in the directory
        "WORKDIR /app\nCOPY . /app\nRUN chown -R x /app\n",
        "COPY app /app\nRUN chmod 755 /app\n",  # of a directory, or of all files in it
        "COPY app /app\nRUN chown 5:6 /app\n",  # of a directory alone
        "COPY app /app\nRUN chown -R 5 /app\n",  # the group stays
        "COPY app /app\nRUN chown -R 5.6 /app\n",
        "COPY app /app\nRUN chown -RL 5:6 /app\n",  # what links lead to
        "COPY app /app\nRUN chgrp -R 5 /app\n",
        "COPY app /new/deep/app\nRUN chown -R 5:6 /new/deep/app\n",  # COPY makes the parents
        "RUN <<E\napt-get update\nE\n",  # the exit code is that of the last command
        "RUN bash <<E\nnpm ci\nE\n",
        "RUN apt-get update && exec true\n",
        "RUN apt-get update\nRUN apt-cache show gcc\n",
        "RUN apt-get update\nRUN apt-get download gcc\n",
        "RUN wget -O /opt/t.tar.gz https://e.org/1.0/t && tar tf /opt/t.tar.gz\n",  # kept, and only listed
        "RUN pip install --no-cache-dir --user a==1 && ~/.local/bin/a\n",
        "RUN pip install --no-cache-dir --user a==1\nRUN mv /root/.local /opt/py\n",
        "ENV PYTHONUSERBASE=/opt/u\nRUN pip install --no-cache-dir --user a==1\n",
        "COPY p.toml .\nRUN pip install --no-cache-dir -e .\nCOPY src src\n",  # the source follows
    ],
)
def test_what_could_break_a_build_is_not_changed(text: str) -> None:
    text = f"FROM debian:12.7\n{text}"
    assert codes(text) - {"BB1602", "BB1604"}
    assert fix.fixed(text, findings) == (text, [])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("RUN apt-get update\nRUN apt-get update && apt install\n",
         "RUN apt-get update \\\n    && {clean}\nRUN apt-get update && apt install \\\n    && {clean}\n"),
        ("RUN apt-get update && \\\n  apt-get install a \\\n  # the end\n",
         "RUN apt-get update && \\\n  apt-get install a \\\n  && {clean} \\\n  # the end\n"),
        ("RUN apt-get update && apt-get clean\n",
         "RUN apt-get update && apt-get clean \\\n    && rm -rf /var/lib/apt/lists/*\n"),
        ("RUN <<E\nset -eux\napt-get update\nE\n", "RUN <<E\nset -eux\napt-get update\n{clean}\nE\n"),
        ("RUN --mount=type=cache,target=/var/cache/apt apt-get update\n",
         "RUN --mount=type=cache,target=/var/cache/apt apt-get update \\\n"
         "    && rm -rf /var/lib/apt/lists/*\n"),
        ("COPY app /opt/app\nRUN chown -R a:b /opt/app\n", "COPY --chown=a:b app /opt/app\n"),
        ("RUN curl -Lo /opt/a.tgz e://a.b/a && tar -C /opt -xf /opt/a.tgz\n",
         "RUN curl -Lo /opt/a.tgz e://a.b/a && tar -C /opt -xf /opt/a.tgz \\\n    && rm -f /opt/a.tgz\n"),
        ("RUN if a; then apt-get update; fi\n", "RUN if a; then apt-get update; fi \\\n    && {clean}\n"),
        ("RUN pip install -e . --user\n", "RUN pip install --no-cache-dir .\n"),
        ("RUN pip install \\\n  --user \\\n  a==1\n", "RUN pip install --no-cache-dir \\\n  \\\n  a==1\n"),
        ("RUN apt-get update >/dev/null 2>&1\n", "RUN apt-get update >/dev/null 2>&1 \\\n    && {clean}\n"),
        ("RUN apt-get update 2>&1\n", "RUN apt-get update 2>&1 \\\n    && {clean}\n"),
        ("RUN apt-get update > log 2>&1 </dev/null\n",
         "RUN apt-get update > log 2>&1 </dev/null \\\n    && {clean}\n"),
        ("# escape=`\nFROM a:1\nRUN apt-get update\n",
         "# escape=`\nFROM a:1\nRUN apt-get update `\n    && {clean}\n"),
    ],
)  # fmt: skip
def test_corrections(before: str, after: str) -> None:
    head = "" if before.startswith("#") else "FROM debian:12.7\n"
    text, _ = fix.fixed(head + before, findings)
    assert text == head + after.format(clean="apt-get clean && rm -rf /var/lib/apt/lists/*")


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


def test_a_program_of_another_language_has_no_commands_of_a_shell() -> None:
    text = 'FROM debian:12.7\nSHELL ["/usr/bin/python3", "-c"]\nRUN apt-get update\n'
    assert "BB1001" not in codes(text)
    assert "BB1001" in codes(text.replace("python3", "bash"))


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
    after, _ = fix.fixed(text, lambda each: findings(each, site=site))
    assert after == text.replace("native", "x86-64-v3")


def test_platforms() -> None:
    assert "BB1307" in codes("FROM --platform=linux/arm64 debian:12.7\n", site=make_site())
    assert "BB1307" not in codes("FROM --platform=linux/amd64 debian:12.7\n", site=make_site())
    arm = msgspec.structs.replace(make_site(), architecture="aarch64")
    assert "BB1307" in codes("FROM --platform=linux/amd64 debian:12.7\n", site=arm)


# Ignoring.


def test_comments_ignore_rules() -> None:
    text = "FROM debian:12.7\n# bareboat ignore=BB1001, BB1604\nRUN apt-get update\nRUN apt-get update\n"
    assert [each.line for each in findings(text) if each.code == "BB1001"] == [4]
    assert "BB1602" not in codes("# bareboat ignore=BB1602\n\nFROM debian:12.7\n")
    inside = "FROM debian:12.7\nRUN true \\\n  # bareboat ignore=BB1001\n && apt-get update\n"
    assert "BB1001" not in codes(inside)


def test_a_dockerignore_is_enough() -> None:
    assert "BB1006" in codes("FROM debian:12.7\nCOPY . /a\n")
    assert "BB1006" not in codes("FROM debian:12.7\nCOPY . /a\n", ignore=".git\n")


@pytest.mark.parametrize(
    "commands",
    [
        "wget -P /tmp/a https://x.org/a.tar.gz && rm /tmp/a/a.tar.gz",
        "wget -P /tmp/a https://x.org/a.tar.gz && rm /tmp/a/a*",
        "cd /tmp && curl -fO --output-dir dl https://x.org/a.tar.gz && rm dl/a*",
        "curl -f --output-dir /tmp/dl -o b.tar.gz https://x.org/a.tar.gz && rm -r /tmp/dl",
        "cd /tmp && git clone --depth 1 -b v1 https://x.org/a.git && rm -rf a",
        "git clone --depth 1 -b v1 https://x.org/a.git /tmp/a && rm -rf /tmp/a",
    ],
)
def test_what_is_removed_again_is_no_finding(commands: str) -> None:
    assert run(commands) & {"BB1003", "BB1004", "BB1005", "BB1101"} == set()
    kept = commands.rpartition(" && ")[0]
    assert run(kept) & {"BB1003", "BB1004", "BB1005"}


def test_the_directory_of_a_clone_with_a_depth_is_not_its_depth() -> None:
    found = findings("FROM debian:12.7\nRUN git clone --depth 1 https://x.org/a.git /root/a\n")
    assert any("clones to /root/a" in each.message for each in found)
    assert any("git clones https://x.org/a.git without" in each.message for each in found)


#: Instructions, and the path that BB1004 names for the last one; "": it has no finding.
REMOVALS = [
    ("WORKDIR /opt/x\nCOPY install.sh .\nRUN ./install.sh && rm -rf ./build", ""),
    ("WORKDIR /opt/x\nCOPY install.sh .\nRUN ./install.sh && rm install.sh", "/opt/x/install.sh"),
    ("COPY a.sh b.sh /tmp\nRUN sh /tmp/a.sh && rm /tmp/b.sh", "/tmp/b.sh"),
    ("COPY a.sh /tmp\nRUN sh /tmp/a.sh && rm /tmp/a.sh", "/tmp/a.sh"),
    ("ENV S=/tmp\nRUN mkdir -p $S\nRUN cd $S && curl -f x | tar xz && rm -rf $S/x", ""),
    ("COPY src /opt/src\nRUN cd /opt/src && make install && rm -rf build", ""),
    ("COPY src /opt/src\nRUN rm -rf /opt/src/docs", "/opt/src/docs"),
    ("COPY src /opt/src\nRUN make -C /opt/src && rm -rf /opt/src", "/opt/src"),
    ("RUN git clone -b v1 https://x.org/a.git /a\nRUN make -C /a && rm -rf /a/.git", "/a/.git"),
    ("RUN apt-get update\nRUN apt-get install -y x && rm -rf /var/lib/apt/lists/*", "/var/lib/apt/lists/*"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "path"), REMOVALS)
def test_only_what_an_earlier_layer_certainly_has_is_removed_in_vain(text: str, path: str) -> None:
    found = [each.message for each in findings(f"FROM debian:12.7\n{text}\n") if each.code == "BB1004"]
    assert [each.split(",")[0] for each in found] == ([f"removes {path}"] if path else [])


def test_a_base_that_only_the_build_names_is_no_fault() -> None:
    found = findings('ARG BASE\nFROM ${BASE} AS a\nRUN pip install x\nFROM "${BASE:-}"\nRUN apt-get update\n')
    assert [(each.code, each.line) for each in found if each.code != "BB1002"] == [
        ("BB1603", 3),
        ("BB1001", 5),
    ]


@pytest.mark.parametrize(
    ("commands", "code"),
    [
        ("uv pip install --no-cache-dir numpy==2.1.0", "BB1002"),
        ("git clone --depth 1 ${ARGS} https://x.org/a.git /opt/a", "BB1605"),
        ("git clone $ARGS https://x.org/a.git", "BB1605"),
        ("cd /tmp && pushd /opt && popd && wget https://x.org/a.tar.gz && rm /tmp/a.tar.gz", "BB1003"),
    ],
)
def test_what_real_recipes_do_is_no_finding(commands: str, code: str) -> None:
    assert code not in run(commands)
    other = {"BB1002": " --no-cache-dir", "BB1605": "${ARGS} ", "BB1003": " && popd"}[code]
    assert code in run(commands.replace(other, "").replace("$ARGS ", ""))


# Branches and definition files.


@pytest.mark.parametrize(
    ("script", "tripped"),
    [
        ('if [ "$MPI" = openmpi ]; then ./c && {open}; else {mpich}; fi', False),
        ("if a; then {open}; elif b; then {mpich}; fi", False),
        ("case $A in a) {open} ;; b) {mpich};; esac", False),
        ("if a; then if b; then {open}; fi; else {mpich}; fi", False),
        ("if {open}; then true; else {mpich}; fi", True),
        ("if a; then {open}; fi; if b; then {mpich}; fi", True),
        ("if a; then {open}; fi && {mpich}", True),
        ("case $A in a) {open} ;; esac; {mpich}", True),
        ("[ $A = a ] && {open} || {mpich}", False),
        ("{open} || {mpich}", False),
        ("a || {open}; {mpich}", True),
        ("{open} || true && {mpich}", True),
        ("{open} && {mpich}", True),
    ],
)
def test_mpis_in_exclusive_branches_are_one(script: str, tripped: bool) -> None:
    installs = {"open": "apt-get install -y libopenmpi-dev", "mpich": "apt-get install -y libmpich-dev"}
    run = script.format(**installs)
    assert ("BB1403" in codes(f"FROM debian:12.7\nRUN {run}\n")) is tripped
    assert ("BB1403" in codes(f"FROM debian:12.7\nRUN <<E\n{run}\nE\n")) is tripped


def test_the_version_of_a_python_that_uv_installs_is_no_package() -> None:
    assert "BB1603" not in codes("FROM debian:12.7\nRUN uv python install 3.12\n")
    assert "BB1603" in codes("FROM debian:12.7\nRUN uv pip install numpy\n")


def test_a_definition_file_is_checked_and_never_edited() -> None:
    text = (
        "Bootstrap: docker\nFrom: debian:12.7\n\n%environment\n  export API_TOKEN=abcdefghij\n\n"
        "%post\n  apt-get update\n  if a; then apt-get install -y libopenmpi-dev\n"
        "  else apt-get install -y mpich\n  fi\n"
    )
    found = findings(text)
    lines = {each.code: each.line for each in found}
    assert (lines["BB1001"], lines["BB1703"]) == (7, 5)
    assert "BB1403" not in lines
    assert not any(each.edits for each in found)


@pytest.mark.parametrize(
    "written", ["${A:-}" * 600, "$A" * 1000, "${A}" * 900], ids=["default", "bare", "braces"]
)
def test_variables_of_variables_do_not_multiply(written: str) -> None:
    """Each of these lines alone would give 16 MB, and two of them more than the memory."""
    values = {"A": "$B" * 1000, "B": "x" * 4096, "C": "x" * 5000}
    assert recipe.expand(written, values) == written
    assert recipe.expand("$C ${C:-other} $B", {"B": "b", "C": values["C"]}) == "$C other b"
