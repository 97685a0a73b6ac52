"""Machines whose schedulers' tools print given texts."""

from collections.abc import Mapping, Sequence

from bareboat.model import Outcome


class Tools:
    """Each tool prints a text, by the beginning of its command; one without a text fails and prints "no"."""

    user = "ada"

    def __init__(self, answers: Mapping[str, str]) -> None:
        self.answers = answers

    def which(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if any(start.split()[0] == name for start in self.answers) else None

    def run(self, argv: Sequence[str]) -> Outcome:
        line = " ".join(argv)
        text = next((text for start, text in self.answers.items() if line.startswith(start)), None)
        code, error = (1, "no") if text is None else (0, "")
        return Outcome(argv=tuple(argv), exit_code=code, stdout=text or "", stderr=error, wall_s=0.0)

    def run_all(self, questions: Sequence[Sequence[str]]) -> Sequence[Outcome]:
        return [self.run(argv) for argv in questions]
