"""Classes that are whole numbers: told apart where doubles are not, or refused by name."""

import pyarrow as pa
import pytest

from partwise.errors import ColumnError
from partwise.tables.classes import class_array, class_places


@pytest.mark.parametrize("encoded", [False, True])
def test_classes_beyond_2_to_the_53_are_told_apart(encoded):
    values = pa.array([2**53 + 1, 2**53, None, 2**63 - 1])
    column = pa.chunked_array([values.dictionary_encode() if encoded else values])
    places = class_places("y", column, [2**53, 2**53 + 1, 2**63 - 1])
    assert repr(places.tolist()) == "[1.0, 0.0, nan, 2.0]"


def test_classes_of_unsigned_numbers_are_kept_as_such():
    column = pa.chunked_array([pa.array([2**64 - 1, 0], pa.uint64())])
    classes = [0, 2**64 - 1]
    assert class_places("y", column, classes).tolist() == [1, 0]
    assert class_array("y", column.type, classes).to_pylist() == classes


@pytest.mark.parametrize("kind", [pa.int8(), pa.float64()])
def test_a_class_beyond_all_numbers_of_a_type_is_refused(kind):
    with pytest.raises(ColumnError, match=r"^The classes .* of the label 'y' have no 64-bit type"):
        class_array("y", kind, [0, 2**64])
