"""The first lines of a text report: what was examined, and with what. Its facts are named in report/text.py."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from gemma_doctor.drilled import DrillReport
from gemma_doctor.evidence import OF_SERVED
from gemma_doctor.finding import Report
from gemma_doctor.report.lines import Line
from gemma_doctor.report.where import kinds_of


def heading(report: Report | DrillReport, verbosity: int) -> Iterator[Line]:
    """Who was examined, with which versions, over which lengths."""
    yield Line(f"gemma-doctor {report.version}  ", _subject_sentence(report), style="bold", indent=2)
    used = filled_in(
        report.environment, (("transformers", "transformers {}"), ("torch", "torch {}"), ("seed", "seed {}"))
    )
    window, reduced = report.passes.get("window"), report.passes.get("reduced_window")
    reduced = reduced if reduced != window else None
    crossed = report.passes.get("true_window_crossed", True)
    left_out = report.passes.get("true_window_left_out")
    passes = "most passes" if crossed else "all passes"
    why = f": {left_out}" if left_out and not crossed else ""
    prompt = " from ".join(filled_in(report.passes, (("prompt_length", "prompt {}"), ("prompt_from", "{}"))))
    filled = report.passes.get("filled_from")
    filled = filled if filled != report.passes.get("prompt_from") else None
    long_text = report.passes.get("long_text")
    tokens = long_text["length"] if isinstance(long_text, dict) else None
    ran = filled_in(
        {**report.passes, "prompt": prompt, "filled": filled, "long_text": tokens, "reduced": reduced},
        (
            ("prompt", "{}"),
            ("generated", "generated {}"),
            ("crossed_at", "window crossed at step {}"),
            ("long_text", "long text {:,}"),
            ("filled", "other texts from {}"),
            ("reduced", f"{passes} at W'={{}}{why}"),
        ),
    )
    yield Line(body="; ".join(", ".join(parts) for parts in (used, ran) if parts), body_style="dim", indent=2)
    yield from _further_prompts(report)
    in_use = report.passes.get("routes_in_use")
    if isinstance(in_use, list) and (verbosity or report.passes.get("depth") != "default"):
        yield Line("routes in use: ", f"{', '.join(in_use)}; depth {report.passes['depth']}", style="dim", indent=2)
    if verbosity and report.subject.get("cut"):
        yield Line("cut: ", str(report.subject["cut"]), style="dim")
    for remark in report.remarks:
        yield Line(body=remark, indent=2)


def _further_prompts(report: Report | DrillReport) -> Iterator[Line]:
    """Every other generation on a prompt of its own: how long, and how it was asked for."""
    prompts = report.passes.get("prompts")
    for one in prompts if isinstance(prompts, list) else ():
        said = filled_in(
            one,
            (
                ("prompt_length", "prompt {}"),
                ("generated", "generated {}"),
                ("crossed_at", "window crossed at step {}"),
                ("ended_by", "ended by token {}"),
            ),
        )
        of_it = f"the {str(one['name']).removeprefix(OF_SERVED)}"
        source = str(one["from"]).replace(f" of {of_it}", "")
        if source != of_it:
            said[0] += f" from {source}"
        way = f"; {str(one['way']).removeprefix(OF_SERVED)}" if one.get("way") else ""
        yield Line(body=f"{one['name']}: {', '.join(said)}{way}", body_style="dim", indent=2)


def _subject_sentence(report: Report | DrillReport) -> str:
    subject = report.subject
    weights = {"real": "real weights", "skeleton": "SKELETON", "none": "published file alone"}
    parts = [
        str(subject["family"]),
        _layers(subject),
        weights[str(subject["weights"])],
        *filled_in(report.environment, (("dtype", "{}"), ("backend", "{}"), ("device", "{}"))),
    ]
    return f"{subject_name(report)}: {', '.join(part for part in parts if part)}"


def subject_name(report: Report | DrillReport) -> str:
    default = " (no SUBJECT given: the default)" if report.subject["subject_source"] == "default" else ""
    return f"{report.subject['name']}{default}"


def _layers(subject: Mapping[str, object]) -> str:
    """ "18 layers (15 sliding W=512, 3 full)", "26 layers (skeleton of 6: 5 sliding W=512, 1 full)"."""
    kinds = kinds_of(subject)
    layers, names = subject["layers"] or len(kinds), Counter(kind.removesuffix("_attention") for kind in kinds)
    width = f" W={subject['window']}" if subject["window"] else ""
    counted = ", ".join(f"{n} {kind}{width if kind == 'sliding' else ''}" for kind, n in names.items())
    if subject["weights"] == "skeleton" and len(kinds) != layers:
        counted = f"skeleton of {len(kinds)}: {counted}"
    return f"{layers} layers ({counted})" if counted else f"{layers} layers" if layers else ""


def filled_in(facts: Mapping[str, object], wanted: tuple[tuple[str, str], ...]) -> list[str]:
    return [form.format(facts[key]) for key, form in wanted if facts.get(key) not in (None, "")]
