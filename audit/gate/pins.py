"""What a verdict rests on: the audit must have been at least what the policy pins, and the model must still be the audited one.

What is known not to fit fails; what is not known is undecided.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from audit.policy import InputPins, Requires
from audit.profiles import PROFILES
from audit.result import AuditResult, Measured, ModelIdentity, ModelResult, NotApplicable, RuleOutcome
from audit.text import printable, redact
from audit.vocabulary import BLACK_BOX_ASKED, Threat

ARMS = ("adversarial_accuracy_white_box", "adversarial_accuracy_black_box")
# How far clocks of two machines may differ before a result counts as dated in the future.
CLOCK_SKEW = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class CurrentModel:
    """What the gated model is now. `digest` is that of its files; where it is None, `because` says why it is not known.

    `reference` is what was typed; `uri`, `name` and `version` are what it led to.
    """

    reference: str
    uri: str | None = None
    name: str | None = None
    version: str | None = None
    digest: str | None = None
    because: str | None = None

    @classmethod
    def of(cls, identity: ModelIdentity) -> CurrentModel:
        """A model whose files were just read."""
        return cls(
            reference=identity.reference,
            uri=identity.uri,
            name=identity.name,
            version=identity.version,
            digest=identity.digest,
        )


def pins(
    result: AuditResult, model: ModelResult, requires: Requires, *, now: datetime, current: CurrentModel
) -> Iterator[RuleOutcome]:
    """One line per pin; what the policy opts out of has none. That the model is still the audited one is always required."""
    yield _same_files(model, current)
    if requires.threats is not None:
        yield from (attacked(threat, result, model) for threat in requires.threats)
    if requires.min_samples is not None:
        yield _samples(requires.min_samples, result)
    if requires.seed is not None:
        yield _seed(requires.seed, result)
    if requires.min_profile is not None:
        yield _profile(requires.min_profile, result)
    if requires.data_digest is not None:
        yield _data_digest(requires.data_digest, result)
    if requires.data is not None:
        yield _data(requires.data, result)
    if requires.input_spec is not None:
        yield input_spec(requires.input_spec, model.identity)
    if requires.max_age_days is not None:
        yield _age(requires.max_age_days, result, now)


def _line(key: str, requirement: str, required: str, measured: str, because: str, *, met: bool | None) -> RuleOutcome:
    """One pin judged; `met` is None where it is not known."""
    return RuleOutcome(
        requirement=requirement,
        status="undecided" if met is None else "pass" if met else "fail",
        required=required,
        measured=measured,
        because=because,
        kind="pin",
        key=f"requires/{key}",
    )


def _same_files(model: ModelResult, current: CurrentModel) -> RuleOutcome:
    audited = model.identity.digest
    leads = printable(current.reference if current.uri in (None, current.reference) else f"{current.reference} is {current.uri}")
    if current.digest is None or not audited:
        because = current.because or "the result does not say which files were audited"
        return _line("model", "Model files", "as audited", "not known", f"{leads}: {because}", met=None)
    met = current.digest == audited
    words = "has the files that were audited" if met else f"has other files than those that were audited ({audited[:12]})"
    return _line("model", "Model files", "as audited", current.digest[:12], f"{leads} {words}", met=met)


def attacked(threat: Threat, result: AuditResult, model: ModelResult) -> RuleOutcome:
    """The audit's threats, and what came of them: an arm left out by choice, or no arm at all, is no attack to rest on."""
    met: bool | None = threat.budget in {Threat.parse(text).budget for text in result.threats}
    because = "the audit attacked within this budget" if met else "the audit did not attack within this budget"
    arms = [
        record.outcome
        for record in model.metrics
        if record.id in ARMS and record.threat is not None and Threat.parse(record.threat).budget == threat.budget
    ]
    if met and any(isinstance(arm, NotApplicable) and arm.because == BLACK_BOX_ASKED for arm in arms):
        met, because = None, f"{BLACK_BOX_ASKED}, and a stronger attack may have been possible; audit again without it"
    elif met and arms and not any(isinstance(arm, Measured) for arm in arms):
        met, because = None, "the audit meant to attack within this budget, and no attack was measured"
    return _line("threats", "Attacked within", str(threat), ", ".join(result.threats) or "nothing", because, met=met)


