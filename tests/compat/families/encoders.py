"""The families of encoders of the tests: small random classifiers of transformers in float64, made as families.py makes its models, and
texts that can be learnt."""

from families import FLOAT32, double, save, torch, transformers  # noqa: F401

VOCABULARY, POSITIONS, CLASSES, T, SAMPLES = 61, 40, 3, 17, 6
BERT = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=POSITIONS)
OFF = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
SLIDING, FULL = "sliding_attention", "full_attention"
# Family: variants of config.json. The first one trains; the others are compared by their logits.
ENCODERS = {
    "bert": [dict(OFF), dict(OFF, type_vocab_size=1, hidden_act="gelu_new", layer_norm_eps=1e-5), dict(OFF, hidden_act="relu")],
    "roberta": [dict(OFF, type_vocab_size=1), dict(OFF, pad_token_id=3, hidden_act="silu")],
    "distilbert": [dict(dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0),
                   dict(dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0, activation="relu")],
    "modernbert": [dict(local_attention=8, num_hidden_layers=3),
                   dict(local_attention=5, layer_types=[SLIDING, FULL], classifier_pooling="mean", norm_bias=True, attention_bias=True,
                        mlp_bias=True, classifier_bias=True, hidden_activation="silu", classifier_activation="tanh"),
                   dict(local_attention=6, rope_parameters={FULL: dict(rope_type="linear", rope_theta=500.0, factor=3.0),
                                                            SLIDING: dict(rope_type="default", rope_theta=77.0)})],
}


def config_of(family, variant=0, **more):
    options = {**BERT, "num_labels": CLASSES, **ENCODERS[family][variant], **more}
    if family == "distilbert":
        names = dict(hidden_size="dim", intermediate_size="hidden_dim", num_hidden_layers="n_layers", num_attention_heads="n_heads")
        options = {names.get(key, key): value for key, value in options.items()}
    if family == "modernbert":
        options = {"pad_token_id": 0, "bos_token_id": None, "eos_token_id": None, "cls_token_id": None, "sep_token_id": None, **options}
    return transformers.AutoConfig.for_model(family, **options)


def make(config, seed=5, kind=transformers.AutoModelForSequenceClassification):
    """A model in float64, in eager attention. Values are away from what initialisation gives norms and biases."""
    torch.manual_seed(seed)
    with double():
        begin = getattr(kind, "from_config", None) or kind._from_config
        model = begin(config, attn_implementation="eager").double().eval()
        with torch.no_grad():
            for value in model.parameters():
                value.copy_((value + 0.1 * torch.randn_like(value)).bfloat16())
    return model


def texts_of(steps, least=2, classes=CLASSES, seed=7):
    """(tokens, lengths, labels) of every step: a label's own tokens are among the others; after a length are tokens that nothing reads.
    Tokens of padding are in no text."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (steps, SAMPLES, 1), generator=generator)
    tokens = torch.randint(4, VOCABULARY, (steps, SAMPLES, T), generator=generator)
    own = torch.rand(tokens.shape, generator=generator) < 0.5
    tokens = torch.where(own, 4 + tokens % 12 * classes + labels, tokens)
    lengths = torch.randint(least, T + 1, (steps, SAMPLES), generator=generator)
    lengths[:, 1] = T
    return tokens, lengths, labels


def types_of(config, tokens):
    """The second half of each text is of the second type, where there are two; None: tokens have no types."""
    number = getattr(config, "type_vocab_size", None)
    return None if number is None else (torch.arange(tokens.shape[-1]).expand(tokens.shape) > 7).long().clamp(max=number - 1)


def logits_of(model, parameters, tokens, lengths):
    mask = (torch.arange(tokens.shape[1])[None] < lengths[:, None]).long()
    padded = tokens * mask + (model.config.pad_token_id or 0) * (1 - mask)
    types = types_of(model.config, tokens)
    more = {"attention_mask": mask, **({} if types is None else {"token_type_ids": types})}
    with double():
        return torch.func.functional_call(model, parameters, (padded,), more, tie_weights=False).logits
