"""An archive may claim no more than its bytes bear out."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from widemargin.data.arrays import refuse_false_sizes


def archive(save=np.savez, **arrays):
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


def check(data):
    refuse_false_sizes(io.BytesIO(data), len(data))


def claiming(shape, dtype=np.float64, content=b"\0" * 16, kind=zipfile.ZIP_STORED):
    """An archive with one array whose header is not that of its content."""
    member, buffer = io.BytesIO(), io.BytesIO()
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(member, header)
    with zipfile.ZipFile(buffer, "w", kind) as file:
        file.writestr("X.npy", member.getvalue() + content)
    return buffer.getvalue()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_true_archives_pass(save):
    check(archive(save, X=np.zeros((300, 40)), y=np.array(["a", "bc"]), none=np.empty((0, 3)), one=np.array(2.0)))
    check(claiming((2,)))


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("shape", [(3, 1000), (1 << 40,), (1 << 62, 1 << 62), (-1, -2)])
def test_claims_beyond_the_bytes_are_refused(shape, kind):
    with pytest.raises(ValueError, match=r"claims -?\d+ bytes"):
        check(claiming(shape, kind=kind))


def test_objects_and_what_is_no_archive_are_refused():
    with pytest.raises(ValueError, match="objects"):
        check(archive(X=np.array([{}], dtype=object)))
    with pytest.raises(ValueError, match="not an archive of arrays"):
        check(b"PK\3\4 and nothing else")


@pytest.mark.parametrize("kind", [zipfile.ZIP_STORED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_headers_that_overwhelm_the_parser_are_refused(kind):
    header = "{'descr': '<f8', 'fortran_order': False, 'shape': (" + 9000 * "-" + "1,)}\n"
    member, buffer = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode(), io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as file:
        file.writestr("X.npy", member)
    with pytest.raises(ValueError):
        check(buffer.getvalue())


def test_a_damaged_member_is_refused():
    content = bytearray(claiming((2,), kind=zipfile.ZIP_LZMA))
    content[45:60] = 15 * b"\xff"
    with pytest.raises(ValueError, match="not an archive of arrays"):
        check(bytes(content))
