"""The epsilon of the norms is the published one, and it is the one that acts.

What it proves
    The published value, the loaded one, the attribute of every norm module of the text decoder, and the epsilon that
    acts in it are equal. The last is measured: a module is fed two small vectors of alternating sign, one with an RMS
    near sqrt(eps) and one large; the ratio of the outputs gives eps whatever the weights are. It is fed in the dtype
    in which it runs, so an epsilon that this dtype cannot hold shows too.

Why it matters
    Epsilon keeps small activations from being blown up. Far too large, it shrinks the quiet layers and tokens that the
    model was trained to hear; far too small for a half-precision norm, it is lost. Neither raises anything. It must
    not grow with the sequence: the mean runs over the features of one token.

How to fix
    Write the published value under the key that the family reads (`rms_norm_eps`, `layer_norm_eps`, `norm_epsilon`)
    before the model is built: modules copy it once.

Known limits
    Modules count as norms if their class name says so. Norms inside low-rank projections and key indexers of an
    attention, and those of linear attention, are left out: their classes choose an epsilon of their own. A norm that
    takes more than one input is not measured. Values compare at float32 precision (a GGUF file holds
    9.999999974752427e-07 for 1e-06), the measurement at the dtype's: a half-precision norm is measured to a few
    percent only.

References
    RMSNorm, arXiv:1910.07467, section 3; layer normalization, arXiv:1607.06450.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gemma_doctor.check import CouldNotLook, NotApplicable, check
from gemma_doctor.evidence import Claim, Config, ConfigFacts, ModelFacts, NormFacts
from gemma_doctor.finding import Examined, Finding, Location, Severity, counted
from gemma_doctor.oracle import agree, usable_epsilon

# Norms inside an attention's low-rank projections, its key indexer or a linear attention: classes build them with an
# epsilon of their own, whatever the configuration says.
OF_ITS_OWN = re.compile(r"\.(q_a|kv_a|q_b|kv_b)_(layer)?norm$|\bindexer\.|\blinear_attn\.|\bmamba\.")
LONGEST_VALUE = 40
TORCH_EPS = 1e-5  # of a LayerNorm that is built without one


@check(decides_before="cache")  # what norms round off, decode steps read otherwise than one forward
def rms_norm_eps(config: Config, facts: ModelFacts | None) -> Iterator[Finding | Examined]:
    """Published = loaded = every norm module = the epsilon that acts."""
    claim, origin = config.published.eps, config.published.origin
    if claim is None and facts is not None:
        claim, origin = facts.loaded.eps, f"{facts.loaded.origin}, not published"
    if claim is None:
        if any(one.binding and one.facts.eps for one in config.expectations):
            raise CouldNotLook("an epsilon is expected, and none is named")
        raise NotApplicable("no epsilon is named" if facts else "the file names no epsilon")
    if not usable_epsilon(claim.value):
        yield _unusable(claim, origin)
        yield Examined(1, f"no usable epsilon in {origin}")
        return
    yield from _against_expectations(config, claim, origin)
    if facts is None:
        yield Examined(1, f"{claim.value:.6g} published")
        return
    governed = [norm for norm in facts.norms if not OF_ITS_OWN.search(norm.name)]
    if config.published.eps is None and _deaf(claim.value, governed):
        raise CouldNotLook(f"{claim.key} is a class default that no norm takes: all have torch's own {TORCH_EPS:.6g}")
    yield from _chain(claim, origin, facts.loaded, governed)
    looked_at = [norm for norm in governed if norm.attribute is not None or norm.measured is not None]
    if not looked_at:
        raise CouldNotLook("no norm module could be read or measured")
    yield Examined(len(looked_at), f"{claim.value:.6g} in {_how(looked_at, facts.norms)}")


def _deaf(value: float, norms: Sequence[NormFacts]) -> bool:
    """The class builds its norms without an epsilon, and nobody has published one either."""
    stored = {norm.attribute for norm in norms}
    return stored == {TORCH_EPS} and not agree(TORCH_EPS, value)


def _how(looked_at: Sequence[NormFacts], norms: Sequence[NormFacts]) -> str:
    """What was looked at, and what was not: "19 norms, measured in 18 (float32), not measured in 1"."""
    measured = [norm for norm in looked_at if norm.measured is not None]
    dtypes = f" ({', '.join(sorted({norm.dtype for norm in measured}))})" if measured else ""
    blind, apart = len(looked_at) - len(measured), sum(bool(OF_ITS_OWN.search(norm.name)) for norm in norms)
    unread = len(norms) - apart - len(looked_at)
    said = [counted(len(looked_at), "norm"), f"measured in {len(measured)}{dtypes}"]
    said += [f"not measured in {blind}"] if blind else []
    said += [f"{unread} could be neither read nor measured"] if unread else []
    said += [f"{apart} with an epsilon of the class's own left out"] if apart else []
    return ", ".join(said)


def _unusable(claim: Claim, origin: str) -> Finding:
    return Finding(
        title=f"{claim.key} is no usable epsilon",
        severity=Severity.ERROR,
        observed=f"{repr(claim.value)[:LONGEST_VALUE]} ({origin})",
        expected="a number above 0, such as 1e-06",
        do=f"write the value that the model was trained with into {claim.key}",
        keys=(claim.key,),
    )


def _against_expectations(config: Config, claim: Claim, origin: str) -> Iterator[Finding]:
    for one in config.expectations:
        expected = one.facts.eps
        if expected is not None and usable_epsilon(expected.value) and not agree(expected.value, claim.value):
            yield Finding(
                title="the epsilon of the norms is not the one expected",
                severity=one.severity,
                observed=f"{claim.value:.6g} ({claim.key} in {origin})",
                expected=f"{expected.value:.6g} ({one.facts.origin})",
                do=f"set {claim.key} to {expected.value:.6g}",
                keys=(claim.key,),
            )


def _chain(claim: Claim, origin: str, config: ConfigFacts, norms: Sequence[NormFacts]) -> Iterator[Finding]:
    value: float = claim.value
    loaded = config.eps.value if config.eps else None
    lost = loaded is not None and not (usable_epsilon(loaded) and agree(loaded, value))
    stored = [norm for norm in norms if norm.attribute is not None and not agree(norm.attribute, value)]
    acting = [norm for norm in norms if norm.measured is not None and not _acts(norm, value)]
    if not (lost or stored or acting):
        return
    observed = [f"loaded {loaded}"] if lost else []
    observed += [f"{_values([norm.attribute for norm in stored])} stored in {_some(stored)}"] if stored else []
    observed += [f"{_values([norm.measured for norm in acting])} acting in {_some(acting)}"] if acting else []
    yield Finding(
        title="norms do not use the published epsilon",
        severity=Severity.ERROR,
        where=Location(layers=() if lost else _layers([*stored, *acting])),
        observed="; ".join(observed),
        expected=f"{value:.6g} everywhere ({claim.key} in {origin})",
        do="set epsilon in the configuration before the model is built, and run norms in float32",
        keys=(claim.key,),
    )


def _acts(norm: NormFacts, value: float) -> bool:
    return norm.measured is not None and abs(norm.measured / value - 1) <= norm.tolerance


def _values(values: Sequence[float | None]) -> str:
    shown = sorted({f"{value:.3g}" for value in values if value is not None})
    return shown[0] if len(shown) == 1 else f"{shown[0]} to {shown[-1]}"


def _some(norms: Sequence[NormFacts]) -> str:
    first = f"{norms[0].name} ({norms[0].dtype})"
    return f"{counted(len(norms), 'norm')}, {'the first ' if len(norms) > 1 else ''}{first}"


def _layers(norms: Sequence[NormFacts]) -> tuple[int, ...]:
    """Layers of the norms; none if one of them stands outside all layers."""
    found = [re.search(r"\blayers\.(\d+)\.", norm.name) for norm in norms]
    return tuple(sorted({int(one[1]) for one in found if one})) if all(found) else ()
