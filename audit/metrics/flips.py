"""How steady answers are along perturbation sequences, alone and relative to a reference model."""

from __future__ import annotations

import numpy as np

from audit import statistics
from audit.corruptions.families import FAMILIES
from audit.errors import Undefined
from audit.evidence import Sequences
from audit.metrics.corruption import interval_of
from audit.metrics.estimates import average
from audit.metrics.spec import Estimate, metric
from audit.vocabulary import Better, Family, Unit

SOURCE = "Hendrycks & Dietterich 2019 (arXiv 1903.12261)"


def _some(evidence: Sequences) -> None:
    if len(evidence.positions) == 0:
        raise Undefined("no example was followed along a sequence")


@metric(
    symbol="mFR",
    family=Family.STABILITY,
    better=Better.LOWER,
    unit=Unit.RATIO,
    source=SOURCE,
    paper_row="mean flip rate",
)
def mean_flip_rate(sequences: Sequences, reference_sequences: Sequences) -> Estimate:
    """Mean flip rate relative to the reference.

    The mean over families of FP(f) / FP(reference), where FP is the share of frame pairs whose predictions differ; noise families
    compare with the first frame, the others with the one before. 1 for the reference itself.
    Undefined when: the reference never changes its answer in some family, which is named; no example was followed.
    Differs from the source in: the reference is the model given, not AlexNet; every family has 31 frames.

    >>> from audit.metrics.flips import mean_flip_rate
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> def evidence(*shares):
    ...     return SimpleNamespace(positions=np.arange(1), families=("tilt", "snow"), flip_share=np.array([shares]))
    >>> mean_flip_rate(sequences=evidence(0.1, 0.3), reference_sequences=evidence(0.2, 0.3)).value
    0.75
    """
    _some(sequences)
    if sequences.families != reference_sequences.families or not np.array_equal(sequences.positions, reference_sequences.positions):
        raise Undefined("the two models saw different sequences")
    own, other = sequences.flip_share, reference_sequences.flip_share
    never = [name for name, flips in zip(sequences.families, other.sum(axis=0), strict=True) if flips == 0]
    if never:
        raise Undefined(f"the reference never changes its answer along {', '.join(never)}")
    found = statistics.over_examples(len(own), lambda weights: ((weights @ own) / (weights @ other)).mean(axis=1))
    value = float((own.mean(axis=0) / other.mean(axis=0)).mean())
    return interval_of(len(own), value, found, (f"over {len(sequences.families)} families",))


@metric(
    symbol="mFP",
    family=Family.STABILITY,
    better=Better.LOWER,
    unit=Unit.SHARE,
    source=SOURCE,
)
def mean_flip_probability(sequences: Sequences) -> Estimate:
    """Mean flip probability.

    The share of frame pairs whose predictions differ, over the ten families, on a random part of the sample, whose size is n; all
    sequences of an image move together in the interval.
    Reads as: how often a small step of a natural change changes the answer, whether right or wrong.
    Undefined when: no example was followed along a sequence.
    Differs from the source in: not divided by the same of a reference model; every family has 31 frames.

    >>> from audit.metrics.flips import mean_flip_probability
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> evidence = SimpleNamespace(positions=np.arange(2), families=("tilt",), flip_share=np.array([[0.5], [0.0]]))
    >>> mean_flip_probability(sequences=evidence).value
    0.25
    """
    _some(sequences)
    return average(sequences.flip_share.mean(axis=1), (f"over {len(sequences.families)} families",))


@metric(
    symbol="FP",
    family=Family.STABILITY,
    better=Better.LOWER,
    unit=Unit.SHARE,
    source=SOURCE,
    variants=FAMILIES,
)
def flip_probability(sequences: Sequences, variant: str) -> Estimate:
    """Flip probability along one family of sequences.

    The share of frame pairs whose predictions differ.
    Undefined when: no example was followed along a sequence.

    >>> from audit.metrics.flips import flip_probability
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> evidence = SimpleNamespace(positions=np.arange(2), families=("tilt",), flip_share=np.array([[0.5], [0.0]]))
    >>> flip_probability(sequences=evidence, variant="tilt").value
    0.25
    """
    _some(sequences)
    return average(sequences.flip_share[:, sequences.families.index(variant)])
