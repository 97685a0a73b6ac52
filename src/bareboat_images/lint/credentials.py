"""Rules about secrets in layers, environment variables and the history. Values are never shown."""

from __future__ import annotations

import re
from collections.abc import Iterator

from bareboat_base import secret_forms
from bareboat_base.expressions import expression
from bareboat_base.printable import one_line
from bareboat_images.lint.census import SECRET_NAMES
from bareboat_images.lint.image import ImageSubject
from bareboat_images.lint.recipe import RecipeSubject
from bareboat_images.lint.rule import Hit, Rule, Severity

_CONTENT = expression(
    rb"aws_secret_access_key\s*=\s*\S{20,}|_authToken\s*=\s*[^\s$]{10,}|\"auth\"\s*:\s*\"[A-Za-z0-9+/=]{8,}\""
    rb"|^\s*password\s*[:=]\s*[^\s$]{3,}|^machine\s+\S+[\s\S]{0,200}?password\s+\S+|\"private_key\"\s*:\s*\"-----BEGIN"
    rb"|client-key-data:\s*\S{20,}|\boauth_token:\s*\S{10,}|npmAuthToken:\s*\S{10,}|\"key\"\s*:\s*\"[0-9a-f]{32}\""
    rb"|^\s*(?:secret_key|secret_access_key|pass)\s*=\s*[^\s$]{8,}|^\s*\"?refresh_token\"?\s*:\s*\S{10,}",
    re.MULTILINE | re.IGNORECASE,
)
_NAME = expression(
    r"passw(?:or)?d|passphrase|secret(?!s?_(?:name|id|path|file))|api_?key|access_?key|private_?key|auth_?token"
    r"|(?:^|_)token$|credential(?!s?_(?:path|file))", re.IGNORECASE,
)  # fmt: skip
_HARMLESS = expression(
    r"(?i)^(?:|true|false|yes|no|none|null|0|1|changeme|example|dummy|xxx+|\*+|<.*>|.*\$.*|/.*|file:.*|\.+)$"
)
_TEST = expression(
    r"/(?:tests?|testing|test_data|testdata|examples?|samples?|demos?|docs?|fixtures)/|/site-packages/.*test"
)
#: Variables that commands set.
_ASSIGNED = expression(r"(?:^|[\s;&|(])([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|[^\s;&|]+)")
_MOST_READ = 2000
_MOST_SEARCHED = 1 << 17
_LEAST_PASSWORD = 3


def tokens(text: str) -> Iterator[str]:
    """Yield the kinds of secret found at the beginning of a text."""
    text = text[:_MOST_SEARCHED]
    yield from secret_forms.tokens(text)
    for match in secret_forms.PASSWORD_IN_URL.finditer(text):
        password = match["password"].strip("\"'")
        if len(password) >= _LEAST_PASSWORD and not _HARMLESS.match(password):
            yield "a URL with a password"


def _variable(name: str, value: str) -> str:
    """Why a variable may be a secret; "" if it is not one."""
    found = next(tokens(value), "")
    if found:
        return found
    return "a secret by its name" if _NAME.search(name) and not _HARMLESS.match(value.strip("'\"")) else ""


