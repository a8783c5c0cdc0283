/* bpe_json.c - reads a tokenizer of words from tokenizer.json. An unsupported part that would change the ids
 * is an error that names the part. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "proto/json/json_text.h"
#include "trainer/tokens/bpe.h"

struct reader {
    const char *path;
    struct bpe *bpe;
    struct muster_error *err;
};

static struct part_reader section_of(const struct reader *r, const char *section)
{
    return (struct part_reader){r->path, section, r->err};
}

static int refuse(const struct reader *r, const char *what, const json_t *value)
{
    const struct part_reader part = section_of(r, "model");
    return part_refuse(&part, what, value);
}

static int malformed(const struct reader *r, const char *what)
{
    return error_set(r->err, MUSTER_E_INVALID, "%s: %s", r->path, what);
}

/* ---- model ---- */

static int read_vocabulary(const struct reader *r, json_t *words)
{
    const char *text;
    json_t *id;
    if (!json_is_object(words))
        return malformed(r, "model.vocab is no object");
    json_object_foreach(words, text, id)
    {
        if (!json_is_integer(id))
            return malformed(r, "an id of model.vocab is no whole number");
        if (bpe_add_token(r->bpe, text, strlen(text), json_integer_value(id), r->err) < 0)
            return error_wrap(r->err, "%s: model.vocab", r->path);
    }
    return 0;
}

/* "left right", or ["left", "right"] since tokenizers 0.20. */
static int read_merge(const struct reader *r, const json_t *merge, uint32_t rank)
{
    const char *left = json_string_value(json_is_array(merge) ? json_array_get(merge, 0) : merge);
    const char *right = json_string_value(json_array_get(merge, 1)), *blank = NULL;
    if (left && !right && json_is_string(merge) && (blank = strchr(left, ' ')))
        right = blank + 1;
    if (!left || !right || (json_is_array(merge) && json_array_size(merge) != 2))
        return malformed(r, "a row of model.merges is no pair of texts");
    const size_t left_length = blank ? (size_t)(blank - left) : strlen(left);
    if (bpe_add_merge(r->bpe, left, left_length, right, strlen(right), rank, r->err) < 0)
        return error_wrap(r->err, "%s: model.merges", r->path);
    return 0;
}

static int read_merges(const struct reader *r, const json_t *merges)
{
    const json_t *merge;
    size_t i;
    if (!json_is_array(merges))
        return malformed(r, "model.merges is no array");
    json_array_foreach(merges, i, merge)
    {
        if (read_merge(r, merge, (uint32_t)i) < 0)
            return -1;
    }
    return 0;
}

/* A flag of the model, absent or null: false. */
static int read_flag(const struct reader *r, const json_t *model, const char *key, bool *out)
{
    const struct part_reader part = section_of(r, "model");
    const json_t *value = json_object_get(model, key);
    *out = false;
    return !value || json_is_null(value) ? 0 : part_flag(&part, model, key, -1, out);
}

/* continuing_subword_prefix or end_of_word_suffix; *out is NULL where there is none. */
static int read_affix(const struct reader *r, const json_t *model, const char *key, char **out)
{
    enum { AFFIX = 64 }; /* bytes */
    const json_t *value = json_object_get(model, key);
    const char *text = json_string_value(value);
    if (!value || json_is_null(value) || (text && !*text))
        return 0;
    for (size_t i = 0; text && text[i]; i++)
        if ((unsigned char)text[i] >= 0x80 || i == AFFIX)
            text = NULL;
    if (!text || strlen(text) != json_string_length(value)) {
        char name[64];
        (void)snprintf(name, sizeof name, "model.%s", key); /* fits */
        return refuse(r, name, value);
    }
    *out = mem_strdup(text);
    return *out ? 0 : error_set(r->err, MUSTER_E_NOMEM, "no memory for a tokenizer");
}

