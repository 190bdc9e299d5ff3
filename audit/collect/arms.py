"""Which searches an arm runs on a model, and why the others of the profile are not run on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from audit.evidence import Evidence
from audit.profiles import TRANSFER, Search
from audit.settings import Settings
from audit.vocabulary import Capability, Threat


def run(kind: Evidence, settings: Settings, lacks: Mapping[Capability, str], classes: int, threat: Threat) -> tuple[Search, ...]:
    """The searches of an arm that run on a model with these `lacks` and K `classes`; none for evidence that is no arm."""
    if kind is Evidence.WORST_CASE_WHITE_BOX:
        return tuple(search for search in settings.profile.white_box(threat.norm) if search.target < classes)
    if kind is Evidence.WORST_CASE_BLACK_BOX:
        arm = settings.profile.black_box(threat.norm, scores=Capability.SCORES not in lacks)
        if Capability.SCORES in lacks:
            arm = (settings.profile.nearest, *arm)
        return tuple(search for search in arm if search.attack != TRANSFER or Capability.SURROGATE not in lacks)
    return ()


def not_run(settings: Settings, lacks: Mapping[Capability, str], classes: int, threat: Threat) -> Iterator[tuple[str, str]]:
    """The attacks of the profile that such a model is spared at this threat, each with the reason; arms that it lacks apart."""
    profile, where = settings.profile, f"({threat.label})"
    if Capability.GRADIENTS not in lacks:
        for search in profile.white_box(threat.norm):
            if search.target >= classes:
                yield f"{search.name} {where}", f"of {classes} classes only {classes - 1} can be aimed at"
    if Capability.SURROGATE in lacks:
        yield "transfer attacks", lacks[Capability.SURROGATE]
    searches = profile.score_based
    if Capability.SCORES in lacks:
        searches = profile.label_only
        possible = {search.attack for search in searches}
        for search in profile.score_based:
            if search.attack not in possible:
                yield f"{search.name} {where}", lacks[Capability.SCORES]
    for search in searches:
        if search.norm not in (None, threat.norm):
            yield f"{search.name} {where}", f"it searches {search.norm.label} only"
