"""Rows of Parquet and Arrow files against pyarrow, which writes them: texts, chats (lists of structs, with calls in them), numbers, nulls, in
every compression, encoding, page version and size that the reader has; files and streams of Arrow as `datasets` writes them. What is not read is
refused by name. A training has the same losses by each of them as by the same rows in JSON lines.

columns_test.py"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_python  # noqa: E402: after the path

torch_python.require(load=False)
try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    torch_python.skip("no package pyarrow beside PyTorch")
from training_runs import losses  # noqa: E402

BUILD = pathlib.Path(torch_python.build())
os.environ["OMP_NUM_THREADS"] = "1"
COLUMNS = ("text", "messages", "tools", "number", "real", "truth", "tags", "label", "nested")


def make_rows(count):
    draw = random.Random(3)
    words = "columns of a table are read in any order, 人之初 größe \U0001F600 \"quoted\"\n".split(" ")
    say = lambda: " ".join(draw.choice(words) for _ in range(draw.randrange(9)))
    rows = []
    for n in range(count):
        calls = [{"function": {"name": say(), "arguments": say()}} for _ in range(draw.randrange(3))]
        rows.append({
            "text": None if n % 11 == 5 else say(), "tools": None if n % 3 else json.dumps([{"name": say()}]),
            "messages": None if n % 13 == 7 else [{"role": draw.choice(("user", "assistant")), "content": None if n % 5 == 3 and k else say(),
                                                   "calls": calls if k % 2 else None} for k in range(draw.randrange(4))],
            "number": None if n % 7 == 1 else draw.randrange(-2**40, 2**40), "real": n / 3, "truth": n % 3 == 0, "tags": [say() for _ in range(n % 4)] if n % 6 else None,
            "label": ("one", "two", "three")[n % 3], "nested": [[draw.randrange(9) for _ in range(n % 3)] for _ in range(n % 2 + 1)],
            "unread": say()})
    return rows


def make_table(rows, text=pyarrow.string(), listed=pyarrow.list_):
    turn = pyarrow.struct([("role", text), ("content", text), ("calls", listed(pyarrow.struct([("function", pyarrow.struct([("name", text), ("arguments", text)]))])))])
    return pyarrow.Table.from_pylist(rows, pyarrow.schema([
        ("text", text), ("messages", listed(turn)), ("tools", text), ("number", pyarrow.int64()), ("real", pyarrow.float64()), ("truth", pyarrow.bool_()),
        ("tags", listed(text)), ("label", pyarrow.dictionary(pyarrow.int8(), text)), ("nested", listed(listed(pyarrow.int32()))), ("unread", text)]))


def dump(path, names=COLUMNS):
    done = subprocess.run([BUILD / "tests/columns_dump", path, *names], capture_output=True, text=True, check=False)
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]], done.stderr


def check(what, path, table):
    found, error = dump(path)
    wanted = [{name: row[name] for name in COLUMNS} for row in table.to_pylist()]
    assert not error and found == wanted, (what, error, len(found), [pair for pair in zip(found, wanted) if pair[0] != pair[1]][:2])


def write_arrow(path, table, stream, compression=None, batch=None):
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    with (pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file)(str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=batch)


def check_files(folder):
    rows, path, count = make_rows(700), folder / "rows", 0
    table = make_table(rows)
    for options in ({}, {"compression": "none"}, {"compression": "gzip"}, {"compression": "zstd"}, {"data_page_version": "2.0"},
                    {"data_page_version": "2.0", "compression": "zstd"}, {"use_dictionary": False}, {"data_page_size": 300, "write_batch_size": 50},
                    {"row_group_size": 90}, {"version": "1.0"}, {"use_dictionary": False, "data_page_version": "2.0", "data_page_size": 200, "write_batch_size": 30},
                    {"use_dictionary": ["label"], "column_encoding": {"text": "DELTA_BYTE_ARRAY", "tools": "DELTA_LENGTH_BYTE_ARRAY", "number": "DELTA_BINARY_PACKED"}},
                    {"use_compliant_nested_type": False}, {"dictionary_pagesize_limit": 200}):
        pyarrow.parquet.write_table(table, path, **options)
        check(f"Parquet {options}", path, table)
        count += 1
    pyarrow.parquet.write_table(make_table(rows, pyarrow.large_string(), pyarrow.large_list), path)
    check("Parquet of large types", path, table)
    pyarrow.parquet.write_table(make_table([]), path)
    check("an empty Parquet file", path, make_table([]))
    for text, listed in (pyarrow.string(), pyarrow.list_), (pyarrow.large_string(), pyarrow.large_list):
        for stream in True, False:
            for compression in None, "zstd":
                for batch in None, 64:
                    one = make_table(rows, text, listed)
                    write_arrow(path, one, stream, compression, batch)
                    check(f"Arrow {text} stream {stream} {compression} {batch}", path, one)
                    count += 1
    print(f"{count} forms of {len(rows)} rows are equal to pyarrow's")
    whole = path.read_bytes()
    for part in 0, 3, 9, 200, len(whole) // 2, len(whole) - 300:
        path.write_bytes(whole[:part])
        found, error = dump(path)
        assert found != rows and (error or part >= len(whole) - 300 or not found), part


def check_refused(folder):
    table, path = make_table(make_rows(20)), folder / "refused"
    for options, words in (({"compression": "lz4"}, "packed by LZ4 is not read; write it with snappy, gzip or zstd"), ({"compression": "brotli"}, "packed by Brotli"),
                           ({"use_dictionary": False, "column_encoding": {"real": "BYTE_STREAM_SPLIT"}}, "column 'real': encoding 9 of a Parquet page is not read")):
        pyarrow.parquet.write_table(table, path, **options)
        assert words in dump(path)[1], (options, dump(path))
    write_arrow(path, table, True, "lz4")
    assert "packed by LZ4 is not read" in dump(path)[1]
    pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array([b"\xff\xfe"])}), path)
    assert "is no UTF-8" in dump(path)[1], dump(path)


def check_training(folder):
    rows = [{"text": f"row {n}: " + "some words " * (n % 5), "label": str(n % 2), "unread": n} for n in range(40)]
    chats = [{"messages": [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"It is {n}."}]} for n in range(40)]
    for kind, data in ("texts", rows), ("chats", chats):
        table, wanted = pyarrow.Table.from_pylist(data), None
        for name in "rows.jsonl", "rows.parquet", "rows.arrow", "rows.parquet.gz":
            out = folder / kind / name.replace(".", "-")
            out.mkdir(parents=True)
            if name == "rows.jsonl":
                (out / name).write_text("".join(json.dumps(row) + "\n" for row in data))
            elif name == "rows.arrow":
                write_arrow(out / name, table, True)
            else:
                pyarrow.parquet.write_table(table, out / "rows.parquet", row_group_size=7)
            if name.endswith(".gz"):
                subprocess.run(["gzip", "-n", out / "rows.parquet"], check=True)
            (out / "run.yaml").write_text(json.dumps({
                "model": {"architecture": "gpt2", "layers": 1, "channels": 16, "heads": 2, "vocabulary": 256}, "logging": {"sample_length": 0, "json": "log.jsonl"},
                "data": {"path": name, "tokenizer": "bytes", "chat_template": "chatml"}, "training": {"steps": 2, "global_batch": 4, "sequence_length": 80, "threads": 1}}))
            found, _ = losses([BUILD / "bin/muster-train", "run.yaml"], out)
            wanted = wanted or found
            assert found == wanted, (kind, name, found, wanted)
    wrong = folder / "wrong.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"body": ["a"], "n": [1]}), wrong)
    (folder / "run.yaml").write_text(json.dumps({"model": {"layers": 1, "channels": 16, "heads": 2}, "data": {"path": str(wrong)}, "training": {"steps": 1, "sequence_length": 8}}))
    done = torch_python.run([BUILD / "bin/muster-train", "run.yaml"], cwd=folder)
    assert "wrong.parquet: no column 'text' (data.text_key)" in done.stderr and "the columns are: body, n" in done.stderr, done.stderr
    print("losses by Parquet, Arrow and packed Parquet are equal to those by lines of JSON")


def check_prepare(folder):
    """Parquet, Arrow, packed Parquet and lines of JSON make the same shards."""
    texts = [f"Row {n} has a text that is long enough, größer and 人之初." + " More words." * (n % 5) for n in range(30)]
    table, shards = pyarrow.table({"id": list(range(30)), "body": texts}), {}
    for name in "rows.jsonl", "rows.parquet", "rows.arrow", "rows.parquet.gz":
        raw = folder / f"raw {name}"
        raw.mkdir()
        if name == "rows.jsonl":
            (raw / name).write_text("".join(json.dumps({"body": text}) + "\n" for text in texts))
        elif name == "rows.arrow":
            write_arrow(raw / name, table, True)
        else:
            pyarrow.parquet.write_table(table, raw / "rows.parquet", row_group_size=7)
        if name.endswith(".gz"):
            subprocess.run(["gzip", "-n", raw / "rows.parquet"], check=True)
        out = folder / f"shards {name}"
        done = torch_python.run([BUILD / "bin/muster-train", "prepare", "--input_dir", raw, "--output_dir", out, "--text_key=body", "--tokenizer_type=bytes"])
        assert not done.returncode, done.stdout + done.stderr
        shards[name] = (out / "train" / "shard-00000.bin").read_bytes()
        assert len(shards[name]) > 2000 and shards[name] == shards["rows.jsonl"], name
    pyarrow.parquet.write_table(pyarrow.table({"content": ["a"]}), folder / "raw rows.parquet" / "wrong.parquet")
    done = torch_python.run([BUILD / "bin/muster-train", "prepare", "--input_dir", folder / "raw rows.parquet", "--output_dir", folder / "none", "--text_key=body", "--tokenizer_type=bytes"])
    assert done.returncode == 2 and "wrong.parquet: no column 'body' (--text_key); the columns are: content" in done.stderr, done.stderr
    print("prepare makes the same shards of Parquet, Arrow, packed Parquet and lines of JSON")


with tempfile.TemporaryDirectory(prefix="muster columns ") as temporary:
    check_files(pathlib.Path(temporary))
    check_refused(pathlib.Path(temporary))
    check_training(pathlib.Path(temporary))
    check_prepare(pathlib.Path(temporary))
