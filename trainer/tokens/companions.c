/* companions.c - see kinds.h: the tokens and flags that the files next to a tokenizer's own add to it. */
#include "trainer/tokens/kinds.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "proto/json/json_text.h"

#define CONFIG "tokenizer_config.json"
#define MAP    "special_tokens_map.json"
#define ADDED  "added_tokens.json"

/* `transformers` gives new ids in this order. */
static const char *const special_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                            "pad_token", "cls_token", "mask_token"};

/* ---- the files ---- */

/* *out stays NULL where the file does not exist. Integers are read as reals, since model_max_length often has
 * 31 digits. */
static int read_companion(const char *path, const char *name, json_t **out, struct muster_error *err)
{
    const char *slash = strrchr(path, '/');
    scope_free char *file = mem_printf("%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, name);
    scope_buffer text = {0};
    if (!file)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    const int there = io_exists(file, err);
    if (there <= 0)
        return there;
    if (io_read_file(file, JSON_TEXT_LIMIT, &text, err) < 0)
        return -1;
    *out = json_text_object(file, text.data ? text.data : "", text.length, JSON_DECODE_INT_AS_REAL, err);
    return *out ? 0 : -1;
}

int companions_read(struct companions *companions, const char *path, struct muster_error *err)
{
    *companions = (struct companions){0};
    return read_companion(path, CONFIG, &companions->config, err) < 0 ||
                   read_companion(path, MAP, &companions->map, err) < 0 ||
                   read_companion(path, ADDED, &companions->added, err) < 0
               ? -1
               : 0;
}

void companions_free(struct companions *companions)
{
    json_decref(companions->config);
    json_decref(companions->map);
    json_decref(companions->added);
    *companions = (struct companions){0};
}

int companions_class(const struct companions *companions, struct buffer *out, struct muster_error *err)
{
    const char *name = json_string_value(json_object_get(companions->config, "tokenizer_class"));
    const size_t length = name ? strlen(name) : 0;
    const bool fast = length > 4 && !strcmp(name + length - 4, "Fast");
    if (name && (buffer_append(out, name, length - (fast ? 4 : 0)) < 0 || buffer_append(out, "", 1) < 0))
        return error_set(err, MUSTER_E_NOMEM, "no memory for a name");
    return 0;
}

bool companions_flag(const struct companions *companions, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(companions->config, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

/* ---- added tokens ---- */

/* "text", or {"content": "text", ...}. */
static const char *text_of_token(const json_t *value)
{
    return json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
}

/* The value of a special token: from the map, or else from the configuration. */
static const json_t *special_value(const struct companions *companions, const char *name)
{
    const json_t *value = json_object_get(companions->map, name);
    return text_of_token(value) ? value : json_object_get(companions->config, name);
}

static bool is_special(const struct companions *companions, const char *text)
{
    const json_t *lists[] = {json_object_get(companions->map, "additional_special_tokens"),
                             json_object_get(companions->config, "additional_special_tokens")},
                 *each;
    for (size_t i = 0; i < sizeof special_names / sizeof *special_names; i++) {
        const char *name = text_of_token(special_value(companions, special_names[i]));
        if (name && !strcmp(name, text))
            return true;
    }
    for (size_t list = 0; list < 2; list++) {
        size_t i;
        json_array_foreach(lists[list], i, each)
        {
            if (text_of_token(each) && !strcmp(text_of_token(each), text))
                return true;
        }
    }
    return false;
}

struct token_adder {
    const struct companions *companions;
    const char *path;
    const struct tokenizer_opened *tokenizer;
    uint64_t *hash;
    struct muster_error *err;
};

/* row: an object with the token's flags, or its text. id TOKEN_NONE: the id that the text has, or the next
 * free id. */
static int add_companion(const struct token_adder *a, const char *file, const char *text, const json_t *row,
                         int64_t id, bool normalized)
{
    if (!text || !*text)
        return 0;
    if (id < TOKEN_NONE || id > INT32_MAX)
        return error_set(a->err, MUSTER_E_INVALID, "%s next to %s: the id %lld of '%.64s' is out of range",
                         file, a->path, (long long)id, text);
    const struct added_token token = {.text = (char *)text,
                                      .length = strlen(text),
                                      .id = (int32_t)id,
                                      .single_word = json_is_true(json_object_get(row, "single_word")),
                                      .takes_before = json_is_true(json_object_get(row, "lstrip")),
                                      .takes_after = json_is_true(json_object_get(row, "rstrip"))};
    const int added = a->tokenizer->ops->add(a->tokenizer->self, &token, normalized, a->err);
    if (added < 0)
        return error_wrap(a->err, "%s next to %s", file, a->path);
    if (added) {
        const int32_t number = a->tokenizer->ops->find(a->tokenizer->self, text);
        *a->hash = text_hash(text_hash(*a->hash, text, token.length + 1), &number, sizeof number);
    }
    return 0;
}

struct numbered {
    const char *text;
    const json_t *row;
    int64_t id;
};

static int compare_numbered(const void *left, const void *right)
{
    const struct numbered *a = left, *b = right;
    return (a->id > b->id) - (a->id < b->id);
}

/* Adds the rows of {"32000": {"content": ...}} or {"<|user|>": 32000}, in the order of their ids. */
static int add_numbered(const struct token_adder *a, const char *file, json_t *rows, bool keyed_by_id)
{
    const size_t count = json_object_size(rows);
    scope_free struct numbered *list = count ? mem_calloc(count, sizeof *list) : NULL;
    size_t at = 0;
    const char *key;
    json_t *row;
    if (count && !list)
        return error_set(a->err, MUSTER_E_NOMEM, "no memory for %zu added tokens", count);
    json_object_foreach(rows, key, row)
    {
        int64_t id = -1;
        const bool known = keyed_by_id ? text_int64(key, &id) : json_is_number(row);
        if (!known || (keyed_by_id && !text_of_token(row)))
            return error_set(a->err, MUSTER_E_INVALID, "%s next to %s: '%.64s' is no token with an id", file,
                             a->path, key);
        list[at++] = (struct numbered){keyed_by_id ? text_of_token(row) : key, keyed_by_id ? row : NULL,
                                       keyed_by_id ? id : (int64_t)json_number_value(row)};
    }
    if (count)
        qsort(list, count, sizeof *list, compare_numbered);
    for (size_t i = 0; i < count; i++) {
        const json_t *flag = json_object_get(list[i].row, "normalized");
        const bool normalized = flag ? json_is_true(flag) : !is_special(a->companions, list[i].text);
        if (add_companion(a, file, list[i].text, list[i].row, list[i].id < 0 ? -2 : list[i].id, normalized) <
            0)
            return -1;
    }
    return 0;
}

static int add_named(const struct token_adder *a)
{
    const struct companions *companions = a->companions;
    const json_t *mapped = json_object_get(companions->map, "additional_special_tokens");
    const bool by_map = json_array_size(mapped) > 0;
    const json_t *more = by_map ? mapped : json_object_get(companions->config, "additional_special_tokens"),
                 *each;
    size_t i;
    for (i = 0; i < sizeof special_names / sizeof *special_names; i++) {
        const json_t *value = special_value(companions, special_names[i]);
        const bool here = value == json_object_get(companions->map, special_names[i]);
        if (add_companion(a, here ? MAP : CONFIG, text_of_token(value), value, TOKEN_NONE, false) < 0)
            return -1;
    }
    json_array_foreach(more, i, each)
    {
        if (add_companion(a, by_map ? MAP : CONFIG, text_of_token(each), each, TOKEN_NONE, false) < 0)
            return -1;
    }
    return 0;
}

int companions_add_tokens(const struct companions *companions, const char *path,
                          const struct tokenizer_opened *tokenizer, uint64_t *hash, struct muster_error *err)
{
    const struct token_adder a = {companions, path, tokenizer, hash, err};
    json_t *decoder = json_object_get(companions->config, "added_tokens_decoder");
    if ((json_is_object(decoder) ? add_numbered(&a, CONFIG, decoder, true)
                                 : add_numbered(&a, ADDED, companions->added, false)) < 0 ||
        add_named(&a) < 0)
        return -1;
    tokenizer->ops->finish_added(tokenizer->self);
    return 0;
}

/* ---- the tokens that begin and end a document ---- */

static int32_t special_id(const struct companions *companions, const struct tokenizer_opened *tokenizer,
                          const char *name)
{
    const char *text = text_of_token(json_object_get(companions->config, name));
    if (!text)
        text = text_of_token(json_object_get(companions->map, name));
    return text ? tokenizer->ops->find(tokenizer->self, text) : TOKEN_NONE;
}

void companions_special(const struct companions *companions, const struct tokenizer_opened *tokenizer,
                        struct tokenizer_special *special)
{
    static const char *const ends[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
    const struct {
        const char *name, *usual; /* usual: its text where no file names it; NULL: none is taken */
        int32_t *id;
    } tokens[] = {{"bos_token", NULL, &special->bos},      {"eos_token", NULL, &special->eos},
                  {"unk_token", NULL, &special->unk},      {"pad_token", "[PAD]", &special->pad},
                  {"cls_token", "[CLS]", &special->cls},   {"sep_token", "[SEP]", &special->sep},
                  {"mask_token", "[MASK]", &special->mask}};
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        const int32_t id = special_id(companions, tokenizer, tokens[i].name);
        if (id >= 0)
            *tokens[i].id = id;
        else if (*tokens[i].id < 0 && tokens[i].usual)
            *tokens[i].id = tokenizer->ops->find(tokenizer->self, tokens[i].usual);
    }
    for (size_t i = 0; special->eos < 0 && i < sizeof ends / sizeof *ends; i++)
        special->eos = tokenizer->ops->find(tokenizer->self, ends[i]);
}