def _samples(least: int, result: AuditResult) -> RuleOutcome:
    found = result.data.samples
    because = f"{found} of {result.data.total} examples were audited"
    return _line("min_samples", "Examples audited", f"≥ {least}", str(found), because, met=found >= least)


def _seed(pinned: int, result: AuditResult) -> RuleOutcome:
    met, found = result.data.seed == pinned, str(result.data.seed)
    because = "the examples were drawn with this seed" if met else "another seed draws other examples"
    return _line("seed", "Seed of the sample", str(pinned), found, because, met=met)


def _profile(least: str, result: AuditResult) -> RuleOutcome:
    names = [profile.name for profile in PROFILES]
    if result.profile not in names:
        because = "this version of the tool does not know the profile"
        return _line("min_profile", "Profile", f"at least {least}", printable(result.profile), because, met=None)
    because = f"from least to most work: {', '.join(names)}"
    met = names.index(result.profile) >= names.index(least)
    return _line("min_profile", "Profile", f"at least {least}", result.profile, because, met=met)


def data_part(reference: str) -> str:
    """The part and columns that a data reference picks of its content; a dataset's name picks the content itself.

    >>> data_part("digits.npz#train"), data_part("runs:/1/#dataset=test"), data_part("digits:test")
    ('train', '', '')
    """
    items = reference.partition("#")[2].split(",")
    return ",".join(item for item in items if item.partition("=")[0] != "dataset")


def _data_digest(pinned: str, result: AuditResult) -> RuleOutcome:
    """The content, and the part or columns that the reference picks of it: an archive's training part has the same digest."""
    digest, _, part = pinned.removeprefix("sha256:").partition("#")
    found = result.data.digest.removeprefix("sha256:")
    found_part = data_part(result.data.reference)
    met = (digest, part) == (found, found_part)
    another = "another part of it" if digest == found else "other data"
    because = f"the audit read {'this content' if met else another}"
    return _line("data_digest", "Data", _short(digest, part), _short(found, found_part), because, met=met)


def _short(digest: str, part: str) -> str:
    return printable(digest[:12] + (f"#{part}" if part else ""), 80)


def _data(pinned: str, result: AuditResult) -> RuleOutcome:
    met = printable(redact(pinned)) == printable(redact(result.data.reference))
    because = "the audit read this registered dataset" if met else "the audit read other data"
    return _line("data", "Data", printable(redact(pinned)), printable(redact(result.data.reference)), because, met=met)


def input_words(identity: ModelIdentity) -> dict[str, str]:
    """What a model was given, by the names and in the words of a policy; a result says nothing of colour and size as they were."""
    unchanged = {key: str(pin.default) for key, pin in InputPins.model_fields.items() if not pin.is_required()}
    return {"shape": "x".join(map(str, identity.input_shape)), **unchanged, **identity.input_spec}


def input_spec(wanted: InputPins, identity: ModelIdentity) -> RuleOutcome:
    """Whether a model was given its input as the policy pins it."""
    found = input_words(identity)
    pinned = {key: value for key, value in wanted if value is not None}
    missing = [key for key in pinned if key not in found]
    other = [key for key in pinned if key in found and found[key] != pinned[key]]
    if other:
        measured = ", ".join(f"{key} {found[key]}" for key in other)
        because = f"the policy pins {', '.join(f'{key} {pinned[key]}' for key in other)}"
    elif missing:
        measured, because = "not known", f"the result does not say {', '.join(missing)}"
    else:
        measured, because = "as pinned", "the model was given its input like this"
    met = False if other else None if missing else True
    return _line("input_spec", "Input specification", "as pinned", printable(measured), printable(because), met=met)


def _age(most: float, result: AuditResult, now: datetime) -> RuleOutcome:
    required = f"≤ {most:g} days"
    try:
        created = datetime.fromisoformat(result.created)
    except ValueError:
        created = None
    if created is None or created.tzinfo is None:
        because = "the result's date is no date with a time zone"
        return _line("max_age_days", "Age of the audit", required, printable(result.created, 40), because, met=None)
    age = now - created
    day = created.astimezone(UTC).date().isoformat()
    if age < -CLOCK_SKEW:
        because = f"it is dated {day}, in the future"
        return _line("max_age_days", "Age of the audit", required, "none", because, met=False)
    days = max(age, timedelta()) / timedelta(days=1)
    because = f"the audit is of {day}"
    return _line("max_age_days", "Age of the audit", required, f"{days:.1f} days", because, met=days <= most)
