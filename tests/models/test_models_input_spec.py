from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from audit.errors import InputError
from audit.models.input_spec import InputSpec, PartialSpec, from_options, from_sidecar, from_tags, from_user


def spec(text: str) -> InputSpec:
    return from_user(text).complete()


def test_options_are_read_key_by_key() -> None:
    read = spec("layout=nhwc, range=0-255,mean=0.485/0.456/0.406,std=0.229/0.224/0.225,outputs=Probabilities,channels=bgr")
    assert read == InputSpec(
        layout="NHWC",
        channels="BGR",
        range=(0, 255),
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
        outputs="probabilities",
    )
    assert read.words()["range"] == "0 to 255"
    assert read.words()["mean"] == "0.485/0.456/0.406"


@pytest.mark.parametrize(
    ("text", "low", "high"), [("-1-1", -1, 1), ("-1..1", -1, 1), ("0-255", 0, 255), ("-1--0.5", -1, -0.5), ("0:1e2", 0, 100)]
)
def test_ranges(text: str, low: float, high: float) -> None:
    assert spec(f"range={text}").range == (low, high)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("layuot=NHWC", "there is no key 'layuot'; did you mean layout?"),
        ("layout=NHCW", "layout cannot be 'NHCW'; did you mean NHWC?"),
        ("dtype=float23", "did you mean float32?"),
        ("range=255", "range cannot be '255'"),
        ("range=255-0", "range must rise"),
        ("mean=a/b", "mean cannot be 'a/b'"),
        ("std=0", "std cannot be"),
        ("layout", "is not key=value"),
        ("dtype=uint8,mean=0.5", "do not go with dtype uint8"),
        ("range=nan-1", "range cannot be"),
    ],
)
def test_errors_name_the_place_the_key_and_the_nearest_name(text: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        spec(text)
    assert says in str(error.value)
    assert "input option" in str(error.value)
    assert "\n" not in str(error.value)


def test_sidecar_file_and_its_errors(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    assert from_sidecar(model).complete() == InputSpec()
    side = tmp_path / "net.input.toml"
    side.write_text('layout = "NHWC"\nrange = [0, 255]\nmean = [1, 2, 3]\nstd = 2.5\n')
    read = from_sidecar(model).complete()
    assert (read.layout, read.range, read.mean, read.std) == ("NHWC", (0, 255), (1, 2, 3), (2.5,))
    assert from_user(str(side)).complete() == read
    side.write_text('layout = "sideways"\n')
    with pytest.raises(InputError, match=r"net\.input\.toml, line 1: layout cannot be 'sideways'"):
        from_sidecar(model).complete()
    side.write_text("range = [0, 1, 2]\n")
    with pytest.raises(InputError, match=r"net\.input\.toml, line 1: range cannot be"):
        from_sidecar(model).complete()
    side.write_text("layout = \n")
    with pytest.raises(InputError, match="line 1: not valid TOML"):
        from_sidecar(model)
    with pytest.raises(InputError, match="cannot be read"):
        from_user(str(tmp_path / "missing.toml"))


def test_tags_are_data_and_other_tags_are_left_alone() -> None:
    read = from_tags({"audit.input.layout": "NHWC", "audit.input.range": "0-255", "audit.score": "12", "owner": "x"})
    assert read.values == {"layout": "NHWC", "range": (0.0, 255.0)}
    with pytest.raises(InputError, match=r"tag audit\.input\.trust: there is no key 'trust'"):
        from_tags({"audit.input.trust": "true"})


def test_options_win_over_the_sidecar_over_tags_over_the_default() -> None:
    merged = (
        from_options(["layout=NHWC"])
        .over(from_options(["layout=NCHW,range=0-255"], "file"))
        .over(from_tags({"audit.input.range": "-1..1", "audit.input.mean": "0.5"}))
    )
    read = merged.complete()
    assert (read.layout, read.range, read.mean, read.std) == ("NHWC", (0, 255), (0.5,), (1.0,))


def test_uint8_models_get_the_whole_byte_range_unless_told_otherwise() -> None:
    assert spec("dtype=uint8").range == (0, 255)
    assert not spec("dtype=uint8").differentiable
    values = torch.tensor([0.0, 0.5 / 255, 1.6 / 255, 1.0]).view(1, 1, 2, 2)
    assert spec("dtype=uint8").prepare(values).flatten().tolist() == [0, 0, 2, 255]


def test_prepare_agrees_with_numpy_written_out() -> None:
    read = spec("layout=NHWC,channels=BGR,range=0-255,mean=104/117/123,std=2/3/4")
    x = torch.rand(2, 3, 4, 5)
    pixels = x.numpy().astype(np.float64)[:, ::-1] * 255
    expected = np.stack([(pixels[:, c] - m) / s for c, (m, s) in enumerate([(104, 2), (117, 3), (123, 4)])], axis=-1)
    got = read.prepare(x)
    assert got.shape == (2, 4, 5, 3) and got.dtype == torch.float32 and got.is_contiguous()
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5, atol=1e-4)
    assert read.shape_seen((3, 4, 5)) == (4, 5, 3)


def test_prepare_is_differentiable_with_the_expected_slope() -> None:
    read = spec("range=-1..1,std=0.5/0.25/0.125,layout=NHWC")
    x = torch.rand(1, 3, 2, 2, requires_grad=True)
    read.prepare(x).sum().backward()
    assert x.grad is not None
    assert x.grad[0, :, 0, 0].tolist() == [4.0, 8.0, 16.0]


def test_the_default_changes_nothing() -> None:
    x = torch.rand(2, 1, 3, 3)
    assert torch.equal(PartialSpec().complete().prepare(x), x)
    assert spec("dtype=float16").prepare(x).dtype == torch.float16


def test_channel_counts_must_fit() -> None:
    with pytest.raises(InputError, match="mean has 3 values, but the images have 1 channel;"):
        spec("mean=1/2/3").check_channels(1)
    with pytest.raises(InputError, match="needs 3 channels"):
        spec("channels=BGR").check_channels(1)
    spec("mean=0.5,std=2").check_channels(3)
