"""What counts where inputs are padded."""

import numpy as np
import pytest

from tritonkit.repository.optimize.variants.openvino_int8 import without_padding

MASK = np.array([[1, 1, 0], [1, 0, 0]], np.int64)
IDS = np.array([[5, 6, 0], [7, 0, 0]], np.int64)


def test_rows_of_padding_are_zero() -> None:
    """By a mask of zeros and ones beside ids; outputs without that axis stay as they are."""
    hidden, pooled = np.ones((2, 3, 4), np.float32), np.ones((2, 3), np.float32)
    outputs = without_padding({"hidden": hidden, "pooled": pooled}, {"input_ids": IDS, "attention_mask": MASK})
    assert outputs["hidden"].dtype == np.float32
    assert outputs["hidden"][..., 0].tolist() == MASK.tolist()
    assert outputs["pooled"] is pooled


@pytest.mark.parametrize("other", [IDS, MASK.astype(np.float32), MASK * 0, np.ones((2, 2, 2), np.int64)])
def test_what_is_no_mask_hides_nothing(other: np.ndarray) -> None:
    """Ids, real numbers, an empty mask, other axes."""
    hidden = np.ones((2, 3, 4), np.float32)
    assert without_padding({"hidden": hidden}, {"x": other})["hidden"] is hidden