/* Call after the vocabulary. required: null is no value. */
static int read_unknown(const struct reader *r, const json_t *model, bool required)
{
    const json_t *value = json_object_get(model, "unk_token");
    const char *text = json_string_value(value);
    if ((!value || json_is_null(value)) && !required)
        return 0;
    if (!text)
        return refuse(r, "model.unk_token", value);
    /* in the file's letters, also where words are bytes */
    r->bpe->unknown = vocabulary_find(&r->bpe->all, text, json_string_length(value));
    if (r->bpe->unknown < 0 && !(r->bpe->unknown_missing = mem_strdup(text)))
        return error_set(r->err, MUSTER_E_NOMEM, "no memory for a tokenizer");
    return 0;
}

static int read_merges_model(const struct reader *r, const json_t *model)
{
    const json_t *dropout = json_object_get(model, "dropout");
    if (!part_is_nothing(dropout) && !(json_is_number(dropout) && json_number_value(dropout) == 0))
        return refuse(r, "model.dropout", dropout);
    if (read_flag(r, model, "ignore_merges", &r->bpe->whole_words) < 0)
        return -1;
    return read_vocabulary(r, json_object_get(model, "vocab")) < 0 ||
                   read_merges(r, json_object_get(model, "merges")) < 0
               ? -1
               : read_unknown(r, model, false);
}

static int read_word_model(const struct reader *r, const json_t *model)
{
    const struct part_reader part = section_of(r, "model");
    if (r->bpe->model == BPE_WORDPIECE &&
        part_number(&part, model, "max_input_chars_per_word", INT32_MAX, &r->bpe->longest) < 0)
        return -1;
    return read_vocabulary(r, json_object_get(model, "vocab")) < 0 ? -1 : read_unknown(r, model, true);
}

/* Which model, and whether its words are of bytes: decided before its vocabulary is read. */
static int choose_model(const struct reader *r, const json_t *model)
{
    static const char *const types[] = {"BPE", "WordPiece", "WordLevel"};
    struct bpe *bpe = r->bpe;
    const char *type = part_type(model);
    size_t kind = 0;
    bool every_byte = true;
    while (*type && kind < 3 && strcmp(type, types[kind]) != 0)
        kind++;
    if (kind == 3)
        return refuse(r, "model.type", json_object_get(model, "type"));
    bpe->model = (enum bpe_model)kind;
    if (read_flag(r, model, "byte_fallback", &bpe->byte_fallback) < 0 ||
        read_flag(r, model, "fuse_unk", &bpe->fuse_unknown) < 0 ||
        (kind < 2 && read_affix(r, model, "continuing_subword_prefix", &bpe->prefix) < 0) ||
        (kind < 1 && read_affix(r, model, "end_of_word_suffix", &bpe->suffix) < 0))
        return -1;
    if (kind == 1 && !json_is_string(json_object_get(model, "continuing_subword_prefix")))
        return refuse(r, "model.continuing_subword_prefix",
                      json_object_get(model, "continuing_subword_prefix"));
    for (unsigned byte = 0; byte < 256; byte++) {
        char letter[5] = "";
        letter[alphabet_letter((unsigned char)byte, letter)] = '\0';
        every_byte = every_byte && json_object_get(json_object_get(model, "vocab"), letter);
    }
    /* an unknown character is a letter of GPT-2's alphabet there */
    bpe->by_chars = !bpe->pre.bytes || kind || bpe->prefix || bpe->suffix ||
                    (!every_byte && (bpe->byte_fallback || bpe->fuse_unknown));
    bpe->pre.count += bpe->pre.bytes && bpe->by_chars; /* ByteLevel is a step like others */
    return 0;
}

static int read_model(const struct reader *r, const json_t *model)
{
    if (choose_model(r, model) < 0)
        return -1;
    return r->bpe->model == BPE_MERGES ? read_merges_model(r, model) : read_word_model(r, model);
}

/* ---- added tokens ---- */

