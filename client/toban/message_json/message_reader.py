"""Reads messages from JSON, and from the words of a query: the rule of `message_data`, the other way round.

Everything that is wrong is collected, so that a caller sees all of it at once.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

from toban.message_json.message_data import DURATION, STRUCT, TIMESTAMP, TYPE_BYTES, TYPE_ENUM, enum_words, is_map
from toban.message_json.message_schema import CPP_BOOL, CPP_TEXT
from toban.safe_text import sendable, whole
from toban.sdk.errors import InvalidArgument, Violation
from toban.sdk.message_values import to_struct

if TYPE_CHECKING:
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.message import Message

# Of google.protobuf.descriptor.FieldDescriptor.cpp_type: the least and the greatest of each kind of integer.
_RANGES: Final = {1: (-(2**31), 2**31 - 1), 2: (-(2**63), 2**63 - 1), 3: (0, 2**32 - 1), 4: (0, 2**64 - 1)}
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}
_INTEGER: Final = re.compile(r"-?[0-9]{1,20}", re.ASCII)
# What Timestamp takes; its own parser also takes what is none.
_TIME: Final = re.compile(
    r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)",
    re.ASCII,
)
# The seconds that a Duration can have.
_LONGEST: Final = 315_576_000_000
_SHOWN: Final = 80


class UnfitValueError(ValueError):
    """A value is not of the kind that its field has; the text says which that is."""


class MessageReader:
    """Fills messages; `wrong` has one entry for each field that could not be read."""

    def __init__(self) -> None:
        self.wrong: list[Violation] = []

    def check(self) -> None:
        """Raises InvalidArgument if anything was wrong."""
        if self.wrong:
            first = self.wrong[0]
            raise InvalidArgument(
                f"{first.field}: {first.description}" if first.field else first.description,
                reason="INVALID_ARGUMENT",
                violations=self.wrong,
            )

    def fill(self, message: Message, values: Any, path: str = "") -> None:
        """Sets the fields that an object gives. Null means: not set."""
        if not isinstance(values, Mapping):
            self._refuse(path, "must be an object")
            return
        fields = message.DESCRIPTOR.fields_by_name
        for name, value in values.items():
            here = f"{path}.{name}" if path else name
            if name not in fields:
                self.refuse_unknown(here, fields)
            else:
                self.set(message, cast("FieldDescriptor", fields[name]), value, here)

    def set(self, message: Message, field: FieldDescriptor, value: Any, path: str) -> None:
        """Sets one field from JSON."""
        if value is None:
            return
        if is_map(field):
            self._set_map(getattr(message, field.name), value, path)
        elif field.is_repeated:
            self._set_list(getattr(message, field.name), field, value, path)
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            self._set_message(inner, value, path)
        else:
            try:
                setattr(message, field.name, plain_value(field, value))
            except UnfitValueError as error:
                self._refuse(path, str(error))

    def set_words(self, message: Message, field: FieldDescriptor, words: Sequence[str], path: str) -> None:
        """Sets one field from the values of a query's parameter: one, several of a list, or `key=value` of a map."""
        if is_map(field):
            pairs = [word.partition("=") for word in words]
            if all(sign for _, sign, _ in pairs):
                self.set(message, field, {key: value for key, _, value in pairs}, path)
            else:
                self._refuse(path, "must be KEY=VALUE")
        elif field.is_repeated:
            self.set(message, field, [self._word(field, word, path) for word in words], path)
        elif len(words) > 1:
            self._refuse(path, "is given more than once")
        else:
            self.set(message, field, self._word(field, words[0], path), path)

    def refuse_unknown(self, path: str, known: Iterable[str]) -> None:
        """Notes a name that is none."""
        names = ", ".join(sorted(known))
        self._refuse(path, f"there is no such field{f' (known: {names})' if names else ''}")

    def _word(self, field: FieldDescriptor, word: str, path: str) -> Any:
        if field.cpp_type == CPP_BOOL:
            return _FLAGS.get(word.lower(), word)
        if field.cpp_type in _RANGES and field.type != TYPE_ENUM and _INTEGER.fullmatch(word):
            return int(word)
        return word

    def _set_map(self, target: Any, value: Any, path: str) -> None:
        if not isinstance(value, Mapping):
            self._refuse(path, "must be an object")
            return
        for key, each in value.items():
            if not isinstance(each, str) or not whole(each) or not whole(key):
                self._refuse(f"{path}.{key}", "must be a text of valid Unicode")
            else:
                target[key] = each

    def _set_list(self, target: Any, field: FieldDescriptor, value: Any, path: str) -> None:
        if not isinstance(value, list):
            self._refuse(path, "must be an array")
            return
        for index, each in enumerate(value):
            here = f"{path}[{index}]"
            if field.message_type is not None:
                self._set_message(target.add(), each, here)
                continue
            try:
                target.append(plain_value(field, each))
            except UnfitValueError as error:
                self._refuse(here, str(error))

    def _set_message(self, inner: Any, value: Any, path: str) -> None:
        match inner.DESCRIPTOR.full_name:
            case name if name == TIMESTAMP:
                self._set_time(inner, value, path)
            case name if name == DURATION:
                if _is_number(value) and abs(value) <= _LONGEST:
                    inner.FromNanoseconds(round(value * 1_000_000_000))
                else:
                    self._refuse(path, "must be a number of seconds")
            case name if name == STRUCT:
                self._set_struct(inner, value, path)
            case _:
                self.fill(inner, value, path)

    def _set_time(self, inner: Any, value: Any, path: str) -> None:
        try:
            if not isinstance(value, str) or not _TIME.fullmatch(value):
                raise ValueError
            # Raises for a month 13, which Timestamp takes in some releases.
            datetime.fromisoformat(value[:19])
            inner.FromJsonString(value.upper())
        except ValueError:
            self._refuse(path, "must be a time of RFC 3339, such as 2026-11-18T21:16:00Z")

    def _set_struct(self, inner: Any, value: Any, path: str) -> None:
        if not isinstance(value, Mapping):
            self._refuse(path, "must be an object")
            return
        try:
            inner.CopyFrom(to_struct(value))
        except InvalidArgument as error:
            found = [Violation(field=f"{path}.{each.field}", description=each.description) for each in error.violations]
            self.wrong += found or [Violation(field=path, description=error.message)]

    def _refuse(self, path: str, description: str) -> None:
        self.wrong.append(Violation(field=sendable(path), description=sendable(description)))


