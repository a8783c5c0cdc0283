/* bpe_json.c - reads a BPE tokenizer from tokenizer.json. An unsupported part that would change the ids is an
 * error that names the part. */
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

static int refuse(const struct reader *r, const char *part, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    (void)error_set(r->err, MUSTER_E_UNSUPPORTED, "%s: %s %.200s is not supported", r->path, part,
                    text ? text : "(not printable)");
    free(text); /* jansson's, not of mem.h */
    return -1;
}

static int malformed(const struct reader *r, const char *what)
{
    return error_set(r->err, MUSTER_E_INVALID, "%s: %s", r->path, what);
}

/* Whether a setting is absent, null, "" or false, and so changes no ids. */
static bool is_nothing(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

static const char *type_of(const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    return type ? type : "";
}

/* ---- normalizer ---- */

static bool is_text(const json_t *value, const char *text)
{
    return json_is_string(value) && !strcmp(json_string_value(value), text);
}

/* Accepts NFC, then sentencepiece's treatment of blanks: Prepend, Replace. */
static int read_normalizer(const struct reader *r, const json_t *part, int depth)
{
    const char *type = type_of(part);
    const json_t *parts = json_object_get(part, "normalizers"), *each;
    struct bpe *bpe = r->bpe;
    size_t i;
    if (is_nothing(part))
        return 0;
    if (!strcmp(type, "Sequence") && json_is_array(parts) && depth < 2) {
        json_array_foreach(parts, i, each)
        {
            if (read_normalizer(r, each, depth + 1) < 0)
                return -1;
        }
        return 0;
    }
    const bool marked = bpe->marks_early || bpe->early_prefix != NORMALIZE_NONE;
    if (!strcmp(type, "NFC") && !marked) {
        bpe->nfc = true;
        return normalize_open("a tokenizer.json with the normalizer NFC", r->err) < 0
                   ? error_wrap(r->err, "%s", r->path)
                   : 0;
    }
    if (!strcmp(type, "Prepend") && is_text(json_object_get(part, "prepend"), NORMALIZE_MARK) && !marked) {
        bpe->early_prefix = NORMALIZE_ALWAYS;
        return 0;
    }
    if (!strcmp(type, "Replace") && is_text(json_object_get(part, "content"), NORMALIZE_MARK) &&
        is_text(json_object_get(json_object_get(part, "pattern"), "String"), " ") && !bpe->marks_early) {
        bpe->marks_early = true;
        return 0;
    }
    return refuse(r, "normalizer", part);
}

/* ---- pre_tokenizer ---- */

static int add_splitter(const struct reader *r, splitter split)
{
    if (r->bpe->splitter_count == BPE_SPLITTERS)
        return malformed(r, "the pre_tokenizer has too many parts");
    r->bpe->splitters[r->bpe->splitter_count++] = split;
    return 0;
}

/* Accepts a Split in which every match is a word, by a pattern that matches everything. */
static int read_split(const struct reader *r, const json_t *part)
{
    const char *behavior = json_string_value(json_object_get(part, "behavior"));
    const bool inverted = json_is_true(json_object_get(part, "invert"));
    const char *pattern = json_string_value(json_object_get(json_object_get(part, "pattern"), "Regex"));
    const splitter split = pattern ? split_by_pattern(pattern) : NULL;
    if (!behavior || !split || strcmp(behavior, inverted ? "Removed" : "Isolated") != 0)
        return refuse(r, "pre_tokenizer", part);
    return add_splitter(r, split);
}

static int read_byte_level(const struct reader *r, const json_t *part)
{
    const json_t *cuts = json_object_get(part, "use_regex");
    const bool prefix = json_is_true(json_object_get(part, "add_prefix_space"));
    if (prefix && r->bpe->splitter_count > 0)
        return refuse(r, "add_prefix_space after another pre_tokenizer:", part);
    r->bpe->prefix_blank = prefix;
    return !cuts || json_is_true(cuts) ? add_splitter(r, split_gpt2) : 0;
}

/* Metaspace: blanks as in sentencepiece. */
static int read_metaspace(const struct reader *r, const json_t *part)
{
    static const struct {
        const char *name;
        enum normalize_prefix prefix;
    } schemes[] = {{"always", NORMALIZE_ABSENT}, {"first", NORMALIZE_FIRST}, {"never", NORMALIZE_NONE}};
    const json_t *scheme = json_object_get(part, "prepend_scheme"), *split = json_object_get(part, "split");
    const bool prefix = !json_is_false(json_object_get(part, "add_prefix_space"));
    struct bpe *bpe = r->bpe;
    if (!is_text(json_object_get(part, "replacement"), NORMALIZE_MARK) || bpe->marks_early ||
        (scheme && !json_is_string(scheme)))
        return refuse(r, "pre_tokenizer", part);
    bpe->marks = true;
    bpe->prefix = prefix ? NORMALIZE_ABSENT : NORMALIZE_NONE; /* older files have no prepend_scheme */
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (is_text(scheme, schemes[i].name))
            bpe->prefix = schemes[i].prefix;
    return !split || json_is_true(split) ? add_splitter(r, split_marks) : 0;
}

/* Adds the splitters of a part. *byte_level is set by a ByteLevel, which has to be the last part. */
static int read_pre_tokenizer(const struct reader *r, const json_t *part, bool *byte_level, int depth)
{
    const char *type = type_of(part);
    const json_t *parts = json_object_get(part, "pretokenizers"), *each;
    size_t i;
    if (*byte_level || depth > 2)
        return refuse(r, "pre_tokenizer", part);
    if (!strcmp(type, "Sequence") && json_is_array(parts)) {
        json_array_foreach(parts, i, each)
        {
            if (read_pre_tokenizer(r, each, byte_level, depth + 1) < 0)
                return -1;
        }
        return 0;
    }
    if (!strcmp(type, "Digits"))
        return add_splitter(r, json_is_true(json_object_get(part, "individual_digits")) ? split_digits
                                                                                        : split_numbers);
    if (!strcmp(type, "Split"))
        return read_split(r, part);
    if (strcmp(type, "ByteLevel") != 0)
        return refuse(r, "pre_tokenizer", part);
    *byte_level = true;
    return read_byte_level(r, part);
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

static int read_model(const struct reader *r, const json_t *model)
{
    /* the last two apply to models of characters: a byte-level model has a token for every byte */
    static const char *const absent[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                                         "byte_fallback", "fuse_unk"};
    const size_t refused = sizeof absent / sizeof *absent - (r->bpe->by_chars ? 2 : 0);
    const char *type = type_of(model), *unknown = json_string_value(json_object_get(model, "unk_token"));
    if (*type && strcmp(type, "BPE") != 0)
        return refuse(r, "model.type", json_object_get(model, "type"));
    for (size_t i = 0; i < refused; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "model.%s", absent[i]); /* fits */
        if (!is_nothing(json_object_get(model, absent[i])))
            return refuse(r, name, json_object_get(model, absent[i]));
    }
    r->bpe->whole_words = json_is_true(json_object_get(model, "ignore_merges"));
    r->bpe->byte_fallback = json_is_true(json_object_get(model, "byte_fallback"));
    r->bpe->fuse_unknown = json_is_true(json_object_get(model, "fuse_unk"));
    if (read_vocabulary(r, json_object_get(model, "vocab")) < 0 ||
        read_merges(r, json_object_get(model, "merges")) < 0)
        return -1;
    if (unknown)
        r->bpe->unknown = vocabulary_find(&r->bpe->all, unknown, strlen(unknown));
    return 0;
}

/* ---- added tokens ---- */

static int read_added(const struct reader *r, const json_t *row)
{
    const json_t *text = json_object_get(row, "content"), *id = json_object_get(row, "id");
    if (!json_is_string(text) || json_string_length(text) == 0 || !json_is_integer(id))
        return malformed(r, "a row of added_tokens has no content or no id");
    if (json_is_true(json_object_get(row, "single_word")))
        return refuse(r, "single_word of an added token:", row);
    if (json_integer_value(id) < 0 || json_integer_value(id) >= VOCABULARY_LIMIT)
        return error_set(r->err, MUSTER_E_INVALID,
                         "%s: the id %lld of the added token '%.64s' is not from 0 to %d", r->path,
                         (long long)json_integer_value(id), json_string_value(text), VOCABULARY_LIMIT - 1);
    const struct added_token token = {.text = (char *)json_string_value(text),
                                      .length = json_string_length(text),
                                      .id = (int32_t)json_integer_value(id),
                                      .takes_before = json_is_true(json_object_get(row, "lstrip")),
                                      .takes_after = json_is_true(json_object_get(row, "rstrip"))};
    return bpe_add_added(r->bpe, &token, json_is_true(json_object_get(row, "normalized")), r->err) < 0
               ? error_wrap(r->err, "%s: added_tokens", r->path)
               : 0;
}

static int read_all_added(const struct reader *r, const json_t *rows)
{
    const json_t *row;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        if (read_added(r, row) < 0)
            return -1;
    }
    return 0;
}

