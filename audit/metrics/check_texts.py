"""The seventeen honesty checks in words: what raises each, what that means, and what to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CheckText:
    """One check of METRICS, worded for whoever meets it."""

    number: int
    title: str
    raised_if: str
    means: str
    do: str


_WEAK = "the attack is too weak or the gradients are masked: accuracy under attack is overstated"
_STRONGER = "run a stronger profile and attack the model adaptively before believing the number"

CHECK_TEXTS = (
    CheckText(
        number=1,
        title="Better than guessing",
        raised_if="the lower end of the clean accuracy's interval is not above the largest class share",
        means="the model, its input specification or the labels do not belong together; nothing else here is meaningful",
        do="check value range, normalisation, layout, class order and label offsets",
    ),
    CheckText(
        number=2,
        title="Accuracy falls with epsilon",
        raised_if="the same attack leaves more examples standing at a larger budget",
        means=_WEAK,
        do=_STRONGER,
    ),
    CheckText(
        number=3,
        title="A huge epsilon defeats the model",
        raised_if="more examples than the largest class holds stand at a budget that lets every image become the same grey one",
        means=_WEAK,
        do=_STRONGER,
    ),
    CheckText(
        number=4,
        title="Iterative beats single-step",
        raised_if="FGSM, which takes one step, breaks more examples than the attack that takes many",
        means=_WEAK,
        do=_STRONGER,
    ),
    CheckText(
        number=5,
        title="More iterations change nothing",
        raised_if="doubling the iterations changes accuracy under attack by more than 1 point",
        means="the attack had not converged: accuracy under attack is overstated",
        do="run a stronger profile",
    ),
    CheckText(
        number=6,
        title="More restarts change nothing",
        raised_if="a second start changes accuracy under attack by more than 1 point, and by more than chance (4 examples of 100)",
        means="the attack depends on its starting point: accuracy under attack is overstated",
        do="run a stronger profile",
    ),
    CheckText(
        number=7,
        title="Black-box does not beat white-box",
        raised_if="in the arms or in the probe, query-only attacks break at least 2 examples and more than 0.5 % of what the "
        "white-box attacks left standing",
        means="gradients mislead the white-box attacks: the white-box accuracy is too good",
        do="read the lower of the two accuracies, and look for rounding, quantisation or randomness inside the model",
    ),
    CheckText(
        number=8,
        title="Random noise does not beat an attack",
        raised_if="in the arms or in the probe, random noise breaks at least 2 examples and more than 0.5 % of what the white-box "
        "attacks left standing",
        means=_WEAK,
        do=_STRONGER,
    ),
    CheckText(
        number=9,
        title="Gradients exist",
        raised_if="more than 5 % of the examples (of the probe or with Fisher evidence) have all-zero gradients, or every path "
        "through the model loses them",
        means="gradient attacks and margins cannot work on these examples; survival says nothing about robustness",
        do="look for rounding, hard thresholds or saturated outputs; rely on query-only attacks",
    ),
    CheckText(
        number=10,
        title="The same input gets the same answer",
        raised_if="five identical calls differ by more than 0.0001 in probability",
        means="the model is random; per-example results are not defined, except for what it answers on average (--eot K)",
        do="export the model in eval mode (dropout off), audit the deterministic part, or its mean answer with --eot K",
    ),
    CheckText(
        number=11,
        title="Logits or probabilities",
        raised_if="it is unclear whether the outputs are logits or probabilities",
        means="confidences, losses and the Fisher information would be read wrongly",
        do="state it: outputs=logits or outputs=probabilities in the input specification",
    ),
    CheckText(
        number=12,
        title="Attacked images stay inside the ball",
        raised_if="an attack proposed an image outside the ball or [0, 1] by more than one millionth",
        means="an attack proposed an image that the threat does not allow; the harness clipped it and predicted again",
        do="report it: the numbers hold, the attack has a fault",
    ),
    CheckText(
        number=13,
        title="Attack self-test",
        raised_if="an attack needs more than 1.25 times the closed-form optimum on the bundled linear model",
        means="the installation is broken: attacks are weaker here than they should be",
        do="run `audit doctor` and reinstall",
    ),
    CheckText(
        number=14,
        title="Identities between metrics",
        raised_if="NTE exceeds ACAC, or ACAC + ACTC exceeds 1",
        means="the metrics contradict each other: the tool has a fault",
        do="report it and do not use the numbers",
    ),
    CheckText(
        number=15,
        title="The softmax is not saturated",
        raised_if="more than 10 % of the answers have a probability above 0.999, or no temperature from 0.5 to 2 fits",
        means="confidences and raw sensitivities mislead; the linearised margin score is void",
        do="read the Fisher values at the fitted temperature, and calibrate the model before anyone relies on its confidences",
    ),
    CheckText(
        number=16,
        title="The device that was asked for",
        raised_if="a GPU was asked for and the model ran on the CPU",
        means="timings and the last digits differ from what was asked for",
        do="run `audit doctor`",
    ),
    CheckText(
        number=17,
        title="Every example was attacked",
        raised_if="more than 1 % of the examples are unknown",
        means="attacks crashed on them; they count as not robust, so the accuracy may be understated",
        do="look at the failures named in the log",
    ),
)
