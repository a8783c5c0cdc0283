"""Changed config.json files of every family: the loss of the same weights is transformers', or the file is refused by us.

35 chosen changes of rope, ties, biases, head_dim and windows, and random ones from a seed: a key gets another value, goes, or comes in
from another family. So it is with 30 of the encoders' files, by the loss of labelled texts. A difference without a refusal fails. A file that transformers alone refuses is no failure: it holds types that
its strict reader minds, and the values are not used."""

import collections
import json
import pathlib
import random
import subprocess
import sys
import tempfile

import encoders
from families import FAMILIES, VOCABULARY, config_of, double, make, save, torch, transformers
import torch_python

BUILD = pathlib.Path(torch_python.build()).resolve()
T, EACH, SEED = 20, 14, 1
FULL, SLIDING = "full_attention", "sliding_attention"
VALUES = [None, True, False, 0, 1, 2, 3, 4, 0.5, 1.0, 2.0, -1, "x", "silu", "gelu", "relu", [], {}, [0, 1], [FULL, SLIDING], [SLIDING, FULL],
          [SLIDING, SLIDING]]
KEYS = """sliding_window use_sliding_window layer_types head_dim attention_bias mlp_bias tie_word_embeddings rope_theta rope_scaling
rope_parameters partial_rotary_factor original_max_position_embeddings num_key_value_heads max_window_layers hidden_act hidden_activation
no_rope_layers no_rope_layer_interval query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping rope_local_base_freq
sliding_window_pattern residual_multiplier logits_scaling attention_multiplier embedding_multiplier use_parallel_residual qk_layernorm
use_qkv_bias rotary_pct rotary_emb_base layer_norm_eps rms_norm_eps norm_epsilon do_layer_norm_before _remove_final_layer_norm
word_embed_proj_dim activation_function enable_bias use_bias is_causal use_bidirectional_attention per_layer_config scale_attn_weights
max_position_embeddings layer_norm_epsilon n_inner reorder_and_upcast_attn scale_attn_by_inverse_layer_idx ffn_dim pretraining_tp""".split()
KEPT = ("model_type", "architectures", "transformers_version", "dtype", "vocab_size")
MORE = [{}, {"factor": 2.0}, {"factor": 4.0, "original_max_position_embeddings": 16}, {"factor": 2.0, "partial_rotary_factor": 0.5},
        {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32},
        {"factor": 4.0, "original_max_position_embeddings": 16, "mscale": 0.7, "mscale_all_dim": 0.4, "truncate": False},
        {"factor": 4.0, "attention_factor": 0.8, "beta_fast": 16, "beta_slow": 2, "original_max_position_embeddings": 16},
        {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [2.0, 3.0, 4.0, 5.0], "original_max_position_embeddings": 24}]
KINDS = ("default", "linear", "dynamic", "yarn", "llama3", "longrope", "proportional", "su")
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 16}
LINEAR = {"rope_type": "linear", "factor": 2.0}
# Family and changes; None as a value is null, "absent" takes the key away.
CHOSEN = [
    ("llama", {"rope_scaling": LINEAR, "rope_parameters": None}), ("llama", {"rope_scaling": LINEAR}), ("llama", {"rope_scaling": {}}),
    ("llama", {"rope_parameters": YARN}), ("llama", {"rope_parameters": {**YARN, "original_max_position_embeddings": 32}}),
    ("llama", {"rope_parameters": YARN, "original_max_position_embeddings": 8}), ("llama", {"rope_parameters": {**YARN, "factor": 1.0}}),
    ("llama", {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}}), ("llama", {"head_dim": None}),
    ("llama", {"num_key_value_heads": "absent"}), ("llama", {"rope_theta": 77.0, "rope_parameters": "absent"}),
    ("llama", {"tie_word_embeddings": True}), ("llama", {"attention_bias": True}), ("llama", {"sliding_window": 5}),
    ("llama", {"is_causal": False}), ("llama", {"partial_rotary_factor": 0.5}), ("mistral", {"sliding_window": None}),
    ("mistral", {"sliding_window": 3}), ("mistral", {"sliding_window": "absent"}), ("mistral", {"head_dim": None}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1, "layer_types": "absent"}),
    ("qwen2", {"use_sliding_window": True, "sliding_window": 4, "layer_types": [SLIDING, FULL]}),
    ("qwen2", {"use_sliding_window": False, "layer_types": [SLIDING, FULL]}), ("qwen3", {"head_dim": 8}), ("qwen3", {"attention_bias": True}),
    ("phi3", {"sliding_window": 4}), ("phi3", {"partial_rotary_factor": 0.25, "rope_parameters": "absent"}),
    ("smollm3", {"no_rope_layers": [0, 0]}), ("smollm3", {"no_rope_layers": "absent", "no_rope_layer_interval": 1}),
    ("gemma2", {"attn_logit_softcapping": None, "final_logit_softcapping": None}), ("gemma2", {"layer_types": [FULL, FULL]}),
    ("gemma3_text", {"rope_scaling": LINEAR, "rope_parameters": "absent", "rope_theta": 5000.0, "rope_local_base_freq": 300.0}),
    ("gpt_neox", {"rotary_pct": 0.5, "rope_parameters": "absent", "rotary_emb_base": 300}), ("granite", {"logits_scaling": 0}),
    ("opt", {"do_layer_norm_before": False}),
]


