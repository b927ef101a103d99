import contextlib
import math
import random
import struct
import sys
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnwise.sandbox.inside.wire import DTYPES, NotPlainError, TooLargeError, dump, load

KEYS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(st.characters()),
    st.binary(),
    st.tuples(st.integers()),
    st.frozensets(st.integers()),
)
VALUES = st.recursive(
    st.one_of(KEYS, st.floats(allow_nan=False), st.complex_numbers(allow_nan=False)),
    lambda inner: st.one_of(
        st.lists(inner), st.dictionaries(KEYS, inner), st.tuples(inner, inner), st.sets(KEYS)
    ),
    max_leaves=20,
)
MODULUS = sys.hash_info.modulus


def numpy():
    return np


def same(left, right):
    """Equal, and of equal types all the way down: 1, 1.0 and True are three values."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    return left == right


def sized(tag, data, count=None):
    return tag + struct.pack("<I", len(data) if count is None else count) + data


def integer(value):
    return dump(value, 1 << 20)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(VALUES)
def test_values_come_back_as_they_were(value):
    assert same(load(dump(value, 1 << 24)), value)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_value_or_refused(data):
    with contextlib.suppress(NotPlainError):
        load(data, numpy)


def test_empty_arrays_have_few_parts():
    """(2**40, 0) takes no bytes; as lists it would take all that there are."""
    for shape in ((0, 3), (3, 0), (0,), (2, 3, 0, 5), (1 << 20, 0)):
        assert load(dump(np.zeros(shape), 1000), numpy).shape == shape
    for shape in ((2**21, 0), (0, 2**31), (2**60, 0), (2**11, 2**11, 0)):
        with pytest.raises(NotPlainError, match="empty array of shape"):
            dump(np.zeros(shape, "int8"), 1000)
        sides = struct.pack(f"<{len(shape)}Q", *shape)
        with pytest.raises(NotPlainError):
            load(b"a\x01" + bytes([len(shape)]) + sides, numpy)


def mutated(draw, data):
    """Change, cut, repeat or join bytes at random, as a fuzzer does."""
    data = bytearray(data)
    for _ in range(draw.randrange(1, 6)):
        place = draw.randrange(len(data) + 1)
        kind = draw.randrange(6)
        if kind == 0 and data:
            data[place % len(data)] = draw.randrange(256)
        elif kind == 1:
            data[place:place] = bytes([draw.choice(b"NTFiIfcsbltSzda\x00\x01\xff")])
        elif kind == 2:
            del data[place : place + draw.randrange(1, 9)]
        elif kind == 3:
            data[place : place + 4] = struct.pack(
                "<I", draw.choice([0, 1, 2, 255, 2**31, 2**32 - 1])
            )
        elif kind == 4:
            data[place:place] = data[: draw.randrange(40)]
        elif data:
            data[place % len(data)] ^= 1 << draw.randrange(8)
    return bytes(data)


SEEDS = [
    ("value", [1, -1, 2**70, 1.5, math.nan, 2j, "text\ud800", b"bytes", None, True]),
    ("value", {(1, 2): {frozenset({1, 2}), "x"}, -1: [(), [], {}, set(), frozenset()]}),
    ("value", [np.arange(6.0).reshape(2, 3), np.array(True), np.zeros((0, 3), "complex64")]),
    ("failed", "exception", "ValueError: x", 3),
    ("value", [[[[[[[[{frozenset({frozenset({(1, (2,))})})}]]]]]]]]),
]


@pytest.mark.parametrize("seed", range(4))
def test_the_reader_survives_mutations_of_what_is_written(seed):
    """A fuzzer, seeded: every mutation is a plain value or a `NotPlainError`, and soon."""
    draw = random.Random(seed)
    written = [dump(value, 1 << 16) for value in SEEDS]
    refused = 0
    for _ in range(4000):
        data = mutated(draw, draw.choice(written))
        began = time.thread_time()
        try:
            value = load(data, numpy)
        except NotPlainError:
            refused += 1
        else:
            assert_plain(value)
        assert time.thread_time() - began < 1.0, data
    assert 400 < refused < 4000


def assert_plain(value):
    assert type(value) in (
        *(type(None), bool, int, float, complex, str, bytes),
        *(list, tuple, dict, set, frozenset, np.ndarray),
    )
    if isinstance(value, np.ndarray):
        assert value.dtype.name in DTYPES
    elif isinstance(value, dict):
        for key, inner in value.items():
            assert_plain(key)
            assert_plain(inner)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            assert_plain(inner)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, 10**4299, -(2**63), -(2**64)], ids=range(6)
)
def test_numbers_of_any_size(value):
    back = load(dump(value, 1 << 16))
    assert back == value or (math.isnan(back) and math.isnan(value))


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\udc80", "\x00", "😀", "e\u0301"])
def test_any_text_passes(text):
    assert load(dump(text, 100)) == text and load(dump({text: text}, 100)) == {text: text}


@pytest.mark.parametrize("dtype", ["?", "<i8", ">i4", "<f4", ">f8", "<c16", "u1", "f2"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (2, 3)])
def test_arrays_come_back(dtype, shape):
    array = np.ones(shape, dtype=dtype)
    back = load(dump({"a": array}, 1 << 16), numpy)["a"]
    assert back.dtype == array.dtype.newbyteorder("=") and back.shape == shape
    assert (back == array).all()
    back[...] = 0  # its own memory, which may be written


def test_arrays_that_are_no_copy_of_memory_come_back():
    array = np.arange(12).reshape(3, 4)
    for view in (array.T, array[::2, ::-1], np.broadcast_to(array[0], (2, 4))):
        assert (load(dump(view, 1 << 12), numpy) == view).all()


def test_arrays_need_numpy():
    with pytest.raises(NotPlainError):
        load(dump(np.ones(1), 100))


@pytest.mark.parametrize(
    ("scalar", "plain"),
    [(np.float32(0.5), 0.5), (np.int64(3), 3), (np.bool_(True), True), (np.complex64(1j), 1j)],
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
        np.array([(1, 2.0)], dtype="i4,f8"),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.longdouble(1),
        10**4300,
        -(10**5000),
        np.ones(1, np.longdouble),
        np.ma.array([1]),
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
    for depth in (70, 100_000):
        with pytest.raises(NotPlainError):
            load(sized(b"l", b"", 1) * depth + b"N")


def test_size_is_bounded_before_anything_is_built():
    value = ["x"]
    for _ in range(60):
        value = [value, value]
    with pytest.raises(TooLargeError):
        dump(value, 1 << 16)
    with pytest.raises(TooLargeError):
        dump("é" * 2000, 3000)
    with pytest.raises(TooLargeError):
        dump(1 << 10**9, 3000)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"?",
        b"NN",
        b"i123",
        b"s\xff\xff\xff\xffx",
        b"l\xff\xff\xff\xffN",
        b"s\x01\x00\x00\x00\xff",
        sized(b"d", b"NN", 2),
        sized(b"d", b"TNTN", 2),
        sized(b"S", b"NN", 2),
        sized(b"S", sized(b"l", b"") * 1, 1),
        sized(b"S", integer(1) + b"T", 2),
        b"a",
        b"a\x0e\x00",
        b"a\xff\x00",
        b"a\x00\x21",
        b"a\x04\x01" + struct.pack("<Q", 9),
        b"a\x04\x02" + struct.pack("<QQ", 2**63, 2**63),
        b"a\x04\x02" + struct.pack("<QQ", 0, 2**62),
        b'["value",{"a":[",",[1],"AAAA"]}]',
        sized(b"I", b"\x01" * 2000),
    ],
    ids=range(21),
)
def test_what_was_not_written_is_refused(data):
    with pytest.raises(NotPlainError):
        load(data, numpy)


def test_bytes_of_a_boolean_array_are_booleans():
    back = load(b"a\x00\x01" + struct.pack("<Q", 4) + bytes([0, 1, 2, 255]), numpy)
    assert back.tolist() == [False, True, True, True] and back.tobytes() == bytes([0, 1, 1, 1])


def nested(depth, width):
    """Frozensets in frozensets, all of equal hash at every level: comparing two is exponential."""
    inner = [integer(i * MODULUS + 1) for i in range(1, width + 1)]
    for _ in range(depth):
        inner = [
            sized(b"z", b"".join(inner[:i] + inner[i + 1 :]), len(inner) - 1)
            for i in range(len(inner))
        ]
    return sized(b"S", b"".join(inner), len(inner))


def colliding(count):
    """Integers of different hashes, which begin and go on at the same places of a table."""
    return [(i << 46) + 5 for i in range(count)]


HOSTILE_KEYS = {
    "integers of one hash": sized(b"S", b"".join(integer(i * MODULUS) for i in range(3000)), 3000),
    "tuples of one hash": dump({((i * MODULUS,) * 20,): i for i in range(300)}, 1 << 24),
    "nested frozensets": nested(5, 7),
    "deep frozensets": nested(3, 12),
    "long integers of one hash": dump({i * MODULUS << 61 * 200: 0 for i in range(1, 400)}, 1 << 24),
}


@pytest.mark.parametrize("name", HOSTILE_KEYS)
def test_keys_that_take_long_to_tell_apart_are_refused_soon(name):
    data = HOSTILE_KEYS[name]
    began = time.thread_time()
    with contextlib.suppress(NotPlainError):
        load(data)
    assert time.thread_time() - began < 1.0, len(data)


def test_keys_of_one_hash_are_refused():
    with pytest.raises(NotPlainError, match="one hash"):
        load(dump({i * MODULUS for i in range(3000)}, 1 << 20))


def test_integers_that_collide_in_tables_are_bounded():
    data = dump(colliding(60_000), 1 << 24)
    hostile = b"S" + data[1:]
    began = time.thread_time()
    with contextlib.suppress(NotPlainError):
        load(hostile)
    assert time.thread_time() - began < 2.0


@pytest.mark.parametrize(
    "value",
    [
        {-1: 0, -2: 0},
        {(a, b, c) for a in range(-6, 6) for b in range(-6, 6) for c in range(-6, 6)},
        {frozenset({a, b}) for a in range(-8, 8) for b in range(a)},
        {(i, -i): str(i) for i in range(5000)},
        {float(i) for i in range(5000)},
        {frozenset({(i, j) for j in range(5)}) for i in range(500)},
        dict.fromkeys(["word" + str(i) for i in range(20_000)]),
    ],
    ids=range(7),
)
def test_honest_keys_pass(value):
    assert load(dump(value, 1 << 22)) == value
