"""A LangGraph store whose items end: ``AmnesiaStore`` is a ``BaseStore`` over the notes of one workspace.

An item is one note. Its content is the item's address and its value, both as JSON, because a text lives once in a
workspace and two items may hold the same value. The address is also the note's key, so ``put`` supersedes in one step
and two writers cannot leave two values. Tags name every prefix of the namespace, so a search finds what lies below one.

One store is one workspace, whatever the namespaces: a search by prefix spans namespaces, and one answer cannot be
ranked across workspaces, whose notes and bounds are apart. Where tenants must be apart, give each a store with a
workspace of its own. TTLs are the store's minutes on a flat curve: an item is whole until it ends. ``delete`` forgets
the item with the values it had before. What LangGraph asks about vectors (``index``) does not apply: search is the
daemon's own.

An item whose kind is perishable (the default, ``fact``) is erased at the end of its TTL, and counts towards the
workspace's ``max_store_bytes``, beyond which the weakest go; a record, such as ``finding``, is never evicted, and keeps
its words when its TTL is over. Value and address are bound by ``max_item_bytes``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, cast

from amnesiad.client.identity import DEFAULT_TIMEOUT_S
from amnesiad.core.intake import MAX_KEY_BYTES, MAX_TAG_BYTES, MAX_TAGS
from amnesiad.errors import AmnesiaError, CallerError
from amnesiad.integrations.link import Ask, Link, missing, query_of

try:
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        InvalidNamespaceError,
        Item,
        ListNamespacesOp,
        MatchCondition,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        validate_op_namespace,
    )
except ImportError as error:
    raise ImportError(missing("LangGraph", "langgraph")) from error

TAG: Final = "lg"
"""On every note of a store; ``lg:a.b`` for what lies in or below a namespace, ``lg=…`` for one item."""
MAX_DEPTH: Final = MAX_TAGS - 2
"""Labels of a namespace: each prefix is a tag, and the store and the item are two more."""
PAGE: Final = 1000
"""Notes of one list: the most that one request takes."""
MAX_RANKED: Final = 100
"""Items that a query ranks: the most that one recall returns. Those behind them follow, newest first, without a
score."""
MS_PER_MINUTE: Final = 60_000

Namespace = tuple[str, ...]
Answers = list[dict[str, Any]]
Steps = Generator[list[Ask], Answers, list[Result]]


class AmnesiaStore(BaseStore):
    """LangGraph's store over the notes of ``workspace``, blocking and asynchronous alike. See the module.

    ``ttl`` are LangGraph's defaults (``default_ttl`` in minutes, ``refresh_on_read``); without one, items do not end by
    themselves. ``kind`` is that of the notes. Errors of the daemon are those of ``amnesiad.errors``.
    """

    supports_ttl = True

    def __init__(
        self,
        socket: Path | str | None = None,
        *,
        workspace: str | None = None,
        ttl: TTLConfig | None = None,
        kind: str = "fact",
        timeout_s: float = DEFAULT_TIMEOUT_S,
        **who: str | None,
    ) -> None:
        self.ttl_config = ttl
        self._kind = kind
        self._link = Link(socket, workspace=workspace, timeout_s=timeout_s, **who)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._link.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._link.aclose()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """The results of several operations, in order: reads see what stood before the writes of the same batch."""
        steps = self._steps(list(ops))
        try:
            asks = next(steps)
            while True:
                try:
                    answers = self._link.ask_all(asks)
                except AmnesiaError as refusal:
                    asks = steps.throw(refusal)
                else:
                    asks = steps.send(answers)
        except StopIteration as end:
            return cast(list[Result], end.value)

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """``batch`` without blocking the loop."""
        steps = self._steps(list(ops))
        try:
            asks = next(steps)
            while True:
                try:
                    answers = await self._link.aask_all(asks)
                except AmnesiaError as refusal:
                    asks = steps.throw(refusal)
                else:
                    asks = steps.send(answers)
        except StopIteration as end:
            return cast(list[Result], end.value)

    def _steps(self, ops: Sequence[Op]) -> Steps:
        """The whole of a batch without any I/O: yields requests, is sent their answers or thrown a refusal, and returns
        the results."""
        for op in ops:
            validate_op_namespace(op)
        results: list[Result] = []
        used: list[_Found] = []
        writes: dict[tuple[Namespace, str], PutOp] = {}
        for op in ops:
            if isinstance(op, GetOp):
                result: Result = yield from _get(op, used)
            elif isinstance(op, SearchOp):
                result = yield from _search(op, used)
            elif isinstance(op, ListNamespacesOp):
                result = yield from _list_namespaces(op)
            elif isinstance(op, PutOp):
                writes[op.namespace, op.key] = op
                result = None
            else:
                raise ValueError(f"unknown operation {type(op).__name__}")
            results.append(result)
        yield from _renew(used)
        yield from self._write(writes.values())
        return results

    def _write(self, puts: Iterable[PutOp]) -> Generator[list[Ask], Answers, None]:
        asked = [(put, self._ask(put)) for put in puts]
        if not asked:
            return
        answers = yield [ask for _, ask in asked]
        # An item that was put as it stands is the note it was; what remains to be said is how long it lives.
        edits: list[Ask] = [
            ("edit", {"id": answer["id"], "ttl_ms": _ttl_ms(put)})
            for (put, _), answer in zip(asked, answers, strict=True)
            if put.value is not None and not answer["created"] and answer["ttl_ms"] != _ttl_ms(put)
        ]
        if edits:
            yield edits

    def _ask(self, put: PutOp) -> Ask:
        if put.value is None:
            return "forget", {"tags": [_item_tag(put.namespace, put.key)]}
        if len(put.namespace) > MAX_DEPTH:
            raise InvalidNamespaceError(f"a namespace has at most {MAX_DEPTH} labels here, not {len(put.namespace)}")
        address = _json([*put.namespace, put.key])
        return "remember", {
            "content": f"{address} {_json(dict(put.value))}",
            "key": _fitting(address, MAX_KEY_BYTES),
            "tags": _tags(put.namespace, put.key),
            "kind": self._kind,
            "ttl_ms": _ttl_ms(put),
            "curve": "flat",
        }


class _Found(NamedTuple):
    """An item as a note holds it."""

    id: str
    namespace: Namespace
    key: str
    value: dict[str, Any]
    at: datetime
    leased: bool
    score: float | None = None

    def item(self) -> Item:
        return Item(value=self.value, key=self.key, namespace=self.namespace, created_at=self.at, updated_at=self.at)

    def hit(self) -> SearchItem:
        return SearchItem(self.namespace, self.key, self.value, self.at, self.at, score=self.score)


def _read(note: Mapping[str, Any]) -> _Found | None:
    """The item in a note; ``None`` for a note that somebody else gave our tags."""
    try:
        address, end = json.JSONDecoder().raw_decode(note["content"])
        value = json.loads(note["content"][end:])
    except ValueError:
        return None
    labels = isinstance(address, list) and len(address) > 1 and all(isinstance(label, str) for label in address)
    if not labels or not isinstance(value, dict):
        return None
    at = datetime.fromtimestamp(note["created_at"] / 1000, UTC)
    score = note.get("relevance")
    return _Found(note["id"], tuple(address[:-1]), address[-1], value, at, note["ttl_ms"] is not None, score)


def _read_all(notes: Iterable[Mapping[str, Any]]) -> Iterator[_Found]:
    return (found for found in map(_read, notes) if found is not None)


# -- operations ------------------------------------------------------------------------------------------------------


def _get(op: GetOp, used: list[_Found]) -> Generator[list[Ask], Answers, Item | None]:
    answers = yield [("list", {"tags": [_item_tag(op.namespace, op.key)], "with_content": True})]
    for found in _read_all(answers[0]["notes"]):
        if (found.namespace, found.key) == (op.namespace, op.key):
            used += [found] * op.refresh_ttl
            return found.item()
    return None


def _search(op: SearchOp, used: list[_Found]) -> Generator[list[Ask], Answers, list[SearchItem]]:
    """Whatever lies below the prefix and passes the filter: first what the query ranks, then the rest, newest first."""
    stop = op.offset + op.limit if min(op.offset, op.limit) >= 0 else None
    hits: dict[str, _Found] = {}
    if query := query_of(op.query):
        asked = {"query": query, "tags": [_prefix_tag(op.namespace_prefix)], "limit": MAX_RANKED, "peek": True}
        answers = yield [("recall", asked)]
        hits = {found.id: found for found in _read_all(answers[0]["notes"]) if _passes(found.value, op.filter)}
    cursor: str | None = ""
    while cursor is not None and (stop is None or len(hits) < stop):
        notes, cursor = yield from _page(op.namespace_prefix, cursor)
        hits |= {
            found.id: found for found in _read_all(notes) if found.id not in hits and _passes(found.value, op.filter)
        }
    shown = list(hits.values())[op.offset : stop if stop is not None else op.offset + op.limit]
    used += shown * op.refresh_ttl
    return [found.hit() for found in shown]


def _list_namespaces(op: ListNamespacesOp) -> Generator[list[Ask], Answers, list[Namespace]]:
    namespaces: set[Namespace] = set()
    cursor: str | None = ""
    while cursor is not None:
        notes, cursor = yield from _page((), cursor)
        namespaces |= {found.namespace for found in _read_all(notes)}
    kept = (name for name in namespaces if all(_matches(name, wanted) for wanted in op.match_conditions or ()))
    cut = sorted({name if op.max_depth is None else name[: op.max_depth] for name in kept})
    return cut[op.offset : op.offset + op.limit]


def _page(prefix: Namespace, cursor: str) -> Generator[list[Ask], Answers, tuple[list[dict[str, Any]], str | None]]:
    body: dict[str, Any] = {"tags": [_prefix_tag(prefix)], "with_content": True, "limit": PAGE}
    answers = yield [("list", {**body, "cursor": cursor} if cursor else body)]
    return answers[0]["notes"], answers[0].get("cursor")


def _renew(used: Iterable[_Found]) -> Generator[list[Ask], Answers, None]:
    leased = list(dict.fromkeys(found.id for found in used if found.leased))
    for start in range(0, len(leased), PAGE):
        try:
            yield [("renew", {"id": note_id}) for note_id in leased[start : start + PAGE]]
        except CallerError:
            # It ended between the read and this: what was read was true then, and there is nothing to renew.
            continue


# -- addresses -------------------------------------------------------------------------------------------------------


def _tags(namespace: Namespace, key: str) -> list[str]:
    return [*(_prefix_tag(namespace[:depth]) for depth in range(len(namespace) + 1)), _item_tag(namespace, key)]


def _prefix_tag(prefix: Namespace) -> str:
    """No label holds a period, so that this names one prefix and no other."""
    return _fitting(f"{TAG}:{'.'.join(prefix)}", MAX_TAG_BYTES) if prefix else TAG


def _item_tag(namespace: Namespace, key: str) -> str:
    return f"{TAG}={_digest(_json([*namespace, key]))[:20]}"


def _fitting(text: str, limit_bytes: int) -> str:
    """The text where it fits, else a digest of it, which no text that fits can be taken for."""
    return text if len(text.encode("utf-8", "surrogatepass")) <= limit_bytes else f"{TAG}#{_digest(text)}"


def _digest(text: str) -> str:
    # Of a key that holds half a character nothing is ever kept, since the daemon refuses it; it may be asked for.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _ttl_ms(put: PutOp) -> int | None:
    return None if put.ttl is None else round(put.ttl * MS_PER_MINUTE)


# -- conditions ------------------------------------------------------------------------------------------------------


def _matches(namespace: Namespace, wanted: MatchCondition) -> bool:
    """Whether a namespace begins, or ends, with a path in which ``*`` is any label."""
    path = tuple(wanted.path)
    if wanted.match_type not in ("prefix", "suffix"):
        raise ValueError(f"unknown match type {wanted.match_type}")
    if len(namespace) < len(path):
        return False
    labels = namespace[: len(path)] if wanted.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(pattern in ("*", label) for label, pattern in zip(labels, path, strict=True))


def _passes(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    return all(_agrees(value.get(field), condition) for field, condition in (wanted or {}).items())


def _agrees(value: Any, wanted: Any) -> bool:
    """Whether a value meets a condition: operators, else equality, of objects by the fields that the condition
    names."""
    if isinstance(wanted, Mapping):
        if any(str(name).startswith("$") for name in wanted):
            return all(_compares(value, operator, operand) for operator, operand in wanted.items())
        return isinstance(value, Mapping) and all(_agrees(value.get(name), part) for name, part in wanted.items())
    if isinstance(wanted, list | tuple):
        same_length = isinstance(value, list | tuple) and len(value) == len(wanted)
        return same_length and all(map(_agrees, islice(value, len(wanted)), wanted))
    return bool(value == wanted)


def _compares(value: Any, operator: str, operand: Any) -> bool:
    if operator == "$eq":
        return bool(value == operand)
    if operator == "$ne":
        return bool(value != operand)
    if operator not in ("$gt", "$gte", "$lt", "$lte"):
        raise ValueError(f"unknown operator {operator}: $eq, $ne, $gt, $gte, $lt and $lte are known")
    try:
        left, right = float(value), float(operand)
    except (TypeError, ValueError):  # the field is missing, or is no number: it does not pass
        return False
    if operator in ("$gt", "$lt"):
        return left > right if operator == "$gt" else left < right
    return left >= right if operator == "$gte" else left <= right
