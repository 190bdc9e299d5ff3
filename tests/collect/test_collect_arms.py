"""What an arm runs on a model, and why it is spared the rest, as the plan tells it."""

import pytest

from audit.collect import arms
from audit.evidence import Evidence
from audit.metrics import CATALOG
from audit.plan import plan
from audit.profiles import PROFILES
from audit.settings import Settings
from audit.vocabulary import Capability, Threat

LINF, L2 = Threat.parse("linf:8/255"), Threat.parse("l2:0.5")
NO_SURROGATE = {Capability.SURROGATE: "no surrogate was given (--surrogate MODEL)"}
NO_SCORES = {**NO_SURROGATE, Capability.GRADIENTS: "asked from outside", Capability.SCORES: "labels only"}


def names(kind, settings, lacks, threat, classes=10):
    return [search.name for search in arms.run(kind, settings, lacks, classes, threat)]


def test_a_model_of_labels_is_attacked_from_labels_and_told_what_needs_scores():
    settings = Settings.of("thorough")
    asked = names(Evidence.WORST_CASE_BLACK_BOX, settings, NO_SCORES, LINF)
    assert asked == ["nearest error by HopSkipJump-5000", "random noise, 50 draws", "HopSkipJump-10000"]
    spared = dict(arms.not_run(settings, NO_SCORES, 10, LINF))
    assert spared["Square-5000 (L∞ 8/255)"] == "labels only" and spared["transfer attacks"] == NO_SURROGATE[Capability.SURROGATE]
    assert spared["boundary attack-5000 (L∞ 8/255)"] == "it searches L2 only"
    assert "boundary attack-5000" in names(Evidence.WORST_CASE_BLACK_BOX, settings, NO_SCORES, L2)
    assert not any("APGD" in name for name in spared)  # the whole arm is skipped, with its own reason


def test_a_model_of_two_classes_has_one_class_to_aim_at():
    settings = Settings.of("standard")
    run = names(Evidence.WORST_CASE_WHITE_BOX, settings, NO_SURROGATE, LINF, classes=2)
    spared = dict(arms.not_run(settings, NO_SURROGATE, 2, LINF))
    assert sum("target 1" in name for name in run) == 1 and not any("target 2" in name for name in run)
    assert {because for name, because in spared.items() if "target" in name} == {"of 2 classes only 1 can be aimed at"}
    assert not any("target" in name for name in dict(arms.not_run(settings, NO_SURROGATE, 10, LINF)))


@pytest.mark.parametrize("profile", [row.name for row in PROFILES])
def test_every_search_of_a_profile_is_run_or_spared_with_a_reason(profile):
    settings = Settings.of(profile)
    for lacks in ({}, NO_SURROGATE, NO_SCORES):
        for threat in (LINF, L2):
            run = {search.attack for kind in Evidence for search in arms.run(kind, settings, lacks, 3, threat)}
            spared = " ".join(name for name, _ in arms.not_run(settings, lacks, 3, threat))
            wanted = (*settings.profile.score_based, *settings.profile.label_only)
            for search in wanted if Capability.SCORES in lacks else settings.profile.score_based:
                assert search.attack in run or search.attack in spared


def test_the_plan_names_the_attacks_of_each_arm():
    planned = plan(CATALOG, NO_SURROGATE, Settings.of("quick"), 10, 784)
    attacks = {stage.key.kind: stage.attacks for stage in planned.stages}
    assert attacks[Evidence.WORST_CASE_BLACK_BOX] == ("random noise, 10 draws", "Square-200")
    assert attacks[Evidence.WORST_CASE_WHITE_BOX][0] == "APGD-20 scaled-probability-margin, uniform start"
    assert planned.left_out == {"transfer attacks": NO_SURROGATE[Capability.SURROGATE]}
