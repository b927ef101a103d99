import copy
import hashlib
import pickle

import numpy as np
import pytest

from turnwise.seeding import generator


@pytest.mark.parametrize("labels", [(), ("maps", 7), ("world", "train", 1, 2, 3, "group")])
def test_a_generator_is_philox_with_the_digest_of_its_place_as_key(labels):
    place = "\x1f".join(f"{type(label).__name__}:{label}" for label in (5, *labels))
    digest = hashlib.blake2b(place.encode(), digest_size=16).digest()
    expected = np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
    assert (generator(5, *labels).random(100) == expected.random(100)).all()


def test_a_copied_generator_goes_on_with_the_same_draws():
    rng = generator(5, "maps")
    rng.random(3)
    copies = [copy.deepcopy(rng), pickle.loads(pickle.dumps(rng))]
    expected, children = rng.random(4), [child.random() for child in rng.spawn(2)]
    for each in copies:
        assert (each.random(4) == expected).all()
        assert [child.random() for child in each.spawn(2)] == children


def test_spawned_generators_depend_on_the_place_and_differ():
    first, second = (generator(5, "maps") for _ in range(2))
    children = [*first.spawn(2), *first.spawn(1)]
    drawn = [child.random() for child in children]
    assert drawn == [child.random() for child in second.spawn(3)]
    assert len({*drawn, generator(5, "maps").random()}) == 4
    assert children[0].spawn(1)[0].random() not in drawn


def test_the_key_of_a_place_is_for_philox_alone():
    with pytest.raises(ValueError, match="2 words of uint64, not 4"):
        np.random.PCG64(generator(1, "maps").bit_generator.seed_seq)
