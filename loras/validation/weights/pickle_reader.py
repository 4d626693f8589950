"""Reads what ``torch.save`` writes for a table of tensors, as data: no name in it is looked up, nothing is called.

A pickle is a program for a stack machine (``pickletools`` documents each instruction). This one knows the few
instructions that build tables of tensors. The globals they need are told apart by name and stand for plain values here;
any other is refused by its name, before the instruction after it is read.
"""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import IO, Any, cast

# a tensor takes some thirty; the largest models have a few thousand tensors
_MAX_INSTRUCTIONS = 500_000
# of all pickles in one file together; the numbers lie outside of them
_MAX_READ_BYTES = 64 << 20
_MAX_LINE_BYTES = 4_096

STORAGES = {
    "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16", "DoubleStorage": "F64",
    "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8",
    "BoolStorage": "BOOL", "ComplexFloatStorage": "C64",
}  # fmt: skip
# what torch.save calls modules, since it writes pickles that Python 2 could read
_MODULES_BEFORE_3 = {"__builtin__": "builtins", "commands": "subprocess"}
_TABLE = ("collections", "OrderedDict")
_TENSOR = (("torch._utils", "_rebuild_tensor_v2"), ("torch._utils", "_rebuild_tensor"))
_PARAMETER = ("torch._utils", "_rebuild_parameter")
_SIZE = ("torch", "Size")


class UnsafePickle(Exception):
    """``global_name`` (``module.name``) is what the pickle would call or make."""

    def __init__(self, global_name: str) -> None:
        super().__init__(global_name)
        self.global_name = global_name


class UnreadablePickle(ValueError):
    """No table of tensors; the text says why."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A run of numbers that lies outside of the pickle: ``key`` names it, ``elements`` is its claimed length."""

    dtype: str
    key: str
    elements: int


@dataclass(frozen=True, slots=True)
class View:
    """A tensor: ``offset`` and ``stride`` count elements of its storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Global:
    module: str
    name: str


class _Mark:
    pass


class BoundedStream:
    """A file as ``pickletools`` reads it, a bounded piece at a time."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._left = _MAX_READ_BYTES
        self.tell = file.tell

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; raises ``UnreadablePickle`` above the limit of all reads together."""
        if not 0 <= size <= self._left:
            raise UnreadablePickle(f"it claims more than {_MAX_READ_BYTES:,} bytes beside its numbers")
        self._left -= size
        return self._file.read(size)

    def readline(self) -> bytes:
        """Up to the next line's end; raises ``UnreadablePickle`` when that is too far."""
        line = self._file.readline(_MAX_LINE_BYTES)
        self._left -= len(line)
        if len(line) == _MAX_LINE_BYTES:
            raise UnreadablePickle("it has a line without an end")
        return line


def read_pickle(stream: BoundedStream) -> object:
    """The value of one pickle: tables, lists, texts, numbers, ``Storage`` and ``View``.

    The stream stands behind the pickle afterwards. Raises ``UnsafePickle`` and ``UnreadablePickle``.
    """
    machine = _Machine()
    try:
        with warnings.catch_warnings():
            # texts with odd escapes are the upload's, not ours
            warnings.simplefilter("ignore", DeprecationWarning)
            for count, (instruction, argument, _) in enumerate(pickletools.genops(cast(IO[bytes], stream))):
                if count > _MAX_INSTRUCTIONS:
                    raise UnreadablePickle(f"it has more than {_MAX_INSTRUCTIONS:,} instructions")
                machine.step(instruction.name, argument)
    except UnreadablePickle:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise UnreadablePickle(str(error)[:200] or type(error).__name__) from error
    return machine.result


