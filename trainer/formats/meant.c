/* meant.c - see meant.h. */
#include "trainer/formats/meant.h"

#include <stdio.h>
#include <string.h>

#include "runtime/config/train_config.h"
#include "trainer/formats/formats_internal.h"

/* Words that no file of another program has as a key, and that people try. */
static const struct {
    const char *word, *setting;
} words[] = {
    {"width", "model.channels"},
    {"dim", "model.channels"},
    {"embed_dim", "model.channels"},
    {"embedding_dim", "model.channels"},
    {"embedding_size", "model.channels"},
    {"depth", "model.layers"},
    {"ffn_dim", "model.hidden"},
    {"block_size", "training.sequence_length"},
    {"context_length", "training.sequence_length"},
    {"context_size", "training.sequence_length"},
    {"seq_len", "training.sequence_length"},
    {"seq_length", "training.sequence_length"},
    {"clip", "training.clip_norm"},
    {"grad_clip", "training.clip_norm"},
    {"precision", "training.dtype"},
    {"betas", "training.beta1"},
    {"warmup", "training.warmup_steps"},
    {"grad_accum", "training.global_batch"},
    {"save_every", "training.checkpoint_every"},
    {"log_every", "logging.interval"},
};

/* NULL also where several sections have the key. */
static const char *of_another_section(const char *key)
{
    const struct knob_table *table = train_config_table();
    const char *found = NULL;
    for (size_t i = 0; i < table->count; i++) {
        const char *dot = strchr(table->knobs[i].name, '.');
        if (!dot || strcmp(dot + 1, key) != 0)
            continue;
        if (found)
            return NULL;
        found = table->knobs[i].name;
    }
    return found;
}

/* A rule names its setting in the documentation: "`training.steps`; -1: epochs count". */
static const char *of_row(const struct key_row *row, char out[MEANT_SIZE])
{
    const char *why = row->setting ? NULL : row->why;
    if (!why || *why != '`')
        return row->setting;
    (void)snprintf(out, MEANT_SIZE, "%.*s", (int)strcspn(why + 1, "`"), why + 1); /* names are shorter */
    return strchr(out, '.') ? out : NULL;
}

const char *setting_meant(const char *name, char out[MEANT_SIZE])
{
    const struct key_table *const others[] = {&model_keys, &arguments_keys, &deepspeed_keys,
                                              deepspeed_params};
    const char *dot = strchr(name, '.'), *key = dot ? dot + 1 : name;
    const char *found = of_another_section(key);
    for (size_t i = 0; !found && i < sizeof words / sizeof *words; i++)
        found = !strcmp(words[i].word, key) ? words[i].setting : NULL;
    for (size_t i = 0; !found && i < sizeof others / sizeof *others; i++) {
        const struct key_row *row = key_find(others[i], key);
        found = row ? of_row(row, out) : NULL;
    }
    return found ? found : knob_nearest(train_config_table(), name);
}
