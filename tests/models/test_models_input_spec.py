from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from audit.errors import InputError
from audit.models.input_spec import InputSpec, PartialSpec, from_options, from_sidecar, from_tags, from_user
from audit.models.spec_text import to_options, to_tags, to_toml


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


ARRANGED = {
    "NCHW": lambda x: x,
    "NHWC": lambda x: np.moveaxis(x, 1, 3),
    "NCHW1": lambda x: x[..., None],
    "NCD": lambda x: np.stack([[channel.ravel() for channel in image] for image in x]),
    "NDC": lambda x: np.stack([[image[:, r, c] for r in range(4) for c in range(5)] for image in x]),
    "FLAT": lambda x: np.stack([image.ravel() for image in x]),
    "FLAT_COLUMN": lambda x: np.stack([np.concatenate([channel.ravel(order="F") for channel in image]) for image in x]),
    "FLAT_LAST": lambda x: np.stack([[image[k, r, c] for r in range(4) for c in range(5) for k in range(3)] for image in x]),
}


@pytest.mark.parametrize("layout", ARRANGED)
def test_layouts_agree_with_numpy_written_out(layout: str) -> None:
    x = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    read = spec(f"layout={layout},range=0-255")
    expected = ARRANGED[layout](x.numpy() * np.float32(255))
    got = read.prepare(x)
    assert got.is_contiguous()
    np.testing.assert_array_equal(got.numpy(), expected)
    assert read.shape_seen((3, 4, 5)) == expected.shape[1:]


def test_grey_images_without_a_channel_axis() -> None:
    x = torch.rand(2, 1, 4, 5)
    assert torch.equal(spec("layout=NHW").prepare(x), x[:, 0])
    assert spec("layout=nhw").shape_seen((1, 4, 5)) == (4, 5)
    with pytest.raises(InputError, match=r"layout=NHW is for images of 1 channel, the images have 3; state colour=luma"):
        spec("layout=NHW").check_channels(3)
    spec("layout=NHW,colour=luma").check_channels(3)


def test_colour_is_pillows_luma_and_its_repetition() -> None:
    from PIL import Image

    bytes_ = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    x = torch.from_numpy(bytes_).permute(2, 0, 1)[None] / 255
    grey = np.asarray(Image.fromarray(bytes_).convert("L"), dtype=np.float64)
    got = spec("colour=luma,range=0-255").prepare(x)
    assert got.shape == (1, 1, 16, 16)
    assert np.abs(got[0, 0].numpy() - grey).max() <= 1.001  # Pillow cuts the fraction off
    one = torch.rand(2, 1, 4, 5)
    repeated = spec("colour=repeat,mean=0.1/0.2/0.3").prepare(one)
    np.testing.assert_allclose(repeated.numpy(), np.concatenate([one.numpy() - m for m in (0.1, 0.2, 0.3)], axis=1), atol=1e-6)
    for text, channels, says in [
        ("colour=repeat", 3, "colour=repeat is for images of 1 channel, the images have 3"),
        ("colour=luma", 1, "colour=luma is for images of 3 channels, the images have 1"),
        ("colour=luma,mean=1/2/3", 3, "mean has 3 values, but the model gets 1 channel;"),
    ]:
        with pytest.raises(InputError, match=says):
            spec(text).check_channels(channels)
    with pytest.raises(InputError, match="colour cannot be 'gray'"):
        spec("colour=gray")


@pytest.mark.parametrize(("have", "want"), [((8, 8), (28, 28)), ((30, 20), (7, 13)), ((5, 9), (9, 4)), ((6, 6), (6, 6))])
def test_resizing_is_torchs_and_near_pillows(have: tuple[int, int], want: tuple[int, int]) -> None:
    from PIL import Image

    x = torch.rand(2, 3, *have, generator=torch.Generator().manual_seed(0))
    read = spec(f"size={want[0]}x{want[1]}")
    got = read.prepare(x)
    expected = torch.nn.functional.interpolate(x, size=want, mode="bilinear", antialias=True)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
    pillow = np.asarray(Image.fromarray(x[0, 0].numpy()).resize(want[::-1], Image.Resampling.BILINEAR))
    np.testing.assert_allclose(got[0, 0].numpy(), pillow, atol=1e-5)
    assert got.min() >= 0 and got.max() <= 1
    assert read.shape_seen((3, *have)) == (3, *want)


def test_sizes_and_their_errors(tmp_path: Path) -> None:
    assert spec("size=224x224").size == (224, 224)
    assert spec("size=8x9").words()["size"] == "8x9, bilinear with antialiasing, inside the model"
    (tmp_path / "s.toml").write_text("size = [8, 9]\n")
    assert from_user(str(tmp_path / "s.toml")).complete().size == (8, 9)
    for text in ("size=224", "size=0x5", "size=8x5000"):
        with pytest.raises(InputError, match=r"size cannot be .*; size is height and width in pixels"):
            spec(text)
    assert "size" not in spec("range=0-255").words() and "colour" not in spec("range=0-255").words()


@pytest.mark.parametrize(
    ("text", "channels"),
    [
        ("layout=FLAT_COLUMN,range=-1..1", 3),
        ("size=7x3,std=0.5", 3),
        ("size=12x12,layout=NHW,colour=luma", 3),
        ("colour=repeat", 1),
    ],
)
def test_gradients_arrive_in_the_pixels_of_the_data(text: str, channels: int) -> None:
    x = torch.rand(2, channels, 6, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(spec(f"{text},dtype=float64").prepare, (x,))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "layout=FLAT_LAST,channels=BGR,range=-1..1,mean=0.485/0.456/0.406,std=0.229/0.224/0.225",
        "range=0-255,mean=123.675/116.28/103.53,std=1e-3,dtype=float16,outputs=logits,colour=luma,size=32x48",
    ],
)
def test_what_is_written_reads_back_the_same(text: str, tmp_path: Path) -> None:
    given = from_user(text)
    read = given.complete()
    stated = tuple(given.values)
    (tmp_path / "net.input.toml").write_text(to_toml(read, stated, ["found on 200 images"]))
    assert from_sidecar(tmp_path / "net.onnx").complete() == read
    assert from_tags(to_tags(read, stated)).complete() == read
    options = to_options(read, stated)
    assert from_options([options]).complete() == read
    assert (options == "") == (text == "")
