"""Aliases: where a name points. They move by compare-and-swap under the adapter's lock, with a history."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib.auth.models import User
from django.db import transaction

from controlplane.events.services import enqueue_outbox, record_event
from loras.live import publish_aliases
from loras.models import Adapter, Alias, AliasMove, Version
from loras.services.transitions import lock_adapter
from loras.states import State
from wire.errors import Code, ShoalError
from wire.names import LIVE, NAME_RULE, valid_part
from wire.subjects import ADAPTERS_BUCKET

Split = Mapping[int, int]
MAX_TARGETS = 10
MAX_WEIGHT = 10_000


class AnyTarget:
    """The caller does not care where the alias points now."""


ANYTHING = AnyTarget()


def move_alias(
    *,
    adapter: Adapter,
    alias: str,
    split: Split,
    expect: Split | AnyTarget | None = ANYTHING,
    actor: User | None = None,
    confirm: bool = False,
) -> Alias:
    """Point ``alias`` at versions by weight: version number → weight (one version: ``{4: 100}``).

    ``expect`` is where the caller believes it points (``None``: nowhere). Raises ``ShoalError``: STALE with the
    current value in ``detail["current"]``, VERSION_NOT_FOUND, VERSION_NOT_READY, INVALID_NAME, INVALID_REQUEST
    (weights), CONFLICT when ``live`` would go to a version without effect and ``confirm`` is false.
    """
    wanted = _checked_split(alias, split)
    with transaction.atomic():
        adapter = lock_adapter(adapter.pk)
        current = Alias.objects.filter(adapter=adapter, name=alias).first()
        _check_expected(alias, _split_of(current), expect)
        _check_targets(adapter, alias, wanted, confirm=confirm)
        if current is not None and _split_of(current) == wanted:
            return current
        return _point(adapter, alias, wanted, actor)


def rollback(*, adapter: Adapter, alias: str = LIVE, actor: User | None = None) -> Alias:
    """Point ``alias`` at the last version that served before its present target; again, and it goes further back.

    Raises ``ShoalError(CONFLICT)`` when nothing that is still ready served before, ``ALIAS_NOT_FOUND`` when there is no
    such alias.
    """
    with transaction.atomic():
        adapter = lock_adapter(adapter.pk)
        current = _split_of(Alias.objects.filter(adapter=adapter, name=alias).first())
        if current is None:
            raise ShoalError(Code.ALIAS_NOT_FOUND, f"{adapter.full_name} has no alias {alias[:80]!r}.")
        before = _move_before(adapter, alias, current)
        if before is not None:
            # it served before, so nobody has to confirm it again
            return _point(adapter, alias, _read(before.split), actor, restores=before)
    raise ShoalError(
        Code.CONFLICT,
        f"Nothing that is still ready served as {adapter.full_name}:{alias} before {describe_split(current)}.",
        hint="Point the alias at a version by its number.",
    )


def served_before(adapter: Adapter, alias: str = LIVE) -> dict[int, int] | None:
    """Where a rollback of ``alias`` would go, or ``None``."""
    current = _split_of(Alias.objects.filter(adapter=adapter, name=alias).first())
    before = None if current is None else _move_before(adapter, alias, current)
    return None if before is None else _read(before.split)


def _move_before(adapter: Adapter, alias: str, current: dict[int, int]) -> AliasMove | None:
    """The move to go back to: the newest before the present one whose version is another and still ready.

    The present one is what the last rollback restored, if that is how the alias came here. A split is passed over
    while one version served alone before it: a rollback leaves a canary, it does not start one.
    """
    ready = set(adapter.versions.filter(state=State.READY, deleted_at=None).values_list("number", flat=True))
    fallback = None
    # a rollback took back everything between itself and what it restored
    below: int | None = None
    moves = AliasMove.objects.filter(adapter=adapter, alias=alias).select_related("restores").order_by("-id")
    for move in moves.iterator(chunk_size=100):
        if below is not None and move.pk >= below:
            continue
        below = move.restores_id or move.pk
        before = _read(move.split)
        if not before or before == current or not set(before) <= ready:
            continue
        if len(before) == 1:
            return move.restores or move
        fallback = fallback or move.restores or move
    return fallback


def remove_alias(*, adapter: Adapter, alias: str, actor: User | None = None) -> None:
    """Remove an alias other than ``live``. Raises ``ShoalError``: ALIAS_NOT_FOUND, CONFLICT for ``live``."""
    if alias == LIVE:
        raise ShoalError(Code.CONFLICT, "The alias `live` can be moved, not removed.", param="alias")
    with transaction.atomic():
        adapter = lock_adapter(adapter.pk)
        deleted, _ = Alias.objects.filter(adapter=adapter, name=alias).delete()
        if not deleted:
            raise ShoalError(Code.ALIAS_NOT_FOUND, f"{adapter.full_name} has no alias {alias[:80]!r}.")
        _note_move(adapter, alias, {}, actor)


def aliases_on(adapter: Adapter, number: int) -> list[str]:
    """Names of the aliases that send requests to version ``number``."""
    return [alias.name for alias in adapter.aliases.all() if str(number) in alias.split]


def describe_split(split: Split | None) -> str:
    """``@4``, or ``@3 95, @4 5`` for a canary."""
    if not split:
        return "nothing"
    if len(split) == 1:
        return f"@{next(iter(split))}"
    return ", ".join(f"@{number} {weight}" for number, weight in sorted(split.items()))


def _point(
    adapter: Adapter, alias: str, split: dict[int, int], actor: User | None, *, restores: AliasMove | None = None
) -> Alias:
    """Write a decided move; the caller holds the adapter's lock."""
    stored = {str(number): weight for number, weight in split.items()}
    found, _ = Alias.objects.update_or_create(adapter=adapter, name=alias, defaults={"split": stored})
    _note_move(adapter, alias, split, actor, restores=restores)
    return found


