"""Arms of a few steps, for tests that need an arm and not its strength."""

from audit.profiles import Search


def pgd(**steps: int) -> tuple[Search, ...]:
    """FGSM, then PGD with each loss for so many steps."""
    return (Search(attack="FGSM"), *(Search(attack="PGD", loss=loss, steps=count) for loss, count in steps.items()))


def queries(draws: int, count: int) -> tuple[Search, ...]:
    """Random noise, then Square."""
    return (Search(attack="random noise", steps=draws), Search(attack="Square", steps=count))
