"""Robustness audits of registered models.

The walk: a model reference is loaded as a `Classifier`, a data reference as a `Dataset`; a pure `plan` says what runs and what is
skipped and why; the engine turns chunks of examples into evidence; metrics are pure functions from evidence to estimates; one
`AuditResult` is written to a folder; sinks (MLflow, HTML, PDF) and the gate read that folder and nothing else.

    from audit import AuditRequest, Settings, run_audit

    request = AuditRequest(models=("models:/digits/1",), data="digits:test", settings=Settings.of("quick"), out=Path("audits/one"))
    run = run_audit(request)
    print(run.result.models[0].overall)

The sensitivity without an attack is there on its own, for a torch module and for any function that answers:

    from audit import estimate_fisher_spectrum, fisher_spectrum

    exact = fisher_spectrum(model, images, labels=labels)
    estimate = estimate_fisher_spectrum(predict, images, max_queries=20_000)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from audit.fisher.black_box import estimate_fisher_spectrum
    from audit.fisher.white_box import fisher_spectrum
    from audit.pipeline import AuditRequest, AuditRun, run_audit
    from audit.result import AuditResult
    from audit.settings import Settings
    from audit.vocabulary import Threat

__all__ = [
    "AuditRequest",
    "AuditResult",
    "AuditRun",
    "Settings",
    "Threat",
    "estimate_fisher_spectrum",
    "fisher_spectrum",
    "run_audit",
]

_HOMES = {
    "AuditRequest": "audit.pipeline",
    "AuditRun": "audit.pipeline",
    "run_audit": "audit.pipeline",
    "AuditResult": "audit.result",
    "Settings": "audit.settings",
    "Threat": "audit.vocabulary",
    "estimate_fisher_spectrum": "audit.fisher.black_box",
    "fisher_spectrum": "audit.fisher.white_box",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use: `import audit` and `audit --help` must not import torch."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'audit' has no attribute {name!r}")
