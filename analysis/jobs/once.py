"""A property that is computed once, also if several threads ask for it at the same time."""

from collections.abc import Callable
from threading import Lock, RLock
from typing import Any, Generic, TypeVar, overload

Value = TypeVar("Value")


class once(Generic[Value]):  # noqa: N801  # it is used like functools.cached_property, which does not lock since 3.12
    """The first thread that asks computes the value, and others wait for it; different properties do not wait."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self._compute, self._guard = compute, Lock()
        self.__doc__ = compute.__doc__

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, _: type) -> "once[Value]": ...

    @overload
    def __get__(self, instance: object, _: type) -> Value: ...

    def __get__(self, instance: object | None, _: type) -> "once[Value] | Value":
        if instance is None:
            return self
        with self._guard:
            lock = instance.__dict__.setdefault(f"_{self._name}_lock", RLock())
        with lock:
            if self._name not in instance.__dict__:
                instance.__dict__[self._name] = self._compute(instance)
        value: Value = instance.__dict__[self._name]
        return value
