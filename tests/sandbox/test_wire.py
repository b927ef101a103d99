import contextlib
import math
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwise.sandbox.inside.wire import (
    NotPlainError,
    TooLargeError,
    dump,
    load,
    read_frame,
    write_frame,
)

KEYS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(), st.binary(), st.tuples(st.integers())
)
VALUES = st.recursive(
    st.one_of(KEYS, st.floats(allow_nan=False), st.complex_numbers(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner), st.dictionaries(KEYS, inner), st.tuples(inner, inner), st.sets(KEYS)
    ),
    max_leaves=20,
)


def same(left, right):
    """Equal, and of equal types all the way down: 1, 1.0 and True are three values."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    return left == right


@given(VALUES)
def test_values_come_back_as_they_were(value):
    assert same(load(dump(value, 1 << 24)), value)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_refused(text):
    with contextlib.suppress(NotPlainError):
        load(text)


@given(
    st.recursive(
        st.text() | st.integers(),
        lambda inner: (
            st.dictionaries(st.sampled_from("tszdbfica"), inner, max_size=1)
            | st.lists(inner, max_size=3)
        ),
        max_leaves=10,
    )
)
def test_any_tags_are_a_value_or_refused(tagged):
    import json

    with contextlib.suppress(NotPlainError):
        load(json.dumps(tagged).encode())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**5000, -(2**63)], ids=range(5))
def test_numbers_that_json_lacks(value):
    back = load(dump(value, 1 << 16))
    assert back == value or (math.isnan(back) and math.isnan(value))


@pytest.mark.parametrize("dtype", ["?", "<i8", ">i4", "<f4", "<f8", "<c16", "u1"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)])
def test_arrays_come_back(dtype, shape):
    array = np.ones(shape, dtype=dtype)
    back = load(dump({"a": array}, 1 << 16))["a"]
    assert back.dtype == array.dtype and back.shape == shape and (back == array).all()
    back[...] = 0  # its own memory, which may be written


@pytest.mark.parametrize(
    ("scalar", "plain"), [(np.float32(0.5), 0.5), (np.int64(3), 3), (np.bool_(True), True)]
)
def test_scalars_of_numpy_become_plain(scalar, plain):
    assert same(load(dump(scalar, 100)), plain)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        int,
        type("I", (int,), {})(3),
        np.array([object()]),
        np.array(["x"]),
        [[object()]],
        range(3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_other_types_are_refused(value):
    with pytest.raises(NotPlainError):
        dump(value, 1 << 16)


def test_depth_is_bounded():
    value = []
    for _ in range(100):
        value = [value]
    with pytest.raises(NotPlainError, match="deeper"):
        dump(value, 1 << 16)
    for text in (b"[" * 100_000 + b"]" * 100_000, b"[" * 200 + b"]" * 200):
        with pytest.raises(NotPlainError):
            load(text)


def test_size_is_bounded_before_anything_is_built():
    value = ["x"]
    for _ in range(60):
        value = [value, value]
    with pytest.raises(TooLargeError):
        dump(value, 1 << 16)
    with pytest.raises(TooLargeError):
        dump("é" * 1000, 3000)


def test_arrays_of_objects_are_not_read():
    for tagged in (
        b'{"a":["|O8",[1],"AAAAAAAAAAA="]}',
        b'{"a":["<f8",[-1],""]}',
        b'{"a":["<f8",[9],""]}',
    ):
        with pytest.raises(NotPlainError):
            load(tagged)


def test_keys_of_one_hash_are_refused_before_they_are_told_apart():
    import sys

    for value in ({i * sys.hash_info.modulus for i in range(500)}, {-1: 0, -2: 0}):
        if len(value) > 100:
            with pytest.raises(NotPlainError):
                load(dump(value, 1 << 20))
        else:
            assert load(dump(value, 1 << 20)) == value


def test_frames_follow_each_other():
    read, write = os.pipe()
    write_frame(write, {"a": 1}, (b"x", b"", b"yz"))
    write_frame(write, {"b": None})
    assert read_frame(read) == ({"a": 1}, [b"x", b"", b"yz"])
    assert read_frame(read) == ({"b": None}, [])
    os.write(write, b"\x05\0\0\0{")
    os.close(write)
    with pytest.raises(EOFError):
        read_frame(read)
    os.close(read)
