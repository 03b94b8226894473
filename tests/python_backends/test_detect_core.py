"""detect without Triton: each family against its published formulas, suppression against two references, odd inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from detect_core import FAMILIES, Settings, detect
from detect_nms import kept
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

LABELS = np.array([b"cat", b"dog", b"owl"], dtype=object)
HEIGHT, WIDTH = 96, 128
FRAME = {"height": HEIGHT, "width": WIDTH}


def random_boxes(count: int, seed: int, spread: float = 100) -> np.ndarray:
    """float32 [count, 4]: boxes of which many overlap."""
    chance = np.random.default_rng(seed)
    start = chance.uniform(0, spread, (count, 2))
    return np.concatenate([start, start + chance.uniform(1, 40, (count, 2))], axis=1).astype(np.float32)


def slow_nms(boxes: np.ndarray, classes: np.ndarray | None, threshold: float) -> list[int]:
    """The loop of torchvision's nms for CPUs, box by box in float32; boxes are sorted."""
    left, top, right, bottom = boxes.T
    areas = (right - left) * (bottom - top)
    gone = np.zeros(len(boxes), dtype=bool)
    stay = []
    for one in range(len(boxes)):
        if gone[one]:
            continue
        stay.append(one)
        for other in range(one + 1, len(boxes)):
            width = max(np.float32(0), min(right[one], right[other]) - max(left[one], left[other]))
            height = max(np.float32(0), min(bottom[one], bottom[other]) - max(top[one], top[other]))
            inter = width * height
            same = classes is None or classes[one] == classes[other]
            if same and inter / (areas[one] + areas[other] - inter) > threshold:
                gone[other] = True
    return stay


@pytest.mark.parametrize("count", [0, 1, 2, 60, 127, 128, 129, 300])
@pytest.mark.parametrize("by_class", [False, True])
def test_suppression_is_that_of_torchvision(count: int, by_class: bool) -> None:
    """The same boxes stay as in torchvision's own loop, whatever the number of blocks."""
    boxes = random_boxes(count, count)
    classes = np.random.default_rng(count).integers(0, 3, count) if by_class else None
    for threshold in (0.0, 0.3, 0.7, 1.0):
        assert kept(boxes, classes, threshold, 1000).tolist() == slow_nms(boxes, classes, threshold)
    assert kept(boxes, classes, 0.3, 5).tolist() == slow_nms(boxes, classes, 0.3)[:5]