def _note_move(
    adapter: Adapter, alias: str, split: Split, actor: User | None, *, restores: AliasMove | None = None
) -> None:
    stored = {str(number): weight for number, weight in split.items()}
    AliasMove.objects.create(adapter=adapter, alias=alias, split=stored, moved_by=actor, restores=restores)
    record_event(
        kind="alias.moved" if split else "alias.removed",
        subject=adapter.full_name,
        message=f"{adapter.full_name}:{alias} → {describe_split(split)}",
        team=adapter.team,
        actor=actor,
        data={"adapter": adapter.full_name, "alias": alias, "split": stored},
    )
    adapter.save(update_fields=["updated_at"])
    enqueue_outbox(bucket=ADAPTERS_BUCKET, key=adapter.full_name)
    publish_aliases(adapter)


def _split_of(alias: Alias | None) -> dict[int, int] | None:
    return None if alias is None else _read(alias.split)


def _read(stored: Mapping[str, int]) -> dict[int, int]:
    """A split from its stored form, whose version numbers are text."""
    return {int(number): int(weight) for number, weight in stored.items()}


def _checked_split(alias: str, split: Split) -> dict[int, int]:
    if not valid_part(alias):
        raise ShoalError(Code.INVALID_NAME, f"{alias[:80]!r} is no alias: {NAME_RULE}.", param="alias")
    if not 1 <= len(split) <= MAX_TARGETS:
        raise ShoalError(
            Code.INVALID_REQUEST, f"An alias points at 1 to {MAX_TARGETS} versions, not {len(split)}.", param="split"
        )
    for number, weight in split.items():
        if not 1 <= weight <= MAX_WEIGHT:
            raise ShoalError(
                Code.INVALID_REQUEST, f"The weight of @{number} is {weight}; use 1 to {MAX_WEIGHT}.", param="split"
            )
    # one target's weight says nothing: kept in one form, so that comparisons are true
    return {next(iter(split)): 100} if len(split) == 1 else dict(sorted(split.items()))


def _check_expected(alias: str, current: dict[int, int] | None, expect: Split | AnyTarget | None) -> None:
    if isinstance(expect, AnyTarget):
        return
    wanted = None if expect is None else _checked_split(alias, expect)
    if wanted != current:
        raise ShoalError(
            Code.STALE,
            f"The alias {alias} points at {describe_split(current)}, not at {describe_split(wanted)}.",
            param="expect",
            hint="Look at what it points at now, then decide again.",
            detail={"current": None if current is None else {str(n): w for n, w in current.items()}},
        )


def _check_targets(adapter: Adapter, alias: str, split: Split, *, confirm: bool) -> None:
    # a number beyond the last one may be more than the database's column holds
    given = [number for number in split if 0 < number <= adapter.last_number]
    found = {row.number: row for row in Version.objects.filter(adapter=adapter, number__in=given)}
    for number in split:
        version = found.get(number)
        if version is None or version.duplicate_of_id is not None:
            raise ShoalError(Code.VERSION_NOT_FOUND, f"{adapter.full_name} has no version {number}.", param="version")
        if version.state != State.READY:
            raise ShoalError(
                Code.VERSION_NOT_READY, f"{version} is {version.state}; an alias needs ready versions.", param="version"
            )
        if alias == LIVE and not confirm and not has_effect(version):
            raise ShoalError(
                Code.CONFLICT,
                f"{version} has no effect: its output equals the base model's.",
                param="confirm",
                hint="Send confirm=true to make it live all the same.",
            )


def has_effect(version: Version) -> bool:
    """Whether validation found that the version's output differs from the base model's."""
    return bool((version.report or {}).get("facts", {}).get("has_effect", True))
