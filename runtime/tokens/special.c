/* special.c - see special.h. */
#include "runtime/tokens/special.h"

#include <string.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "runtime/files/json_text.h"

/* "text", or {"content": "text", ...}. */
static int32_t named_token(const struct tokenizer *tokenizer, const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    const char *text = json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
    return text ? tokenizer_find(tokenizer, text) : TOKEN_NONE;
}

/* model_max_length is often an integer of 31 digits, which only a real holds. */
static json_t *read_object(const char *path, struct muster_error *err)
{
    scope_buffer text = {0};
    json_error_t problem;
    if (io_read_file(path, JSON_TEXT_LIMIT, &text, err) < 0)
        return NULL;
    json_t *root = json_loadb(text.data ? text.data : "", text.length, JSON_DECODE_INT_AS_REAL, &problem);
    if (!root)
        (void)error_set(err, MUSTER_E_INVALID, "%s:%d:%d: not valid JSON: %s", path, problem.line,
                        problem.column, problem.text);
    return root;
}

static int read_config(const struct tokenizer *tokenizer, struct tokenizer_special *special,
                       struct muster_error *err)
{
    const char *path = tokenizer_path(tokenizer), *slash = strrchr(path, '/');
    scope_free char *config =
        mem_printf("%.*stokenizer_config.json", slash ? (int)(slash - path) + 1 : 0, path);
    if (!config)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    if (access(config, F_OK) != 0)
        return 0;
    GUARD(guard_json) json_t *root = read_object(config, err);
    if (!root)
        return -1;
    const int32_t bos = named_token(tokenizer, root, "bos_token"),
                  eos = named_token(tokenizer, root, "eos_token"),
                  unk = named_token(tokenizer, root, "unk_token");
    special->bos = bos >= 0 ? bos : special->bos;
    special->eos = eos >= 0 ? eos : special->eos;
    special->unk = unk >= 0 ? unk : special->unk;
    return 0;
}

int special_read_beside(const struct tokenizer *tokenizer, struct tokenizer_special *special,
                        struct muster_error *err)
{
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
    if (read_config(tokenizer, special, err) < 0)
        return -1;
    for (size_t i = 0; special->eos < 0 && i < sizeof ends / sizeof *ends; i++)
        special->eos = tokenizer_find(tokenizer, ends[i]);
    return 0;
}
