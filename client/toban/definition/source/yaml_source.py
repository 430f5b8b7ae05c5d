"""Reads the documents of a file as trees of nodes with positions.

Built from parser events, without recursion, with limits on size, depth and the expansion of aliases. Scalars follow the
core schema of YAML 1.2: `on`, `yes` and `no` are strings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from ruamel.yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from toban.definition.source.yaml_events import YamlSyntaxError, events

MAX_DOCUMENTS = 1000
MAX_DEPTH = 64
MAX_EXPANDED_NODES = 500_000
"""Values of a whole file, counted again for each alias or merge that repeats them."""
_MAX_INTEGER_DIGITS = 100

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_SURROGATES = re.compile("[\ud800-\udfff]")
_NUMBER_START = frozenset("-+.0123456789")

_CORE = "tag:yaml.org,2002:"

# Shared by all scalars, which have neither items nor entries; never modified.
_NO_ITEMS: list[Node] = []
_NO_ENTRIES: dict[str, Entry] = {}


@dataclass(slots=True, eq=False)
class Node:
    """A scalar (`value`, `text`), a list (`items`) or a mapping (`entries`); positions from 0."""

    kind: Literal["scalar", "seq", "map"]
    line: int
    column: int
    start: int
    end: int = 0
    value: Any = None
    text: str = ""
    style: str = ""
    items: list[Node] = field(default_factory=lambda: _NO_ITEMS)
    entries: dict[str, Entry] = field(default_factory=lambda: _NO_ENTRIES)
    weight: int = 1  # how many nodes it expands to
    height: int = 0  # how many levels it nests
    open: bool = False  # still being read
    wrong: bool = False  # reported already, so it gets no further problems

    def plain(self) -> Any:
        """The Python value: None, bool, int, float, str, list or dict."""
        if self.kind == "scalar":
            return self.value
        if self.kind == "seq":
            return [item.plain() for item in self.items]
        return {name: entry.value.plain() for name, entry in self.entries.items()}


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of a mapping with its value."""

    key: Node
    value: Node


@dataclass(frozen=True, slots=True)
class SourceProblem:
    """A problem with the YAML itself; positions from 0."""

    message: str
    line: int
    column: int


@dataclass(slots=True)
class SourceDocument:
    """One document: the range of its text in the file, and its tree (None if it is empty)."""

    start: int
    end: int
    line: int
    root: Node | None = None
    problems: list[SourceProblem] = field(default_factory=list)


class _BoundError(Exception):
    """A limit was exceeded; the rest of the file is not read."""

    def __init__(self, message: str, mark: Any) -> None:
        self.problem = SourceProblem(message, mark.line, mark.column)
        super().__init__(message)


def read_documents(text: str) -> tuple[list[SourceDocument], list[SourceProblem]]:
    """The documents that could be read, and the problem that stopped the reading, if any."""
    documents: list[SourceDocument] = []
    budget = _Budget()
    stream = events(text)
    region = line = 0  # where the text of the next document may begin
    try:
        for event in stream:
            if not isinstance(event, DocumentStartEvent):
                continue
            if len(documents) >= MAX_DOCUMENTS:
                raise _BoundError(f"found more than {MAX_DOCUMENTS} documents", event.start_mark)
            if documents and not documents[-1].end:
                documents[-1].end = event.start_mark.index
            document = _begin(text, event, region, line)
            ending = _Composer(document, budget).read(stream)
            documents.append(document)
            region, line = ending.start_mark.index, ending.start_mark.line
            if ending.explicit:
                document.end = region
                newline = text.find("\n", region)
                region, line = (len(text) if newline < 0 else newline + 1), line + 1
    except YamlSyntaxError as error:
        stopped = [SourceProblem(error.message, error.line, error.column)]
    except _BoundError as error:
        stopped = [error.problem]
    else:
        stopped = []
    if documents and not documents[-1].end:
        documents[-1].end = len(text)
    return documents, stopped


