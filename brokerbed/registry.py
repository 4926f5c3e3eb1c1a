"""Registries of things that come in kinds, such as routing algorithms: one record per kind, which all other parts ask.

Other packages register their records by entry points. These are searched when a record is asked for that is none of
ours, not on import: an extension can therefore import whatever it needs from brokerbed, and a broker that needs no
extension starts without searching the installed packages.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Generic, Protocol, TypeVar


class Record(Protocol):
    @property
    def name(self) -> str: ...


R = TypeVar("R", bound=Record)


class Registry(Generic[R]):
    """The records of one kind, by name: ours first, then those of other packages."""

    def __init__(self, own_records: Callable[[], Iterable[R]], group: str) -> None:
        """`group` is the group of entry points; an entry point has the name of its record."""
        self._own_records = own_records
        self._group = group

    def __getitem__(self, name: str) -> R:
        """KeyError if there is none of that name."""
        record = self.built_in.get(name)
        return self.all[name] if record is None else record

    def __contains__(self, name: str) -> bool:
        return name in self.built_in or name in self.all

    @cached_property
    def built_in(self) -> Mapping[str, R]:
        return {record.name: record for record in self._own_records()}

    @cached_property
    def all(self) -> Mapping[str, R]:
        return {**self.built_in, **self._records_of_other_packages()}

    def forget_other_packages(self) -> None:
        """Search them again when the next record is asked for; the packages on the path have changed."""
        self.__dict__.pop("all", None)

    def _records_of_other_packages(self) -> dict[str, R]:
        from importlib.metadata import entry_points  # slow to import, and most brokers do without

        records: dict[str, R] = {}
        for entry in sorted(entry_points(group=self._group), key=lambda entry: entry.name):
            record: R = entry.load()
            assert record.name == entry.name, f"{entry.value} is called {record.name}, and its entry point {entry.name}"
            assert record.name not in self.built_in, f"{entry.value} is called {record.name}, as one of brokerbed's own"
            records[record.name] = record
        return records


def records_in(package: str, attribute: str) -> Iterator[Any]:
    """What each module of a package calls `attribute`, in the order of their names. So a new kind is one new file."""
    folder = import_module(package).__path__
    for name in sorted(module.name for module in iter_modules(folder)):
        yield getattr(import_module(f"{package}.{name}"), attribute)
