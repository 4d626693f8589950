"""From the ``model`` field to a model and a pinned version digest. Pure: records, team and random number come in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wire.errors import Code, ShoalError
from wire.jobs import Task
from wire.names import Address, nearest_names, parse_address
from wire.registry import AdapterRecord, Mode, ModelRecord, VersionRecord

SHOWN_CHARS = 200
# Comparing names is slow, about 10 us each; a mistyped name must not hold up the loop.
COMPARED_NAMES = 1000


@dataclass(frozen=True, slots=True)
class Target:
    """What a request runs on. ``version`` is for people: ``team/adapter@3`` or the base model's id.

    ``model`` is what has the weights: the base model, or the version's own record when it is not packed.
    ``alias`` is the alias the version was reached by.
    """

    model: ModelRecord
    version: str
    task: Task
    adapter_digest: str | None = None
    alias: str | None = None

    @property
    def digest(self) -> str:
        """Digest of what produces the answer."""
        return self.adapter_digest or self.model.digest


def sticky_draw(adapter: str, session: str) -> float:
    """A number in [0, 1) that is the same for every request of ``session`` to ``adapter``."""
    digest = hashlib.sha256(f"{adapter}\0{session}".encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48


def pick_version(weights: Mapping[int, int], draw: float) -> int | None:
    """The version that ``draw`` in [0, 1) falls on, in proportion to ``weights``; ``None`` when all are zero.

    Versions lie in order of their number, so that widening the newest's share moves sessions only towards it.
    """
    total = sum(weights.values())
    if total <= 0:
        return None
    mark = draw * total
    last = None
    for number in sorted(weights):
        if weights[number] <= 0:
            continue
        last = number
        mark -= weights[number]
        if mark < 0:
            return number
    return last


def resolve(
    name: str,
    *,
    team: str,
    tasks: Sequence[Task],
    models: Mapping[str, ModelRecord],
    adapters: Mapping[str, AdapterRecord],
    draw: float | None,
    session: str | None = None,
) -> Target:
    """What ``name`` addresses for ``team``, and the first of ``tasks`` that it serves.

    ``draw`` decides an alias split unless ``session`` is given. Raises ``ShoalError`` MODEL_NOT_FOUND,
    ALIAS_NOT_FOUND, VERSION_NOT_FOUND, TASK_UNSUPPORTED, MODEL_UNLOADABLE.
    """
    model = models.get(name)
    if model is not None and not model.is_version:
        return Target(model, model.id, _task(tasks, model.tasks, model.id))
    address = parse_address(name)
    record = adapters.get(str(address.name)) if address is not None else None
    if address is None or record is None or record.team != team:
        raise _unknown(name, team, models, adapters)
    if session is not None:
        draw = sticky_draw(record.name, session)
    number = _version_number(address, record, draw or 0.0)
    version = record.versions[number]
    label = f"{record.name}@{number}"
    model = _weights(record, version, label, models)
    return Target(
        model,
        label,
        _task(tasks, version.tasks or model.tasks, label),
        adapter_digest=version.digest if version.mode is Mode.PACKED else None,
        alias=address.alias,
    )


def visible_names(team: str, models: Mapping[str, ModelRecord], adapters: Mapping[str, AdapterRecord]) -> list[str]:
    """Names that exist for ``team``: all base models and its own adapters."""
    bases = [name for name, model in models.items() if not model.is_version]
    return [*bases, *(name for name, record in adapters.items() if record.team == team)]


def _weights(
    record: AdapterRecord, version: VersionRecord, label: str, models: Mapping[str, ModelRecord]
) -> ModelRecord:
    if version.mode is Mode.PACKED:
        model = models.get(record.base_model)
        if model is None or model.is_version:
            raise ShoalError(
                Code.MODEL_UNLOADABLE,
                f"{record.name} needs the base model {record.base_model}, which is not registered at present.",
                param="model",
                hint="An administrator can register it again.",
            )
        return model
    model = models.get(label)
    # A version is immutable, but a name that was deleted and given anew is not the same version.
    if model is None or model.digest != version.digest or model.team != record.team:
        raise ShoalError(
            Code.MODEL_UNLOADABLE,
            f"{label} has weights of its own ({version.mode.value}), and their record is not published at present.",
            param="model",
            hint="It appears within a minute of the version's becoming ready; then upload it again.",
            detail={"retry_after_s": 5},
        )
    return model


def _version_number(address: Address, record: AdapterRecord, draw: float) -> int:
    if address.version is not None:
        if address.version not in record.versions:
            have = ", ".join(str(number) for number in sorted(record.versions)) or "none"
            raise ShoalError(
                Code.VERSION_NOT_FOUND,
                f"{record.name} has no ready version {address.version}; ready versions: {have}.",
                param="model",
            )
        return address.version
    weights = record.aliases.get(str(address.alias))
    if weights is None:
        have = ", ".join(sorted(record.aliases)) or "none"
        raise ShoalError(
            Code.ALIAS_NOT_FOUND,
            f"{record.name} has no alias {address.alias!r}; its aliases: {have}.",
            param="model",
            hint=f"A version is addressed as {record.name}@<number>.",
        )
    # A retired version that a split still names must not take requests to nowhere.
    ready = {number: weight for number, weight in weights.items() if number in record.versions}
    number = pick_version(ready, draw)
    if number is None:
        raise ShoalError(
            Code.VERSION_NOT_FOUND,
            f"Alias {address.alias!r} of {record.name} points to no ready version.",
            param="model",
            hint="Move the alias to a ready version.",
        )
    return number


def _task(wanted: Sequence[Task], served: Sequence[Task], label: str) -> Task:
    for task in wanted:
        if task in served:
            return task
    can = ", ".join(sorted(each.value for each in served)) or "nothing"
    raise ShoalError(
        Code.TASK_UNSUPPORTED,
        f"{label} does not serve {' or '.join(wanted)}; it serves: {can}.",
        param="model",
        hint="GET /v1/models lists what each model serves.",
    )


def _unknown(
    name: str, team: str, models: Mapping[str, ModelRecord], adapters: Mapping[str, AdapterRecord]
) -> ShoalError:
    shown = name[:SHOWN_CHARS]
    near = nearest_names(shown, visible_names(team, models, adapters)[:COMPARED_NAMES])
    hint = f"Near names: {', '.join(near)}." if near else "GET /v1/models lists the names that exist."
    return ShoalError(Code.MODEL_NOT_FOUND, f"There is no model or adapter {shown!r}.", param="model", hint=hint)