def onnx_nms(boxes: np.ndarray, scores: np.ndarray, iou_threshold: float, score_threshold: float) -> set[Any]:
    """(class, box) pairs that ONNX Runtime's NonMaxSuppression keeps; scores: [boxes, classes]."""
    graph = helper.make_graph(
        [helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "score"], ["kept"])],
        "nms",
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, None, 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, None, None]),
        ],
        [helper.make_tensor_value_info("kept", TensorProto.INT64, [None, 3])],
        [
            helper.make_tensor("most", TensorProto.INT64, [1], [10_000]),
            helper.make_tensor("iou", TensorProto.FLOAT, [1], [iou_threshold]),
            helper.make_tensor("score", TensorProto.FLOAT, [1], [score_threshold]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    [rows] = session.run(None, {"boxes": boxes[None], "scores": np.ascontiguousarray(scores.T)[None]})
    return {(int(of), int(box)) for _, of, box in rows}


@pytest.mark.parametrize("family", ["yolov5", "yolov8", "ssd"])
def test_families_with_suppression_agree_with_onnx_runtime(family: str) -> None:
    """Boxes, classes and scores are those that NonMaxSuppression keeps of each class, best first."""
    chance = np.random.default_rng(7)
    corners = random_boxes(400, 7, spread=80)
    scores = np.zeros((400, 3), np.float32)
    classes = chance.integers(0, 3, 400)
    scores[np.arange(400), classes] = chance.permutation(400) / 400
    tensors = family_tensors(family, corners, scores)
    settings = Settings(family=family, k=400, iou_threshold=0.5, image_size=False, **FRAME)
    outputs = detect(tensors, None, LABELS, settings)
    expected = onnx_nms(corners, scores, 0.5, 0.25)
    order = sorted(expected, key=lambda pair: -scores[pair[1], pair[0]])
    count = int(outputs["count"][0, 0])
    assert count == len(expected) > 20
    assert outputs["class_id"][0, :count].tolist() == [of for of, _ in order]
    np.testing.assert_allclose(outputs["score"][0, :count], [scores[box, of] for of, box in order], rtol=1e-6)
    inside = np.clip(corners[[box for _, box in order]], 0, [WIDTH, HEIGHT, WIDTH, HEIGHT])
    np.testing.assert_allclose(outputs["box"][0, :count], inside, atol=1e-4)


def family_tensors(family: str, corners: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
    """Boxes and probabilities as a network of this family gives them, with a batch axis."""
    centered = np.concatenate([(corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]], axis=1)
    unit = np.float32([WIDTH, HEIGHT, WIDTH, HEIGHT])
    with np.errstate(divide="ignore"):
        logarithm, odds = np.log(scores), np.log(scores / (1 - scores))
    nothing = np.zeros((len(scores), 1), np.float32)
    best = np.stack([scores.max(1), scores.argmax(1)], 1)
    tensors: dict[str, dict[str, np.ndarray]] = {
        "yolov5": {"predictions": np.concatenate([centered, nothing + 0.5, scores * 2], axis=1)},
        "yolox": {"predictions": of_cells(centered, np.concatenate([nothing + 0.5, scores * 2], axis=1))},
        "yolov8": {"predictions": np.concatenate([centered, scores], axis=1).T},
        "end2end": {"predictions": np.concatenate([corners, best], axis=1)},
        "ssd": {"boxes": corners / unit, "scores": np.concatenate([nothing, scores], axis=1)},
        "detr": {
            "pred_boxes": centered / unit,
            "logits": np.concatenate([logarithm, np.log(1 - scores.sum(1, keepdims=True))], 1),
        },
        "rtdetr": {"pred_boxes": centered / unit, "logits": odds},
        "centerface": of_centers(centered, scores),
    }
    return {name: array[None].astype(np.float32) for name, array in tensors[family].items()}


def of_cells(centered: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """YOLOX's output [252, 5 + classes] for the frame, with these boxes in its last rows and nothing in the others."""
    cells = [(x, y, s) for s in (8, 16, 32) for y in range(HEIGHT // s) for x in range(WIDTH // s)]
    rows = np.zeros((len(cells), 4 + scores.shape[1]), np.float32)
    for row, box, values, (x, y, s) in zip(rows[::-1], centered, scores, cells[::-1], strict=False):
        row[:] = [box[0] / s - x, box[1] / s - y, *np.log(np.maximum(box[2:], 1e-6) / s), *values]
    return rows


def of_centers(centered: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
    """CenterFace's maps of the frame, with these boxes in their last cells and nothing in the others."""
    rows, columns = HEIGHT // 4, WIDTH // 4
    heatmap = np.zeros((scores.shape[1], rows * columns), np.float32)
    scale, offset, landmarks = (np.zeros((count, rows * columns), np.float32) for count in (2, 2, 10))
    for cell, box, values in zip(range(rows * columns)[::-1], centered, scores, strict=False):
        heatmap[:, cell] = values
        scale[:, cell] = np.log(np.maximum(box[3:1:-1], 1e-6) / 4)
        offset[:, cell] = box[1] / 4 - (cell // columns + 0.5), box[0] / 4 - (cell % columns + 0.5)
        landmarks[:, cell] = np.arange(10) / 10
    maps = {"heatmap": heatmap, "scale": scale, "offset": offset, "landmarks": landmarks}
    return {name: array.reshape(-1, rows, columns) for name, array in maps.items()}


def slow_centerface(maps: dict[str, np.ndarray], threshold: float) -> list[tuple[float, list[float], list[float]]]:
    """Score, box and points of each cell above the threshold, as CenterFace's own `decode` reads them, best first."""
    faces = []
    for row, column in zip(*np.where(maps["heatmap"][0] > threshold), strict=True):
        height, width = (float(np.exp(side)) * 4 for side in maps["scale"][:, row, column])
        down, right = maps["offset"][:, row, column]
        left = min(max(0, (column + right + 0.5) * 4 - width / 2), WIDTH)
        top = min(max(0, (row + down + 0.5) * 4 - height / 2), HEIGHT)
        points = []
        for point in range(5):
            points += [maps["landmarks"][2 * point + 1, row, column] * width + left]
            points += [maps["landmarks"][2 * point, row, column] * height + top]
        box = [left, top, min(left + width, WIDTH), min(top + height, HEIGHT)]
        faces.append((float(maps["heatmap"][0, row, column]), box, points))
    return sorted(faces, reverse=True)


@pytest.mark.parametrize(("size", "image_size"), [((WIDTH, HEIGHT), True), ((640, 288), True), ((5, 5), False)])
def test_centerface_is_read_as_its_own_decode_reads_it(size: tuple[int, int], image_size: bool) -> None:
    """Boxes are moved into the image at its left and top, cut off at the others, and points are shares of the box."""
    chance = np.random.default_rng(4)
    shape = (HEIGHT // 4, WIDTH // 4)
    maps = {
        "heatmap": chance.permutation(np.linspace(0, 1, np.prod(shape))).reshape(1, *shape),
        "scale": chance.normal(1.5, 0.5, (2, *shape)),
        "offset": chance.uniform(-0.5, 0.5, (2, *shape)),
        "landmarks": chance.uniform(0, 1, (10, *shape)),
    }
    maps = {name: array.astype(np.float32) for name, array in maps.items()}
    expected = slow_centerface(maps, 0.8)
    settings = Settings(
        family="centerface", k=200, score_threshold=0.8, iou_threshold=1, image_size=image_size, **FRAME
    )
    batch = {name: array[None] for name, array in maps.items()}
    sizes = np.array([size[::-1]]) if image_size else None
    outputs = detect(batch, sizes, LABELS[:1], settings)
    count = int(outputs["count"][0, 0])
    assert count == len(expected) > 100
    larger = np.array(size) / (WIDTH, HEIGHT) if image_size else np.ones(2)
    np.testing.assert_allclose(outputs["score"][0, :count], [score for score, _, _ in expected])
    boxes = np.array([box for _, box, _ in expected]).reshape(-1, 2, 2) * larger
    np.testing.assert_allclose(outputs["box"][0, :count].reshape(-1, 2, 2), boxes, atol=1e-3)
    points = np.array([points for _, _, points in expected]).reshape(-1, 5, 2) * larger
    np.testing.assert_allclose(outputs["points"][0, :count], points, atol=1e-3)
    assert not outputs["points"][0, count:].any()


@pytest.mark.parametrize("name", ["scale", "offset", "landmarks", "heatmap"])
def test_maps_of_centerface_have_a_cell_for_each_four_pixels(name: str) -> None:
    """Each has its own shape in the message."""
    maps = family_tensors("centerface", np.zeros((0, 4), np.float32), np.zeros((0, 1), np.float32))
    maps[name] = maps[name][..., 1:]
    channels = {"scale": 2, "offset": 2, "landmarks": 10, "heatmap": 1}[name]
    wanted = rf"found {name} of shape \[{channels}, 24, 31\], wanted \[{channels}, 24, 32\] for an image of 96 x 128"
    with pytest.raises(ValueError, match=wanted):
        detect(maps, None, LABELS[:1], Settings(family="centerface", image_size=False, **FRAME))


def test_yolox_is_read_as_its_own_demo_reads_it() -> None:
    """Cells row by row, from the smallest; the larger form has a fourth grid."""
    rows = np.zeros((1, 254, 8), np.float32)
    rows[0, [17, 192 + 9, 252 + 1]] = [
        [0.5, 0.25, np.log(2), np.log(3), 0.9, 1, 0, 0],  # cell 1, 1 of 8 pixels
        [0.5, 0.5, 0, 0, 0.8, 0, 1, 0],  # cell 1, 1 of 16 pixels
        [0, 0.5, 0, np.log(0.5), 0.7, 0, 0, 1],  # cell 1, 0 of 64 pixels
    ]
    settings = Settings(family="yolox", k=3, image_size=False, **FRAME)
    boxes = detect({"predictions": rows}, None, LABELS, settings)["box"][0]
    np.testing.assert_allclose(boxes, [[4, 0, 20, 22], [16, 16, 32, 32], [32, 16, 96, 48]], atol=1e-4)
    rows = rows[:, :252]
    assert detect({"predictions": rows}, None, LABELS, settings)["count"] == [[2]]
    with pytest.raises(
        ValueError, match=r"item 0: found 251 boxes, wanted 252 or 254, one for each cell of .* 96 x 128"
    ):
        detect({"predictions": rows[:, 1:]}, None, LABELS, settings)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_the_same_boxes(family: str) -> None:
    """Three boxes that do not overlap, one below the threshold, come out the same from each form of output."""
    corners = np.float32([[10, 10, 30, 40], [60, 20, 90, 50], [5, 60, 50, 90], [100, 70, 120, 90]])
    scores = np.float32([[0, 0.75, 0], [0.9, 0, 0], [0, 0, 0.5], [0.2, 0, 0]])
    tensors = family_tensors(family, corners, scores)
    outputs = detect(tensors, np.array([[HEIGHT, WIDTH]]), LABELS, Settings(family=family, k=5, **FRAME))
    assert outputs["count"].tolist() == [[3]]
    assert outputs["label"].tolist() == [[b"cat", b"dog", b"owl", b"", b""]]
    assert outputs["class_id"].tolist() == [[0, 1, 2, -1, -1]]
    np.testing.assert_allclose(outputs["score"], [[0.9, 0.75, 0.5, 0, 0]], rtol=1e-5)
    np.testing.assert_allclose(outputs["box"][0], [*corners[[1, 0, 2]], [0] * 4, [0] * 4], atol=1e-4)
    assert {name: array.dtype.kind for name, array in outputs.items()} == {
        "box": "f",
        "score": "f",
        "label": "O",
        "class_id": "i",
        "count": "i",
        **({"points": "f"} if family == "centerface" else {}),
    }


def test_detr_is_read_as_transformers_reads_it() -> None:
    """Softmax over all classes, the last is none; rtdetr: sigmoid, the best of all pairs of query and class."""
    chance = np.random.default_rng(3)
    logits = chance.normal(0, 3, (1, 50, 4)).astype(np.float32)
    boxes = np.concatenate([chance.uniform(0.3, 0.7, (50, 2)), chance.uniform(0.1, 0.3, (50, 2))], 1)
    boxes = boxes[None].astype(np.float32)
    size = np.array([[480, 640]])
    scale = np.array([640, 480, 640, 480])
    corners = np.concatenate([boxes[0, :, :2] - boxes[0, :, 2:] / 2, boxes[0, :, :2] + boxes[0, :, 2:] / 2], 1) * scale
    powers = np.exp(logits[0].astype(np.float64))
    chances = (powers / powers.sum(1, keepdims=True))[:, :-1]
    order = np.argsort(-chances.max(1))
    order = order[chances.max(1)[order] > 0.6]
    settings = Settings(family="detr", score_threshold=0.6, **FRAME)
    outputs = detect({"logits": logits, "pred_boxes": boxes}, size, LABELS, settings)
    count = int(outputs["count"][0, 0])
    assert count == len(order) > 5
    np.testing.assert_allclose(outputs["score"][0, :count], chances.max(1)[order], rtol=1e-5)
    assert outputs["class_id"][0, :count].tolist() == chances.argmax(1)[order].tolist()
    np.testing.assert_allclose(outputs["box"][0, :count], corners[order], rtol=1e-4, atol=1e-2)

    sure = 1 / (1 + np.exp(-logits[0, :, :3].astype(np.float64)))
    best = np.argsort(-sure.ravel())[:20]
    settings = Settings(family="rtdetr", k=20, **FRAME)
    outputs = detect({"logits": logits[:, :, :3], "pred_boxes": boxes}, size, LABELS, settings)
    np.testing.assert_allclose(outputs["score"][0], sure.ravel()[best], rtol=1e-5)
    assert outputs["class_id"][0].tolist() == (best % 3).tolist()
    np.testing.assert_allclose(outputs["box"][0], corners[best // 3], rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("size", [(640, 480), (480, 641), (33, 64), (1000, 170), (5, 4), (1281, 719)])
def test_boxes_of_a_letterbox_are_those_of_yolo(size: tuple[int, int]) -> None:
    """The formulas of Ultralytics' scale_boxes: minus the padding, by the gain, cut off; but for rounded sides."""
    width, height = size
    boxes = random_boxes(40, 1, spread=90)
    gain = min(HEIGHT / height, WIDTH / width)
    across, down = (round((room - side * gain) / 2 - 0.1) for room, side in ((WIDTH, width), (HEIGHT, height)))
    expected = (boxes - [across, down, across, down]) / gain
    expected = np.clip(expected, 0, [width, height, width, height])
    shown = (expected[:, 2:] - expected[:, :2] > 1 / gain).all(axis=1)
    scores = np.zeros((40, 3), np.float32)
    scores[:, 0] = np.linspace(0.9, 0.5, 40)
    settings = Settings(resize="letterbox", iou_threshold=1, **FRAME)
    outputs = detect(family_tensors("yolov8", boxes, scores), np.array([[height, width]]), LABELS, settings)
    index = np.searchsorted(-outputs["score"][0], -scores[shown, 0])
    np.testing.assert_allclose(outputs["box"][0, index], expected[shown], atol=0.6 / gain)
    assert shown.sum() >= 10


@pytest.mark.parametrize("resize", ["stretch", "crop", "letterbox", "shortest"])
def test_a_box_comes_back_to_where_decode_image_took_it_from(resize: str) -> None:
    """The whole of what the network sees is the whole of the source, or what crop keeps of it."""
    from decode_image_geometry import place

    resize_to = 128 if resize == "crop" else 60
    settings = Settings(resize=resize, resize_to=resize_to, iou_threshold=1, **FRAME)
    placed = place((400, 300), settings)
    (left, top), (width, height) = placed.at, placed.size
    corners = np.float32([[left, top, left + width, top + height]])
    tensors = family_tensors("yolov8", corners, np.float32([[0.9, 0, 0]]))
    outputs = detect(tensors, np.array([[300, 400]]), LABELS, settings)
    np.testing.assert_allclose(outputs["box"][0, 0], placed.box, atol=1e-3)


def test_classes_do_not_touch_each_other_unless_told() -> None:
    """One place, two classes: both stay, or with class_aware false the better one."""
    corners = np.float32([[10, 10, 50, 50], [11, 10, 50, 50]])
    tensors = family_tensors("yolov8", corners, np.float32([[0.9, 0, 0], [0, 0.8, 0]]))
    size = np.array([[HEIGHT, WIDTH]])
    assert detect(tensors, size, LABELS, Settings(**FRAME))["count"] == [[2]]
    outputs = detect(tensors, size, LABELS, Settings(class_aware=False, **FRAME))
    assert outputs["label"][0, :2].tolist() == [b"cat", b""]


def test_other_forms_of_boxes_and_scores() -> None:
    """yxyx corners, normalized YOLO boxes, logits, a background class that is the first or the last."""
    corners = np.float32([[10, 20, 50, 60]])
    unit = np.float32([WIDTH, HEIGHT, WIDTH, HEIGHT])
    size = np.array([[HEIGHT, WIDTH]])
    base = {"k": 1, **FRAME}
    cases: list[tuple[dict[str, Any], dict[str, np.ndarray]]] = [
        (
            {"family": "ssd", "box_format": "yxyx", "background": "none", "function": "sigmoid"},
            {"boxes": (corners / unit)[:, [1, 0, 3, 2]], "scores": np.float32([[-5, 2, -5]])},
        ),
        (
            {"family": "ssd", "coordinates": "pixels", "background": "last", "function": "softmax"},
            {"boxes": corners, "scores": np.float32([[0, 9, 0, 7]])},
        ),
        (
            {"family": "yolov5", "coordinates": "normalized", "function": "sigmoid", "box_format": "xyxy"},
            {"predictions": np.concatenate([corners / unit, np.float32([[3, -5, 3, -5]])], 1)},
        ),
    ]
    for more, tensors in cases:
        batch = {name: array[None].astype(np.float32) for name, array in tensors.items()}
        outputs = detect(batch, size, LABELS, Settings(**base, **more))
        assert outputs["label"].tolist() == [[b"dog"]]
        assert outputs["score"][0, 0] > 0.85
        np.testing.assert_allclose(outputs["box"][0], corners, atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("count", [0, 5])
def test_without_a_box_above_the_threshold_all_is_padding(family: str, count: int) -> None:
    """Also where the network gives no rows at all."""
    scores = np.full((count, 3), 0.01, np.float32)
    tensors = family_tensors(family, random_boxes(count, 0), scores)
    outputs = detect(tensors, np.array([[10, 10]]), LABELS, Settings(family=family, k=2, **FRAME))
    assert outputs["count"].tolist() == [[0]]
    assert outputs["label"].tolist() == [[b"", b""]]
    assert not outputs["box"].any()


def test_boxes_outside_the_image_and_without_an_area_are_left_out() -> None:
    """Boxes that reach out are cut off at the edges."""
    corners = np.float32(
        [
            [-50, -50, -10, -10],
            [130, 10, 150, 20],
            [20, 20, 20, 40],
            [40, 40, 30, 50],
            [-9, -9, 9, 9],
            [-1e38, 0, 1e38, 5],
        ]
    )
    scores = np.zeros((6, 3), np.float32)
    scores[:, 0] = 0.9
    outputs = detect(family_tensors("yolov8", corners, scores), np.array([[HEIGHT, WIDTH]]), LABELS, Settings(**FRAME))
    assert outputs["count"].tolist() == [[2]]
    assert outputs["box"][0, :2].tolist() == [[0, 0, 9, 9], [0, 0, WIDTH, 5]]


def test_an_image_of_one_pixel_and_a_batch_of_several_sizes() -> None:
    """Boxes are in the pixels of their own image."""
    corners = np.float32([[0, 0, WIDTH, HEIGHT]])
    tensors = family_tensors("yolov8", corners, np.float32([[0, 0, 0.9]]))
    batch = {name: np.repeat(array, 3, axis=0) for name, array in tensors.items()}
    sizes = np.array([[1, 1], [1000, 10], [96, 128]])
    outputs = detect(batch, sizes, LABELS, Settings(k=1, **FRAME))
    np.testing.assert_allclose(outputs["box"][:, 0], [[0, 0, 1, 1], [0, 0, 10, 1000], [0, 0, 128, 96]])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_that_are_not_finite_are_refused(family: str, value: float) -> None:
    """The message has the inputs and the item."""
    tensors = family_tensors(family, random_boxes(4, 0), np.full((4, 3), 0.3, np.float32))
    batch = {name: np.concatenate([array, array]) for name, array in tensors.items()}
    places = {"yolov5": (1, 2, 5), "yolox": (1, 251, 5), "yolov8": (1, 4, 2), "end2end": (1, 2, 4)}
    place = {**places, "centerface": (1, 0, 23, 31)}.get(family, (1, 2, 1))
    names = {"ssd": "scores", "detr": "logits", "rtdetr": "logits", "centerface": "heatmap"}
    name = names.get(family, "predictions")
    batch[name][place] = value
    if family == "rtdetr" and value == np.inf:  # its sigmoid is 1
        outputs = detect(batch, np.array([[9, 9], [9, 9]]), LABELS, Settings(family=family, **FRAME))
        assert outputs["score"][1, 0] == 1
        return
    with pytest.raises(ValueError, match=rf"input .*'{name}'.*, item 1: the largest score is (nan|inf)"):
        detect(batch, np.array([[9, 9], [9, 9]]), LABELS, Settings(family=family, **FRAME))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_boxes_that_are_not_finite_are_refused_if_they_count(value: float) -> None:
    """A box below the threshold may be anything."""
    corners, scores = random_boxes(4, 0), np.full((4, 3), 0.3, np.float32)
    scores[3] = 0
    tensors = family_tensors("yolov8", corners, scores)
    tensors["predictions"][0, 0, 3] = value
    size = np.array([[9, 9]])
    assert detect(tensors, size, LABELS, Settings(**FRAME))["count"].tolist() == [[3]]
    tensors["predictions"][0, 0, 2] = value
    with pytest.raises(ValueError, match="item 0: a box above the score threshold has a number that is not finite"):
        detect(tensors, size, LABELS, Settings(**FRAME))


def test_points_that_are_not_finite_are_refused() -> None:
    """A cell below the threshold may have any points."""
    tensors = family_tensors("centerface", np.float32([[9, 9, 20, 20]]), np.float32([[0.9, 0, 0]]))
    tensors["landmarks"][0, 3, :, 0] = np.nan
    size = np.array([[HEIGHT, WIDTH]])
    settings = Settings(family="centerface", **FRAME)
    assert detect(tensors, size, LABELS, settings)["count"] == [[1]]
    for value in (np.inf, 3e37):  # which is too large in pixels of a larger source
        tensors["landmarks"][0, 3, -1, -1] = value
        with pytest.raises(ValueError, match="item 0: a box above the score threshold has a point that is not finite"):
            detect(tensors, 100 * size, LABELS, settings)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["scale", "offset"])
def test_centers_that_are_not_finite_are_refused(name: str, value: float) -> None:
    """Also where the edge of the image would cut them off; a size of nothing is left out."""
    tensors = family_tensors("centerface", np.float32([[9, 9, 20, 20]]), np.float32([[0.9, 0, 0]]))
    size = np.array([[HEIGHT, WIDTH]])
    settings = Settings(family="centerface", **FRAME)
    cell = np.argwhere(tensors["heatmap"][0, 0] > 0.5)[0]
    tensors[name][0, :, *cell] = value
    if name == "scale" and value == -np.inf:
        assert detect(tensors, size, LABELS, settings)["count"] == [[0]]
        return
    with pytest.raises(ValueError, match="item 0: a box above the score threshold has a number that is not finite"):
        detect(tensors, size, LABELS, settings)


@pytest.mark.parametrize(
    ("family", "tensors", "message"),
    [
        ("yolov8", {"predictions": np.zeros((1, 84, 9))}, "scores of 80 classes, wanted 3.* family yolov8"),
        ("yolov8", {"predictions": np.zeros((1, 3, 9))}, "scores of -1 classes"),
        ("yolov5", {"predictions": np.zeros((1, 9, 7))}, "scores of 2 classes, wanted 3"),
        ("end2end", {"predictions": np.float32([[[0, 0, 5, 5, 0.9, 3]]])}, "found the class 3.0, wanted 0 to 2"),
        ("end2end", {"predictions": np.float32([[[0, 0, 5, 5, 0.9, np.nan]]])}, "found the class nan"),
        ("ssd", {"boxes": np.zeros((1, 4, 4)), "scores": np.zeros((1, 4, 3))}, "2 classes.* background first"),
        (
            "detr",
            {"pred_boxes": np.zeros((1, 4, 4)), "logits": np.zeros((1, 5, 4))},
            "found 4 boxes and the scores of 5",
        ),
    ],
)
def test_shapes_that_do_not_fit_are_refused(family: str, tensors: dict[str, np.ndarray], message: str) -> None:
    """The message says what was found, and what may be wrong."""
    given = {name: array.astype(np.float32) for name, array in tensors.items()}
    with pytest.raises(ValueError, match=message):
        detect(given, np.array([[9, 9]]), LABELS, Settings(family=family, **FRAME))


def test_a_size_that_no_image_has() -> None:
    """An image without pixels shows no box, as in a warm-up request; a size below 0 is refused."""
    tensors = family_tensors("yolov8", random_boxes(1, 0), np.float32([[0.9, 0, 0]]))
    for size in ([0, 5], [0, 0]):
        assert detect(tensors, np.array([size]), LABELS, Settings(**FRAME))["count"] == [[0]]
    with pytest.raises(ValueError, match="image_size is 5 x -1, wanted none below 0"):
        detect(tensors, np.array([[5, -1]]), LABELS, Settings(**FRAME))


@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(FAMILIES)), st.sampled_from(["stretch", "letterbox"]))
def test_any_finite_output_gives_boxes_within_the_image(seed: int, family: str, resize: str) -> None:
    """At most k, best first, above the threshold, with an area, inside."""
    chance = np.random.default_rng(seed)
    count = int(chance.integers(0, 40))
    corners = chance.normal(40, 10.0 ** chance.integers(0, 5), (count, 4)).astype(np.float32)
    scores = chance.uniform(0.001, 0.33, (count, 3)).astype(np.float32)
    width, height = (int(side) for side in chance.integers(1, 3000, 2))
    settings = Settings(family=family, k=7, resize=resize, **FRAME)
    outputs = detect(family_tensors(family, corners, scores), np.array([[height, width]]), LABELS, settings)
    number = int(outputs["count"][0, 0])
    boxes, values = outputs["box"][0, :number], outputs["score"][0, :number]
    assert number <= 7
    assert (boxes >= 0).all()
    assert (boxes <= [width, height, width, height]).all()
    assert (boxes[:, 2:] > boxes[:, :2]).all()
    assert (np.diff(values) <= 0).all()
    assert (values > 0.25).all()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"family": "yolov3"}, "family: found yolov3, wanted one of yolov5, yolox, yolov8"),
        ({"k": 0}, "k: found 0"),
        ({"score_threshold": 1.5}, "score_threshold: found 1.5, wanted 0 to 1"),
        ({"iou_threshold": float("nan")}, "iou_threshold: found nan"),
        ({"box_format": "xywh"}, "box_format: found xywh, wanted auto, xyxy, cxcywh, yxyx"),
        ({"coordinates": "inches"}, "coordinates: found inches"),
        ({"function": "relu"}, "function: found relu"),
        ({"background": "middle"}, "background: found middle"),
        ({"resize": "pad"}, "resize: found pad"),
        ({"resize": "crop", "resize_to": 8}, "resize_to: found 8, wanted at least 224"),
    ],
)
def test_unfit_parameters_are_refused(values: dict[str, Any], message: str) -> None:
    """Each parameter names itself, what was found and what was wanted."""
    with pytest.raises(ValueError, match=message):
        Settings(**values)
