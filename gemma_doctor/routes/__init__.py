"""Routes: the ways in which the library can compute the logits of the same tokens. One file per route.

A route is a generator: it takes a Lab (`gemma_doctor.capture.lab`), runs texts around the window edge its own way, and
yields what came out of each. Whether that is right is judged elsewhere, against the reference route, the same for all.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from gemma_doctor.errors import DoctorError, suggest
from gemma_doctor.members import members

if TYPE_CHECKING:
    from gemma_doctor.capture.attempt import Attempt
    from gemma_doctor.capture.lab import Lab

Runner = Callable[["Lab"], "Iterator[Attempt]"]

# Each depth includes those before it. What is in use unless a user says otherwise is the first.
DEPTHS = ("quick", "default", "deep")
# Of a route that no depth includes, since no release that was measured gets it right: only who names it needs to know.
BY_NAME = "by name"
# What all other routes are built on.
PLAIN = ("cached", "uncached")
ROUTES_HINT = "gemma-doctor list shows them all"


@dataclass(frozen=True)
class Route:
    """One route.

    Attributes:
        id: slug; the file name with dashes.
        condition: who takes it: "if you use assisted decoding".
        depth: the first of DEPTHS that includes it, or BY_NAME.
        generates: it needs a model that generates; the others run on bidirectional ones as well.
        run: yields what came out, one text (and row) after the other. Raises NotApplicable where the family or the
            release does not offer it, CouldNotLook where it could not be run.
    """

    id: str
    condition: str
    depth: str
    generates: bool
    run: Runner

    @property
    def title(self) -> str:
        """The first line of its documentation, without the full stop: "step by step with the library's own cache"."""
        first = (inspect.getdoc(self.run) or "").splitlines()[0].rstrip(".")
        return first[:1].lower() + first[1:]


def route(condition: str, *, depth: str = "default", generates: bool = True) -> Callable[[Runner], Route]:
    """Make a Route of a generator function named like its file."""

    def make(run: Runner) -> Route:
        return Route(run.__name__.replace("_", "-"), condition, depth, generates, run)

    return make


@cache
def all_routes() -> dict[str, Route]:
    """Every route by id, alphabetically."""
    return {one.id: one for one in members(sys.modules[__name__])}


def declared(names: Sequence[str], depth: str) -> frozenset[str]:
    """Ids of the routes in use: those named, else what everyone takes; with --depth deep all that it includes as well.

    Raises:
        DoctorError: there is no route of that name.
    """
    known = all_routes()
    for name in names:
        if name not in known:
            raise DoctorError(f"--routes: there is no route {name!r}{suggest(name, known)}", ROUTES_HINT)
    if depth == DEPTHS[-1]:
        return included(depth) | frozenset(names)
    return frozenset(names or included(DEPTHS[0]))


def looked_at(names: Sequence[str], depth: str) -> frozenset[str]:
    """Ids of the routes that a run looks at: those in use, and beyond the first depth what it includes."""
    in_use = declared(names, depth)
    return in_use if depth == DEPTHS[0] else in_use | included(depth)


def included(depth: str) -> frozenset[str]:
    """Ids of the routes that a depth looks at, whether they are in use or not."""
    depths = DEPTHS[: DEPTHS.index(depth) + 1]
    return frozenset(one.id for one in all_routes().values() if one.depth in depths)
