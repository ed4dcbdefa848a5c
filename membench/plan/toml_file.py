"""TOML files that people write, such as experiments and suites, read with care for their mistakes."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from typing import Any

from membench.errors import UsageError, unknown

_MISSING: Any = object()


class Table:
    """A TOML table that knows where it is, and which of its keys were asked for.

    Every mistake is a UsageError that names the file, the key, the value and what would be valid.
    """

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data, self.where, self.known = data, where, list[str]()

    @classmethod
    def parse(cls, text: str, where: str) -> Table:
        try:
            return cls(tomllib.loads(text), where)
        except (ValueError, RecursionError) as error:  # also digits without end, and brackets
            raise UsageError(f"{where} is not TOML: {error}") from None

    def _get(self, key: str, kind: type | tuple[type, ...], words: str, default: Any) -> Any:
        self.known.append(key)
        value = self.data.get(key, default)
        if value is _MISSING:
            near = difflib.get_close_matches(key, self.data, n=1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise UsageError(f"{self.where}: '{key}' is missing; it is {words}{hint}")
        if key in self.data and (not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool)):
            raise UsageError(f"{self.where}: '{key}' is {value!r}; it must be {words}")
        return value

    def text(self, key: str, default: Any = _MISSING) -> str:
        return str(self._get(key, str, "a text", default))

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, or one text."""
        value = self._get(key, (str, list), "a text or a list of texts", ())
        found = (value,) if isinstance(value, str) else tuple(value)
        if not all(isinstance(one, str) for one in found):
            raise UsageError(f"{self.where}: '{key}' is {value!r}; it must be a text or a list of texts")
        return found

    def flag(self, key: str) -> bool:
        return bool(self._get(key, bool, "true or false", False))

    def number(self, key: str) -> float | None:
        value = self._get(key, (int, float), "a number", None)
        return None if value is None else float(value)

    def numbers(self, key: str) -> dict[str, float]:
        """A table of numbers."""
        found = self._get(key, dict, "a table of numbers", _MISSING)
        for name, value in found.items():
            if not isinstance(value, (int, float)) or isinstance(value, bool):
                raise UsageError(f"{self.where}: '{key}.{name}' is {value!r}; it must be a number")
        return {name: float(value) for name, value in found.items()}

    def count(self, key: str, default: Any = _MISSING) -> Any:
        value = self._get(key, int, "a whole number of at least 1", default)
        if value is not None and value < 1:
            raise UsageError(f"{self.where}: '{key}' is {value}; it must be a whole number of at least 1")
        return value

    def table(self, key: str) -> Table:
        return Table(self._get(key, dict, "a table", _MISSING), f"{self.where}, [{key}]")

    def tables(self, key: str) -> list[Table]:
        found = self._get(key, list, f"one or more [[{key}]] tables", _MISSING)
        if not found or not all(isinstance(one, dict) for one in found):
            raise UsageError(f"{self.where}: '{key}' is empty; give one or more [[{key}]] tables")
        return [Table(one, f"{self.where}, [[{key}]] {number}") for number, one in enumerate(found, 1)]

    def named_tables(self, key: str) -> dict[str, Table]:
        found = self._get(key, dict, "a table of tables", {})
        for name, one in found.items():
            if not isinstance(one, dict):
                raise UsageError(f"{self.where}: '{key}.{name}' is {one!r}; it must be a table")
        return {name: Table(one, f"{self.where}, [{key}.{name}]") for name, one in found.items()}

    def options(self, key: str) -> dict[str, str]:
        """Options as on the command line; numbers and truth values may be written as such."""
        found = self._get(key, dict, "a table of options", {})
        flat = {}
        for name, value in found.items():  # a table in it holds the options of one architecture or task
            flat.update(
                {f"{name}.{own}": one for own, one in value.items()} if isinstance(value, dict) else {name: value}
            )
        return {name: self._option(f"{key}.{name}", value) for name, value in flat.items()}

    def _option(self, key: str, value: Any) -> str:
        if isinstance(value, list):
            parts = [self._option(key, one) for one in value]
            text = ",".join(parts)
        elif isinstance(value, bool):
            text = str(value).lower()
        else:
            text = str(value) if isinstance(value, (int, float, str)) else ""
        if not text.strip():
            raise UsageError(
                f"{self.where}: '{key}' is {value!r}, an empty grid; give values such as 10, [7, 10] or '1:31:5'"
            )
        return text

    def finish(self) -> None:
        """UsageError for a key that nobody asked for."""
        for key in self.data:
            if key not in self.known:
                raise unknown(f"key in {self.where}:", key, self.known, f"valid are: {', '.join(self.known)}")
