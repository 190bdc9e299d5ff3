"""Invented honesty checks and verdicts for `sample_result.py`."""

from __future__ import annotations

from audit import result as r


def checks(raised: bool) -> tuple[r.CheckRecord, ...]:
    def check(number: int, title: str, status: str, found: str) -> r.CheckRecord:
        return r.CheckRecord(
            number=number,
            title=title,
            status=status,
            found=found,
            raised_if="the thing it looks for happens",  # type: ignore[arg-type]
            means="the accuracy under attack is overstated",
            do="run a stronger profile and attack the model adaptively",
        )

    return (
        check(1, "Better than guessing", "pass", "0.944 against 0.106"),
        check(2, "Accuracy falls with epsilon", "pass", "monotone over 5 values"),
        check(6, "More restarts change nothing", "not_run", "the profile quick uses one restart"),
        check(
            7,
            "Black-box does not beat white-box",
            "warn" if raised else "pass",
            "3 images broken by Square only: 118, 402, 877" if raised else "none",
        ),
        check(15, "The softmax is not saturated", "warn", "23 % of the answers have a probability above 0.999; fitted T = 1.17"),
    )


def verdict(clean: float, robust: float) -> r.Verdict:
    rules = (
        r.RuleOutcome(
            requirement="Clean accuracy (clean_accuracy)",
            status="pass",
            required="≥ 0.106 (largest class share)",
            measured=f"{clean:.4g}",
            because="the interval's lower end meets the bound, n = 500",
        ),
        r.RuleOutcome(
            requirement="Adversarial accuracy, white-box, linf 8/255",
            status="pass" if robust > 0.5 else "fail",
            required="≥ 0.5",
            measured=f"{robust:.4g}",
            because=f"the interval's lower end {robust - 0.03:.3g} is held against the bound, n = 500",
        ),
        r.RuleOutcome(
            requirement="Score corruption",
            status="pass" if robust > 0.5 else "undecided",
            required="≥ 50",
            measured="missing",
            because="not applicable, because corruptions are not part of this version",
        ),
    )
    failed = robust <= 0.5
    return r.Verdict(
        policy="release-gate",
        policy_digest="51ab09c77e12" * 5,
        status="fail" if failed else "pass",
        sentence="1 of 3 requirements fails, 1 is undecided" if failed else "all 3 requirements are met",
        rules=rules,
    )
