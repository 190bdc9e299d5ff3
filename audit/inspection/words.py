"""An inspection for readers: lines for a terminal, and a document for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from audit.inspection import OWN_CAPABILITIES, Inspection, Trial
from audit.inspection.judgement import Judgement, Row, Standing
from audit.models.mlmodel import Port
from audit.models.probe import NOT_SETTLED
from audit.models.shapes import times
from audit.models.spec_text import to_options
from audit.text import printable

SHOWN_ROWS = 12
DEFAULT = "default"


def lines(found: Inspection) -> Iterator[str]:
    """Everything found, for a terminal."""
    yield printable(found.identity.label)
    for label, text in _facts(found):
        yield f"  {label:12} {printable(text, 1000)}"
    if found.trial is not None:
        yield ""
        yield from _trial(found.trial)


def _facts(found: Inspection) -> Iterator[tuple[str, str]]:
    identity, facts = found.identity, found.facts
    yield "format", ", ".join([facts.format, *facts.versions, *([f"from {facts.producer}"] if facts.producer else [])])
    if identity.uri != identity.reference:
        yield "reference", f"{identity.reference} is {identity.uri}"
    yield from (("input", _port(port)) for port in facts.inputs)
    yield from (("output", _port(port)) for port in facts.outputs)
    if facts.parameters is not None:
        yield "parameters", f"{facts.parameters:,} ({(facts.parameter_bytes or 0) / 1e6:,.1f} MB)"
    yield "digest", f"sha256 {identity.digest}"
    if len(identity.files) > 1:
        yield from (("file", f"{name} sha256 {digest}") for name, digest in identity.files.items())
    if found.runs:
        yield "loading", f"RUNS CODE that came with the model: {'; '.join(found.runs)}"
    else:
        yield "loading", "runs no code that came with the model"
    if found.runs and facts.requirements:
        yield "needs", ", ".join(facts.requirements)
    names = identity.class_names
    yield "class names", "not stated" if not names else f"{', '.join(names[:8])}{', ...' * (len(names) > 8)} ({len(names)})"
    if identity.classes:
        yield "classes", f"{identity.classes}, as {identity.outputs if identity.outputs != NOT_SETTLED else 'scores'}"
    if found.lacks is not None:
        yield "can", ", ".join(str(each) for each in OWN_CAPABILITIES if each not in found.lacks)
        yield from (("lacks", f"{capability}: {because}") for capability, because in found.lacks.items())
    elif found.problem is None:
        yield (
            "can",
            "not settled: that takes a look at its outputs"
            + (" (--trust)" if found.runs and not identity.trusted else " (--data)"),
        )
    yield from (("note", caution) for caution in identity.cautions)
    words = found.spec.words()
    stated = [f"{key} {words.get(key, '')} ({place})" for key, place in found.places.items()]
    defaults = [f"{key} {value}" for key, value in words.items() if key not in found.places]
    yield "input spec", "; ".join([*stated, *([f"{', '.join(defaults)} ({DEFAULT})"] if defaults else [])])


def _port(port: Port) -> str:
    sizes = "any shape" if port.shape is None else ", ".join("?" if size is None else str(size) for size in port.shape)
    return f"{port.name}: {port.dtype} ({sizes})" if port.name else f"{port.dtype} ({sizes})"


def _trial(trial: Trial) -> Iterator[str]:
    judged = trial.judgement
    count = len(judged.rows) + sum(len(row.same) for row in judged.rows) if judged else 0
    count += sum(map(len, trial.refused.values()))
    yield (
        f"{count} input spec{'s' * (count != 1)} on {trial.samples} of {trial.total} images of {times(trial.image_shape)} "
        f"({printable(trial.source)}), {trial.forward_passes:,} forward passes"
    )
    if judged is not None:
        yield from _table(judged)
    for reason, names in trial.refused.items():
        yield f"  not taken: {', '.join(names[:3])}{f' and {len(names) - 3} more' * (len(names) > 3)}: {printable(reason, 240)}"
    yield from (f"  note: {printable(caution, 400)}" for caution in trial.cautions)
    if judged is not None:
        yield ""
        yield from verdict(judged)


def _table(judged: Judgement) -> Iterator[str]:
    yield "  accuracy  95 % interval      McNemar p  log loss  epsilon counts    input spec"
    for row in judged.rows[:SHOWN_ROWS]:
        p_value = "" if row.p_value is None else "< 0.001" if row.p_value < 0.001 else f"{row.p_value:.3f}"
        interval = f"{100 * row.interval.low:5.1f} % to {100 * row.interval.high:5.1f} %"
        loss = "" if row.log_loss is None else f"{row.log_loss:.3g}"
        yield (
            f"  {100 * row.right / judged.samples:6.1f} %  {interval}  {p_value:>9}  {loss:>8}  {_between(*row.epsilon):16}  "
            f"{row.candidate.name}{', in force' if row.candidate.stated else ''}"
        )
        if row.same and (row is judged.best or row.tied):
            names = [each.name for each in row.same]
            yield f"{'':68}  = {'; '.join(names[:3])}{f' and {len(names) - 3} more' * (len(names) > 3)}"
    if len(judged.rows) > SHOWN_ROWS:
        next_best = judged.rows[SHOWN_ROWS]
        yield f"  and {len(judged.rows) - SHOWN_ROWS} more, right on {100 * next_best.right / judged.samples:.1f} % at most"


def _between(low: float, high: float) -> str:
    first, last = f"{low:.3g}", f"{high:.3g}"
    return first if first == last else f"{first} to {last}"


def verdict(judged: Judgement) -> Iterator[str]:
    """What the trial shows and what to do about it, in sentences."""
    if judged.labels is not None:
        put_right = "; the accuracies above are with the labels put right" if judged.corrected else ""
        sentence = judged.labels.sentence
        yield f"{sentence[:1].upper()}{sentence[1:]}{put_right}. Correct the labels, or give the class names in the model's order."
    best = judged.best
    if judged.standing is Standing.CHANCE:
        yield from _chance(judged)
        return
    options = to_options(best.candidate.spec)
    given = f"--input-spec {options}" if options else "the default"
    given += ", in force already" if best.candidate.stated else ""
    yield f"Best: {best.candidate.name}, {_share(best, judged)} ({given})."
    stated = next((row for row in judged.rows[1:] if row.candidate.stated), None)
    if stated is not None:
        verb = "cannot be told from it" if stated.tied else "is worse"
        yield f"The spec in force now {verb}: {stated.candidate.name}, {_share(stated, judged)}."
    size = best.candidate.spec.size
    if size is not None:
        yield (
            f"It resizes the images to {size[0]}x{size[1]} inside the model (bilinear, antialiased; epsilon stays in the pixels of "
            f"the data). If the model was trained on images resized otherwise, bring the data to that size (--resize)."
        )
    if judged.rivals:
        yield from _ambiguous(judged)


def _share(row: Row, judged: Judgement) -> str:
    return f"right on {row.right} of {judged.samples}"


def _chance(judged: Judgement) -> Iterator[str]:
    if judged.chance == 1:
        yield "All sampled images have one label, so nothing tells an input spec from a constant answer; give data with several."
        return
    yield (
        f"No input spec is better than always answering the largest class ({100 * judged.chance:.1f} % of the sample); the best is "
        f"{judged.best.candidate.name}, {_share(judged.best, judged)}."
    )
    few = " or the images are too few to show it (--samples)," if judged.samples < 50 else ""
    yield (
        f"Likely causes: the data or labels are not this model's,{few} its classes are in another order (--class-names), it wants "
        "images that were cropped, inverted or normalised in some unusual way (--input-spec), or its weights were not loaded."
    )


def _ambiguous(judged: Judgement) -> Iterator[str]:
    rivals = judged.rivals
    names = "; ".join(row.candidate.name for row in rivals[:6]) + (f" and {len(rivals) - 6} more" if len(rivals) > 6 else "")
    yield f"NOT TOLD APART from it on these images (exact McNemar, Holm): {names}."
    losses = sorted((row.log_loss, row.candidate.name) for row in (judged.best, *rivals) if row.log_loss is not None)
    if losses:
        yield f"The smallest log loss among them is {losses[0][0]:.3g}, of {losses[0][1]}: a hint, no proof."
    low, high = min(row.epsilon[0] for row in rivals), max(row.epsilon[1] for row in rivals)
    if low > 0.995 and high < 1.005:
        yield "Epsilon counts the same under all of them; which of them is right stays open."
    else:
        yield (
            f"Epsilon is ambiguous: the same epsilon moves the input of the model {_between(low, high)} times as far under those "
            "as under the best, so robust accuracies would not compare."
        )
    yield (
        "Look at the transform in the training code: mean and std of Normalize, division by 255 (ToTensor), RGB or BGR (cv2.imread "
        "gives BGR). More images (--samples) may also tell."
    )


def document(found: Inspection) -> dict[str, Any]:
    """Everything found, as plain data for JSON."""
    identity, facts = found.identity, found.facts
    return {
        "model": {
            "label": identity.label,
            "reference": identity.reference,
            "uri": identity.uri,
            "version": identity.version,
            "model_id": identity.model_id,
            "format": facts.format,
            "versions": list(facts.versions),
            "producer": facts.producer,
            "inputs": [_port_data(port) for port in facts.inputs],
            "outputs": [_port_data(port) for port in facts.outputs],
            "parameters": facts.parameters,
            "parameter_bytes": facts.parameter_bytes,
            "digest": identity.digest,
            "files": identity.files,
            "requirements": list(facts.requirements),
            "class_names": list(identity.class_names),
            "classes": identity.classes or None,
            "output_kind": identity.outputs or None,
            "runs_code": list(found.runs),
            "can": None if found.lacks is None else [str(each) for each in OWN_CAPABILITIES if each not in found.lacks],
            "lacks": None if found.lacks is None else {str(key): because for key, because in found.lacks.items()},
            "notes": list(identity.cautions),
        },
        "input_spec": {"in_force": found.spec.words(), "places": dict(found.places)},
        "trial": None if found.trial is None else _trial_data(found.trial),
        "problem": None if found.problem is None else str(found.problem),
    }


def _port_data(port: Port) -> dict[str, object]:
    return {"name": port.name, "dtype": port.dtype, "shape": None if port.shape is None else list(port.shape)}


def _trial_data(trial: Trial) -> dict[str, object]:
    judged = trial.judgement
    return {
        "source": trial.source,
        "samples": trial.samples,
        "total": trial.total,
        "image_shape": list(trial.image_shape),
        "forward_passes": trial.forward_passes,
        "refused": [{"reason": reason, "specs": list(names)} for reason, names in trial.refused.items()],
        "notes": list(trial.cautions),
        "standing": None if judged is None else str(judged.standing),
        "chance": None if judged is None else judged.chance,
        "labels": None if judged is None or judged.labels is None else judged.labels.sentence,
        "labels_corrected": judged is not None and judged.corrected,
        "verdict": [] if judged is None else list(verdict(judged)),
        "specs": [] if judged is None else [_row_data(row, judged.samples) for row in judged.rows],
    }


def _row_data(row: Row, samples: int) -> dict[str, object]:
    same: Sequence[str] = [each.name for each in row.same]
    return {
        "name": row.candidate.name,
        "same_as": same,
        "in_force": row.candidate.stated,
        "input_spec": to_options(row.candidate.spec),
        "right": row.right,
        "accuracy": row.right / samples,
        "interval": [row.interval.low, row.interval.high],
        "log_loss": row.log_loss,
        "p_value": row.p_value,
        "told_apart": not row.tied,
        "epsilon_counts": list(row.epsilon),
    }
