"""No file does harm: whatever is in it, it is refused, or a model comes out that can be used."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

from tests.io.fuzz import tried
from tests.io.models_at_hand import MODELS, fitted
from tests.io.mutations import outcome_of
from widemargin import ModelFileError, load
from widemargin.codec import json_bytes
from widemargin.io import archive
from widemargin.io.archive import to_bytes
from widemargin.strategies.parts import Parts


def test_some_hundred_damaged_and_hostile_files(tmp_path):
    outcomes = tried(300, seed=1, path=tmp_path / "hostile.wm")
    assert sum(outcomes.values()) == 300
    refused = sum(count for name, count in outcomes.items() if name.endswith("refused"))
    assert refused > 150
    assert outcomes["array_edited: used"] > 5  # others are harmless, and are really used


def test_what_tries_the_files_notices_a_model_that_fails(tmp_path, monkeypatch):
    content = to_bytes(fitted("nu, three"))
    assert outcome_of(content, tmp_path / "model.wm") == "used"

    def fails(parts, scores):
        raise IndexError("out of bounds")

    monkeypatch.setattr(Parts, "class_scores", fails)
    with pytest.raises(IndexError):
        outcome_of(content, tmp_path / "model.wm")


# Pieces of JSON that take far more memory than they have characters.
SWELLING = [
    "[]", "{}", '{"":0}', '""', '"ab"', "1.5", "300", '"\\u4e00"', '{"set":[]}', '{"tuple":[]}', '{"a":{}}', "[[]]",
    "[1]", "null", '{"float":"nan"}', '{"scalar":["<f8",1.5]}', '{"set":[500,501,502]}',
    '{"dict":[[500,501],[502,503]]}',
    '{"Certificate":{"primal":1.5,"dual":1.5}}', '{"objects":["ab"]}', '{"a":1,"b":1,"c":1,"d":1,"e":1,"f":1}', '"\\""',
]  # fmt: skip


def with_parts(content, parts):
    """A model file, sealed, whose ``parts_`` are this JSON; blanks keep its arrays in their places."""
    length = archive._PRELUDE.unpack(content[: archive._PRELUDE.size])[2]
    header = json.loads(content[archive._PRELUDE.size :][:length])
    header["model"]["attributes"]["parts_"] = "HERE"
    text = json.dumps(header).replace('"HERE"', parts).encode()
    text += b" " * ((length - len(text)) % 64)
    whole = archive._PRELUDE.pack(archive._SIGNATURE, archive.FORMAT, len(text)) + text
    whole += content[archive._PRELUDE.size + length : -archive._CHECKSUM]
    return whole + hashlib.sha256(whole).digest()


def peak_of_load(path):
    tracemalloc.start()
    try:
        with pytest.raises(ModelFileError) as caught:
            load(path)
        return tracemalloc.get_traced_memory()[1], str(caught.value)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("piece", SWELLING)
def test_a_header_takes_at_most_sixteen_times_its_file(piece, tmp_path):
    """As many pieces as are allowed beside text that does not swell, and nothing but pieces."""
    content, path, n = to_bytes(fitted("nu, three")), tmp_path / "hostile.wm", 400_000
    size = len(content) + n
    cost = (json_bytes(f"[{','.join([piece] * 1000)}]".encode()) - 2 * 1000 * (len(piece) + 1)) / 1000
    most = min(n // (len(piece) + 1), int(0.98 * (16 * size + (1 << 20) - 3 * size - 60_000) / cost))
    text = "x" * (n - most * (len(piece) + 1))
    path.write_bytes(with_parts(content, f'["{text}",{",".join([piece] * most)}]'))
    peak, why = peak_of_load(path)
    assert "header would take" not in why
    assert peak <= 16 * path.stat().st_size + (1 << 20)
    path.write_bytes(with_parts(content, f"[{','.join([piece] * (n // (len(piece) + 1)))}]"))
    assert peak_of_load(path)[0] <= 16 * path.stat().st_size + (1 << 20)


@pytest.mark.parametrize("kind", ["set", "tuple", "dict"])
def test_sets_and_dicts_are_part_of_it(kind, tmp_path):
    path = tmp_path / "hostile.wm"
    items = ",".join(f"[{k},1]" if kind == "dict" else str(k) for k in range(1000, 100_000))
    path.write_bytes(with_parts(to_bytes(fitted("nu, three")), f'{{"{kind}":[{items}]}}'))
    assert peak_of_load(path)[0] <= 16 * path.stat().st_size + (1 << 20)


def test_a_header_of_many_names_is_refused(tmp_path):
    names = ",".join(f'"k{k}":0' for k in range(100_000))
    (tmp_path / "hostile.wm").write_bytes(with_parts(to_bytes(fitted("nu, three")), f"{{{names}}}"))
    peak, why = peak_of_load(tmp_path / "hostile.wm")
    assert "more than 4096 names" in why
    assert peak <= 16 * (tmp_path / "hostile.wm").stat().st_size


def test_signs_within_text_are_not_counted():
    signs = '[{,:"\\' * 10_000
    plain = json.dumps(["x" * len(json.dumps(signs))])
    assert json_bytes(json.dumps([signs]).encode()) <= json_bytes(plain.encode())
    assert json_bytes(b"[[],[]]") > json_bytes(b'["[],[]"]') - 64


@pytest.mark.parametrize("name", MODELS)
def test_models_take_less_than_sixteen_times_their_file(name, tmp_path):
    """And the bound leaves room for all that are saved."""
    content = to_bytes(fitted(name))
    length = archive._PRELUDE.unpack(content[: archive._PRELUDE.size])[2]
    assert json_bytes(content[archive._PRELUDE.size :][:length]) < 16 * length


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_ten_thousand_damaged_and_hostile_files(seed):
    """In a process of their own: a crash of a compiled loop would end it."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.io.fuzz", "--count", "2500", "--seed", str(100 + seed)],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=root,
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert sum(json.loads(done.stdout).values()) == 2500