def _begin(text: str, event: Any, region: int, line: int) -> SourceDocument:
    """A document starts after its "---", unless something on that line or before belongs to it."""
    marker, marker_line = event.start_mark.index, event.start_mark.line
    if event.explicit and not text[region:marker].strip():
        newline = text.find("\n", marker)
        rest = text[marker + 3 : len(text) if newline < 0 else newline].strip()
        bare = newline >= 0 and (not rest or rest.startswith("#"))
        region, line = (newline + 1, marker_line + 1) if bare else (marker, marker_line)
    return SourceDocument(start=region, end=0, line=line)


class _Budget:
    """The number of values to which the documents of a file may still expand."""

    def __init__(self) -> None:
        self._left = MAX_EXPANDED_NODES

    def check(self, weight: int, at: Any) -> None:
        """Raises _BoundError if there are more values than allowed."""
        if weight > self._left:
            message = (
                f"found more than {MAX_EXPANDED_NODES:,} values, "
                "counting what aliases and merges repeat: split the file"
            )
            raise _BoundError(message, at)

    def spend(self, weight: int, at: Any) -> None:
        """Raises as `check` does."""
        self.check(weight, at)
        self._left -= weight


class _Composer:
    """Turns the events of one document into a tree."""

    def __init__(self, document: SourceDocument, budget: _Budget) -> None:
        self.document = document
        self.budget = budget
        self.anchors: dict[str, Node] = {}
        self.stack: list[Node] = []
        self.keys: list[Node | None] = []
        self.merges: dict[int, list[Node]] = {}

    def problem(self, message: str, at: Any) -> None:
        self.document.problems.append(SourceProblem(message, at.line, at.column))

    def read(self, stream: Iterator[Any]) -> Any:
        for event in stream:
            kind = type(event)
            if kind is ScalarEvent:
                node = self.scalar(event)
                self.anchor(event, node)
                self.add(node)
            elif kind is MappingStartEvent:
                self.enter(event, "map")
            elif kind is SequenceStartEvent:
                self.enter(event, "seq")
            elif kind is MappingEndEvent or kind is SequenceEndEvent:
                self.leave(event)
            elif kind is AliasEvent:
                self.alias(event)
            elif kind is DocumentEndEvent:
                if self.document.root is not None:
                    self.budget.spend(self.document.root.weight, self.document.root)
                return event
        raise AssertionError("the stream ended inside a document")

    def scalar(self, event: Any) -> Node:
        mark = event.start_mark
        node = Node("scalar", mark.line, mark.column, mark.index, event.end_mark.index, text=event.value)
        node.style = event.style or ""
        if node.style == '"':
            # Only escapes can produce such characters: the file itself is UTF-8.
            node.text, whole = _whole_characters(node.text)
            if not whole or "\0" in node.text:
                self.problem("the text contains a character that cannot be passed to a process", mark)
        plain = not node.style and event.ctag is None
        node.value = self.resolve(event.value, mark) if plain else node.text
        if event.ctag is not None:
            self.tagged(event, node)
        return node

    def resolve(self, text: str, mark: Any) -> Any:
        if text in _NULL:
            return None
        if text in _BOOL:
            return _BOOL[text]
        if text[0] not in _NUMBER_START:
            return text
        if _INT.fullmatch(text):
            if len(text) > _MAX_INTEGER_DIGITS:
                self.problem(f"found an integer of {len(text)} digits: put it in quotes", mark)
                return 0
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if _NOT_FINITE.fullmatch(text) or (_FLOAT.fullmatch(text) and math.isinf(float(text))):
            self.problem(f"{text} is not a finite number: put it in quotes if text is meant", mark)
            return 0.0
        return float(text) if _FLOAT.fullmatch(text) else text

    def tagged(self, event: Any, node: Node) -> None:
        tag = event.tag
        short = tag.removeprefix(_CORE)
        if tag == "!" or short == "str":
            node.value = node.text
            return
        if tag != short and short in ("int", "float", "bool", "null"):
            node.value = self.resolve(node.text, event.start_mark)
            expected = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}[short]
            if isinstance(node.value, expected):  # type: ignore[arg-type]
                return
        self.problem(f"the tag {tag} is not allowed here: remove it", event.start_mark)

    def enter(self, event: Any, kind: Literal["seq", "map"]) -> None:
        mark = event.start_mark
        if len(self.stack) >= MAX_DEPTH:
            raise _BoundError(f"nested more than {MAX_DEPTH} levels deep", mark)
        if event.ctag is not None and event.tag not in ("!", _CORE + kind):
            self.problem(f"the tag {event.tag} is not allowed here: remove it", mark)
        node = Node(kind, mark.line, mark.column, mark.index, items=[], entries={}, open=True)
        self.anchor(event, node)
        self.stack.append(node)
        self.keys.append(None)
        if self.document.root is None:
            self.document.root = node

    def leave(self, event: Any) -> None:
        node = self.stack.pop()
        self.keys.pop()
        node.end = event.end_mark.index
        node.open = False
        for merged in self.merges.pop(id(node), ()):
            for name, entry in merged.entries.items():
                if name not in node.entries:
                    self.put(node, name, entry)
        self.budget.check(node.weight, node)
        self.add(node)

    def anchor(self, event: Any, node: Node) -> None:
        if event.anchor is not None:
            self.anchors[str(event.anchor)] = node

    def alias(self, event: Any) -> None:
        mark = event.start_mark
        node = self.anchors.get(str(event.anchor))
        if node is None:
            self.problem(f"found *{event.anchor}, but no &{event.anchor} is before it", mark)
        elif node.open:
            self.problem(f"*{event.anchor} contains itself", mark)
        if node is None or node.open:
            node = Node("scalar", mark.line, mark.column, mark.index, event.end_mark.index)
            node.wrong = True
        self.add(node)

    def add(self, node: Node) -> None:
        if not self.stack:
            self.document.root = node
            return
        parent = self.stack[-1]
        if len(self.stack) + node.height > MAX_DEPTH:
            raise _BoundError(f"aliases nest more than {MAX_DEPTH} levels deep", parent)
        if parent.kind == "seq":
            parent.items.append(node)
            parent.weight += node.weight
            parent.height = max(parent.height, node.height + 1)
        elif self.keys[-1] is None:
            self.keys[-1] = node
        else:
            key, self.keys[-1] = self.keys[-1], None
            self.entry(parent, key, node)

    def entry(self, parent: Node, key: Node, value: Node) -> None:
        if key.kind != "scalar":
            found = "mapping" if key.kind == "map" else "list"
            message = f"a key must be a plain name, found a {found}"
            if key.kind == "map" and key.start == parent.start + 1:
                message = "found {{ outside quotes: a value that starts with {{ must be in quotes"
            self.problem(message, parent if key.kind == "map" else key)
            parent.wrong = True
        elif key.text == "<<" and not key.style:
            self.merge(parent, value)
        elif not key.text:
            self.problem("found an empty key: give it a name", key)
        elif key.text in parent.entries:
            first = parent.entries[key.text].key.line + 1
            self.problem(f'duplicate key "{key.text}": already defined on line {first}', key)
        else:
            self.put(parent, key.text, Entry(key, value))

    def put(self, parent: Node, name: str, entry: Entry) -> None:
        parent.entries[name] = entry
        parent.weight += entry.value.weight
        parent.height = max(parent.height, entry.value.height + 1)

    def merge(self, parent: Node, value: Node) -> None:
        merged = value.items if value.kind == "seq" else [value]
        for node in merged:
            # Checked first: keys that the mapping has already take time, and add nothing.
            self.budget.spend(1 + len(node.entries), parent)
            if node.kind != "map" or node.open:
                self.problem("<< merges mappings only: expected a mapping or a list of them", node)
            else:
                self.merges.setdefault(id(parent), []).append(node)


def _whole_characters(text: str) -> tuple[str, bool]:
    """Joins surrogate pairs, which JSON escapes in two halves; False if a half is alone.

    A lone half is replaced, since a text with one can be neither shown nor sent.
    """
    if text.isascii() or not _SURROGATES.search(text):
        return text, True
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    whole, halves = _SURROGATES.subn("\N{REPLACEMENT CHARACTER}", joined)
    return whole, not halves
