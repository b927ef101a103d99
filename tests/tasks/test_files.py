import csv

import pytest

from turnwise.errors import DataError
from turnwise.tasks import SftRow, read_csv, read_jsonl, sft_rows
from turnwise.types import Message


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_jsonl_reads_objects_past_mark_blank_lines_and_windows_ends(tmp_path):
    text = '\ufeff{"a": 1}\r\n\r\n{"a": "é\u2028x"}\r\n'
    assert read_jsonl(write(tmp_path, "a.jsonl", text)) == [{"a": 1}, {"a": "é\u2028x"}]
    assert read_jsonl(write(tmp_path, "empty.jsonl", "")) == []


def test_csv_reads_quoted_commas_newlines_and_a_mark(tmp_path):
    text = '\ufeffprompt,completion\r\n"a, b","two\r\nlines"\r\n\r\né,\r\n'
    assert read_csv(write(tmp_path, "a.csv", text)) == [
        {"prompt": "a, b", "completion": "two\nlines"},
        {"prompt": "é", "completion": ""},
    ]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": }\n', "a.jsonl' line 2, column 7: not JSON"),
        ("a.jsonl", '{"a": 1}\n\n[1]\n', "a.jsonl' line 3: got a JSON list, expected an object"),
        ("a.jsonl", b'{"a": 1}\n{"a": "\xe9"}\n', "a.jsonl' line 2: not UTF-8 .byte 0xe9."),
        ("a.jsonl", "\ufeff{}".encode("utf-16-le"), "line 1: not UTF-8"),
        ("a.jsonl", '{}\n{"a": [NaN]}', "line 2, column 'a': nan cannot be kept: use finite"),
        ("a.jsonl", '{"a": {"b": -Infinity}}', "line 1, column 'a': -inf cannot be kept"),
        ("a.jsonl", '{"a": 1e999}', "line 1, column 'a': inf cannot be kept"),
        (
            "a.jsonl",
            r'{"a": "b \ud800"}',
            "line 1, column 'a': text holds half of a surrogate pair",
        ),
        ("a.jsonl", r'{"a": {"\udfff": 1}}', "column 'a': text holds half of a surrogate pair"),
        ("a.jsonl", r'{"\udfff": 1}', r"the name of column '\\udfff': text holds half of a surrog"),
        (
            "a.jsonl",
            '{"a": ' + "[" * 202 + "]" * 202 + "}",
            "column 'a': is nested deeper than 200",
        ),
        ("a.jsonl", '{"a": ' + "[" * 5000 + "]" * 5000 + "}", "line 1: is nested deeper than 200"),
        ("a.jsonl", '{"a": ' + "9" * 5000 + "}", "line 1: a whole number of more than 4300 digits"),
        ("a.jsonl", '{}\n{"a": 1, "b": 2, "a": 1}', "line 2: repeats 'a': give every key"),
        ("a.jsonl", '{"a": {"b": 1, "b": 2}}', "line 1: repeats 'b': give every key"),
        ("a.csv", "a,b\n1,2\n1,2,3\n", "a.csv' line 3: 3 values for 2 columns .a, b."),
        ("a.csv", 'a,b\n"x\ny",2\n1\n', "a.csv' line 4: 1 values for 2 columns"),
        ("a.csv", 'a,b\n1,"2\n', "a.csv' line 2: not CSV"),
        ("a.csv", "a,a\n1,2\n", "line 1 repeats column 'a'"),
        ("a.csv", "a,\n1,2\n", "line 1 has a column without a name"),
        ("a.csv", "", "is empty: its first line must name the columns"),
    ],
)
def test_malformed_files_are_named_with_their_line(tmp_path, name, content, sentence):
    path = write(tmp_path, name, content)
    read = read_csv if name.endswith(".csv") else read_jsonl
    with pytest.raises(DataError, match=sentence):
        read(path)


def test_values_at_the_limits_are_read(tmp_path):
    deep = "[" * 200 + "1" + "]" * 200
    text = f'{{"deep": {deep}, "digits": {"9" * 4300}, "pair": "\\ud83d\\ude00", "f": 1e308}}'
    (row,) = read_jsonl(write(tmp_path, "a.jsonl", text))
    assert (row["digits"], row["pair"], row["f"]) == (10**4300 - 1, "\U0001f600", 1e308)
    before = csv.field_size_limit()
    cell = "y" * (before + 1)
    assert read_csv(write(tmp_path, "a.csv", f'a,b\nx,"{cell}"\n')) == [{"a": "x", "b": cell}]
    assert csv.field_size_limit() == before


def test_missing_files_are_named(tmp_path):
    for read, name in ((read_csv, "no.csv"), (read_jsonl, "no.jsonl"), (sft_rows, "no.jsonl")):
        with pytest.raises(DataError, match=f"no file at .*{name}"):
            read(tmp_path / name)


def test_sft_rows_of_prompts_and_of_chats(tmp_path):
    user, system = Message(role="user", content="hi"), Message(role="system", content="be kind")
    table = write(tmp_path, "a.csv", "id,prompt,completion\n7,hi,hello\n")
    assert sft_rows(table) == [SftRow(messages=(user,), completion="hello")]
    table = write(tmp_path, "b.csv", "prompt,completion,role\nhi,hello,scout\nhi,hello,\n")
    assert [row.role for row in sft_rows(table)] == ["scout", None]
    lines = (
        '{"prompt": "hi", "completion": " hello "}\n'
        '{"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "hi"},'
        ' {"role": "assistant", "content": "hello"}], "source": "x"}\n'
    )
    assert sft_rows(str(write(tmp_path, "a.jsonl", lines))) == [
        SftRow(messages=(user,), completion=" hello "),
        SftRow(messages=(system, user), completion="hello"),
    ]


USER, REPLY = '{"role": "user", "content": "q"}', '{"role": "assistant", "content": "a"}'


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ('{"prompt": "q", "completion": "a", "role": 3}', "role = 3 must be text"),
        ('{"prompt": "q"}', r"line 2: has no completion \(columns: prompt\): give prompt and"),
        ('{"text": "q"}', "line 2: has no prompt and no completion"),
        ('{"prompt": "q", "completion": 4}', "line 2: completion = 4 must be text"),
        ('{"prompt": "q", "completion": " "}', "line 2: completion = ' ' must be text"),
        ('{"prompt": "q", "messages": []}', "line 2: has messages and prompt"),
        ('{"messages": "q"}', "line 2: messages must be a list of two or more"),
        (f'{{"messages": [{USER}, {USER}]}}', "line 2: the last message is the user's"),
        (f'{{"messages": ["q", {REPLY}]}}', "line 2, message 1: got 'q', expected an object"),
        (
            f'{{"messages": [{{"role": "human", "content": "q"}}, {REPLY}]}}',
            "message 1: role 'human' is none of system, user",
        ),
        (
            f'{{"messages": [{USER}, {{"role": "assistant", "content": null}}]}}',
            "message 2: content None must be text",
        ),
    ],
)
def test_rows_that_cannot_be_imitated_are_refused_with_their_line(tmp_path, row, sentence):
    good = '{"prompt": "q", "completion": "a"}'
    with pytest.raises(DataError, match=sentence):
        sft_rows(write(tmp_path, "a.jsonl", f"{good}\n{row}\n"))


def test_other_kinds_of_file_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"must end in \.jsonl or \.csv"):
        sft_rows(write(tmp_path, "a.parquet", b""))
