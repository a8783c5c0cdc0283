"""The tokens of muster-train prepare against Python's sentencepiece with the model that prepare trained: unigram and bpe, on fortunes and on
text of several scripts. The model loads there, and decoding gives the text back. Ids are equal in every document with sentencepiece 0.2.0, which
`./dev test` puts into .venv/sources; 0.2.3 next to PyTorch orders pieces otherwise where two orders have the same score, and is compared up to that.

corpus_torch_test.py [--full]. The quick run takes a part of the fortunes, --full all of them."""
import importlib.util
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_python  # noqa: E402: after the path

torch_python.require(load=False)
SAME = pathlib.Path(sys.prefix) / "sources" / "sentencepiece-0.2.0"  # breaks ties as libsentencepiece 0.1.97 does
if SAME.is_dir():
    sys.path.insert(0, str(SAME))
if importlib.util.find_spec("sentencepiece") is None:
    torch_python.skip("no package sentencepiece beside PyTorch")
import sentencepiece  # noqa: E402

FULL = "--full" in sys.argv
FORTUNES = pathlib.Path("/usr/share/games/fortunes")
SCRIPTS = ("Съешь же ещё этих мягких французских булок, да выпей чаю.", "人之初，性本善。性相近，习相远。苟不教，性乃迁。",
           "いろはにほへと ちりぬるを わかよたれそ つねならむ", "정 참판 양반댁 규수 큰 교자 타고 혼례 치른 날", "नहि ज्ञानेन सदृशं पवित्रमिह विद्यते।",
           "نص حكيم له سر قاطع وذو شأن عظيم مكتوب", "def f(x):\n\treturn  {x: [x**2,   'a']}\n\n\nprint(f(3))", "a  b   c    d \U0001F600\U0001F468\u200D\U0001F469 e")


def documents(folder):
    for part in "train", "validation":
        for path in sorted((folder / part).glob("*.bin")):
            data, index = path.read_bytes(), path.with_suffix(".idx").read_bytes()
            magic, _, count = struct.unpack_from("<3i", data)
            ids = struct.unpack_from(f"<{count}{'H' if magic == 20240520 else 'I'}", data, 1024)
            _, _, number = struct.unpack_from("<3Q", index)
            at = 0
            for end in struct.unpack_from(f"<{number}Q", index, 24):
                yield list(ids[at:end])
                at = end


def write_texts(raw):
    files = [path for path in sorted(FORTUNES.iterdir()) if path.is_file() and not path.is_symlink() and path.suffix not in (".dat", ".u8")]
    for path in files if FULL else files[::6]:
        (raw / f"{path.name}.txt").write_bytes(path.read_bytes())
    (raw / "scripts.txt").write_text("\n%\n".join(SCRIPTS))


def texts_that_are_kept(program, raw, folder):
    """In the order of the shards: with tokens that are bytes."""
    subprocess.run([program, "prepare", "--input_dir", raw, "--output_dir", folder, "--separator=%", "--tokenizer_type=bytes"], check=True,
                   stdout=subprocess.DEVNULL)
    return [bytes(ids).decode() for ids in documents(folder)]


def is_tie(theirs, ids, wanted):
    """Whether both have the same pieces, in another order, and so the same score."""
    return sorted(ids) == sorted(wanted)


def check(program, raw, folder, model_type, size, texts):
    flags = [f"--model_type={model_type}", f"--vocab_size={size}", "--separator=%"]
    subprocess.run([program, "prepare", "--input_dir", raw, "--output_dir", folder, *flags], check=True, stdout=subprocess.DEVNULL)
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    ours = list(documents(folder))
    assert len(ours) == len(texts), (len(ours), len(texts))
    wrong = ties = lossy = total = 0
    for text, ids in zip(texts, ours):
        total += len(ids)
        wanted = theirs.encode(text) + [theirs.eos_id()]
        tie = ids != wanted and model_type == "unigram" and is_tie(theirs, ids, wanted)
        ties += tie
        wrong += ids != wanted and not tie
        lossy += theirs.decode(ids[:-1]) != text
    print(f"sentencepiece {sentencepiece.__version__}, {model_type}: {theirs.get_piece_size()} pieces, {len(texts)} documents, {total} tokens; {wrong} documents differ, {ties} by ties, "
          f"{lossy} are not given back by decoding")
    assert theirs.get_piece_size() == size
    assert not wrong and not lossy and ties <= (0 if SAME.is_dir() else len(texts) / 100)


def main():
    program = os.path.join(torch_python.build(), "bin", "muster-train")
    with tempfile.TemporaryDirectory(prefix="muster corpus ") as scratch:
        folder = pathlib.Path(scratch)
        (folder / "raw").mkdir()
        write_texts(folder / "raw")
        texts = texts_that_are_kept(program, folder / "raw", folder / "bytes")
        assert sum(text in texts for text in SCRIPTS) >= len(SCRIPTS) - 1, "the rules drop texts of other scripts"
        check(program, folder / "raw", folder / "unigram", "unigram", 8000 if FULL else 1000, texts)
        check(program, folder / "raw", folder / "bpe", "bpe", 8000 if FULL else 1000, texts)


main()