def _recipe_variables(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.steps:
        if step.name in ("ENV", "ARG"):
            for name, value in step.instruction.pairs:
                if value is not None and (why := _variable(name, value)):
                    yield Hit(
                        message=f"{step.name} {one_line(name, limit=60)} is {why}",
                        line=step.line,
                        last=step.last,
                    )
                elif value is None and step.name == "ARG" and _NAME.search(name):
                    yield Hit(
                        message=f"ARG {one_line(name, limit=60)}: what --build-arg gives it stays in the "
                        "history",
                        line=step.line,
                        last=step.last,
                    )
        elif step.name in ("RUN", "LABEL", "CMD", "ENTRYPOINT"):
            text = step.instruction.text
            found = next(tokens(text), "")
            if not found and re.search(r"\bmachine\s+\S+[\s\S]{0,200}?\bpassword\s+[^\s$]{3,}", text):
                found = "a password for .netrc"
            found = found or next(filter(None, (_variable(*pair) for pair in _ASSIGNED.findall(text))), "")
            if found:
                yield Hit(message=f"{step.name} has {found}", line=step.line, last=step.last)


def _image_variables(subject: ImageSubject) -> Iterator[Hit]:
    said: set[str] = set()
    for entry in subject.execution.env or ():
        name, _, value = entry.partition("=")
        if name and (why := _variable(name, value)):
            said.add(value)
            yield Hit(message=f"the environment variable {one_line(name, limit=60)} is {why}")
    for number, text in enumerate(subject.commands, 1):
        word, _, rest = text.partition(" ")
        found = next(tokens(text), "")
        if not found:
            pairs = re.findall(r"(\w+)=(\"[^\"]*\"|'[^']*'|\S+)", rest if word in ("ARG", "ENV") else "")
            build = re.match(r"\|\d+ (.*?) /bin/sh", text)
            pairs += re.findall(r"(\w+)=(\S+)", build[1]) if build else []
            found = next((why for name, value in pairs if (why := _variable(name, value))), "")
        if found and not any(value and value in text for value in said):
            yield Hit(message=f"the history has {found}, in entry {number}: {word}")


def _copied(subject: RecipeSubject) -> Iterator[Hit]:
    for step in subject.steps:
        if step.name not in ("COPY", "ADD") or step.instruction.flag("from") is not None:
            continue
        for source in step.instruction.args[:-1]:
            name = source.rstrip("/").rpartition("/")[2]
            if name in (".ssh", ".aws", ".docker", ".kube", ".gnupg") or (
                SECRET_NAMES.match(name)
                and name not in ("config", "config.json", "token", "credentials.db", "hosts.yml", "auth.json")
                and not re.search(
                    r"(?:\.pub|ca[-_]?(?:cert|bundle).*|cert(?:s|ificate)?\.pem|chain.*)$", name
                )
                and (name not in ("pip.conf", ".condarc", ".npmrc"))
            ):
                yield Hit(
                    message=f"{step.name} puts {one_line(source, limit=80)} into a layer",
                    line=step.line,
                    last=step.last,
                )


def _files(subject: ImageSubject, *, keys: bool) -> Iterator[Hit]:
    for path, layer in subject.census.marked.get("secret", ())[:_MOST_READ]:
        data = subject.head(path, layer)
        is_key = secret_forms.PRIVATE_KEY.search(data.decode("latin-1")) is not None or path.endswith(
            (".p12", ".pfx", ".ppk", ".kdbx")
        )
        if not data or is_key is not keys:
            continue
        if not keys and not _credentials(path, data):
            continue
        what = "a private key" if keys else "credentials"
        gone = "" if subject.census.exists(path) else ", which a later layer hides: it is still in the image"
        is_test = _TEST.search(path) is not None or "snakeoil" in path
        yield Hit(
            message=f"{path} is {what}" + gone + (", probably of a test" if is_test else ""),
            layer=layer,
            paths=(path,),
            severity=Severity.INFO if is_test else None,
        )


def _credentials(path: str, data: bytes) -> bool:
    name = path.rpartition("/")[2]
    text = data.decode("utf-8", "replace")
    if name in (
        "config",
        "config.json",
        "token",
        "hosts.yml",
        "credentials",
        "auth.json",
        "credentials.json",
    ):
        homes = re.search(
            r"/\.(?:aws|docker|kube|huggingface|cache/huggingface|config|git|containers|ssh|azure)/", path
        )
        if homes is None:
            return False
        if name == "token":
            return len(text.strip()) > 15
    if any(True for _ in tokens(text)):
        return True
    if name.startswith(".env") or name == ".Renviron":
        pairs = re.findall(r"(?m)^(?:export\s+)?(\w+)\s*=\s*(\S+)", text)
        return any(_variable(key, value) for key, value in pairs)
    return _CONTENT.search(data) is not None


RULES = (
    Rule(
        code="BB1701",
        title="A layer has a private key.",
        why="Everyone who can pull the image has it, also when a later layer deletes it.",
        remedy="RUN --mount=type=secret; replace the key, since it is published",
        severity=Severity.ERROR,
        image=lambda subject: _files(subject, keys=True),
    ),
    Rule(
        code="BB1702",
        title="A layer has credentials: a password, or a token in a file.",
        why="Everyone who can pull the image has them, also when a later layer deletes them.",
        remedy="RUN --mount=type=secret,id=NAME,target=PATH; replace the credentials, since they are "
        "published",
        severity=Severity.ERROR,
        recipe=_copied,
        image=lambda subject: _files(subject, keys=False),
        bad="FROM debian:12.7\nCOPY .netrc /root/.netrc\n",
        good="FROM debian:12.7\nRUN --mount=type=secret,id=netrc,target=/root/.netrc \\\n"
        "    curl -fsSn https://example.org/x | tar -xz -C /opt\n",
    ),
    Rule(
        code="BB1703",
        title="A secret is in an environment variable, a build argument or a command.",
        why="The image's config has its environment and its history in plain text.",
        remedy="RUN --mount=type=secret,id=NAME,env=NAME …, and bareboat image build --secret "
        "id=NAME,env=NAME",
        severity=Severity.ERROR,
        recipe=_recipe_variables,
        image=_image_variables,
        bad="FROM debian:12.7\nENV API_TOKEN=0123456789abcdef\n",
        good="FROM debian:12.7\nRUN --mount=type=secret,id=API_TOKEN,env=API_TOKEN ./fetch\n",
    ),
)
