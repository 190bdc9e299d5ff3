"""What a metric is: one pure function from evidence to an Estimate, with what a reader must know about the number."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from audit.evidence import PER_THREAT, Evidence
from audit.result import Interval
from audit.settings import Settings
from audit.vocabulary import Better, Family, Threat, Unit

Variants = Callable[[Settings, Threat | None], tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A value, the number of examples it rests on, its 95 % interval or why it has none, and remarks for the reader."""

    value: float
    samples: int
    interval: Interval | None
    why_no_interval: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One catalogue entry. Parameter names of `function` are evidence names, besides `threat` and `variant`.

    What it requires is derived from those names, and what that evidence requires from the collectors: nothing is written twice.
    `reads_scores` says that it takes confidences from evidence that labels alone give too.
    `clean_variants` are variants of a metric per threat that belong to no threat: they get None for evidence under one.
    """

    function: Callable[..., Estimate]
    symbol: str
    family: Family
    better: Better
    unit: Unit
    source: str
    paper_row: str | None
    variants: Variants | None
    clean_variants: frozenset[str]
    variant_units: Mapping[str, Unit]
    reads_scores: bool

    def unit_of(self, variant: str | None) -> Unit:
        """The unit of one variant."""
        return self.variant_units.get(variant or "", self.unit)

    @property
    def id(self) -> str:
        """The function's name."""
        return self.function.__name__

    @property
    def name(self) -> str:
        """The docstring's first sentence without its full stop: what a reader sees."""
        return self.definition.partition(".")[0]

    @property
    def definition(self) -> str:
        """The docstring without its doctest."""
        return inspect.cleandoc(self.function.__doc__ or "").partition(">>>")[0].strip()

    @property
    def parameters(self) -> tuple[str, ...]:
        """The function's parameter names."""
        return tuple(inspect.signature(self.function).parameters)

    @property
    def needs(self) -> tuple[Evidence, ...]:
        """The kinds of evidence it reads."""
        return tuple(Evidence(name) for name in self.parameters if name not in {"threat", "variant"})

    @property
    def per_threat(self) -> bool:
        """Whether it has one value per threat."""
        return "threat" in self.parameters or any(kind in PER_THREAT for kind in self.needs)

    def values(self, settings: Settings) -> Iterator[tuple[str | None, Threat | None]]:
        """Its values as (variant, threat), in the order of a result."""
        threats: tuple[Threat | None, ...] = settings.threats if self.per_threat else (None,)
        for threat in (None, *threats) if self.clean_variants else threats:
            for variant in self.variants(settings, threat) if self.variants else (None,):
                if not self.clean_variants or (variant in self.clean_variants) == (threat is None):
                    yield variant, threat

    def __call__(self, **arguments: Any) -> Estimate:
        """Evaluate the function; raises `audit.errors.Undefined` when the evidence gives no value."""
        return self.function(**arguments)


def metric(
    *,
    symbol: str,
    family: Family,
    better: Better,
    unit: Unit,
    source: str,
    paper_row: str | None = None,
    variants: tuple[str, ...] | Variants | None = None,
    clean_variants: tuple[str, ...] = (),
    variant_units: Mapping[str, Unit] | None = None,
    reads_scores: bool = False,
) -> Callable[[Callable[..., Estimate]], Metric]:
    """Make a Metric of the function below it."""

    def build(function: Callable[..., Estimate]) -> Metric:
        fixed = variants if isinstance(variants, tuple) else None
        return Metric(
            function=function,
            symbol=symbol,
            family=family,
            better=better,
            unit=unit,
            source=source,
            paper_row=paper_row,
            variants=(lambda _settings, _threat: fixed) if fixed is not None else variants,  # type: ignore[arg-type]
            clean_variants=frozenset(clean_variants),
            variant_units=variant_units or {},
            reads_scores=reads_scores,
        )

    return build


_NORMS = {"l0": "L0", "l1": "L1", "l2": "L2", "linf": "L∞"}


def variant_words(variant: str) -> str:
    """A variant as a reader sees it.

    >>> variant_words("linf_absolute"), variant_words("p95"), variant_words("at_4-255")
    ('L∞ absolute', '95th percentile', 'ε = 4/255')
    """
    if variant.startswith("at_"):
        return "ε = " + variant.removeprefix("at_").replace("-", "/")
    if variant == "p95":
        return "95th percentile"
    return " ".join(_NORMS.get(word, word) for word in variant.split("_"))


def key_of(metric_id: str, variant: str | None = None, threat: Threat | None = None) -> str:
    """The value's key, the same everywhere: `function_name[/variant][/threat]`.

    >>> key_of("average_lp_distortion", "l2", Threat.parse("linf:8/255"))
    'average_lp_distortion/l2/linf_8-255'
    """
    return "/".join([metric_id, *([variant] if variant else []), *([threat.key] if threat else [])])
