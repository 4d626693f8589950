"""A base model's manifest: made once by the worker package, stored by the control plane, compared with uploads."""

from __future__ import annotations

import msgspec

from wire.jobs import Task


class ModuleShape(msgspec.Struct, frozen=True):
    """One parameterised module. ``kind`` is ``linear``, ``embedding`` or ``norm``; ``weight`` is the weight's shape,
    (out_features, in_features) for a linear module whatever the storage order of its class."""

    path: str
    kind: str
    weight: list[int]
    dtype: str
    bias: bool = False


class HeadTensor(msgspec.Struct, frozen=True):
    """One tensor of a task head, named as transformers' ``…For<Task>`` class names it. -1 in ``shape`` stands for the
    number of labels."""

    name: str
    shape: list[int]


class TaskHead(msgspec.Struct, frozen=True):
    """The head that an adapter for ``task`` brings along. ``prefix`` is the attribute under which the ``…For<Task>``
    class holds the base model (``bert``, ``model``, …)."""

    task: Task
    prefix: str
    tensors: list[HeadTensor]


class Manifest(msgspec.Struct, frozen=True):
    """Facts of a base model. ``digest`` is the SHA-256 over its weight files in name order.

    ``family`` is the transformers ``model_type``; ``packable`` are the paths of linear modules that slots can serve.
    ``heads`` are those that adapters may bring for tasks beside the model's own.
    """

    id: str
    source: str
    digest: str
    family: str
    architecture: str
    tasks: list[Task]
    dimension: int | None
    max_tokens: int
    vocabulary: int
    dtype: str
    parameters: int
    size_bytes: int
    tokenizer_fingerprint: str
    modules: list[ModuleShape]
    packable: list[str]
    heads: list[TaskHead] = []


class Blueprint(msgspec.Struct, frozen=True):
    """What a fine-tune's own configuration implies, made by the worker package without its weights' numbers.

    ``tensors`` are all that the architecture's class holds, under its own names and in storage order. ``optional`` are
    those of them that may be absent from its files; of each group of ``tied`` ones, which share their numbers, files
    hold at least one. ``prefix`` is the attribute under which classes with a head hold this family's body (``bert``,
    ``model``, …).
    """

    manifest: Manifest
    tensors: list[HeadTensor]
    optional: list[str]
    tied: list[list[str]]
    prefix: str = ""
