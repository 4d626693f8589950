"""From bytes to a typed body: strict JSON, fields given once, unknown fields refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Generic, TypeVar

import msgspec

from wire.errors import Code, ShoalError
from wire.names import nearest_names

MODEL_CHARS = 512
SHOWN_CHARS = 100
_PATH = re.compile(r" - at `\$\.?(.*)`\Z")
_MISSING = re.compile(r"missing required field `(\w+)`")
_UNKNOWN = re.compile(r"contains unknown field `(.*)`\Z", re.DOTALL)


UNREAD = msgspec.Raw()


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every body has. The fields but ``model`` and ``user`` change no answer and are ignored."""

    model: str
    user: str | None = None
    metadata: msgspec.Raw = UNREAD
    store: msgspec.Raw = UNREAD
    service_tier: msgspec.Raw = UNREAD
    safety_identifier: msgspec.Raw = UNREAD
    prompt_cache_key: msgspec.Raw = UNREAD
    prompt_cache_retention: msgspec.Raw = UNREAD


B = TypeVar("B", bound=Body)


class BodyReader(Generic[B]):
    """Decodes bodies of one kind. ``hint`` says in a refusal what a right body looks like."""

    def __init__(self, kind: type[B], *, hint: str) -> None:
        self._hint = hint
        self._decoder = msgspec.json.Decoder(kind)
        self._names = kind.__struct_fields__
        self._quoted = tuple(f'"{name}"'.encode() for name in self._names)

    def read(self, body: bytes) -> B:
        """The struct in ``body``. Raises ``ShoalError`` with a 400 code and ``param``."""
        try:
            if not body.isascii():
                body.decode()
            raw = self._decoder.decode(body)
            self._refuse_duplicates(body)
        except msgspec.ValidationError as error:
            raise self._wrong_type(str(error)) from error
        except UnicodeDecodeError as error:
            raise ShoalError(
                Code.INVALID_JSON,
                f"The body is not UTF-8: byte {error.start} cannot be read.",
                hint="Encode the JSON as UTF-8.",
            ) from error
        except RecursionError as error:
            raise ShoalError(Code.INVALID_JSON, "The body is nested too deeply.") from error
        except msgspec.DecodeError as error:
            what = "is empty" if not body.strip() else f"is not JSON: {error}"
            raise ShoalError(Code.INVALID_JSON, f"The body {what}.", hint=self._hint) from error
        if not raw.model or len(raw.model) > MODEL_CHARS:
            raise ShoalError(
                Code.INVALID_REQUEST,
                f"`model` has {len(raw.model)} characters; it must have 1 to {MODEL_CHARS}.",
                param="model",
            )
        return raw

    def _refuse_duplicates(self, body: bytes) -> None:
        """Raise for a field given twice: readers differ in which one they take.

        The decoder takes the last silently. Counting names is cheap and finds every suspect; only those are read again.
        """
        if all(body.count(name) < 2 for name in self._quoted):
            return

        def check(pairs: list[tuple[str, object]]) -> None:
            seen: set[str] = set()
            for name, _ in pairs:
                if name in seen:
                    shown = name[:SHOWN_CHARS]
                    raise ShoalError(Code.INVALID_JSON, f"The field {shown!r} is given twice.", param=shown)
                seen.add(name)

        # Numbers are not looked at, and Python refuses to convert very long ones.
        json.loads(body, object_pairs_hook=check, parse_int=len)

    def _wrong_type(self, text: str) -> ShoalError:
        """An error of the decoder as ours; its path (``$.input[3]``) becomes ``param``."""
        path = _PATH.search(text)
        what = _PATH.sub("", text)
        unknown = _UNKNOWN.search(what)
        if unknown:
            return self._unknown(unknown.group(1))
        missing = _MISSING.search(text)
        param = path.group(1) if path else missing.group(1) if missing else None
        message = f"{what} in `{param}`." if param else f"{what}."
        if missing:
            where = f" in `{path.group(1)}`" if path else ""
            message = f"`{missing.group(1)}` is missing{where}."
        return ShoalError(Code.INVALID_REQUEST, message, param=param, hint=self._hint)

    def _unknown(self, name: str) -> ShoalError:
        shown = name[:SHOWN_CHARS]
        near = nearest_names(shown, self._names)
        return ShoalError(
            Code.UNSUPPORTED_PARAMETER,
            f"The parameter {shown!r} is not known here.",
            param=shown,
            hint=f"Near names: {', '.join(near)}." if near else "Leave it out.",
        )


def refuse_unless_neutral(raw: Body, neutral: Mapping[str, tuple[object, ...]]) -> None:
    """Raise for a parameter that would change the answer and is not supported: one whose value is neither null nor
    among its ``neutral`` values."""
    for name, values in neutral.items():
        given = getattr(raw, name)
        # By type too: True equals 1 and would pass for it.
        if given is None or any(given == value and type(given) is type(value) for value in values):
            continue
        takes = ", ".join(json.dumps(value) for value in values)
        raise ShoalError(
            Code.UNSUPPORTED_PARAMETER,
            f"`{name}` is not supported" + (f" but as {takes}." if values else "."),
            param=name,
            hint="Leave it out.",
        )
