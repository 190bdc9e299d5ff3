"""Audits found in a real MLflow store, and one sentence for everything that can be missing there."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import version_sample as sample
from version_sample import Store

from audit import records
from audit.environment import name_filter
from audit.errors import InputError
from audit.result import write
from audit.sinks import mlflow_run

CLEAN, ROBUST = sample.outcomes(45, 50), sample.outcomes(30, 50)
HOSTILE = ("it's", 'say "x"', "both ' and \"", "back\\slash'", "a' OR name != 'x", "模型 %_", "\x1b[31mred\nline")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return sample.store(tmp_path_factory.mktemp("a store"))


def refused(store: Store, text: str) -> str:
    with pytest.raises(InputError) as caught:
        records.audits(text, tracking_uri=store.uri)
    assert "\n" not in str(caught.value) and "\x1b" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def two(store: Store, tmp_path_factory: pytest.TempPathFactory) -> mlflow_run.LoggedRuns:
    """One audit of two versions of `pair`, beside a reference; version 3 is not audited. Alias `best` is version 2."""
    store.register("pair", 3)
    store.client.set_registered_model_alias("pair", "best", "2")
    one = sample.audited("1", CLEAN, ROBUST, name="pair")
    models = tuple(sample.audited(number, CLEAN, ROBUST, name="pair").model for number in ("1", "2", "3"))
    audit = replace(one, result=replace(one.result, id="two", models=(*models[:2], replace(models[2], is_reference=True))))
    return store.log(audit, tmp_path_factory.mktemp("two") / "out")


def test_every_way_to_an_audit_finds_the_same_models(store: Store, two: mlflow_run.LoggedRuns) -> None:
    parent, (first, second, reference) = two.parent_run_id, two.child_run_ids
    found = {
        text: [(one.label[-1], one.model.is_reference, one.run_id) for one in records.audits(text, tracking_uri=store.uri)]
        for text in (parent, f"runs:/{parent}", first, f"runs:/{second}/", reference, "models:/pair/1", "models:/pair@best")
    }
    both = [("1", False, parent), ("2", False, parent)]
    assert found == {
        parent: both, f"runs:/{parent}": both, first: both[:1], f"runs:/{second}/": both[1:], reference: [("3", True, parent)],
        "models:/pair/1": both[:1], "models:/pair@best": both[1:],
    }  # fmt: skip


def test_a_run_and_its_folder_hold_the_same(store: Store, two: mlflow_run.LoggedRuns, tmp_path: Path) -> None:
    folder = sample.folder(tmp_path / "out", sample.audited("1", CLEAN, ROBUST))
    (local,) = records.audits(str(folder))
    store.register("digits", 1)
    logged = mlflow_run.log(folder, tracking_uri=store.uri, experiment="audits")
    shutil.rmtree(folder)
    (remote,) = records.audits(logged.parent_run_id, tracking_uri=store.uri)
    assert remote.result == local.result and remote.ids.tolist() == local.ids.tolist()
    assert {name: column.values.tolist() for name, column in remote.columns.items()} == {
        name: column.values.tolist() for name, column in local.columns.items()
    }
    assert (local.run_id, remote.run_id) == (None, logged.parent_run_id)


def test_a_folder_named_like_an_address_does_not_speak_for_it(
    store: Store, two: mlflow_run.LoggedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = f"runs:/{two.parent_run_id}"
    for place in ("models:/pair/1", "models:/pair@best", "models:/pair/3", run):
        sample.folder(tmp_path / place, sample.audited("9", CLEAN, ROBUST, name="planted"))
    for text in ("models:/pair/1", "models:/pair@best", run):
        assert {one.model.identity.name for one in records.audits(text, tracking_uri=store.uri)} == {"pair"}
    assert "pair, version 3 has not been audited" in refused(store, "models:/pair/3")
    (local,) = records.audits("./models:/pair/3", tracking_uri=store.uri)
    assert local.model.identity.name == "planted"


def test_what_is_not_there_is_one_sentence(store: Store, two: mlflow_run.LoggedRuns) -> None:
    assert refused(store, "models:/pair/3") == (
        "pair, version 3 has not been audited; audit it with: audit run models:/pair/3 --data DATA"
    )
    assert "'pair' has no version 9" in refused(store, "models:/pair/9")
    assert "'pair' has no alias 'worst'" in refused(store, "models:/pair@worst")
    assert "no registered model 'pear'" in refused(store, "models:/pear/1")
    assert "no registered model 'pear'" in refused(store, "models:/pear/latest")
    assert "there is no run abc" in refused(store, "runs:/abc")
    assert f"there is no run {'0' * 32}" in refused(store, "0" * 32)
    assert "names no audit; give a result folder, runs:/RUN" in refused(store, "runs:/abc/model")
    assert "names no audit" in refused(store, "models:/m-0123")
    training = store.client.create_run(store.client.get_experiment_by_name("training").experiment_id).info.run_id
    assert "is not an audit; give a run that `audit run` logged" in refused(store, training)


def test_a_missing_store_is_refused_and_not_made(tmp_path: Path) -> None:
    for read in (records.audits, records.versions):
        with pytest.raises(InputError, match="there is no MLflow store at"):
            read("models:/a/1" if read is records.audits else "a", tracking_uri=f"sqlite:///{tmp_path}/none.db")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_is_down_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(InputError, match=r"MLflow at http://…@127\.0\.0\.1:9|MLflow at http://127\.0\.0\.1:9") as caught:
        records.audits("models:/a/1", tracking_uri="http://ann:hunter2@127.0.0.1:9")
    assert "cannot be reached" in str(caught.value) and "hunter2" not in str(caught.value)


def test_versions_come_in_order_with_their_newest_audit_or_why_there_is_none(store: Store, tmp_path: Path) -> None:
    store.register("many", 11)
    old = store.log(sample.audited("1", CLEAN, ROBUST, name="many", day=1), tmp_path / "old")
    again = sample.audited("1", CLEAN, ROBUST, name="many", day=9)
    runs = {"1": store.log(replace(again, result=replace(again.result, id="new")), tmp_path / "new")}
    for number in ("2", "3", "4", "5", "6", "10"):
        runs[number] = store.log(sample.audited(number, CLEAN, ROBUST, name="many"), tmp_path / number)
    store.client.delete_model_version("many", "7")
    store.client.delete_run(runs["2"].parent_run_id)
    shutil.rmtree(store.place / "audits" / runs["3"].parent_run_id)
    store.client.delete_tag(runs["4"].parent_run_id, "audit.complete")
    write(sample.audited("9", CLEAN, ROBUST).result, tmp_path / "5")
    store.client.log_artifact(runs["5"].parent_run_id, str(tmp_path / "5" / "result.json"))
    store.client.set_model_version_tag("many", "6", "audit.run_id", runs["10"].parent_run_id)
    found = {record.version: record for record in records.versions("models:/many", tracking_uri=store.uri)}
    assert list(found) == ["1", "2", "3", "4", "5", "6", "8", "9", "10", "11"]
    assert found["1"].audited is not None and found["1"].audited.run_id == runs["1"].parent_run_id != old.parent_run_id
    assert found["10"].audited is not None and found["10"].audited.model.identity.version == "10"
    reasons = {version: record.why_none or "" for version, record in found.items() if record.audited is None}
    assert list(reasons) == ["2", "3", "4", "5", "6", "8", "9", "11"]
    assert reasons["8"] == reasons["9"] == reasons["11"] == "not audited"
    for version, words in {
        "2": "is in the trash; restore it",
        "3": "has lost its artefact result.json",
        "4": "broke off; finish it where the result is: audit push FOLDER",
        "5": "is that of another audit",
        "6": "which audited other models",
    }.items():
        assert words in reasons[version], reasons[version]
        assert words in refused(store, f"models:/many/{version}")
    assert "has not been audited" in refused(store, "models:/many/latest")
    assert found["1"].verdict == "no policy" and found["8"].verdict is None


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_reach_their_own_model_and_no_other(store: Store, tmp_path: Path, name: str) -> None:
    if not {model.name for model in store.client.search_registered_models()} & {"it_s", "decoy"}:
        for decoy in ("it_s", "decoy"):
            store.register(decoy, 1)
    store.register(name, 2)
    store.log(sample.audited("2", CLEAN, ROBUST, name=name), tmp_path / "out")
    first, second = records.versions(name, tracking_uri=store.uri)
    assert (first.name, first.why_none, second.version) == (name, "not audited", "2")
    assert second.audited is not None
    (latest,) = records.audits(f"models:/{name}/latest", tracking_uri=store.uri)
    assert latest.result == second.audited.result
    matched = {version.name for version in store.client.search_model_versions(name_filter(name))}
    assert name in matched and "decoy" not in matched


@pytest.mark.parametrize("text", ["", "models:/", "a/b", "models:/a/3", "a@b", "models:/a@champion", "runs:/x"])
def test_a_version_is_no_model_name(text: str) -> None:
    with pytest.raises(InputError, match="is not the name of a registered model"):
        records.model_name(text)


def test_success_and_failure_leave_nothing_behind(
    store: Store, two: mlflow_run.LoggedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = dict(os.environ)
    records.audits(two.parent_run_id, tracking_uri=store.uri)
    refused(store, "models:/pair/3")
    assert list(tmp_path.iterdir()) == [] and dict(os.environ) == before
