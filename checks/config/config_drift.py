"""What is published arrives in the running model, and survives being saved and loaded again.

What it proves
    Every value of the published file that the config class reads, and that no check of its own compares, is the loaded
    one: head counts and sizes, activation, score scale, soft-caps, biases, tied embeddings. No key is one letter away
    from a key that the class reads and the file lacks. Saved and loaded again, the running model's configuration has
    the values it had. An output head that should be the embedding is the embedding (real weights only).

Why it matters
    Config classes take any key without a word: a misspelt one becomes an attribute that nobody reads, and a class
    default takes its place. A value that changes when it is saved is wrong in every model made from this one.

How to fix
    Correct the key, or move it into `text_config` where the file has one. Set values before the model is built from
    the configuration. Where saving changes a value, write the published one into the saved config.json by hand.

Known limits
    Window, kinds of layers, rotary parameters, positions and epsilon are compared by checks of their own. Keys that
    releases rename or keep books with (dtype, architectures, keys that begin with _, cache_implementation ...) are left
    out, and so are published nulls, which ask for the class default. A skeleton is compared where it is not cut.

References
    transformers issue 43429 (a tied head that came loose); transformers issue 29553 (Gemma: hidden_act and
    hidden_activation).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gemma_doctor.check import check
from gemma_doctor.evidence import Arrival, Claim, ConfigDrift, TiedHead
from gemma_doctor.finding import Examined, Finding, Severity, counted
from gemma_doctor.oracle import misspelt, same

LONGEST_VALUE = 60


@check()
def config_drift(drift: ConfigDrift) -> Iterator[Finding | Examined]:
    """Published values arrive, no key is misspelt, and saving and loading changes nothing."""
    yield from _changed(drift.arrived)
    yield from (_not_read(claim, right, drift.absent[right]) for claim, right in _misspelt(drift))
    yield from _misplaced(drift.misplaced)
    yield from _saved(drift)
    yield from _head(drift.head)
    unread = f", {counted(len(drift.unread), 'key')} read by nothing" if drift.unread else ""
    tied = " and the head is the embedding" if drift.head and drift.head.asked and not _came_loose(drift.head) else ""
    lasting = sum(same(one.before, one.after) for one in drift.saved)
    kept = f"; {lasting} of {len(drift.saved)} the same when saved and loaded again" if drift.saved else ""
    compared = [one for one in drift.arrived if one.before is not None]
    good = sum(map(_arrives, compared))
    values = counted(good, "value") if good == len(compared) else f"{good} of {counted(len(compared), 'value')}"
    arrive = "arrives" if good == 1 else "arrive"
    yield Examined(len(compared) + len(drift.saved), f"{values} {arrive}{tied}{unread}{kept}")


def _changed(arrived: Iterable[Arrival]) -> Iterator[Finding]:
    """A null asks for the class default; one number for every layer may come back as a list of it."""
    for one in arrived:
        if _arrives(one):
            continue
        yield Finding(
            title=f"{_key(one.key)} is not what was published",
            severity=Severity.ERROR,
            observed=f"{_shown(one.after)} loaded",
            expected=f"{_shown(one.before)} (published)",
            do="set it in the configuration before the model is built from it, or use a release that reads it",
            keys=(one.key,),
            standing=True,
        )


def _arrives(one: Arrival) -> bool:
    spread = isinstance(one.after, list) and one.after and all(same(one.before, each) for each in one.after)
    return one.before is None or same(one.before, one.after) or bool(spread)


def _misspelt(drift: ConfigDrift) -> Iterator[tuple[Claim, str]]:
    for claim in drift.unread:
        right = misspelt(claim.key.rpartition(".")[2], drift.absent)
        if right and not claim.key.endswith(("token_id", "token_index")):  # bos, boi and eoi are words of their own
            yield claim, right


def _not_read(claim: Claim, right: str, in_force: object) -> Finding:
    harmless = same(claim.value, in_force)
    return Finding(
        title=f"{_key(claim.key)} is read by nothing; {right} is, and the file does not write it",
        severity=Severity.NOTE if harmless else Severity.ERROR,
        observed=f"{right} {_shown(in_force)} in force, the class default",
        expected=f"{_shown(claim.value)}, as written under {_key(claim.key)}",
        do=f"rename {_key(claim.key)} to {right}",
        keys=(claim.key,),
        standing=True,
    )


def _misplaced(misplaced: Iterable[Arrival]) -> Iterator[Finding]:
    for one in misplaced:
        if not same(one.before, one.after) and one.before is not None:
            yield Finding(
                title=f"{_key(one.key)} stands beside text_config, where nothing reads it",
                severity=Severity.WARNING,
                observed=f"{_shown(one.after)} in force",
                expected=f"{_shown(one.before)}, as written at the top of the file",
                do=f"move {_key(one.key)} into text_config, or remove it",
                keys=(one.key,),
                standing=True,
            )


def _saved(drift: ConfigDrift) -> Iterator[Finding]:
    if drift.unsaved:
        yield Finding(
            title="the configuration cannot be saved and loaded again",
            severity=Severity.WARNING,
            observed=drift.unsaved,
            expected="the same values again",
            do="correct what the library names before you save this model",
            standing=True,
        )
    for one in drift.saved:
        if not same(one.before, one.after):
            yield Finding(
                title=f"{_key(one.key)} changes when the model is saved and loaded again",
                severity=Severity.WARNING,
                observed=f"{_shown(one.after)} after one round",
                expected=f"{_shown(one.before)}, as loaded",
                do=f"write the published {_key(one.key)} into every config.json that save_pretrained() makes",
                keys=(one.key,),
                standing=True,
            )


def _head(head: TiedHead | None) -> Iterator[Finding]:
    if head is not None and _came_loose(head):
        yield Finding(
            title="the output head is not the embedding that it is tied to",
            severity=Severity.ERROR,
            observed=f"weights of its own, up to {head.deviation:.3g} away from the embedding's",
            expected=f"one tensor for both (tie_word_embeddings in {head.origin})",
            do="call model.tie_weights() after loading, and load with a release that ties this family",
        )


def _came_loose(head: TiedHead) -> bool:
    return head.asked and not head.shared and head.deviation != 0


def _key(key: str) -> str:
    """A file may write a key of any length."""
    return key if len(key) <= LONGEST_VALUE else f"{key[:LONGEST_VALUE]} ..."


def _shown(value: object) -> str:
    shown = re.sub(r"\s+", " ", repr(value))
    return shown if len(shown) <= LONGEST_VALUE else f"{shown[:LONGEST_VALUE]} ..."
