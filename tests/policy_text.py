"""Policies for tests that are about something else."""

from __future__ import annotations

PINS = ("threats", "min_samples", "min_profile", "data_digest", "input_spec", "max_age_days")


def open_policy(*rules: str, **pins: str) -> str:
    """A policy `p` of these rules that pins nothing but `pins`, given as TOML values; None leaves a pin out."""
    values = {**dict.fromkeys(PINS, '"any"'), **pins}
    requires = "".join(f"{key} = {value}\n" for key, value in values.items() if value is not None)
    return f'name = "p"\n[requires]\n{requires}' + "".join(f"[[rule]]\n{rule}\n" for rule in rules)
