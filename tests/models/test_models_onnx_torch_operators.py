"""Every operator that has a conversion against ONNX Runtime, and its gradient against finite differences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from onnx_graphs import graph, normal, runtime

from audit.errors import MissingCapability
from audit.models.onnx_torch import convert
from audit.models.onnx_torch.operators import TABLE

IMAGE = normal(2, 4, 7, 6, seed=1)
PLAIN = normal(3, 5, seed=2)
STEPS = frozenset({"Ceil", "Floor", "Round", "Sign", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
BARREN = STEPS | {"ArgMax", "ArgMin", "NonZero", "QuantizeLinear", "IsNaN", "IsInf", "Shape", "Size"}


@dataclass(frozen=True, kw_only=True)
class Case:
    """One node on x, with its other inputs, and how values outside its own are to be read."""

    op: str
    x: np.ndarray = field(default_factory=lambda: PLAIN)
    others: tuple[np.ndarray | None, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 17
    outputs: tuple[str, ...] = ("y",)
    before: tuple[np.ndarray, ...] = ()

    @property
    def label(self) -> str:
        words = "-".join(f"{key}={value}".replace(" ", "") for key, value in self.attributes.items())
        return f"{self.op}-{self.opset}-{words}-{'x'.join(map(str, self.x.shape))}"[:90]


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def floats(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def scalar(value: float, dtype: type = np.float32) -> np.ndarray:
    return np.array(value, dtype=dtype)


def case(op: str, x: np.ndarray = PLAIN, *others: np.ndarray | None, opset: int = 17, **attributes: Any) -> Case:
    return Case(op=op, x=x, others=others, attributes=attributes, opset=opset)


POSITIVE, INSIDE = np.abs(PLAIN) + 0.5, np.tanh(PLAIN) * 0.9
KERNEL, GROUPED = normal(6, 4, 3, 2), normal(8, 2, 3, 3)
FOUR = normal(4, seed=5)
CASES = [
    *(
        case(op)
        for op in [
            "Abs",
            "Neg",
            "Exp",
            "Sin",
            "Cos",
            "Tan",
            "Atan",
            "Sinh",
            "Cosh",
            "Asinh",
            "Erf",
            "Tanh",
            "Sigmoid",
            "Relu",
            "Identity",
        ]
    ),
    *(case(op) for op in ["Ceil", "Floor", "Round", "Sign"]),
    *(
        case(op)
        for op in [
            "Elu",
            "LeakyRelu",
            "Selu",
            "Celu",
            "Softplus",
            "Softsign",
            "HardSigmoid",
            "ThresholdedRelu",
            "Softmax",
            "LogSoftmax",
        ]
    ),
    *(case(op, POSITIVE) for op in ["Log", "Sqrt", "Reciprocal"]),
    case("Acosh", POSITIVE + 1),
    *(case(op, INSIDE) for op in ["Asin", "Acos", "Atanh"]),
    case("HardSwish"),
    case("Mish", opset=18),
    case("Gelu", opset=20),
    case("Gelu", opset=20, approximate="tanh"),
    case("Elu", alpha=0.3),
    case("Celu", alpha=2.0),
    case("HardSigmoid", alpha=0.16666667, beta=0.5),
    case("Shrink", bias=0.2, lambd=0.4),
    case("PRelu", IMAGE, normal(4, 1, 1)),
    *(case("Softmax", IMAGE, opset=11, axis=axis) for axis in (1, 2, -1)),
    *(case("Softmax", IMAGE, opset=13, axis=axis) for axis in (1, -1)),
    case("LogSoftmax", IMAGE, opset=12),
    *(case(op, PLAIN, normal(5, seed=3)) for op in ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean"]),
    case("Sum", PLAIN, normal(5), normal(3, 1)),
    case("Pow", POSITIVE, scalar(1.7)),
    case("Pow", PLAIN, scalar(2, np.int64)),
    case("Mod", PLAIN, floats(0.7), fmod=1),
    *(case(op, PLAIN, floats(0.1)) for op in ["Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"]),
    case("IsNaN", np.where(PLAIN > 1, np.nan, PLAIN)),
    case("IsInf", np.where(PLAIN > 1, np.inf, np.where(PLAIN < -1, -np.inf, PLAIN))),
    case("IsInf", np.where(PLAIN > 1, np.inf, np.where(PLAIN < -1, -np.inf, PLAIN)), detect_positive=0),
    case("Clip", PLAIN, scalar(-0.5), scalar(0.7)),
    case("Clip", PLAIN, None, scalar(0.7)),
    case("Clip", PLAIN, opset=10, min=-0.5, max=0.5),
    case("Cast", PLAIN, to=TensorProto.DOUBLE),
    case("CastLike", PLAIN, np.zeros(1)),
    *(case(op, np.random.default_rng(0).random((3, 4)) < 0.5, np.array([True, False, True, False])) for op in ("And", "Or", "Xor")),
    case("Not", np.random.default_rng(0).random((3, 4)) < 0.5),
    *(
        case(op, np.arange(12, dtype=np.int32).reshape(3, 4), np.array([6], np.int32), opset=18)
        for op in ("BitwiseAnd", "BitwiseOr")
    ),
    case("Div", np.arange(-6, 6, dtype=np.int32).reshape(3, 4), np.array([4], np.int32)),
    Case(op="Where", x=PLAIN, before=(PLAIN > 0,), others=(normal(3, 5, seed=9),)),
    # Convolutions.
    case("Conv", IMAGE, KERNEL, normal(6)),
    case("Conv", IMAGE, KERNEL, pads=[1, 0, 2, 1], strides=[2, 1], dilations=[1, 2]),
    case("Conv", IMAGE, GROUPED, normal(8), group=2, pads=[1, 1, 1, 1]),
    *(case("Conv", IMAGE, KERNEL, auto_pad=pad, strides=[2, 2]) for pad in ("SAME_UPPER", "SAME_LOWER", "VALID")),
    case("Conv", normal(2, 3, 9), normal(4, 3, 3), strides=[2], pads=[1, 1]),
    case("Conv", normal(1, 2, 5, 4, 4), normal(3, 2, 2, 3, 2)),
    case("ConvTranspose", IMAGE, normal(4, 3, 3, 2), normal(3), strides=[2, 3], pads=[1, 0, 2, 1], output_padding=[1, 2]),
    case("ConvTranspose", IMAGE, normal(4, 3, 3, 3), normal(6), group=2, dilations=[2, 1]),
    case("ConvTranspose", IMAGE, normal(4, 3, 3, 3), strides=[2, 2], output_shape=[14, 13]),
    *(case("ConvTranspose", IMAGE, normal(4, 3, 3, 3), strides=[2, 2], auto_pad=pad) for pad in ("SAME_UPPER", "SAME_LOWER")),
    case("ConvTranspose", normal(2, 3, 6), normal(3, 2, 3), strides=[2]),
    # Pools.
    *(
        case(op, IMAGE, kernel_shape=[3, 2], strides=[2, 2], pads=pads, ceil_mode=ceil)
        for op in ("MaxPool", "AveragePool")
        for pads in ([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 2, 0])
        for ceil in (0, 1)
    ),
    *(
        case("AveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 3], pads=pads, ceil_mode=ceil, count_include_pad=1)
        for pads in ([1, 1, 1, 1], [0, 1, 2, 0])
        for ceil in (0, 1)
    ),
    case("MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[2, 3]),
    case("AveragePool", IMAGE, kernel_shape=[2, 2], dilations=[2, 3], pads=[1, 0, 0, 1], opset=19),
    *(case(op, IMAGE, kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER") for op in ("MaxPool", "AveragePool")),
    *(case(op, normal(2, 3, 9), kernel_shape=[3], strides=[2]) for op in ("MaxPool", "AveragePool")),
    *(case(op, normal(1, 2, 5, 4, 4), kernel_shape=[2, 2, 2]) for op in ("MaxPool", "AveragePool")),
    *(case(op, IMAGE) for op in ("GlobalAveragePool", "GlobalMaxPool")),
    # Normalisations.
    case("BatchNormalization", IMAGE, FOUR, normal(4), normal(4, seed=6), np.abs(normal(4, seed=7)) + 0.1, epsilon=1e-3),
    case("InstanceNormalization", IMAGE, FOUR, normal(4), epsilon=1e-3),
    case("GroupNormalization", IMAGE, normal(2), normal(2, seed=8), num_groups=2, opset=18),
    case("GroupNormalization", IMAGE, FOUR, normal(4), num_groups=2, opset=21),
    case("LayerNormalization", IMAGE, normal(6), normal(6, seed=8)),
    case("LayerNormalization", IMAGE, normal(7, 6), axis=2, epsilon=1e-2),
    case("RMSNormalization", IMAGE, normal(6), opset=23),
    *(case("LRN", IMAGE, size=size, alpha=0.5, beta=0.6, bias=1.5) for size in (3, 5)),
    *(case("LpNormalization", IMAGE, p=p, axis=1) for p in (1, 2)),
    case("MeanVarianceNormalization", IMAGE),
    case("Dropout", IMAGE, scalar(0.5)),
    # Matrices.
    case("MatMul", PLAIN, normal(5, 4)),
    case("MatMul", IMAGE, normal(6, 3)),
    case("Gemm", PLAIN, normal(4, 5), normal(4), transB=1, alpha=0.5, beta=2.0),
    case("Gemm", PLAIN, normal(3, 4), transA=1),
    case("Einsum", PLAIN, normal(5, 4), equation="ij,jk->ki"),
    *(case("Trilu", IMAGE, scalar(1, np.int64), upper=upper) for upper in (0, 1)),
    case("Attention", normal(2, 3, 5, 4), normal(2, 3, 6, 4), normal(2, 3, 6, 4, seed=4), normal(5, 6), opset=23),
    case("Attention", normal(2, 5, 8), normal(2, 5, 4), normal(2, 5, 4), opset=23, q_num_heads=4, kv_num_heads=2, is_causal=1),
    # Reductions.
    *(case(op, IMAGE, axes=[1, -1], keepdims=keep, opset=11) for op in ("ReduceSum", "ReduceMean") for keep in (0, 1)),
    *(case(op, IMAGE, ints(1, -1), opset=18) for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd")),
    *(case(op, np.abs(IMAGE), axes=[2]) for op in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")),
    case("ReduceSum", IMAGE, noop_with_empty_axes=1),
    case("ReduceMean", IMAGE, keepdims=0),
    *(case(op, IMAGE, axis=2, keepdims=0) for op in ("ArgMax", "ArgMin")),
    case("ArgMax", np.round(IMAGE), axis=1, select_last_index=1),
    *(case("CumSum", PLAIN, scalar(1, np.int64), exclusive=exclusive, reverse=back) for exclusive in (0, 1) for back in (0, 1)),
    Case(op="TopK", x=PLAIN, others=(ints(3),), attributes={"axis": 1}, outputs=("y", "places")),
    Case(op="TopK", x=np.round(PLAIN), others=(ints(2),), attributes={"axis": 0, "largest": 0}, outputs=("values", "y")),
    # Shapes.
    case("Reshape", IMAGE, ints(0, -1, 3)),
    case("Flatten", IMAGE, axis=2),
    case("Flatten", IMAGE, axis=-1),
    case("Transpose", IMAGE, perm=[0, 2, 3, 1]),
    case("Transpose", PLAIN),
    case("Squeeze", normal(3, 1, 4, 1), ints(1)),
    case("Squeeze", normal(3, 1, 4, 1)),
    case("Unsqueeze", PLAIN, ints(0, -1)),
    case("Unsqueeze", PLAIN, axes=[1], opset=11),
    case("Expand", normal(3, 1), ints(2, 1, 5)),
    case("Tile", PLAIN, ints(2, 3)),
    case("Concat", PLAIN, normal(3, 2), axis=-1),
    Case(op="Split", x=IMAGE, others=(ints(1, 3),), attributes={"axis": 1}, outputs=("first", "y")),
    Case(op="Split", x=IMAGE, attributes={"axis": 2, "num_outputs": 3}, opset=18, outputs=("first", "second", "y")),
    Case(op="Split", x=IMAGE, attributes={"axis": 1}, opset=11, outputs=("first", "y")),
    case("Slice", IMAGE, ints(1, -2), ints(100, -100), ints(2, 3), ints(2, -1)),
    case("Slice", IMAGE, ints(0, 1), ints(2, -1)),
    case("Slice", IMAGE, opset=9, starts=[1], ends=[3], axes=[1]),
    *(case("Pad", IMAGE, ints(0, 0, 2, 1, 0, 1, 0, 3), mode=mode) for mode in ("constant", "reflect", "edge")),
    case("Pad", IMAGE, ints(1, -1), scalar(0.5), ints(3), opset=18),
    case("Pad", IMAGE, ints(1, 2, 3, 4), None, ints(2, 3), opset=19, mode="wrap"),
    case("Pad", IMAGE, opset=10, pads=[0, 0, 1, 1, 0, 0, 1, 1], value=0.25),
    *(case("DepthToSpace", IMAGE, blocksize=2, mode=mode) for mode in ("DCR", "CRD")),
    case("SpaceToDepth", normal(2, 3, 4, 6), blocksize=2),
    case("Shape", IMAGE, start=1),
    case("Size", IMAGE),
    # Indexing.
    case("Gather", IMAGE, ints(0, -1, 2), axis=1),
    case("Gather", IMAGE, scalar(1, np.int64), axis=2),
    case("GatherElements", PLAIN, ints(0, -1, 1, 2, 0).reshape(1, 5), axis=0),
    case("GatherND", IMAGE, ints(0, 1, 1, 2).reshape(2, 2)),
    case("GatherND", IMAGE, ints(1, 2).reshape(2, 1), batch_dims=1),
    case("ScatterElements", PLAIN, ints(0, -1).reshape(1, 2), normal(1, 2), axis=1),
    case("ScatterElements", PLAIN, ints(0, 1).reshape(1, 2), normal(1, 2), axis=1, reduction="add"),
    case("ScatterND", PLAIN, ints(0, 2).reshape(2, 1), normal(2, 5)),
    case("ScatterND", PLAIN, ints(0, 0).reshape(2, 1), normal(2, 5), reduction="add"),
    case("NonZero", np.where(PLAIN > 0, PLAIN, 0)),
    *(
        case("GridSample", IMAGE, np.tanh(normal(2, 3, 4, 2)), mode=mode, align_corners=corners, opset=16)
        for mode in ("bilinear", "nearest", "bicubic")
        for corners in (0, 1)
    ),
    # Sizes of images.
    *(
        case("Resize", IMAGE, None, *sizes, mode=mode, coordinate_transformation_mode=coordinates, opset=13)
        for mode in ("linear", "cubic")
        for coordinates in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")
        for sizes in ((floats(1, 1, 2, 1.5),), (None, ints(2, 4, 3, 9)))
    ),
    *(
        case(
            "Resize", IMAGE, None, floats(1, 1, 2, 0.5), coordinate_transformation_mode=coordinates, nearest_mode=nearest, opset=13
        )
        for coordinates in ("half_pixel", "asymmetric", "tf_half_pixel_for_nn")
        for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    ),
    *(case("Resize", IMAGE, None, None, ints(2, 4, 3, 9), mode=mode, antialias=1, opset=18) for mode in ("linear", "cubic")),
    case("Resize", IMAGE, None, floats(1, 1, 0.6, 1.3), mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5, opset=13),
    case("Resize", IMAGE, None, None, ints(14, 3), axes=[2, 3], mode="linear", opset=18),
    case("Resize", IMAGE, floats(1, 1, 2, 2), mode="linear", opset=10),
    *(case("Upsample", IMAGE, floats(1, 1, 2, 3), mode=mode, opset=9) for mode in ("nearest", "linear")),
    case("Upsample", IMAGE, scales=[1.0, 1.0, 2.0, 2.0], opset=8),
    # Integers.
    case("QuantizeLinear", IMAGE, scalar(0.02), scalar(128, np.uint8)),
    case("QuantizeLinear", IMAGE, np.abs(FOUR) / 50 + 0.01, np.array([0, 1, -2, 3], np.int8), axis=1),
    case(
        "DequantizeLinear", np.arange(24, dtype=np.uint8).reshape(2, 4, 3), np.abs(FOUR), ints(1, 2, 3, 4).astype(np.uint8), axis=1
    ),
]
# Without an image among their inputs: what makes constants.
OTHERS = {"Constant", "ConstantOfShape", "Range", "Swish"}


def built(one: Case):
    """The graph of a case, and x as its input."""
    names = (
        [f"b{i}" for i in range(len(one.before))] + ["x"] + ["" if value is None else f"c{i}" for i, value in enumerate(one.others)]
    )
    constants = {f"b{i}": value for i, value in enumerate(one.before)}
    constants.update({f"c{i}": value for i, value in enumerate(one.others) if value is not None})
    node = helper.make_node(one.op, names, list(one.outputs), **one.attributes)
    return graph([node], one.x.shape, constants, opset=one.opset, dtype=helper.np_dtype_to_tensor_dtype(one.x.dtype))


def test_every_operator_has_a_case():
    assert {one.op for one in CASES} | OTHERS == set(TABLE)


@pytest.mark.parametrize("one", CASES, ids=lambda one: one.label)
def test_an_operator_gives_what_onnx_runtime_gives(one: Case):
    model = built(one)
    expected = runtime(model, one.x)
    found = convert(model)(torch.from_numpy(one.x)).numpy()
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


def differentiable(one: Case) -> bool:
    return one.x.dtype == np.float32 and one.op not in BARREN and not (one.op == "TopK" and one.outputs[1] == "y")


SMOOTH = [one for one in CASES if differentiable(one) and not one.op.startswith("Cast")]


@pytest.mark.parametrize("one", SMOOTH, ids=lambda one: one.label)
def test_the_gradient_of_an_operator_is_that_of_finite_differences(one: Case):
    module = convert(built(one)).double()
    x = torch.from_numpy(one.x).double()
    assert module.gradients.exists
    along = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = torch.randn(module(x).shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    step = 1e-6
    slope = ((module(x + step * along) - module(x - step * along)) * weights).sum() / (2 * step)
    leaf = x.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad((module(leaf) * weights).sum(), leaf)
    torch.testing.assert_close((gradient * along).sum(), slope, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("one", [one for one in CASES if one.op in BARREN], ids=lambda one: one.label)
def test_an_operator_without_a_useful_gradient_is_known(one: Case):
    path = convert(built(one)).gradients
    assert not path.exists
    assert path.lost_in == (() if one.op in ("IsNaN", "IsInf", "Shape", "Size") else (one.op,))


def test_what_makes_constants_is_folded_away():
    nodes = [
        helper.make_node("Constant", [], ["start"], value_int=1),
        helper.make_node("Constant", [], ["step"], value_int=2),
        helper.make_node("Constant", [], ["limit"], value_int=9),
        helper.make_node("Range", ["start", "limit", "step"], ["row"]),
        helper.make_node("Cast", ["row"], ["odd"], to=TensorProto.FLOAT),
        helper.make_node("Constant", [], ["shape"], value_ints=[3, 4]),
        helper.make_node("ConstantOfShape", ["shape"], ["filled"], value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0.5])),
        helper.make_node("Mul", ["odd", "filled"], ["table"]),
        helper.make_node("Add", ["x", "table"], ["y"]),
    ]
    module = convert(graph(nodes, [3, 4]))
    x = normal(3, 4)
    np.testing.assert_allclose(module(torch.from_numpy(x)).numpy(), x + np.array([1, 3, 5, 7]) / 2, rtol=1e-6)
    assert list(module.values(torch.from_numpy(x), ["table", "y"])) == ["table", "y"]
    assert len(list(module.buffers())) == 1


def test_shapes_that_follow_the_batch_are_computed_each_time():
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"], axis=0),
        helper.make_node("Concat", ["rows", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    module = convert(graph(nodes, ["n", 2, 3], {"zero": ints(0), "rest": ints(-1)}))
    assert module(torch.zeros(5, 2, 3)).shape == (5, 6)
    assert module(torch.zeros(1, 2, 3)).shape == (1, 6)


def test_swish_is_its_formula():
    module = convert(graph([helper.make_node("Swish", ["x"], ["y"], alpha=0.5)], PLAIN.shape, opset=24))
    np.testing.assert_allclose(module(torch.from_numpy(PLAIN)).numpy(), PLAIN / (1 + np.exp(-PLAIN / 2)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (Case(op="MaxPool", x=IMAGE, attributes={"kernel_shape": [2, 2]}, outputs=("v", "y")), "MaxPool with 2 outputs"),
        (
            case("Resize", IMAGE, None, floats(1, 1, 2, 2), coordinate_transformation_mode="tf_crop_and_resize"),
            "tf_crop_and_resize",
        ),
        (case("BatchNormalization", IMAGE, FOUR, FOUR, FOUR, np.abs(FOUR), training_mode=1), "training mode"),
        (case("Det", normal(3, 3)), "operator Det has no conversion"),
        (case("Cast", PLAIN, to=TensorProto.STRING), "values of type STRING"),
        (case("ReduceSum", PLAIN, opset=6), "opset 6 is older"),
    ],
)
def test_what_has_no_conversion_is_named(one: Case, says: str):
    with pytest.raises(MissingCapability, match=says):
        convert(built(one))(torch.from_numpy(one.x))


def test_an_operator_of_another_domain_and_a_graph_inside_the_graph_are_named():
    foreign = helper.make_node("Relu", ["x"], ["y"], domain="com.example")
    with pytest.raises(MissingCapability, match=r"operator Relu \(domain com\.example\) has no conversion"):
        convert(graph([foreign, helper.make_node("Tile", ["x", "x"], ["z"])], [3]))
    loop = helper.make_node("If", ["x"], ["y"], then_branch=graph([], [1]).graph, else_branch=graph([], [1]).graph)
    with pytest.raises(MissingCapability, match="operator If has no conversion"):
        convert(graph([loop], [1]))


def test_what_the_output_does_not_need_is_left_out():
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("ZipMap", ["y"], ["z"], domain="ai.onnx.ml")]
    assert convert(graph(nodes, [3]))(torch.tensor([-1.0, 0.0, 2.0])).tolist() == [0, 0, 2]


def test_nodes_may_come_in_any_order():
    nodes = [
        helper.make_node("Neg", ["b"], ["y"]),
        helper.make_node("Add", ["a", "x"], ["b"]),
        helper.make_node("Abs", ["x"], ["a"]),
    ]
    assert convert(graph(nodes, [2]))(torch.tensor([-1.0, 2.0])).tolist() == [0, -4]


def test_functions_of_the_model_are_inlined():
    body = [helper.make_node("Mul", ["a", "a"], ["b"]), helper.make_node("Neg", ["b"], ["c"])]
    square = helper.make_function("own", "MinusSquare", ["a"], ["c"], body, [helper.make_opsetid("", 17)])
    model = graph([helper.make_node("MinusSquare", ["x"], ["y"], domain="own")], [3])
    model.functions.append(square)
    model.opset_import.append(helper.make_opsetid("own", 1))
    assert convert(model)(torch.tensor([1.0, 2.0, 3.0])).tolist() == [-1, -4, -9]


def test_half_precision_is_computed_in_float32():
    nodes = [helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16), helper.make_node("Mul", ["h", "w"], ["y"])]
    module = convert(graph(nodes, [3], {"w": np.array([1e-4], np.float16)}))
    assert module.from_half
    x = torch.tensor([1e-3, 1e-4, 1e-5], requires_grad=True)
    y = module(x)
    assert y.dtype == torch.float32
    (gradient,) = torch.autograd.grad(y.sum(), x)
    np.testing.assert_allclose(gradient.numpy(), np.full(3, np.float32(np.float16(1e-4))), rtol=1e-6)