def plain_value(field: FieldDescriptor, value: Any) -> Any:
    """The value of a field that is no message. Raises UnfitValueError."""
    if field.type == TYPE_ENUM:
        words = {word: number for number, word in enum_words(field.enum_type).items() if word is not None}
        if not isinstance(value, str) or value not in words:
            raise UnfitValueError(f"must be one of {', '.join(words)}{_found(value)}")
        return words[value]
    if field.type == TYPE_BYTES:
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise UnfitValueError("must be base64") from None
    if field.cpp_type == CPP_BOOL:
        if not isinstance(value, bool):
            raise UnfitValueError(f"must be true or false{_found(value)}")
        return value
    if field.cpp_type == CPP_TEXT:
        if not isinstance(value, str) or not whole(value):
            raise UnfitValueError("must be a text of valid Unicode")
        return value
    return _number(field, value)


def _number(field: FieldDescriptor, value: Any) -> int | float:
    if not _is_number(value):
        raise UnfitValueError(f"must be a number{_found(value)}")
    span = _RANGES.get(field.cpp_type)
    if span is None:
        return float(value)
    if value != int(value):
        raise UnfitValueError(f"must be a whole number{_found(value)}")
    if not span[0] <= value <= span[1]:
        raise UnfitValueError(f"must be between {span[0]} and {span[1]}{_found(value)}")
    return int(value)


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _found(value: Any) -> str:
    if isinstance(value, (str, int, float)) and len(shown := repr(value)) <= _SHOWN:
        return f", found {shown}"
    return ""
