"""`audit gate` and `audit policy` on a real store: what decides, what it leaves behind, and that no way leads around it."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree import ElementTree

import mlflow
import pytest
import small_arms
from click.testing import CliRunner

from audit import models, result
from audit.cli import cli
from audit.models.ref import ModelRef
from audit.pipeline import AuditRequest, run_audit
from audit.policy import SCORES
from audit.profiles import profile
from audit.settings import Settings
from audit.sinks import mlflow_run
from audit.vocabulary import Threat

THREAT = "linf:0.15"
NAME = "gated"
# The gate reads numbers; how hard the attacks tried is none of this file's business.
LIGHT = replace(
    profile("quick"), linf=small_arms.pgd(cross_entropy=5), reference_steps=5, score_based=small_arms.queries(1, 10),
    reference_queries=10, curve_queries=10,
    curve=(1.0,), curve_stages=1, fisher_samples=10, fisher_directions=4, corruption_samples=8, sequence_samples=3,
)  # fmt: skip


def audit(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


@dataclass(frozen=True, kw_only=True)
class Gated:
    """A store with the model `gated`: version 1 is standard, 2 adversarially trained and audited as `@candidate`."""

    uri: str
    client: mlflow.MlflowClient
    place: Path
    sources: tuple[Path, Path]
    folder: Path
    policy: Path

    def register(self, which: int, alias: str | None = None) -> str:
        """A new version with files of its own; the registry is shared by all tests of this file."""
        files = self.place / f"files-{len(list(self.place.iterdir()))}"
        shutil.copytree(self.sources[which], files)
        version = str(self.client.create_model_version(NAME, source=files.as_uri()).version)
        if alias is not None:
            self.client.set_registered_model_alias(NAME, alias, version)
        return version

    def files(self, version: str) -> Path:
        return Path(self.client.get_model_version(NAME, version).source.removeprefix("file://"))

    def tags(self, version: str) -> dict[str, str]:
        return dict(self.client.get_model_version(NAME, version).tags)

    def alias(self, name: str) -> str | None:
        found = self.client.get_registered_model(NAME).aliases.get(name)
        return None if found is None else str(found)

    def gate(self, subject, *more, policy: Path | None = None):
        return audit("gate", subject, "--policy", policy or self.policy, "--tracking-uri", self.uri, *more)

    def audit(self, out: Path, *subjects: str, log: bool = False, **changes) -> Path:
        threats = (Threat.parse(changes.pop("threat", THREAT)),)
        settings = Settings(profile=LIGHT, threats=threats, samples=changes.pop("samples", 60))
        request = AuditRequest(
            models=subjects,
            data=changes.pop("data", "digits:test"),
            settings=settings,
            out=out,
            tracking_uri=self.uri,
            registry_uri=self.uri,
            **changes,
        )
        folder = run_audit(request).written.path
        if log:
            mlflow_run.log(folder, tracking_uri=self.uri, registry_uri=self.uri, experiment="gates")
        return folder


@pytest.fixture(scope="module")
def gated(digits_store, tmp_path_factory, few_metrics_throughout) -> Gated:
    place = tmp_path_factory.mktemp("gated")
    uri = f"sqlite:///{place / 'mlflow.db'}"
    sources = []
    for number, text in enumerate((digits_store.standard, digits_store.adversarial)):
        from audit.models.mlflow_registry import fetch

        (place / f"source-{number}").mkdir()
        sources.append(fetch(ModelRef.parse(text), place / f"source-{number}", tracking_uri=digits_store.uri).folder)
    client = mlflow.MlflowClient(tracking_uri=uri, registry_uri=uri)
    client.create_experiment("gates", artifact_location=(place / "artifacts").as_uri())
    client.create_registered_model(NAME)
    store = Gated(uri=uri, client=client, place=place, sources=tuple(sources), folder=place / "out", policy=place / "policy.toml")
    store.register(0)
    store.register(1, "candidate")
    store.audit(store.folder, f"models:/{NAME}@candidate", log=True)
    done = audit("policy", "init", store.folder, "-o", store.policy, "--tracking-uri", uri)
    assert done.exit_code == 0, done.output
    return store


def undecided_or_failed(done, *words: str) -> None:
    assert done.exit_code == 1, done.output
    assert not any(line.startswith("gated") and ": PASS" in line for line in done.output.splitlines())
    for word in words:
        assert word in done.output


def test_the_policy_that_a_result_wrote_is_passed_by_it_as_a_folder_a_run_and_a_model(gated):
    run_id = gated.tags("2")["audit.run_id"]
    for subject in (
        gated.folder,
        gated.folder / "result.json",
        f"runs:/{run_id}",
        run_id,
        f"models:/{NAME}/2",
        f"models:/{NAME}@candidate",
    ):
        done = gated.gate(subject)
        assert done.exit_code == 0, done.output
        assert "  PASS       Model files as audited" in done.output
        assert "gated, version 2: PASS, policy gated: all" in done.output.replace("\xa0", " ")


def test_the_tags_say_what_decided_and_a_later_push_of_an_older_result_keeps_them(gated):
    import hashlib

    assert gated.gate(gated.folder).exit_code == 0
    tags = gated.tags("2")
    assert tags["audit.verdict"] == "pass"
    assert tags["audit.policy"] == "gated"
    assert tags["audit.policy_sha256"] == hashlib.sha256(gated.policy.read_bytes()).hexdigest()
    found = result.from_json((gated.folder / "result.json").read_bytes())
    assert tags["audit.gate_result_id"] == found.id
    assert datetime.fromisoformat(tags["audit.gate_date"]) <= datetime.now(UTC)
    older = replace(found, id="older", created=(datetime.now(UTC) - timedelta(hours=1)).isoformat(timespec="seconds"))
    other = gated.place / "older"
    shutil.copytree(gated.folder, other)
    result.write(older, other)
    gated.client.set_model_version_tag(NAME, "2", "audit.date", "2020-01-01T00:00:00+00:00")
    logged = mlflow_run.log(other, tracking_uri=gated.uri, registry_uri=gated.uri, experiment="gates")
    assert any("keeps the verdict of the gate" in note for note in logged.notes)
    assert {key: gated.tags("2")[key] for key in ("audit.verdict", "audit.policy", "audit.policy_sha256")} == {
        key: tags[key] for key in ("audit.verdict", "audit.policy", "audit.policy_sha256")
    }
    newer = replace(found, id="newer", created=(datetime.now(UTC) + timedelta(minutes=5)).isoformat(timespec="seconds"))
    result.write(newer, other)
    logged = mlflow_run.log(other, tracking_uri=gated.uri, registry_uri=gated.uri, experiment="gates")
    after = gated.tags("2")
    assert after["audit.policy"] == "minimal", "the newer audit's own policy"
    assert not {"audit.gate_date", "audit.gate_result_id"} & set(after)
    for key, value in tags.items():
        gated.client.set_model_version_tag(NAME, "2", key, value)


def test_no_tags_leaves_the_version_alone(gated):
    before = gated.tags("1")
    gated.gate(gated.folder, "--model", f"models:/{NAME}/1", "--no-tags")
    assert gated.tags("1") == before


# Ways around the gate.


def test_a_weaker_threat_does_not_pass(gated, tmp_path):
    weak = gated.audit(tmp_path / "out", f"models:/{NAME}/2", threat="linf:1/255")
    undecided_or_failed(gated.gate(weak), "FAIL       Attacked within linf:0.15, measured linf:1/255")


def test_ten_samples_do_not_pass(gated, tmp_path):
    few = gated.audit(tmp_path / "out", f"models:/{NAME}/2", samples=10)
    undecided_or_failed(gated.gate(few), "FAIL       Examples audited ≥ 60, measured 10")


def test_another_data_set_does_not_pass(gated, tmp_path):
    other = gated.audit(tmp_path / "out", f"models:/{NAME}/2", data="digits:train")
    undecided_or_failed(gated.gate(other), "the audit read other data")


def test_an_old_result_does_not_pass(gated, tmp_path):
    shutil.copytree(gated.folder, tmp_path / "old")
    found = result.from_json((tmp_path / "old" / "result.json").read_bytes())
    result.write(replace(found, created=(datetime.now(UTC) - timedelta(days=31)).isoformat()), tmp_path / "old")
    undecided_or_failed(gated.gate(tmp_path / "old"), "FAIL       Age of the audit ≤ 30 days, measured 31.0 days")


def test_an_alias_that_moved_between_audit_and_promotion_does_not_pass(gated, tmp_path):
    version = gated.register(1, "moving")
    folder = gated.audit(tmp_path / "out", f"models:/{NAME}@moving", log=True)
    other = gated.register(0, "moving")
    for subject in (folder, f"models:/{NAME}/{version}"):
        done = gated.gate(
            subject, "--promote-to", "promoted", *(("--model", f"models:/{NAME}@moving") if subject != folder else ())
        )
        undecided_or_failed(done, "has other files than those that were audited")
    assert gated.alias("promoted") is None
    assert "audit.verdict" not in gated.tags(other), "the version that was not audited is not judged"
    # A typed alias leads to the version that has it now, and that one has no audit.
    assert gated.gate(f"models:/{NAME}@moving").exit_code == 2


def test_another_input_specification_does_not_pass(gated, tmp_path):
    other = gated.audit(tmp_path / "out", f"models:/{NAME}/2", input_spec="mean=0.1")
    undecided_or_failed(gated.gate(other), "FAIL       Input specification as pinned, measured mean 0.1")


def test_another_size_inside_the_model_does_not_pass(gated, tmp_path):
    """The size is in no policy: where it is left out, the images go in as they are."""
    assert 'colour = "keep"' in gated.policy.read_text() and 'size = "as given"' in gated.policy.read_text()
    other = gated.audit(tmp_path / "out", f"models:/{NAME}/2", input_spec="size=8x8")
    result = other / "result.json"
    assert "8x8, bilinear" in result.read_text()
    undecided_or_failed(gated.gate(other), "FAIL       Input specification as pinned, measured size 8x8, bilinear")
    left_out = tmp_path / "left_out.toml"
    left_out.write_text(
        "".join(line for line in gated.policy.read_text().splitlines(keepends=True) if not line.startswith(("colour", "size")))
    )
    undecided_or_failed(gated.gate(other, policy=left_out), "FAIL       Input specification as pinned, measured size 8x8, bilinear")


def test_a_weaker_profile_does_not_pass(gated, tmp_path):
    policy = tmp_path / "strict.toml"
    policy.write_text(gated.policy.read_text().replace('min_profile = "quick"', 'min_profile = "standard"'))
    undecided_or_failed(gated.gate(gated.folder, policy=policy), "FAIL       Profile at least standard, measured quick")


def test_files_of_a_version_that_were_replaced_after_the_audit_do_not_pass(gated, tmp_path):
    version = gated.register(1)
    folder = gated.audit(tmp_path / "out", f"models:/{NAME}/{version}", log=True)
    assert gated.gate(folder).exit_code == 0
    (gated.files(version) / "data" / "extra.txt").write_text("other weights")
    for subject in (folder, f"models:/{NAME}/{version}"):
        undecided_or_failed(gated.gate(subject, "--promote-to", "stolen"), "has other files than those that were audited")
    assert gated.alias("stolen") is None
    assert gated.tags(version)["audit.verdict"] == "fail"
    shutil.rmtree(gated.files(version))
    undecided_or_failed(gated.gate(folder), "UNDECIDED  Model files as audited, measured not known")


def test_files_that_are_replaced_while_the_gate_judges_are_not_promoted(gated, tmp_path, monkeypatch):
    version = gated.register(1)
    folder = gated.audit(tmp_path / "out", f"models:/{NAME}/{version}")
    before, calls = models.resolve, []

    def then_replaced(ref, **stores):
        found = before(ref, **stores)
        calls.append(ref.text)
        (gated.files(version) / "data" / f"extra-{len(calls)}.txt").write_text("other weights")
        return found

    monkeypatch.setattr(models, "resolve", then_replaced)
    done = gated.gate(folder, "--promote-to", "raced")
    assert done.exit_code == 1
    assert "was not promoted: its files were replaced while it was judged" in done.output
    assert gated.alias("raced") is None
    assert calls == [f"models:/{NAME}/{version}"] * 2


# Promotion.


def test_promotion_sets_the_alias_by_number_on_a_pass_only(gated, tmp_path):
    done = gated.gate(f"models:/{NAME}@candidate", "--promote-to", "champion")
    assert done.exit_code == 0, done.output
    assert gated.alias("champion") == "2"
    assert f"the alias champion leads to models:/{NAME}/2" in done.output
    strict = tmp_path / "strict.toml"
    strict.write_text(gated.policy.read_text() + '\n[[rule]]\nmetric = "clean_accuracy"\nbound = 0.9999\n')
    assert gated.gate(gated.folder, "--promote-to", "never", policy=strict).exit_code == 1
    assert gated.alias("never") is None
    assert gated.tags("2")["audit.verdict"] == "fail"


@pytest.mark.parametrize("alias", ["latest", "Latest", "v3", "V12", "with space", "", "a\n", "x" * 256, "::error::"])
def test_aliases_that_mlflow_keeps_or_refuses_are_refused_before_anything(gated, alias):
    done = gated.gate(gated.folder, "--promote-to", alias)
    assert done.exit_code == 2
    assert "alias" in done.output and "\n::" not in done.output


def test_only_one_registered_version_can_be_promoted(gated, digits_store, tmp_path):
    two = gated.audit(tmp_path / "two", f"models:/{NAME}/1", f"models:/{NAME}/2")
    done = gated.gate(two, "--promote-to", "champion")
    assert done.exit_code == 2 and "this audit has 2" in done.output
    assert "this audit has 2" in gated.gate(two, "--model", f"models:/{NAME}/1").output
    file = gated.audit(tmp_path / "file", str(digits_store.onnx_adversarial))
    done = gated.gate(file, "--promote-to", "champion")
    assert done.exit_code == 2 and "needs a registered version" in done.output
    done = gated.gate(file)
    assert "PASS       Model files as audited" in done.output, "an ONNX file is judged by its own digest"
    assert "tagged" not in done.output


def test_every_model_of_a_result_is_judged(gated, tmp_path):
    two = gated.audit(tmp_path / "two", f"models:/{NAME}/1", f"models:/{NAME}/2")
    done = gated.gate(two)
    assert done.exit_code == 1, "the standard model breaks where its twin stands"
    told = done.output.replace("\xa0", " ")
    assert "gated, version 1: FAIL" in told and "gated, version 2: PASS" in told
    assert (gated.tags("1")["audit.verdict"], gated.tags("2")["audit.verdict"]) == ("fail", "pass")


# Other models.


def test_not_worse_than_another_version_and_the_reference(gated, tmp_path):
    head = gated.policy.read_text().partition("# Held against")[0]
    policy = tmp_path / "policy.toml"
    rule = '[[rule]]\nmetric = "adversarial_accuracy_white_box/linf_0.15"\nnot_worse_than = "{}"\nmargin = 0.1\n'

    def write(reference: str) -> Path:
        policy.write_text(head + rule.format(reference))
        return policy

    standard = gated.audit(tmp_path / "one", f"models:/{NAME}/1", reference=f"models:/{NAME}/2", policy=write("reference"))
    own = result.from_json((standard / "result.json").read_bytes()).models[0].verdict
    assert own.status == "fail" and own.rules[-1].kind == "non_inferiority"
    undecided_or_failed(gated.gate(standard, policy=policy), "compared with the reference model")
    done = gated.gate(gated.folder, policy=write(str(standard)))
    assert done.exit_code == 0, done.output
    done = gated.gate(standard, policy=write(f"models:/{NAME}@candidate"))
    undecided_or_failed(done, "against gated")
    undecided_or_failed(gated.gate(gated.folder, policy=write("models:/absent/1")), "UNDECIDED", "absent")
    undecided_or_failed(gated.gate(gated.folder, policy=write("reference")), "had no reference model")


def test_references_and_names_are_settled_before_the_audit_starts(gated, tmp_path, monkeypatch):
    from audit import pipeline

    monkeypatch.setattr(pipeline, "draw", lambda *_: pytest.fail("the audit started"))
    policy = tmp_path / "policy.toml"
    head = gated.policy.read_text().partition("# Held against")[0]
    for rule, words in (
        ('metric = "clean_acuracy"\nbound = 1', "did you mean clean_accuracy?"),
        ('metric = "clean_accuracy"\nnot_worse_than = "reference"\nmargin = 0.1', "name one with --reference"),
        ('metric = "clean_accuracy"\nnot_worse_than = "models:/absent@x"\nmargin = 0.1', "absent"),
    ):
        policy.write_text(f"{head}[[rule]]\n{rule}\n")
        done = audit(
            *("run", f"models:/{NAME}/2", "--data", "digits:test", "--policy", policy, "--out", tmp_path / "out"),
            *("--tracking-uri", gated.uri),
        )
        assert done.exit_code == 2 and words in done.output, done.output


# Output.


def test_json_holds_the_verdict_and_stdout_nothing_else(gated):
    found = json.loads(gated.gate(gated.folder, "--json").stdout)
    assert found["passed"] is True and found["problems"] == []
    (one,) = found["models"]
    assert one["verdict"]["status"] == "pass" and one["now"]["uri"] == f"models:/{NAME}/2"
    assert one["audited"]["digest"] == one["now"]["digest"]
    assert gated.gate(gated.folder, "--json", "--markdown", "-").exit_code == 2


def test_files_for_ci_are_written_and_markdown_is_appended(gated, tmp_path):
    junit, summary = tmp_path / "gate.xml", tmp_path / "summary.md"
    summary.write_text("before\n")
    assert gated.gate(gated.folder, "--junit", junit, "--markdown", summary).exit_code == 0
    root = ElementTree.fromstring(junit.read_bytes())
    assert root.get("failures") == "0" and int(root.get("tests")) == len(list(root.iter("testcase"))) > 5
    assert summary.read_text().startswith("before\n### gated, version 2: PASS")
    printed = gated.gate(gated.folder, "--markdown", "-")
    assert printed.stdout.startswith("### gated") and "  PASS " not in printed.stdout
    done = gated.gate(gated.folder, "--junit", tmp_path / "absent" / "gate.xml")
    assert done.exit_code == 3 and "cannot be written" in done.output


def test_a_registry_that_refuses_tags_is_exit_code_3_unless_the_gate_fails(gated, tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError("no")

    monkeypatch.setattr(mlflow.MlflowClient, "set_model_version_tag", refuse)
    done = gated.gate(gated.folder, "--promote-to", "refused")
    assert done.exit_code == 3 and "did not take the tags" in done.output
    assert gated.alias("refused") is None
    strict = tmp_path / "strict.toml"
    strict.write_text(gated.policy.read_text().replace("min_samples = 60", "min_samples = 61"))
    assert gated.gate(gated.folder, policy=strict).exit_code == 1


def test_names_are_inert_in_the_terminal(gated, tmp_path):
    hostile = "::error::x\x1b[31m\n##vso[task.complete]\u202e"
    shutil.copytree(gated.folder, tmp_path / "hostile")
    found = result.from_json((gated.folder / "result.json").read_bytes())
    (one,) = found.models
    named = replace(one, identity=replace(one.identity, name=hostile, reference=hostile, version=None))
    result.write(replace(found, models=(named,)), tmp_path / "hostile")
    policy = tmp_path / "hostile.toml"
    policy.write_text(gated.policy.read_text().replace('name = "gated"', f"name = {json.dumps(hostile)}"))
    for more in ((), ("--markdown", "-"), ("--json",)):
        done = gated.gate(tmp_path / "hostile", *more, policy=policy)
        assert done.exit_code == 1
        assert not any(sign in done.output for sign in ("\x1b", "\u202e", "##vso[")) or more == ("--json",)
        assert not any(line.lstrip().startswith("::") for line in done.output.splitlines())
        assert not any(sign in done.output for sign in ("\x1b", "\u202e"))


def test_what_is_no_audit_or_no_policy_is_a_sentence(gated, tmp_path):
    for subject, policy, words in (
        (tmp_path, gated.policy, "no result.json"),
        ("models:/absent/1", gated.policy, "absent"),
        (f"models:/{NAME}/999", gated.policy, "999"),
        (gated.folder, tmp_path / "absent.toml", "cannot be read"),
        (gated.folder, gated.folder / "result.json", "not valid TOML"),
    ):
        done = gated.gate(subject, policy=policy)
        assert done.exit_code == 2 and words in done.output, done.output
        assert "Traceback" not in done.output
    done = gated.gate(gated.folder, "--model", "models:/absent/1")
    assert done.exit_code == 2 and "absent" in done.output


def test_init_never_overwrites_unasked_and_check_reads(gated, tmp_path):
    out = tmp_path / "policy.toml"
    assert audit("policy", "init", gated.folder, "-o", out).exit_code == 0
    out.write_text("mine")
    done = audit("policy", "init", gated.folder, "-o", out)
    assert done.exit_code == 2 and "--force" in done.output and out.read_text() == "mine"
    assert audit("policy", "init", gated.folder, "-o", out, "--force").exit_code == 0
    assert audit("policy", "init", gated.folder).stdout == out.read_text()
    done = audit("policy", "check", out)
    assert done.exit_code == 0 and "and pins all it can" in done.output
    out.write_text(re.sub("(?m)^seed = .*$", "", out.read_text()))
    assert "; it does not pin seed (sha256" in audit("policy", "check", out).output
    out.write_text(out.read_text().replace("[[rule]]", "[rule]", 1))
    done = audit("policy", "check", out)
    assert done.exit_code == 2 and "line" in done.output


def test_a_policy_knows_the_scores_that_an_audit_gives(gated):
    found = result.from_json((gated.folder / "result.json").read_bytes())
    assert {score.dimension for score in found.models[0].scores} == set(SCORES)


def test_gate_loads_no_model(gated, tmp_path):
    import subprocess
    import sys

    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom audit.cli import cli\n"
        f"done = CliRunner().invoke(cli, ['gate', {str(gated.folder)!r}, '--policy', {str(gated.policy)!r}, '--no-tags', "
        f"'--tracking-uri', {gated.uri!r}])\n"
        "assert done.exit_code == 0, done.output\nassert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