static int read_added(const struct reader *r, const json_t *row, int64_t next)
{
    static const char *const names[] = {"single_word", "lstrip", "rstrip", "normalized", "special"};
    const struct part_reader part = section_of(r, "row of added_tokens");
    const json_t *text = json_object_get(row, "content"), *id = json_object_get(row, "id");
    bool flags[5];
    if (!json_is_string(text) || json_string_length(text) == 0 || !json_is_integer(id))
        return malformed(r, "a row of added_tokens has no content or no id");
    for (int i = 0; i < 5; i++)
        if (part_flag(&part, row, names[i], 0, &flags[i]) < 0)
            return -1;
    if (json_integer_value(id) < 0 || json_integer_value(id) >= VOCABULARY_LIMIT)
        return error_set(r->err, MUSTER_E_INVALID,
                         "%s: the id %lld of the added token '%.64s' is not from 0 to %d", r->path,
                         (long long)json_integer_value(id), json_string_value(text), VOCABULARY_LIMIT - 1);
    const int32_t known = vocabulary_find(&r->bpe->all, json_string_value(text), json_string_length(text));
    if (json_integer_value(id) != (known >= 0 ? known : next))
        return error_set(r->err, MUSTER_E_INVALID,
                         "%s: the added token '%.64s' has the id %lld, and `tokenizers` gives it the id %lld",
                         r->path, json_string_value(text), (long long)json_integer_value(id),
                         (long long)(known >= 0 ? known : next));
    const struct added_token token = {.text = (char *)json_string_value(text),
                                      .length = json_string_length(text),
                                      .id = (int32_t)json_integer_value(id),
                                      .single_word = flags[0],
                                      .takes_before = flags[1],
                                      .takes_after = flags[2]};
    return bpe_add_added(r->bpe, &token, flags[3], r->err) < 0
               ? error_wrap(r->err, "%s: added_tokens", r->path)
               : 0;
}

static int read_all_added(const struct reader *r, const json_t *rows)
{
    const int64_t words = r->bpe->all.count;
    int64_t next = words; /* the id of a token that the model does not have */
    const json_t *row;
    size_t i;
    if (rows && !json_is_array(rows))
        return malformed(r, "added_tokens is no array");
    json_array_foreach(rows, i, row)
    {
        if (read_added(r, row, next) < 0)
            return -1;
        const int64_t id = json_integer_value(json_object_get(row, "id"));
        next = id >= next ? id + 1 : next;
    }
    return 0;
}

/* ---- post_processor: the one token that it puts before a text, and the one after it ---- */

static int32_t id_of(const json_t *pair)
{
    const json_t *id = json_array_get(pair, 1);
    return json_is_integer(id) ? (int32_t)json_integer_value(id) : TOKEN_NONE;
}

/* A part of a template: its token; TOKEN_NONE: it is the text, or several tokens. */
static int32_t template_token(const json_t *processor, const json_t *part)
{
    const char *name = json_string_value(json_object_get(json_object_get(part, "SpecialToken"), "id"));
    const json_t *row = name ? json_object_get(json_object_get(processor, "special_tokens"), name) : NULL;
    const json_t *ids = json_object_get(row, "ids"), *id = json_array_get(ids, 0);
    return json_array_size(ids) == 1 && json_is_integer(id) ? (int32_t)json_integer_value(id) : TOKEN_NONE;
}

static void read_frame(struct bpe *bpe, const json_t *processor)
{
    const char *type = part_type(processor);
    const json_t *single = json_object_get(processor, "single"), *each;
    int32_t before = TOKEN_NONE, after = TOKEN_NONE;
    size_t i;
    if (!strcmp(type, "Sequence")) {
        json_array_foreach(json_object_get(processor, "processors"), i, each) read_frame(bpe, each);
        return;
    }
    if (!strcmp(type, "BertProcessing") || !strcmp(type, "RobertaProcessing")) {
        before = id_of(json_object_get(processor, "cls"));
        after = id_of(json_object_get(processor, "sep"));
    } else if (!strcmp(type, "TemplateProcessing") && json_array_size(single) == 3 &&
               json_object_get(json_array_get(single, 1), "Sequence")) {
        before = template_token(processor, json_array_get(single, 0));
        after = template_token(processor, json_array_get(single, 2));
    }
    if (before >= 0 && after >= 0) {
        bpe->special.cls = before;
        bpe->special.sep = after;
    }
}

