"""What a push asks for beside its files."""

from __future__ import annotations

from dataclasses import dataclass

IF_BETTER = "if_better"


@dataclass(frozen=True, slots=True)
class Wishes:
    """``promote`` is true, false, or ``if_better``: when the attached evaluation says so. ``choice`` is the folder or
    file that is meant where the upload holds several."""

    base_model: str = ""
    kind: str = ""
    choice: str = ""
    message: str = ""
    promote: bool | str = False

    def fields(self) -> dict[str, str]:
        """As the fields of a form, without the empty ones."""
        promote = self.promote if isinstance(self.promote, str) else ("true" if self.promote else "")
        said = {
            "base_model": self.base_model,
            "kind": self.kind,
            "choice": self.choice,
            "message": self.message,
            "promote": promote,
        }
        return {name: value for name, value in said.items() if value}

    def answer_to(self, field: str) -> str:
        """What was said already to the question for ``field``; empty when nothing was."""
        return {"base_model": self.base_model, "kind": self.kind, "choice": self.choice}.get(field, "")


NOTHING_SPECIAL = Wishes()
