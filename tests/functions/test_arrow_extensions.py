"""Arrow extension types: their values are what the library that made them says, not what their storage looks like."""

import numpy as np
import pyarrow as pa
import pytest

from quadrat.input.rows import rows_of

IDS = pa.array([[5, 6, 7], [8], [9, 9]])


COLUMNS = {
    "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, None], pa.int8())),
    "uuid": pa.array([b"a" * 16, None, b"b" * 16], pa.uuid()),
    "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.array([[1, 2], [3, 4], [5, 6]])),
    "opaque": pa.ExtensionArray.from_storage(pa.opaque(pa.int64(), "money", "somebody"), pa.array([1, 2, 3])),
    "list of them": pa.ListArray.from_arrays(
        [0, 1, 1, 3], pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0, 1], pa.int8()))
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_values_are_those_of_the_type(name):
    table = pa.table({"input_ids": IDS, name: COLUMNS[name]})
    for part in (table, table.slice(1), pa.concat_tables([table, table.slice(2)])):
        rows = list(rows_of(part))
        assert rows == part.to_pylist()
        assert [type(row[name]) for row in rows] == [type(row[name]) for row in part.to_pylist()]


def test_a_column_of_metadata_is_none_of_a_type():
    field = pa.field("input_ids", IDS.type, metadata={"extension": "no", "note": "x" * 300})
    table = pa.table([IDS], schema=pa.schema([field]))
    assert list(rows_of(table)) == table.to_pylist()


def test_without_the_library_that_made_them_they_are_refused():
    class Bare:
        """What any library may hand over: a stream of Arrow, and no more."""

        def __init__(self, table):
            self._table = table

        def __arrow_c_stream__(self, requested_schema=None):
            return self._table.__arrow_c_stream__(requested_schema)

    rows = rows_of(Bare(pa.table({"input_ids": IDS, "flag": COLUMNS["bool8"]})))
    with pytest.raises(TypeError, match=r"'flag' has the Arrow type 'arrow\.bool8'.*leave the column out"):
        list(rows)
