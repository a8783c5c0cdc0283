"""The families of models of the tests: small random models of transformers in float64.

transformers computes norms, rotary frequencies and softmax in float32 even in a model of float64. Here the name torch.float32 means
float64 while a reference is made and run, so that all of it is in double. Weights are values that bf16 holds, away from what
initialisation gives norms and biases."""

import contextlib
import copy
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import torch_python  # noqa: E402

torch = torch_python.require()
torch_python.require_transformers()
import safetensors.torch  # noqa: E402,F401 - before float32 has another meaning
import transformers  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
FLOAT32 = torch.float32
VOCABULARY, POSITIONS = 61, 64
torch.set_num_threads(1)


@contextlib.contextmanager
def double():
    """float32 is float64 inside."""
    method, default = torch.Tensor.float, torch.get_default_dtype()
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.float32 = torch.float = FLOAT32
        torch.Tensor.float = method
        torch.set_default_dtype(default)


LLAMA_LIKE = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                  num_key_value_heads=2, max_position_embeddings=POSITIONS, pad_token_id=None, bos_token_id=None, eos_token_id=None)
ROPE_LLAMA3 = dict(rope_type="llama3", rope_theta=500.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                   original_max_position_embeddings=32)
ROPE_YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
ROPE_LINEAR = dict(rope_type="linear", rope_theta=10000.0, factor=3.0)


def rows(kind, **options):
    if kind == "gpt2":
        return transformers.GPT2Config(**{**dict(vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=32, n_layer=2, n_head=4,
                                                 bos_token_id=None, eos_token_id=None), **options})
    return transformers.AutoConfig.for_model(kind, **{**LLAMA_LIKE, **options})


LONGROPE = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.1, 1.2, 1.3], long_factor=[1.5, 2.0, 3.0, 4.0])
LAYERS = ["full_attention", "sliding_attention"]
WINDOWED = dict(use_sliding_window=True, sliding_window=7, max_window_layers=1)
# Family: variants of config.json. The first one trains; the others are compared by their logits.
FAMILIES = {
    "gpt2": [dict(n_inner=48, layer_norm_epsilon=1e-3, activation_function="relu"), dict(activation_function="gelu"),
             dict(tie_word_embeddings=False, n_inner=40, activation_function="silu")],
    "llama": [dict(), dict(rope_parameters=ROPE_YARN, tie_word_embeddings=True), dict(rope_parameters=ROPE_LLAMA3, attention_bias=True),
              dict(rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=2.0), max_position_embeddings=16),
              dict(rope_parameters=dict(ROPE_YARN, truncate=False, mscale=0.7, mscale_all_dim=0.4, beta_fast=8.0, beta_slow=2.0))],
    "qwen2": [dict(), dict(WINDOWED, tie_word_embeddings=True), dict(rope_parameters=ROPE_YARN, num_key_value_heads=None),
              dict(head_dim=16, sliding_window=None)],
    "mistral": [dict(sliding_window=7), dict(sliding_window=None, head_dim=16), dict(tie_word_embeddings=True, sliding_window=1)],
    "qwen3": [dict(head_dim=16), dict(head_dim=8, attention_bias=True, **WINDOWED),
              dict(head_dim=8, tie_word_embeddings=True, layer_types=LAYERS, use_sliding_window=True, sliding_window=5)],
    "phi3": [dict(partial_rotary_factor=0.5), dict(sliding_window=6, num_key_value_heads=None),
             dict(rope_parameters=LONGROPE, original_max_position_embeddings=16),
             dict(rope_parameters=LONGROPE, original_max_position_embeddings=48, tie_word_embeddings=True)],
    "smollm3": [dict(no_rope_layer_interval=2), dict(no_rope_layers=[0, 1], attention_bias=True, mlp_bias=True),
                dict(no_rope_layers=[1, 0], use_sliding_window=True, sliding_window=5, tie_word_embeddings=False)],
    "gemma": [dict(head_dim=16), dict(head_dim=8, num_key_value_heads=1, tie_word_embeddings=False, attention_bias=True)],
    "gemma2": [dict(head_dim=16, sliding_window=6, query_pre_attn_scalar=12, attn_logit_softcapping=2.0, final_logit_softcapping=1.5),
               dict(head_dim=8, sliding_window=6, attn_logit_softcapping=None, final_logit_softcapping=None),
               dict(head_dim=8, sliding_window=6, layer_types=LAYERS, tie_word_embeddings=False)],
    "gemma3_text": [dict(head_dim=16, sliding_window=6, query_pre_attn_scalar=12, layer_types=LAYERS),
                    dict(head_dim=8, sliding_window=6, layer_types=LAYERS, final_logit_softcapping=1.5,
                         rope_parameters={"full_attention": dict(ROPE_LINEAR), "sliding_attention": dict(rope_type="default", rope_theta=777.0)})],
    "olmo2": [dict(), dict(attention_bias=True, tie_word_embeddings=True, num_key_value_heads=None)],
    "granite": [dict(embedding_multiplier=3.0, attention_multiplier=0.2, residual_multiplier=0.4, logits_scaling=2.5),
                dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True, attention_multiplier=0.3)],
    "starcoder2": [dict(sliding_window=7), dict(use_bias=False, tie_word_embeddings=False)],
    "gpt_neox": [dict(), dict(use_parallel_residual=False, attention_bias=False, tie_word_embeddings=True, hidden_act="gelu_new"),
                 dict(rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=1.0))],
    "stablelm": [dict(partial_rotary_factor=0.5), dict(use_qkv_bias=True, use_parallel_residual=True, tie_word_embeddings=True)],
    "opt": [dict(ffn_dim=48), dict(ffn_dim=40, activation_function="gelu", enable_bias=False, tie_word_embeddings=False)],
}


def config_of(family, variant=0, **more):
    return rows(family, **{**FAMILIES[family][variant], **more})


def make(config, seed=5):
    """A model in float64, in eager attention."""
    torch.manual_seed(seed)
    with double():
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        model = model.double().eval()
        with torch.no_grad():
            for value in model.parameters():
                value.copy_((value + 0.1 * torch.randn_like(value)).bfloat16())
    return model


def save(model, folder, dtype=None):
    single = copy.deepcopy(model).to(dtype or FLOAT32)
    single.generation_config = transformers.GenerationConfig()
    single.save_pretrained(folder)
