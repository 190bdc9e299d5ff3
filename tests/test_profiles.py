"""The table of profiles: the published composition is what it says, and each profile does more than the one before."""

from collections import Counter

import pytest
from click.testing import CliRunner

from audit.attacks.losses import LOSSES
from audit.attacks.stages import ATTACKS, stages
from audit.attacks.starts import STARTS
from audit.attacks.targets import ORDERS
from audit.cli import cli
from audit.profiles import ESCALATION, NOISE, OUTSIDE, PROFILES, TRANSFER, profile
from audit.vocabulary import Norm


@pytest.mark.parametrize("norm", [Norm.LINF, Norm.L2])
def test_autoattack_is_the_standard_version(norm):
    arm = profile("autoattack").white_box(norm)
    assert [(search.attack, search.loss, search.target) for search in arm] == [
        ("APGD", "cross_entropy", 0),
        *[("APGD", "dlr_targeted", target) for target in range(1, 10)],
        *[("FAB", "", target) for target in range(1, 10)],
        ("Square", "", 0),
    ]
    assert [search.steps for search in arm] == [100] * 19 + [5000] and {search.radius for search in arm} == {0}
    assert {search.order for search in arm if search.target} == {"logits"}


def test_autoattack_at_l1_starts_five_times_in_larger_balls():
    arm = profile("autoattack").l1
    assert Counter((search.attack, search.loss, search.radius) for search in arm) == {
        ("APGD", "cross_entropy", 3): 5, ("APGD", "dlr_targeted", 3): 5, ("FAB", "", 0): 9, ("Square", "", 0): 1,
    }  # fmt: skip


@pytest.mark.parametrize("row", PROFILES, ids=lambda row: row.name)
def test_every_search_names_what_there_is(row):
    for arm in (*map(row.white_box, Norm), row.score_based, row.label_only, *ESCALATION.values()):
        for search in arm:
            assert search.attack in ATTACKS or search.attack == TRANSFER
            assert not search.loss or search.loss in LOSSES
            assert not search.start or search.start in STARTS
            assert search.order in ORDERS and search.steps >= 1
            assert search.attack in {"FGSM", NOISE, "Square", "FAB"} or search.loss or search in row.score_based + row.label_only
        assert len({stage.name for stage in stages(arm, 0, 10)}) == len([search for search in arm if search.attack != TRANSFER])
    assert {search.attack for search in row.linf} & {OUTSIDE} == set()


def test_a_stronger_profile_takes_more_steps():
    for norm in Norm:
        steps = [sum(search.steps for search in row.white_box(norm)) for row in PROFILES]
        assert steps == sorted(steps) and len(set(steps)) == len(steps)
    assert sum(search.steps for search in ESCALATION[Norm.L2]) > sum(search.steps for search in profile("thorough").l2)


def test_the_command_line_offers_every_profile():
    text = CliRunner().invoke(cli, ["run", "--help"]).output
    assert all(row.name in text for row in PROFILES)
