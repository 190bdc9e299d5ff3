"""Audits of successive versions by hand, and a store to log them to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import audits_by_hand
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from audits_by_hand import CLEAN, SHARE_COLUMNS, column, sample
from audits_by_hand import WHITE as ROBUST

from audit.audited import Audited, VersionRecord
from audit.evidence import Bools
from audit.result import Undefined, write
from audit.sinks import mlflow_run

STATE = SHARE_COLUMNS[ROBUST]


def outcomes(right: int, total: int = 500) -> Bools:
    """The first `right` of `total` examples are right, so that two such columns differ in as few examples as possible."""
    return np.arange(total) < right


def audited(
    version: str, clean: Bools, robust: Bools | None, *, name: str = "digits", day: int | None = None, **changes: Any
) -> Audited:
    """The audit of one version, made on a November day of its own; `changes` are those of `audits_by_hand.audited`."""
    found = {CLEAN: column(clean), **({} if robust is None else {ROBUST: column(robust)})}
    extra = (sample.record(ROBUST, Undefined(because="no gradients")),) if robust is None else ()
    audit = audits_by_hand.audited(found, name=name, version=version, extra=extra, **changes)
    created = f"2026-11-{day or int(version):02d}T12:00:00+00:00"
    return replace(audit, result=replace(audit.result, id=f"audit-{name.encode().hex()}-{version}", created=created))


def record(version: str, clean: Bools, robust: Bools | None, *, verdict: str | None = None, **changes: Any) -> VersionRecord:
    """A version as `records.versions` gives it."""
    return VersionRecord(name="digits", version=version, audited=audited(version, clean, robust, **changes), verdict=verdict)


def folder(path: Path, audit: Audited) -> Path:
    """The result folder of an audit; every model of the result gets the same rows."""
    path.mkdir(parents=True)
    write(audit.result, path)
    words = np.array(["broken", "survived"])
    rows = {
        name: words[found.values.astype(int)] if name == STATE else found.values.astype(bool)
        for name, found in audit.columns.items()
    }
    models = range(len(audit.result.models))
    tables = [pa.table({"model": np.full(len(audit.ids), index), "id": audit.ids.tolist(), **rows}) for index in models]
    pq.write_table(pa.concat_tables(tables), path / "examples.parquet")
    return path


@dataclass(frozen=True, kw_only=True)
class Store:
    """A SQLite store with all its files below `place`."""

    uri: str
    client: Any
    place: Path

    def register(self, name: str, count: int) -> None:
        """A registered model with `count` versions, which lead nowhere."""
        self.client.create_registered_model(name)
        for _ in range(count):
            self.client.create_model_version(name, source=(self.place / "nowhere").as_uri())

    def log(self, audit: Audited, path: Path) -> mlflow_run.LoggedRuns:
        """Log an audit as `audit run` does; its folder is `path`."""
        return mlflow_run.log(folder(path, audit), tracking_uri=self.uri, experiment="audits")


def store(place: Path) -> Store:
    """An empty store in `place`."""
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{place}/mlflow.db")
    for name in ("training", "audits"):
        client.create_experiment(name, artifact_location=(place / name).as_uri())
    return Store(uri=f"sqlite:///{place}/mlflow.db", client=client, place=place)
