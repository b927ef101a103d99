"""The prefix store, compared with a dictionary of all prefixes."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwise.engines.base import PromptKey
from turnwise.engines.local.cache import SlotCache
from turnwise.engines.local.prefix_cache import PrefixStore, common_length, shared_length

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple)


def key(*tokens, media=()):
    return PromptKey(media, tokens)


def slots(rows, length):
    """A cache of one layer in which row r holds 100 r + position at every position."""
    cache = SlotCache()
    cache.reserve(rows, length)
    cache.aim(0, torch.arange(length).expand(rows, length), length)
    keys = (torch.arange(rows)[:, None] * 100 + torch.arange(length)).float()
    cache.update(keys[:, None, :, None], keys[:, None, :, None] + 0.5, 0)
    return cache.slot_layers


@given(st.lists(TOKENS, min_size=1, max_size=10))
@settings(max_examples=100, deadline=None)
def test_every_distinct_beginning_has_one_entry(sequences):
    store, layers = PrefixStore(1 << 20), slots(len(sequences), 12)
    first: dict[tuple[int, ...], int] = {}
    for row, tokens in enumerate(sequences):
        store.save(layers, [(key(*tokens), row, 0)])
        for end in range(1, len(tokens) + 1):
            first.setdefault(tokens[:end], row)
    assert len(store) == len(first)
    for tokens in sequences:
        entries = store.match(key(*tokens, 9))
        assert len(entries) == len(tokens)
        target = slots(1, 12)
        where = torch.arange(len(tokens))
        store.load(target, torch.from_numpy(entries), torch.zeros_like(where), where)
        found = target[0].keys[0, 0, : len(tokens), 0].tolist()
        assert found == [100 * first[tokens[: i + 1]] + i for i in range(len(tokens))]


def test_what_a_row_wrote_is_remembered_behind_its_prompt():
    store, layers = PrefixStore(1 << 20), slots(3, 12)
    store.save(layers, [(key(5, 6, 7), 0, 0)])
    store.save(layers, [(key(5, 6, 7, 8, 9), 2, 3)])  # its row holds 8 and 9 at 0 and 1
    assert len(store) == 5
    target = slots(1, 12)
    where = torch.arange(5)
    store.load(target, torch.from_numpy(store.match(key(5, 6, 7, 8, 9))), where * 0, where)
    assert target[0].keys[0, 0, :5, 0].tolist() == [0, 1, 2, 200, 201]
    store.save(layers, [(key(5, 6, 1, 1), 1, 3)])  # its prompt is not known: nothing to go on from
    assert len(store) == 5


def test_the_budget_is_kept():
    layers = slots(4, 12)
    each = 2 * 4  # a key and a value of width 1
    store = PrefixStore(10 * each)
    store.save(layers, [(key(1, 2, 3, 4, 5, 6), 0, 0)])
    store.save(layers, [(key(2, 2, 3, 4, 5, 6), 1, 0)])
    assert len(store) == 6
    assert len(store.match(key(2, 2, 3))) == 0
    store.make_room([key(2, 2, 3)])
    assert len(store) == 0
    store.save(layers, [(key(2, 2, 3, 4, 5, 6), 1, 0)])
    assert len(store.match(key(2, 2, 3))) == 3
    nothing = PrefixStore(0)
    nothing.save(layers, [(key(1, 2), 0, 0)])
    assert not nothing.enabled
    assert len(nothing) == 0


def test_what_is_known_takes_no_room_again():
    layers = slots(2, 12)
    store = PrefixStore(10 * 2 * 4)
    store.save(layers, [(key(1, 2, 3, 4, 5, 6), 0, 0)])
    store.save(layers, [(key(1, 2, 3, 4, 5, 6, 7, 8), 1, 0)])
    assert len(store) == 8


def test_what_is_longer_than_the_budget_is_not_remembered_and_shorter_is():
    layers = slots(4, 12)
    store = PrefixStore(5 * 2 * 4)
    store.save(layers, [(key(1, 2, 3, 4, 5, 6), 0, 0), (key(1, 2, 3), 1, 0)])
    assert len(store) == 0
    store.make_room([key(1, 2, 3, 4, 5, 6)])
    store.save(layers, [(key(1, 2, 3), 1, 0)])
    assert len(store) == 3


def test_what_is_used_outlives_what_is_not():
    layers = slots(4, 12)
    store = PrefixStore(10 * 2 * 4)
    store.save(layers, [(key(1, 2, 3, 4), 0, 0), (key(2, 2, 3, 4), 1, 0), (key(3, 3, 3), 2, 0)])
    assert len(store) == 8
    store.make_room([key(2, 2, 9), key(2, 2, 3, 9), key(1, 7)])
    assert len(store) == 4
    target = slots(1, 12)
    for tokens, expected in (((2, 2, 3, 4), [100, 101, 102]), ((1, 2), [0]), ((3, 3), [])):
        entries = store.match(key(*tokens))
        where = torch.arange(len(entries))
        store.load(target, torch.from_numpy(entries), where * 0, where)
        assert target[0].keys[0, 0, : len(entries), 0].tolist() == expected
    store.save(layers, [(key(3, 3, 3), 2, 0)])
    assert len(store.match(key(3, 3, 3))) == 3


def test_what_is_all_in_use_stays():
    layers = slots(4, 12)
    store = PrefixStore(10 * 2 * 4)
    store.save(layers, [(key(1, 2, 3, 4), 0, 0), (key(2, 2, 3, 4), 1, 0), (key(3, 3, 3), 2, 0)])
    for _ in range(2):
        store.make_room([key(1, 2, 3, 4, 5), key(2, 2, 3, 4, 5)])
        assert len(store) == 8
        store.save(layers, [(key(3, 3, 3), 2, 0)])
        assert len(store.match(key(3, 3, 3))) == 0


@given(TOKENS, TOKENS)
def test_common_length(one, other):
    shorter = min(len(one), len(other))
    expected = next((i for i in range(shorter) if one[i] != other[i]), shorter)
    assert common_length(one, other) == expected


def test_other_media_share_no_entry():
    store, layers = PrefixStore(1 << 20), slots(3, 12)
    store.save(layers, [(key(1, 2, 3), 0, 0), (key(1, 2, 3, media=("a",)), 1, 0)])
    store.save(layers, [(key(1, 2, 3, media=("a", "b")), 2, 0)])
    assert len(store) == 9
    found = [store.match(key(1, 2, media=media)).tolist() for media in ((), ("a",), ("a", "b"))]
    assert found == [[0, 1], [3, 4], [6, 7]]
    assert len(store.match(key(1, 2, media=("b",)))) == 0
    store.clear()
    assert len(store.match(key(1, media=("a",)))) == 0


def test_prompts_with_other_media_share_no_beginning():
    assert shared_length(key(1, 2, 3), key(1, 2, 4)) == 2
    assert shared_length(key(1, 2, 3, media=("a",)), key(1, 2, 4, media=("a",))) == 2
    assert shared_length(key(1, 2, 3), key(1, 2, 4, media=("a",))) == 0