/* Decides between words of bytes (ByteLevel) and words of characters with marks for blanks. */
static int read_words(const struct reader *r, const json_t *pre)
{
    bool byte_level = false;
    struct bpe *bpe = r->bpe;
    if (!strcmp(type_of(pre), "Metaspace")) {
        bpe->by_chars = true;
        return read_metaspace(r, pre);
    }
    /* Gemma's Split at blanks never matches: the normalizer has replaced all blanks by marks. */
    const bool split_at_blanks = !strcmp(type_of(pre), "Split") &&
                                 is_text(json_object_get(json_object_get(pre, "pattern"), "String"), " ");
    if ((is_nothing(pre) || split_at_blanks) && bpe->marks_early) {
        bpe->by_chars = true;
        return 0;
    }
    if (is_nothing(pre))
        return error_set(
            r->err, MUSTER_E_UNSUPPORTED,
            "%s: it has neither a pre_tokenizer nor a normalizer that marks blanks; byte-level BPE "
            "and BPE with Metaspace are supported, and sentencepiece by its .model file",
            r->path);
    if (bpe->marks_early || bpe->early_prefix != NORMALIZE_NONE)
        return refuse(r, "after a normalizer that marks blanks, a pre_tokenizer", pre);
    if (read_pre_tokenizer(r, pre, &byte_level, 0) < 0)
        return -1;
    return byte_level ? 0 : refuse(r, "without ByteLevel, a pre_tokenizer", pre);
}

static int read_root(const struct reader *r, const json_t *root)
{
    const json_t *normalizer = json_object_get(root, "normalizer");
    if (read_normalizer(r, normalizer, 0) < 0)
        return -1;
    if (r->bpe->early_prefix != NORMALIZE_NONE && !r->bpe->marks_early)
        return refuse(r, "Prepend without Replace in the normalizer", normalizer);
    if (read_words(r, json_object_get(root, "pre_tokenizer")) < 0)
        return -1;
    if (!json_is_object(json_object_get(root, "model")))
        return malformed(r, "it has no model");
    return read_model(r, json_object_get(root, "model")) < 0 ||
                   read_all_added(r, json_object_get(root, "added_tokens")) < 0
               ? -1
               : bpe_finish(r->bpe, r->err);
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
    *out = (struct tokenizer_opened){&bpe_ops, bpe, text_hash(TEXT_HASH_START, text.data, text.length)};
    return 0;
}
