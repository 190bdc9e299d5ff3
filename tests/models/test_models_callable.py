from __future__ import annotations

import hashlib
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small_models import Small, images

from audit.errors import InputError, ModelError, QueryBudgetSpent, UntrustedError
from audit.models import Classifier, ModelRef, load, resolve_outputs
from audit.models.limits import QueryLimits
from audit.models.trust import overall_digest
from audit.vocabulary import Capability

SHAPE = (3, 8, 8)
SOURCE = """
    import numpy as np
    import torch
    from small_models import Small

    net = Small().eval()
    seen = []

    def scores(images):
        seen.append((images.shape, images.dtype.name))
        with torch.no_grad():
            return net(torch.from_numpy(np.array(images, dtype=np.float32)))

    def last(images):
        return scores(images.transpose(0, 3, 1, 2)).numpy()

    def labels(images):
        return scores(images).argmax(1).numpy()

    def careless(images):
        found = scores(images)
        images[:] = 0
        return found

    def broken(images):
        raise ValueError("no such layer\\nsecond line")

    number = 3
"""


@pytest.fixture(autouse=True)
def _module(own_folder: object) -> Iterator[None]:
    """A module in the current folder, which is no longer known afterwards."""
    Path("functions_here.py").write_text(textwrap.dedent(SOURCE))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in ("functions_here", "package_here")]:
        del sys.modules[name]


def open_function(text: str, **options: object) -> Classifier:
    return load(ModelRef.parse(text), **{"image_shape": SHAPE, "trust": True, "block_rows": 4, **options})  # type: ignore[arg-type]


def test_a_function_gives_what_the_network_gives_in_padded_blocks() -> None:
    x = images(6)
    classifier = open_function("functions_here:scores")
    with torch.no_grad():
        torch.testing.assert_close(classifier.logits(x), Small().eval()(x), rtol=1e-5, atol=1e-6)
    assert set(sys.modules["functions_here"].seen) == {((4, *SHAPE), "float32")}
    assert set(classifier.lacks) == {Capability.GRADIENTS, Capability.ACTIVATIONS}
    torch.testing.assert_close(open_function("functions_here:last", spec="layout=NHWC").logits(x), classifier.logits(x))
    careless = open_function("functions_here:careless")
    assert torch.equal(careless.logits(x), classifier.logits(x)) and not careless.identity.cautions[1:]


def test_labels_are_taken_for_labels() -> None:
    x = images(6)
    classifier = open_function("functions_here:labels", class_names=tuple("abcde"))
    assert torch.equal(classifier.logits(x).argmax(1), open_function("functions_here:scores").logits(x).argmax(1))
    assert Capability.SCORES in classifier.lacks


def test_naming_it_runs_code_so_it_must_be_trusted() -> None:
    with pytest.raises(UntrustedError, match="the module functions_here and the function scores"):
        open_function("functions_here:scores", trust=False)
    assert "functions_here" not in sys.modules


def test_the_digest_is_that_of_the_source() -> None:
    identity = open_function("functions_here:scores").identity
    files = {"functions_here.py": hashlib.sha256(Path("functions_here.py").read_bytes()).hexdigest()}
    assert identity.files == files and identity.digest == overall_digest(files)
    assert identity.trusted and identity.opaque and "weights included" in identity.cautions[0]
    Path("package_here").mkdir()
    Path("package_here/__init__.py").touch()
    Path("package_here/net.py").write_text("from functions_here import scores")
    assert set(open_function("package_here.net:scores").identity.files) == {"package_here/__init__.py", "package_here/net.py"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("functions_here:broken", "functions_here:broken: raised ValueError: no such layer on an array of 4x3x8x8"),
        ("functions_here:number", "has no function number"),
        ("functions_here:nothing", "has no function nothing"),
        ("nowhere_at_all:f", "there is no module nowhere_at_all"),
        ("functions_here.inner:f", "there is no module functions_here.inner"),
        ("needs_more:f", "needs the Python module 'not_installed_at_all'"),
        ("bad_syntax:f", "cannot be imported: SyntaxError"),
    ],
)
def test_what_goes_wrong_is_one_sentence(text: str, says: str) -> None:
    Path("needs_more.py").write_text("import not_installed_at_all")
    Path("bad_syntax.py").write_text("def f(:")
    with pytest.raises(InputError) as error:
        open_function(text)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_the_budget_holds_for_a_function_too() -> None:
    classifier = open_function("functions_here:scores", limits=QueryLimits(max_queries=20))
    classifier.logits(images(4))
    with pytest.raises(QueryBudgetSpent, match="20 images were sent"):
        classifier.logits(images(1))