@dataclass(slots=True)
class _Machine:
    """The stack, and what was put aside on it for later."""

    stack: list[object] = field(default_factory=list)
    memo: dict[int, object] = field(default_factory=dict)
    result: object = None

    def step(self, name: str, argument: Any) -> None:
        """One instruction."""
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _VALUES:
            self.stack.append(argument)
        elif name in _CALLS:
            raise UnsafePickle(self._called(name, argument))
        else:
            action = _ACTIONS.get(name)
            if action is None:
                raise UnreadablePickle(f"the instruction {name} builds no tensor")
            action(self, argument)

    def _called(self, name: str, argument: Any) -> str:
        if name == "INST":
            return str(argument).replace(" ", ".", 1)
        known = [value for value in self.stack[-3:] if isinstance(value, _Global)]
        return f"{known[-1].module}.{known[-1].name}" if known else name

    def pop_mark(self) -> list[object]:
        """What was put on the stack since the last mark."""
        for position in range(len(self.stack) - 1, -1, -1):
            if isinstance(self.stack[position], _Mark):
                values = self.stack[position + 1 :]
                del self.stack[position:]
                return values
        raise UnreadablePickle("a mark is missing")

    def name(self, module: object, name: object) -> None:
        """A global, by name alone."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise UnreadablePickle("a global has no name")
        known = (module, name) in (_TABLE, _PARAMETER, _SIZE, *_TENSOR) or (module == "torch" and name in STORAGES)
        if not known:
            raise UnsafePickle(f"{_MODULES_BEFORE_3.get(module, module)}.{name}")
        self.stack.append(_Global(module, name))

    def call(self) -> None:
        """What the known globals make of their arguments."""
        arguments, known = self.stack.pop(), self.stack.pop()
        if not isinstance(known, _Global) or not isinstance(arguments, tuple):
            raise UnreadablePickle("something is called that is no global")
        key = (known.module, known.name)
        if key == _TABLE and not arguments:
            self.stack.append({})
        elif key in _TENSOR and len(arguments) >= 4:
            self.stack.append(_view(*arguments[:4]))
        elif key == _PARAMETER and arguments and isinstance(arguments[0], View):
            self.stack.append(arguments[0])
        elif key == _SIZE and len(arguments) == 1 and isinstance(arguments[0], tuple | list):
            self.stack.append(tuple(arguments[0]))
        else:
            raise UnreadablePickle(f"{known.module}.{known.name} has unknown arguments")

    def set_items(self, values: list[object]) -> None:
        """Keys and values in turn, into the table below them."""
        table = self.stack[-1]
        if not isinstance(table, dict) or len(values) % 2:
            raise UnreadablePickle("items are put into something that is no table")
        for key, value in zip(values[::2], values[1::2], strict=True):
            # no other kind: the hash of a tuple nested a million times deep would end the process
            if not isinstance(key, str | int):
                raise UnreadablePickle("a key is neither a text nor a number")
            table[key] = value

    def extend(self, values: Iterable[object]) -> None:
        """Values, onto the list below them."""
        items = self.stack[-1]
        if not isinstance(items, list):
            raise UnreadablePickle("items are put into something that is no list")
        items.extend(values)

    def build(self) -> None:
        """Attributes, of which a table of tensors has only some that nobody needs (``_metadata``)."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict):
            raise UnreadablePickle("it sets the attributes of something that is no table")

    def refer(self) -> None:
        """A storage beside the pickle: ``("storage", type, key, device, elements, …)``."""
        reference = self.stack.pop()
        match reference:
            case ("storage", _Global(module="torch", name=name), str(key), _, int(elements), *_) if name in STORAGES:
                self.stack.append(Storage(STORAGES[name], key, elements))
            case _:
                raise UnreadablePickle("it refers to something that is no storage")

    def gather(self, count: int) -> None:
        """The last ``count`` values as a tuple."""
        if len(self.stack) < count:
            raise UnreadablePickle("the stack is empty")
        values = tuple(self.stack[-count:])
        del self.stack[-count:]
        self.stack.append(values)

    def stop(self) -> None:
        """The end: the value on the stack."""
        self.result = self.stack.pop()


def _view(storage: object, offset: object, shape: object, stride: object) -> View:
    if not isinstance(storage, Storage) or not isinstance(offset, int) or offset < 0:
        raise UnreadablePickle("a tensor has no storage")
    sizes, steps = (
        tuple(value) if isinstance(value, tuple | list) and len(value) <= 8 else None for value in (shape, stride)
    )
    if sizes is None or steps is None or len(sizes) != len(steps):
        raise UnreadablePickle("a tensor has no shape")
    if not all(isinstance(size, int) and 0 <= size < 1 << 62 for size in (*sizes, *steps)):
        raise UnreadablePickle("a tensor has an impossible shape")
    return View(storage, offset, sizes, steps)


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_VALUES = frozenset({
    "BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG", "BINFLOAT", "FLOAT", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "UNICODE", "BINBYTES", "SHORT_BINBYTES", "SHORT_BINSTRING", "BINSTRING",
    "STRING",
})  # fmt: skip
_CALLS = frozenset({"INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "EXT1", "EXT2", "EXT4"})
_ACTIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "PROTO": lambda machine, _: None,
    "FRAME": lambda machine, _: None,
    "MARK": lambda machine, _: machine.stack.append(_Mark()),
    "POP": lambda machine, _: _drop(machine.stack.pop()),
    "EMPTY_DICT": lambda machine, _: machine.stack.append({}),
    "EMPTY_LIST": lambda machine, _: machine.stack.append([]),
    "TUPLE": lambda machine, _: machine.stack.append(tuple(machine.pop_mark())),
    "LIST": lambda machine, _: machine.stack.append(machine.pop_mark()),
    "TUPLE1": lambda machine, _: machine.gather(1),
    "TUPLE2": lambda machine, _: machine.gather(2),
    "TUPLE3": lambda machine, _: machine.gather(3),
    "SETITEMS": lambda machine, _: machine.set_items(machine.pop_mark()),
    "SETITEM": lambda machine, _: machine.set_items([machine.stack.pop(-2), machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.extend(machine.pop_mark()),
    "APPEND": lambda machine, _: machine.extend([machine.stack.pop()]),
    "BUILD": lambda machine, _: machine.build(),
    "BINPERSID": lambda machine, _: machine.refer(),
    "REDUCE": lambda machine, _: machine.call(),
    "GLOBAL": lambda machine, argument: machine.name(*argument.partition(" ")[::2]),
    "STACK_GLOBAL": lambda machine, _: machine.name(machine.stack.pop(-2), machine.stack.pop()),
    "BINPUT": lambda machine, argument: machine.memo.__setitem__(argument, machine.stack[-1]),
    "LONG_BINPUT": lambda machine, argument: machine.memo.__setitem__(argument, machine.stack[-1]),
    "PUT": lambda machine, argument: machine.memo.__setitem__(argument, machine.stack[-1]),
    "MEMOIZE": lambda machine, _: machine.memo.__setitem__(len(machine.memo), machine.stack[-1]),
    "BINGET": lambda machine, argument: machine.stack.append(machine.memo[argument]),
    "LONG_BINGET": lambda machine, argument: machine.stack.append(machine.memo[argument]),
    "GET": lambda machine, argument: machine.stack.append(machine.memo[argument]),
    "STOP": lambda machine, _: machine.stop(),
}


def _drop(_: object) -> None:
    """A value that nobody needs."""
