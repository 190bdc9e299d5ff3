"""A value's key, `id[/variant][/threat]`, as users write it: held against the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from audit.errors import InputError
from audit.metrics import CATALOG
from audit.metrics.spec import Metric
from audit.profiles import PROFILES
from audit.settings import Settings
from audit.text import nearest, printable
from audit.vocabulary import Threat


@dataclass(frozen=True, kw_only=True)
class MetricKey:
    """A metric's key taken apart: `id[/variant][/threat]`."""

    metric: Metric
    variant: str | None
    threat: Threat | None


def metric_key(text: str) -> MetricKey:
    """Take a key apart and hold it against the catalogue.

    Raises:
        ValueError: there is no such metric or variant, or the threat is missing or not one; names the nearest that there is.

    >>> metric_key("average_lp_distortion/l2/linf_8-255").threat.label
    'L∞ 8/255'
    """
    name, *rest = text.split("/")
    metric = next((entry for entry in CATALOG if entry.id == name), None)
    if metric is None:
        raise ValueError(f"there is no metric {printable(name, 80)!r}{nearest(name, [entry.id for entry in CATALOG])}")
    clean = len(rest) == 1 and rest[0] in metric.clean_variants
    threat = _threat_in(rest.pop() if rest else "", name) if metric.per_threat and not clean else None
    variants = _variants(metric, threat)
    variant = "/".join(rest) or None
    if variant not in (variants or (None,)):
        known = nearest(variant or "", variants)
        raise ValueError(
            f"{name} has no variant {printable(variant, 80)!r}{known if variants else '; leave it out'}"
            if variant
            else f"{name} has several values; write {name}/{variants[0]}{'/THREAT' if threat else ''} or another of "
            + ", ".join(variants)
        )
    return MetricKey(metric=metric, variant=variant, threat=threat)


def _threat_in(text: str, name: str) -> Threat:
    norm, _, epsilon = text.partition("_")
    try:
        return Threat.parse(f"{norm}:{epsilon.replace('-', '/')}")
    except InputError:
        raise ValueError(f"{name} has one value per threat; end the key with it, as in {name}/linf_8-255") from None


def _variants(metric: Metric, threat: Threat | None) -> tuple[str, ...]:
    """Every variant that some profile measures."""
    if metric.variants is None:
        return ()
    named = [name for profile in PROFILES for name in metric.variants(Settings.of(profile.name), threat)]
    return tuple(dict.fromkeys(named))