def test_an_installed_module_wins_over_one_in_the_folder() -> None:
    Path("textwrap.py").write_text("def dedent(images): raise SystemExit")
    with pytest.raises(ModelError, match="raised TypeError"):
        open_function("textwrap:dedent")


def test_services_may_sort_the_classes_of_every_answer(own_folder: object) -> None:
    Path("functions_here.py").write_text(
        textwrap.dedent(
            """
            def by_score(images):
                share = images.mean(axis=(1, 2, 3))
                rows = [{"dark": float(1 - each), "light": float(each)} for each in share]
                return [dict(sorted(row.items(), key=lambda entry: -entry[1])) for row in rows]
            """
        )
    )
    model = open_function("functions_here:by_score", class_names=("dark", "light"))
    dark, light = torch.zeros(1, *SHAPE), torch.ones(1, *SHAPE)
    # One image is a block of its own: its dictionary alone says in which order the scores come.
    scores = torch.cat([model.logits(image) for image in (dark, light)])
    place = model.identity.class_names.index("light")
    assert scores[:, place].tolist() == [0.0, 1.0] and scores[:, 1 - place].tolist() == [1.0, 0.0]


@pytest.mark.parametrize("shape", ["(-1,)", "(-1, 1)"])
def test_one_value_per_image_is_two_classes(own_folder: object, shape: str) -> None:
    Path("functions_here.py").write_text(
        textwrap.dedent(
            f"""
            import numpy as np
            def level(images):
                return (images.mean(axis=(1, 2, 3)) - 0.5) * 8
            def unit(images):
                return (1 / (1 + np.exp(-level(images)))).reshape{shape}
            def logit(images):
                return level(images).reshape{shape}
            def hard(images):
                return np.where(images.mean(axis=(1, 2, 3)) > 0.8, 1.0, unit(images).reshape(-1))
            """
        )
    )
    x = images(9)
    level = (x.double().mean((1, 2, 3)) - 0.5) * 8
    unit = resolve_outputs(open_function("functions_here:unit"), x)
    assert unit.identity.outputs == "the probability of the second of two classes (detected)" and unit.classes == 2
    expected = torch.stack((torch.nn.functional.logsigmoid(-level), torch.nn.functional.logsigmoid(level)), dim=1)
    torch.testing.assert_close(unit.logits(x).double(), expected, rtol=1e-4, atol=1e-5)
    logit = resolve_outputs(open_function("functions_here:logit"), x)
    assert logit.identity.outputs == "one logit for two classes (detected)"
    torch.testing.assert_close(logit.logits(x).double(), torch.stack((0 * level, level), dim=1), rtol=1e-4, atol=1e-5)
    # Values that all happen to be whole are still values.
    hard = resolve_outputs(open_function("functions_here:hard"), x)
    assert hard.logits(torch.ones(4, *SHAPE)).argmax(1).tolist() == [1, 1, 1, 1]
    assert set(hard.lacks) == {Capability.GRADIENTS, Capability.ACTIVATIONS}


def test_a_function_that_goes_elsewhere_leaves_the_current_folder_as_it_is() -> None:
    before = Path.cwd()
    Path("elsewhere").mkdir()
    source = """
        import os
        os.chdir("elsewhere")

        def mean(images):
            os.chdir("/")
            return images.mean(axis=(2, 3))
    """
    Path("functions_here.py").write_text(textwrap.dedent(source))
    model = open_function("functions_here:mean")
    assert Path.cwd() == before
    model.logits(images(5))
    assert Path.cwd() == before


def test_an_output_is_not_chosen_where_it_cannot_be() -> None:
    with pytest.raises(InputError, match="--output is for ONNX graphs and torch modules"):
        open_function("functions_here:scores", output="second")