ENCODER_KEYS = """hidden_act activation hidden_activation classifier_activation hidden_dropout_prob attention_probs_dropout_prob classifier_dropout
type_vocab_size pad_token_id layer_norm_eps norm_eps norm_bias attention_bias mlp_bias classifier_bias classifier_pooling local_attention
layer_types global_attn_every_n_layers rope_parameters rope_scaling global_rope_theta local_rope_theta head_dim position_embedding_type is_decoder
add_cross_attention num_labels id2label problem_type sinusoidal_pos_embds max_position_embeddings tie_word_embeddings num_attention_heads n_heads
intermediate_size is_causal chunk_size_feed_forward""".split()
THREE = {"0": "a", "1": "b", "2": "c"}
CHOSEN_ENCODERS = [
    ("bert", {"hidden_act": "gelu_new"}), ("bert", {"hidden_act": "quick_gelu"}), ("bert", {"layer_norm_eps": 0.1}), ("bert", {"is_decoder": True}),
    ("bert", {"position_embedding_type": "relative_key"}), ("bert", {"num_attention_heads": 2}), ("bert", {"num_attention_heads": 5}),
    ("bert", {"type_vocab_size": 1}), ("bert", {"id2label": THREE}), ("bert", {"id2label": {"0": "a", "1": "b"}}), ("bert", {"id2label": "absent"}),
    ("bert", {"problem_type": "regression"}), ("bert", {"layer_norm_eps": "absent"}), ("bert", {"classifier_dropout": 0.5}),
    ("roberta", {"pad_token_id": 0}), ("roberta", {"pad_token_id": 3}), ("roberta", {"pad_token_id": None}), ("roberta", {"pad_token_id": 39}),
    ("roberta", {"hidden_act": "silu"}), ("distilbert", {"activation": "relu"}), ("distilbert", {"activation": "mish"}),
    ("distilbert", {"n_heads": 8}), ("distilbert", {"sinusoidal_pos_embds": True}), ("modernbert", {"local_attention": 3}),
    ("modernbert", {"layer_types": [FULL, FULL, SLIDING]}), ("modernbert", {"layer_types": "absent", "global_attn_every_n_layers": 2}),
    ("modernbert", {"classifier_pooling": "mean"}), ("modernbert", {"rope_parameters": "absent", "global_rope_theta": 100.0, "local_rope_theta": 50.0}),
    ("modernbert", {"rope_scaling": LINEAR}), ("modernbert", {"norm_bias": True}), ("modernbert", {"classifier_activation": "relu"}),
]


class Family:
    def __init__(self, name, place):
        self.name, self.folder = name, place / name
        self.model = make(config_of(name))
        save(self.model, self.folder)
        self.state = self.model.state_dict()
        self.config = json.loads((self.folder / "config.json").read_text())
        self.ids = torch.randint(VOCABULARY, (T,), generator=torch.Generator().manual_seed(1))
        (self.folder / "tokens").write_bytes(torch_python.bytes_of(self.ids.to(torch.int32)))

    def ours(self):
        out = self.folder / "found.loss"
        done = subprocess.run([BUILD / "tests" / "files_dump", self.folder, "-", "hf", "f32", "0", "f64", "1", "NO_SHARD",
                               self.folder / "tokens", out], capture_output=True, text=True)
        assert done.returncode >= 0, done.stderr
        return (None, done.stderr.strip()) if done.returncode else (float(out.read_text()), "")

    def theirs(self):
        try:
            with double(), torch.no_grad():
                config = transformers.AutoConfig.from_pretrained(self.folder)
                model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").double().eval()
                model.load_state_dict(self.state)
                logits = model(self.ids[None], use_cache=False).logits[0]
                return torch.nn.functional.cross_entropy(logits[:-1], self.ids[1:]).item(), ""
        except Exception as error:  # whatever its own reader minds
            return None, f"{type(error).__name__}: {error}"

    def judge(self, changes):
        config = {**self.config, **changes}
        (self.folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value != "absent"}))
        found, said = self.ours()
        if found is None:
            return "refused by us", said
        wanted, _ = self.theirs()
        if wanted is None:
            return "refused by transformers alone", ""
        return ("equal" if abs(found - wanted) <= 1e-6 * abs(wanted) else "DIFFERENT"), f"{found} {wanted}"


