"""Audits as their readers see them, with per-example columns written down; every value follows from its column."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "sinks"))
import mlflow_sample as sample

from audit import statistics
from audit.audited import Audited, Column
from audit.result import Interval, Measured, MetricRecord
from audit.vocabulary import Better

CLEAN, WHITE, BLACK = "clean_accuracy", "adversarial_accuracy_white_box/linf_8-255", "adversarial_accuracy_black_box/linf_8-255"
SHARE_COLUMNS = {CLEAN: "correct", WHITE: "white_box_state/linf_8-255", BLACK: "black_box_state/linf_8-255"}
NAMES = {CLEAN: "Clean accuracy", WHITE: "Adversarial accuracy, white-box", BLACK: "Adversarial accuracy, black-box"}
MEDIAN, RADIUS, RAW = "fisher_spectral_norm/median", "linearised_margin_radius/linf", "fisher_spectral_norm_raw/median"
MEDIAN_COLUMNS = {MEDIAN: "lambda_max_T", RADIUS: "margin_linf", RAW: "lambda_max_raw"}
SETTINGS = {
    "profile name": "quick",
    "profile linf": "20, 20",
    "profile score_based": "200",
    "profile reference_steps": "40",
    "profile fisher_directions": "64",
    "block rows": "32",
}


def column(values: Any, known: Any = None) -> Column:
    values = np.asarray(values, dtype=float)
    return Column(values=values, known=np.ones(len(values), dtype=bool) if known is None else np.asarray(known))


def first(right: int, total: int = 100) -> Column:
    """The first `right` of `total` examples are right."""
    return column(np.arange(total) < right)


def record(key: str, found: Column) -> MetricRecord:
    """The record whose value follows from a column."""
    values = found.values[found.known]
    if key in MEDIAN_COLUMNS:
        median = float(np.median(values))
        outcome = Measured(value=median, samples=len(values), interval=Interval(low=median / 2, high=median * 2, method="by hand"))
    else:  # an unknown state counts as not robust
        right, total = int(values.sum()), len(found.known)
        outcome = Measured(value=right / total, samples=total, interval=statistics.proportion(right, total))
    made = sample.record(key, outcome)
    return replace(
        made,
        name={CLEAN: "Clean accuracy", WHITE: "Adversarial accuracy, white-box", BLACK: "Adversarial accuracy, black-box"}.get(
            key, key
        ),
        threat="linf:8/255" if key.endswith("/linf_8-255") else None,
        variant=key.partition("/")[2] if key in MEDIAN_COLUMNS else key.split("/")[1] if key.count("/") == 2 else None,
        better=Better.LOWER if key == MEDIAN else Better.HIGHER,
        unit="1/pixel range²" if key == MEDIAN else "pixel range" if key == RADIUS else "share",
    )


def audited(
    found: dict[str, Column],
    *,
    name: str = "digits",
    version: str | None = "1",
    ids: Any = None,
    digest: str | None = None,
    data_digest: str | None = None,
    settings: dict[str, str] | None = None,
    checks: tuple[int, ...] = (),
    extra: tuple[MetricRecord, ...] = (),
    no_table: str | None = None,
    spec: dict[str, str] | None = None,
    opaque: bool = False,
    **data: Any,
) -> Audited:
    """An audit of `found`, columns by metric key; `data` changes the data identity, `checks` are raised."""
    records = tuple(record(key, values) for key, values in found.items())
    model = sample.model(name=name, version=version, metrics=(*records, *extra))
    identity = replace(model.identity, digest=digest or f"{version or name:0>64}", opaque=opaque)
    model = replace(
        model,
        identity=identity if spec is None else replace(identity, input_spec=spec),
        checks=tuple(sample.check(number, "warn") for number in checks),
    )
    result = sample.result(model, identity=f"audit-{version}")
    rows = len(next(iter(found.values())).known)
    result = replace(
        result,
        data=replace(result.data, samples=rows, digest=data_digest or result.data.digest, **data),
        threats=("linf:8/255",),
        manifest=replace(result.manifest, settings=SETTINGS if settings is None else settings),
    )
    names = {**SHARE_COLUMNS, **MEDIAN_COLUMNS}
    empty = no_table is not None
    return Audited(
        result=result,
        index=0,
        source="by hand",
        ids=np.zeros(0, dtype="<U1") if empty else np.array([f"x{k}" for k in range(rows)] if ids is None else ids),
        columns={} if empty else {names.get(key, key): values for key, values in found.items()},
        no_table=no_table,
    )
