from hypothesis import given
from hypothesis import strategies as st

from turnwise.formats import REPLY_FORMATS
from turnwise.render import find_spans
from turnwise.types import Failure

TAGS = REPLY_FORMATS["tags"]


def spans_of(pieces, **options):
    def decode(ids):
        return "".join(pieces[i] for i in ids)

    ids = tuple(range(len(pieces)))
    return {span.name: (span.start, span.end) for span in find_spans(ids, decode, TAGS, **options)}


def test_words_as_single_tokens():
    pieces = ["<think>", " left", " ice", " </think>", " <answer>", " DOWN", " </answer>", ""]
    assert spans_of(pieces) == {"think": (0, 4), "answer": (4, 8), "action": (5, 6)}


def test_tags_of_many_tokens_and_two_word_action():
    pieces = [*"<think>", " a", "</", "think", ">\n\n", "<", "answer", ">", " go", " up", " </"]
    pieces += ["answer", ">", ""]
    found = spans_of(pieces)
    assert found == {"think": (0, 11), "answer": (11, 20), "action": (14, 16)}


def test_a_token_shared_by_thought_and_answer_belongs_to_the_answer():
    pieces = ["<think", ">x", "</think", "><", "answer", ">U", "P</", "answer>"]
    assert spans_of(pieces) == {"think": (0, 3), "answer": (3, 8), "action": (5, 7)}


def test_characters_split_over_tokens():
    raw = "<think> é🙂 </think> <answer> ü </answer>".encode()

    def decode(ids):
        return bytes(ids).decode(errors="replace")

    found = {s.name: raw[s.start : s.end].decode() for s in find_spans(tuple(raw), decode, TAGS)}
    assert found == {
        "think": "<think> é🙂 </think>",
        "answer": "<answer> ü </answer>",
        "action": "ü",
    }


def test_missing_tags_give_fewer_spans():
    assert spans_of(["DOWN", ""]) == {}
    assert spans_of([]) == {}
    assert spans_of(["<think>", " ice"]) == {}
    assert spans_of([" </think>", " ice"]) == {}
    assert spans_of(["<answer>", " DOWN"]) == {"answer": (0, 2)}
    assert spans_of(["<answer>", " ", "</answer>"]) == {"answer": (0, 3)}
    assert spans_of(["<think>", " a", "</think>"]) == {"think": (0, 3)}


def test_a_thought_opened_by_the_prompt():
    pieces = ["ice", " </think>", " <answer>", " UP", " </answer>"]
    assert spans_of(pieces, inside_thought=True)["think"] == (0, 2)
    assert "think" not in spans_of(pieces)


def test_the_last_closed_answer_counts():
    pieces = ["<answer>", " UP", " </answer>", " <answer>", " DOWN", " </answer>", " <answer>"]
    assert spans_of(pieces) == {"answer": (3, 7), "action": (4, 5)}


def test_an_answer_inside_the_thought_cuts_the_thought():
    pieces = ["<think>", " <answer>", " UP", " </answer>", " </think>"]
    assert spans_of(pieces) == {"answer": (1, 5), "action": (2, 3)}


PIECES = st.sampled_from(
    ["<think>", "</think>", "<answer>", "</answer>", "<ans", "wer>", "</", " UP", "\n", "><", "<"]
)


@given(st.lists(PIECES, max_size=14))
def test_spans_never_overlap_wrongly_and_agree_with_the_parser(pieces):
    found = spans_of(pieces)
    text = "".join(pieces)
    for start, end in found.values():
        assert 0 <= start < end <= len(pieces)
    if "answer" in found:
        assert found["answer"][1] == len(pieces)
        assert "<answer>" in "".join(pieces[found["answer"][0] :])
    if "think" in found and "answer" in found:
        assert found["think"][1] <= found["answer"][0]
    if "action" in found:
        start, end = found["action"]
        assert found["answer"][0] <= start
        words = "".join(pieces[start:end])
        answer = TAGS.parse(text, ("UP",))
        assert "UP" in words if answer == "UP" else isinstance(answer, Failure)
    else:
        assert isinstance(TAGS.parse(text, ("UP",)), Failure)
