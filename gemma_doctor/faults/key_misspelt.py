"""A key of the file has a slip in it: the class keeps it as it is, and its own default takes the place of the value."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from gemma_doctor.faults import fault
from gemma_doctor.faults._published import class_defaults, loaded_as, published_as, written
from gemma_doctor.loading import Patient

# With each a check that would be the cause as well is spared: no window, theta, epsilon or pattern. The first one
# whose published value is not the class default is taken.
KEYS = ("max_position_embeddings", "intermediate_size")


def _key(patient: Patient) -> str:
    """The key to misspell, "" if the file says nothing that the class would not say."""
    text, defaults = written(patient), class_defaults(patient)
    usable = (key for key in KEYS if isinstance(text.get(key), int) and defaults.get(key) not in (None, text[key]))
    return next((key for key in usable if key != "intermediate_size" or patient.subject.weights == "skeleton"), "")


def _why_not(patient: Patient) -> str:
    return "" if _key(patient) else "its file writes what the class has by default"


@fault("config-drift", why_not=_why_not)
def key_misspelt(patient: Patient) -> Iterator[None]:
    """Leave a letter out of max_position_embeddings, or else of intermediate_size, in the published file."""
    key, text = _key(patient), written(patient)
    slip = key.replace("position", "positon").replace("intermediate", "intermedate")
    with ExitStack() as stack:
        if key == "max_position_embeddings":
            stack.enter_context(loaded_as(patient, {key: class_defaults(patient)[key]}))
        stack.enter_context(published_as(patient, {slip if one == key else one: value for one, value in text.items()}))
        yield
