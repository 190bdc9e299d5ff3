"""Task performance, and accuracy under attack as the per-example worst case."""

from __future__ import annotations

import numpy as np

from audit.errors import Undefined
from audit.evidence import UNKNOWN, AccuracyEpsilon, Predictions, ReferenceAttack, WorstCase
from audit.metrics.estimates import share
from audit.metrics.spec import Estimate, metric
from audit.settings import Settings
from audit.vocabulary import Better, Family, Threat, Unit

UPPER_BOUND = "an upper bound on true robustness; the interval is sampling error only"


@metric(
    symbol="CA",
    family=Family.TASK,
    better=Better.HIGHER,
    unit=Unit.SHARE,
    source="Guo et al. 2021 (arXiv 2101.09617)",
    paper_row="clean accuracy",
)
def clean_accuracy(predictions: Predictions) -> Estimate:
    """Clean accuracy.

    The share of examples whose predicted class is the label: mean of 1[F(x) = y].
    Reads as: how often the model is right when nobody interferes.

    >>> from audit.metrics.accuracy import clean_accuracy
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> clean_accuracy(predictions=SimpleNamespace(correct=np.array([True, True, False, True]))).value
    0.75
    """
    return share(predictions.correct)


def _worst_case(evidence: WorstCase) -> Estimate:
    unknown = int(np.sum(evidence.state == UNKNOWN))
    if not unknown:
        return share(evidence.robust, notes=(UPPER_BOUND,))
    optimistic = float(np.mean(evidence.robust | (evidence.state == UNKNOWN)))
    return share(
        evidence.robust,
        notes=(UPPER_BOUND, f"{unknown} unknown examples count as not robust; counted as robust it would be {optimistic:.3f}"),
    )


@metric(
    symbol="AAW",
    family=Family.ADVERSARIAL,
    better=Better.HIGHER,
    unit=Unit.SHARE,
    source="Guo et al. 2021; Croce & Hein 2020 (arXiv 2003.01690) for the per-example worst case",
    paper_row="adversarial accuracy on white-box attacks",
)
def adversarial_accuracy_white_box(worst_case_white_box: WorstCase) -> Estimate:
    """Adversarial accuracy, white-box.

    The share of all examples that are classified correctly and survive every white-box attack of one threat: the worst case is
    taken per example. An example whose attack crashed is unknown and counts as not robust.
    Reads as: accuracy against an attacker who knows the weights; true robustness is at most this.

    >>> from audit.metrics.accuracy import adversarial_accuracy_white_box
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> state = np.array([1, 0, 0, 1])
    >>> adversarial_accuracy_white_box(worst_case_white_box=SimpleNamespace(state=state, robust=state == 1)).value
    0.5
    """
    return _worst_case(worst_case_white_box)


@metric(
    symbol="AAB",
    family=Family.ADVERSARIAL,
    better=Better.HIGHER,
    unit=Unit.SHARE,
    source="Guo et al. 2021; Andriushchenko et al. 2020 (arXiv 1912.00049)",
    paper_row="adversarial accuracy on black-box attacks",
)
def adversarial_accuracy_black_box(worst_case_black_box: WorstCase) -> Estimate:
    """Adversarial accuracy, black-box.

    The share of all examples that are classified correctly and survive every query-only attack of one threat: the worst case is
    taken per example. An example whose attack crashed is unknown and counts as not robust.
    Reads as: accuracy against an attacker who can only query the model; true robustness is at most this.

    >>> from audit.metrics.accuracy import adversarial_accuracy_black_box
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> state = np.array([1, 2, 1, 1])
    >>> adversarial_accuracy_black_box(worst_case_black_box=SimpleNamespace(state=state, robust=state == 1)).value
    0.75
    """
    return _worst_case(worst_case_black_box)


@metric(
    symbol="ASR",
    family=Family.ADVERSARIAL,
    better=Better.LOWER,
    unit=Unit.SHARE,
    source="Carlini et al. 2019 (arXiv 1902.06705), section 4: state the denominator",
)
def attack_success_rate(reference_attack: ReferenceAttack) -> Estimate:
    """Attack success rate, of the clean-correct examples.

    |S| / (number of clean-correct examples), S the examples that the reference attack turns wrong.
    Undefined when: no example is classified correctly.

    >>> from audit.metrics.accuracy import attack_success_rate
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> right, fooled = np.array([True, True, False, True]), np.array([True, False, False, False])
    >>> round(attack_success_rate(reference_attack=SimpleNamespace(clean_correct=right, success=fooled, attack="PGD-40")).value, 3)
    0.333
    """
    if not reference_attack.clean_correct.any():
        raise Undefined("no example is classified correctly, so there is nothing to attack")
    return share(reference_attack.success[reference_attack.clean_correct], notes=(f"reference attack {reference_attack.attack}",))


def point_name(threat: Threat, epsilon: float) -> str:
    """The variant name of one point of the curve: `at_4-255`.

    >>> point_name(Threat.parse("linf:8/255"), 4 / 255)
    'at_4-255'
    """
    return "at_" + threat.at(epsilon).written.replace("/", "-")


def _points(settings: Settings, threat: Threat | None) -> tuple[str, ...]:
    if threat is None:
        raise ValueError("the accuracy-epsilon curve belongs to a threat")
    return tuple(point_name(threat, epsilon) for epsilon in settings.curve_epsilons(threat))


@metric(
    symbol="A(ε)",
    family=Family.ADVERSARIAL,
    better=Better.HIGHER,
    unit=Unit.SHARE,
    source="Dong et al. 2020 (arXiv 1912.11852)",
    variants=_points,
)
def accuracy_epsilon_curve(accuracy_epsilon: AccuracyEpsilon, threat: Threat, variant: str) -> Estimate:
    """Accuracy on the accuracy-epsilon curve.

    The share of all examples that are classified correctly and survive at this epsilon. An example broken in a ball is broken in
    every larger one; smaller budgets are attacked only where a larger one succeeded. At epsilon 0 it is the clean accuracy.

    >>> from audit.metrics.accuracy import accuracy_epsilon_curve
    >>> from audit.vocabulary import Threat
    >>> from types import SimpleNamespace
    >>> import numpy as np
    >>> curve = SimpleNamespace(epsilons=(0.0, 0.1), robust=np.array([[True, True], [True, False]]))
    >>> accuracy_epsilon_curve(accuracy_epsilon=curve, threat=Threat.parse("l2:0.1"), variant="at_0.1").value
    0.5
    """
    for index, epsilon in enumerate(accuracy_epsilon.epsilons):
        if point_name(threat, epsilon) == variant:
            return share(accuracy_epsilon.robust[:, index], notes=(UPPER_BOUND,) if epsilon else ())
    raise Undefined(f"the curve has no point {variant}")