class Encoder(Family):
    """The loss of labelled texts, without dropout."""

    def __init__(self, name, place):
        self.name, self.folder, self.run = name, place / name, place / f"{name}-run"
        self.model = encoders.make(encoders.config_of(name))
        save(self.model, self.folder)
        self.state = self.model.state_dict()
        self.config = json.loads((self.folder / "config.json").read_text())
        tokens, lengths, labels = encoders.texts_of(1)
        self.texts, self.labels = (tokens[0], lengths[0]), labels[0, :, 0]
        self.run.mkdir()
        (self.run / "config").write_text(f"files {self.folder}\nf64 1 NO_SHARD 1 {encoders.SAMPLES} {encoders.T} 1 0 0 0.9 0.95 1e-8 1 "
                                         "0 0 0 0 0 - - f32 f32 0\n\n")
        types = encoders.types_of(self.model.config, tokens[0])
        types = torch.zeros_like(tokens[0]) if types is None else types
        for file, values in (("tokens", tokens[0]), ("lengths", lengths[0]), ("targets", labels[0]), ("types", types)):
            (self.run / file).write_bytes(torch_python.bytes_of(values.to(torch.int32).contiguous()))

    def ours(self):
        done = subprocess.run([BUILD / "tests" / "model_dump", self.run], capture_output=True, text=True)
        assert done.returncode >= 0, done.stderr
        if done.returncode:
            return None, done.stderr.strip()
        return torch.frombuffer(bytearray((self.run / "evaluated").read_bytes()), dtype=torch.float64).item(), ""

    def theirs(self):
        try:
            with double(), torch.no_grad():
                config = transformers.AutoConfig.from_pretrained(self.folder)
                model = transformers.AutoModelForSequenceClassification.from_config(config, attn_implementation="eager").double().eval()
                model.load_state_dict(self.state)
                logits = encoders.logits_of(model, dict(model.named_parameters()), *self.texts)
                return torch.nn.functional.cross_entropy(logits, self.labels).item(), ""
        except Exception as error:  # whatever its own reader minds
            return None, f"{type(error).__name__}: {error}"


def random_changes(generator, config, keys=KEYS):
    changes = {}
    for _ in range(generator.choice([1, 1, 1, 2])):
        kind = generator.random()
        if kind < 0.25:
            key = generator.choice(["rope_scaling", "rope_parameters"])
            value = {"rope_type": generator.choice(KINDS), "rope_theta": generator.choice([500.0, 10000.0]), **generator.choice(MORE)}
        else:
            key = generator.choice([key for key in config if key not in KEPT] if kind < 0.6 else keys)
            value = "absent" if kind < 0.35 else generator.choice(VALUES)
        changes[key] = value
    return changes


def main():
    seed, each = (int(word) for word in (sys.argv[1:3] if len(sys.argv) > 2 else (SEED, EACH)))
    generator, counts, failures = random.Random(seed), collections.Counter(), []
    with tempfile.TemporaryDirectory() as folder:
        for name in [*FAMILIES, *encoders.ENCODERS]:
            encodes = name in encoders.ENCODERS
            family = (Encoder if encodes else Family)(name, pathlib.Path(folder))
            chosen = [changes for of, changes in (CHOSEN_ENCODERS if encodes else CHOSEN) if of == name]
            keys = ENCODER_KEYS if encodes else KEYS
            for changes in chosen + [random_changes(generator, family.config, keys) for _ in range(each)]:
                verdict, said = family.judge(changes)
                counts[verdict] += 1
                print(f"{verdict}: {name} {changes} {said}", flush=True)
                if verdict == "DIFFERENT":
                    failures.append((name, changes))
    print(dict(counts))
    sys.exit(f"{len(failures)} are different: {failures}" if failures else 0)


if __name__ == "__main__":
    main()