static int check_keys(const struct reader *r, json_t *root)
{
    static const char *const names[] = {"version",      "truncation",     "padding",
                                        "added_tokens", "normalizer",     "pre_tokenizer",
                                        "model",        "post_processor", "decoder"};
    static const char *const parts[] = {"truncation",    "padding",        "normalizer",
                                        "pre_tokenizer", "post_processor", "decoder"};
    const json_t *version = json_object_get(root, "version");
    const char *key;
    json_t *value;
    size_t i;
    if (version && (!json_is_string(version) || strcmp(json_string_value(version), "1.0") != 0))
        return refuse(r, "version", version);
    json_object_foreach(root, key, value)
    {
        for (i = 0; i < sizeof names / sizeof *names && strcmp(key, names[i]) != 0;)
            i++;
        if (i == sizeof names / sizeof *names)
            return error_set(r->err, MUSTER_E_UNSUPPORTED, "%s: %.64s is no part of a tokenizer.json",
                             r->path, key);
    }
    for (i = 0; i < sizeof parts / sizeof *parts; i++) {
        value = json_object_get(root, parts[i]);
        if (value && !json_is_null(value) && !json_is_object(value))
            return refuse(r, parts[i], value);
    }
    return json_is_object(json_object_get(root, "model")) ? 0 : malformed(r, "it has no model");
}

static int read_root(const struct reader *r, json_t *root)
{
    const struct part_reader normalizer = section_of(r, "normalizer"), pre = section_of(r, "pre_tokenizer"),
                             decoder = section_of(r, "decoder");
    struct bpe *bpe = r->bpe;
    const json_t *decodes = json_object_get(root, "decoder");
    if (check_keys(r, root) < 0 ||
        !(bpe->normalizer = normalizer_read(&normalizer, json_object_get(root, "normalizer"))) ||
        pre_tokenizer_read(&pre, json_object_get(root, "pre_tokenizer"), &bpe->pre) < 0)
        return -1;
    for (int i = 0; i < bpe->pre.count; i++)
        if (bpe->pre.step[i].kind == PRE_MARK && bpe->pre.step[i].prefix == NORMALIZE_FIRST &&
            normalizer_removes(bpe->normalizer)) /* the first piece depends on the removed text */
            return refuse(r, "after such a normalizer, the pre_tokenizer",
                          json_object_get(root, "pre_tokenizer"));
    if (strcmp(part_type(decodes), "ByteLevel") != 0 && !(bpe->decoder = decoder_read(&decoder, decodes)))
        return -1;
    read_frame(bpe, json_object_get(root, "post_processor"));
    return read_model(r, json_object_get(root, "model")) < 0 ||
                   read_all_added(r, json_object_get(root, "added_tokens")) < 0
               ? -1
               : bpe_finish(bpe, r->err);
}

struct bpe *bpe_parse_json(const char *name, const char *text, size_t length, struct muster_error *err)
{
    GUARD(guard_json) json_t *root = json_text_object(name, text, length, 0, err);
    GUARD(guard_bpe) struct bpe *bpe = root ? bpe_create(err) : NULL;
    const struct reader r = {name, bpe, err};
    return bpe && !read_root(&r, root) ? take_pointer(&bpe) : NULL;
}

int bpe_tokenizer_open_json(const char *path, struct tokenizer_opened *out, struct muster_error *err)
{
    scope_buffer text = {0};
    if (io_read_file(path, BPE_JSON_LIMIT, &text, err) < 0)
        return -1;
    struct bpe *bpe = bpe_parse_json(path, text.data ? text.data : "", text.length, err);
    if (!bpe)
        return -1;
    *out = (struct tokenizer_opened){bpe->model == BPE_MERGES ? &bpe_ops : &wordpiece_ops, bpe,
                                     text_hash(TEXT_HASH_START, text.data, text.length)};
    return 0;
}
