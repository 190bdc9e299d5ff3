"""What differs between two audits, which paired differences that rules out, and what can still be compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from audit.audited import Audited
from audit.evidence import Ints
from audit.pairing.columns import (
    AT_FITTED_TEMPERATURE,
    ATTACKED,
    BLACK_BOX,
    CURVE,
    QUERIED_FISHER,
    REFERENCE_ATTACK,
    WHITE_BOX,
)
from audit.result import Measured
from audit.statistics import SMALLEST_SAMPLE
from audit.text import printable

RELATIVE_TO_REFERENCE = frozenset(
    {
        "mean_corruption_error", "relative_mean_corruption_error", "mean_flip_rate", "classification_accuracy_variance",
        "classification_rectify_ratio", "classification_sacrifice_ratio", "classification_confidence_variance",
        "classification_output_stability",
    }
)  # fmt: skip
CORRUPTED = frozenset(
    {
        "unnormalised_mean_corruption_error", "clean_subtracted_corruption_error", "corruption_error",
        "corruption_error_by_severity", "calibration_error_corrupted",
    }
)  # fmt: skip
# Settings that only choose examples or points, so that what both audits have is still the same measurement.
_CHOOSING = frozenset(
    {
        *("profile name", "profile samples", "profile curve", "profile fisher_samples"),
        *("profile corruption_samples", "profile sequence_samples"),
    }
)
_READ_BY = {
    "profile linf": frozenset({WHITE_BOX, CURVE}),
    "profile l2": frozenset({WHITE_BOX, CURVE}),
    "profile l1": frozenset({WHITE_BOX, CURVE}),
    "profile score_based": frozenset({BLACK_BOX, CURVE}),
    "profile label_only": frozenset({BLACK_BOX, CURVE}),
    "profile curve_queries": frozenset({CURVE}),
    "profile reference_steps": REFERENCE_ATTACK,
    "profile reference_queries": REFERENCE_ATTACK,
    "profile curve_stages": frozenset({CURVE}),
    "profile fisher_directions": QUERIED_FISHER,
}


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """One thing in which two audits differ.

    `prevents` holds the ids or keys of the metrics whose paired difference it rules out (None: every metric; empty: none, it only
    has to be known). `because` says what differs and why that matters, `still` what can be compared all the same.
    """

    what: str
    because: str
    still: str
    prevents: tuple[str, ...] | None = ()

    def blocks(self, key: str) -> bool:
        """Whether it rules out the paired difference of the metric at `key`."""
        return self.prevents is None or key in self.prevents or key.partition("/")[0] in self.prevents


def shared_rows(a: Audited, b: Audited) -> tuple[Ints, Ints]:
    """The rows of the examples that both audits sampled."""
    if np.array_equal(a.ids, b.ids):
        return np.arange(len(a.ids)), np.arange(len(a.ids))
    _, rows, others = np.intersect1d(a.ids, b.ids, return_indices=True)
    return rows, others


def comparability(a: Audited, b: Audited) -> tuple[Obstacle, ...]:
    """What differs between two audits and what that prevents, the worst first; empty where everything may be compared."""
    found = (*_examples(a, b), *_settings(a, b), *_models(a, b))
    return tuple(sorted(found, key=lambda obstacle: 0 if obstacle.prevents is None else 2 - bool(obstacle.prevents)))


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def _examples(a: Audited, b: Audited) -> list[Obstacle]:
    """Data, sample and per-example tables."""
    one, other = a.result.data, b.result.data
    nothing = "nothing: the values can only be read side by side"

    def all_of(what: str, because: str) -> list[Obstacle]:
        return [Obstacle(what=what, because=because, still=nothing, prevents=None)]

    if one.digest != other.digest:
        return all_of("data", f"they rest on different data ({one.digest[:12]} and {other.digest[:12]}), so the images differ too")
    if one.image_shape != other.image_shape:
        return all_of("image shape", f"their images were brought to different shapes ({one.image_shape} and {other.image_shape})")
    for audit in (a, b):
        if audit.no_table is not None:
            return all_of(
                "per-example table", f"examples of {printable(audit.label, 80)} cannot be paired: {printable(audit.no_table)}"
            )
    shared = len(shared_rows(a, b)[0])
    if shared < SMALLEST_SAMPLE:
        return all_of("sample", f"they share {shared} examples, and below {SMALLEST_SAMPLE} no interval is honest")
    found = []
    if shared < max(len(a.ids), len(b.ids)):
        found.append(
            Obstacle(
                what="sample",
                because=f"they share {shared} of {len(a.ids)} and {len(b.ids)} examples; each fitted its temperature to its own",
                still=f"everything else, on the {shared} shared examples",
                prevents=_sorted(AT_FITTED_TEMPERATURE),
            )
        )
    if one.seed != other.seed:
        found.append(
            Obstacle(
                what="seed",
                because=f"their attacks started from different random points (seeds {one.seed} and {other.seed})",
                still="clean accuracy and what is computed exactly",
                prevents=_sorted(ATTACKED | QUERIED_FISHER),
            )
        )
    return found


def _settings(a: Audited, b: Audited) -> list[Obstacle]:
    """Threats, attack settings and versions of the tool."""
    found = []
    one, other = a.result, b.result
    if lacking := set(one.threats) ^ set(other.threats):
        found.append(
            Obstacle(
                what="threats",
                because=f"only one of them was audited under {printable(', '.join(sorted(lacking)))}",
                still="everything under the threats of both, and everything without an attack",
            )
        )
    if one.profile != other.profile or one.manifest.settings != other.manifest.settings:
        found += _attack_settings(a, b)
    versions = (one.manifest.tool_version, one.schema_version), (other.manifest.tool_version, other.schema_version)
    if versions[0] != versions[1]:
        (tool, schema), (other_tool, other_schema) = versions
        found.append(
            Obstacle(
                what="tool",
                because=f"they were made by versions {printable(tool, 20)} and {printable(other_tool, 20)} of this tool "
                f"(schemas {schema} and {other_schema})",
                still="every metric whose definition is the same in both",
            )
        )
    return found


def _attack_settings(a: Audited, b: Audited) -> list[Obstacle]:
    one, other = (
        {name: value for name, value in audit.result.manifest.settings.items() if name.startswith("profile ")} for audit in (a, b)
    )
    differing = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name) and name not in _CHOOSING)
    if not one and not other and a.result.profile != b.result.profile:
        differing = ["profile"]
    if not differing:
        return []
    words = ", ".join(
        f"{name.removeprefix('profile ')} {printable(one.get(name, 'not recorded'), 60)} against "
        f"{printable(other.get(name, 'not recorded'), 60)}"
        for name in differing
    )
    return [
        Obstacle(
            what="attack settings",
            because=f"their settings differ ({words}), and a weaker attack looks like a better model",
            still="clean accuracy, and every value that does not read these settings",
            prevents=_sorted(frozenset().union(*(_READ_BY.get(name, ATTACKED | QUERIED_FISHER) for name in differing))),
        )
    ]


def _models(a: Audited, b: Audited) -> list[Obstacle]:
    """What the two models' own numbers say about each other's."""
    found = []
    if a.model.identity.input_spec != b.model.identity.input_spec:
        one, other = a.model.identity.input_spec, b.model.identity.input_spec
        names = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
        found.append(
            Obstacle(
                what="input spec",
                because=f"they read their images in different ways ({printable(', '.join(names))}); "
                "a wrong declaration would look like a worse model",
                still="everything: images and budgets are the same, in [0, 1] pixels",
            )
        )
    for threat in sorted({record.threat for record in a.model.metrics if record.id == WHITE_BOX and record.threat is not None}):
        found += _hidden_gradients(a, b, threat)
    ran = [(audit.model.identity.device, audit.result.manifest.settings.get("block rows", "?")) for audit in (a, b)]
    if ran[0] != ran[1]:
        places = " and ".join(printable(f"{device}, {rows} rows", 60) for device, rows in ran)
        found.append(
            Obstacle(
                what="device",
                because=f"they ran on different devices or in blocks of different sizes ({places})",
                still="everything; up to 1 outcome in 500 may flip for this alone",
            )
        )
    found += _averages(a, b)
    made = [None if audit.model.corruptions is None else audit.model.corruptions.source for audit in (a, b)]
    if None not in made and made[0] != made[1]:
        found.append(
            Obstacle(
                what="corrupted images",
                because=f"their corrupted images are not the same ({' and '.join(printable(str(each), 80) for each in made)})",
                still="every value that reads no corrupted images",
                prevents=_sorted(CORRUPTED),
            )
        )
    if a.model.identity.surrogate != b.model.identity.surrogate:
        crafted = " and ".join(printable(audit.model.identity.surrogate, 80) or "none" for audit in (a, b))
        found.append(
            Obstacle(
                what="surrogate",
                because=f"their transfer attacks were crafted on different models ({crafted}), and a weaker attack looks like a "
                "better model",
                still="every value that does not read the black-box attacks",
                prevents=_sorted({BLACK_BOX, CURVE}),
            )
        )
    references = [{model.identity.digest for model in audit.result.models if model.is_reference} for audit in (a, b)]
    if references[0] != references[1]:
        found.append(
            Obstacle(
                what="reference model",
                because="they were audited beside different reference models, or one beside none",
                still="every value that is not relative to the reference",
                prevents=_sorted(RELATIVE_TO_REFERENCE),
            )
        )
    return found


def _averages(a: Audited, b: Audited) -> list[Obstacle]:
    """Two models that answer at random, averaged over different numbers of calls."""
    one, other = a.model.identity.averaged, b.model.identity.averaged
    if one == other or 1 in (one, other):
        return []
    return [
        Obstacle(
            what="averaging",
            because=f"they answer at random and were audited as means of {one} and {other} calls, and a noisier mean is easier to "
            "attack",
            still="clean accuracy",
            prevents=_sorted(ATTACKED | QUERIED_FISHER),
        )
    ]


def _hidden_gradients(a: Audited, b: Audited, threat: str) -> list[Obstacle]:
    """A white-box accuracy that the query-only one undercuts says how well a model hides its gradients."""
    hiding, keys = [], set()
    for audit in (a, b):
        records = {
            record.id: record for record in audit.model.metrics if record.threat == threat and record.id in {WHITE_BOX, BLACK_BOX}
        }
        values = [records[arm].outcome for arm in (WHITE_BOX, BLACK_BOX) if arm in records]
        raised = any(check.number == 7 and check.status == "warn" for check in audit.model.checks)
        match values:
            case [Measured(value=white), Measured(value=black)] if raised and black < white:
                hiding.append(printable(audit.label, 80))
                keys |= {
                    record.key for record in audit.model.metrics if record.threat == threat and record.id in {WHITE_BOX, CURVE}
                }
    if not hiding:
        return []
    return [
        Obstacle(
            what="gradients",
            because=f"query-only attacks broke more of {' and '.join(hiding)} than white-box ones (honesty check 7), so accuracy "
            f"under {printable(threat, 40)} by white-box attacks overstates it",
            still="accuracy under query-only attack",
            prevents=_sorted(keys),
        )
    ]
