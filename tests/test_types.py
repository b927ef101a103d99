"""The forms of a prompt, and the identity of two prompts."""

import pytest

from turnwise.types import Media, Message, Prompt

USER = Message(role="user", content="what is this?")
CAT, DOG = (Media(kind="image/png", data=data) for data in (b"cat", b"dog"))


def test_a_prompt_is_messages_or_text():
    for given, word in (({}, "neither"), ({"messages": (USER,), "text": ""}, "both")):
        with pytest.raises(ValueError, match=f"messages or text, got {word}"):
            Prompt(**given)
    with pytest.raises(ValueError, match="offers no tools"):
        Prompt(text="2+2=", tools=("{}",))


def test_media_are_known_by_their_content_and_kind():
    assert CAT == Media(kind="image/png", data=b"cat") != DOG
    assert Media(kind="image/gif", data=b"cat").sha256 != CAT.sha256
    assert "cat" not in repr(CAT)


def test_media_are_part_of_a_prompts_identity():
    plain = Prompt(messages=(USER,))
    seen = [Prompt(messages=(USER,), media=media) for media in ((CAT,), (DOG,), (CAT, DOG))]
    assert len({plain, *seen, Prompt(messages=(USER,), media=(CAT,))}) == 4
    assert [len(one.media_key) for one in (plain, *seen)] == [0, 1, 1, 2]
    assert len({one.media_key for one in (plain, *seen)}) == 4
