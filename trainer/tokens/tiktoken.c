/* tiktoken.c - see kinds.h: files of tiktoken (a token in base64 and its rank on each line) and Tekken (the
 * same as JSON). The rank of a token is also the rank of every merge that makes it. */
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "proto/json/json_text.h"
#include "trainer/tokens/bpe.h"

#define R50K_PATTERN                                                                                         \
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s"
/* the same words as tiktoken's, as tokenizer.json has them: split.c has the first two in C */
#define CL100K_PATTERN                                                                                       \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN_PATTERN                                                                                         \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"      \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define O200K_PATTERN                                                                                        \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"              \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"                                                                         \
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"              \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"                                                                         \
    "\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

struct numbered_token {
    const char *text;
    int32_t id;
};
/* Tokens without a rank, ended by NULL. */
static const struct numbered_token
    r50k_special[] = {{"<|endoftext|>", 50256}, {NULL, 0}},
    cl100k_special[] = {{"<|endoftext|>", 100257},  {"<|fim_prefix|>", 100258},  {"<|fim_middle|>", 100259},
                        {"<|fim_suffix|>", 100260}, {"<|endofprompt|>", 100276}, {NULL, 0}},
    o200k_special[] = {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}, {NULL, 0}},
    qwen_special[] = {{"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}, {NULL, 0}},
    llama3_special[] = {{"<|begin_of_text|>", 128000},
                        {"<|end_of_text|>", 128001},
                        {"<|reserved_special_token_0|>", 128002},
                        {"<|reserved_special_token_1|>", 128003},
                        {"<|start_header_id|>", 128006},
                        {"<|end_header_id|>", 128007},
                        {"<|eot_id|>", 128009},
                        {NULL, 0}};

static const struct numbered_token harmony_special[] = {{"<|startoftext|>", 199998},
                                                        {"<|endoftext|>", 199999},
                                                        {"<|return|>", 200002},
                                                        {"<|constrain|>", 200003},
                                                        {"<|channel|>", 200005},
                                                        {"<|start|>", 200006},
                                                        {"<|end|>", 200007},
                                                        {"<|message|>", 200008},
                                                        {"<|call|>", 200012},
                                                        {"<|endofprompt|>", 200018},
                                                        {NULL, 0}},
                                   llama4_special[] = {
                                       {"<|begin_of_text|>", 200000}, {"<|end_of_text|>", 200001},
                                       {"<|fim_prefix|>", 200002},    {"<|fim_middle|>", 200003},
                                       {"<|fim_suffix|>", 200004},    {"<|header_start|>", 200005},
                                       {"<|header_end|>", 200006},    {"<|eom|>", 200007},
                                       {"<|eot|>", 200008},           {NULL, 0}};

/* The name of a file decides its expression, or else the number of its ranks. The first row of a name and the
 * last row of a number count. */
static const struct family {
    const char *name; /* part of the file's name */
    int64_t ranks;
    const char *pattern;
    const struct numbered_token *special;
    const char *bos, *eos;
} families[] = {
    {"r50k", 50256, R50K_PATTERN, r50k_special, NULL, "<|endoftext|>"},
    {"p50k", 50280, R50K_PATTERN, r50k_special, NULL, "<|endoftext|>"},
    {"cl100k", 100256, CL100K_PATTERN, cl100k_special, NULL, "<|endoftext|>"},
    {"o200k_harmony", 199998, O200K_PATTERN, harmony_special, "<|startoftext|>", "<|endoftext|>"},
    {"o200k", 199998, O200K_PATTERN, o200k_special, NULL, "<|endoftext|>"},
    {"llama4", 200000, O200K_PATTERN, llama4_special, "<|begin_of_text|>", "<|end_of_text|>"},
    {"llama3", 128000, CL100K_PATTERN, llama3_special, "<|begin_of_text|>", "<|end_of_text|>"},
    {"qwen", 151643, QWEN_PATTERN, qwen_special, NULL, "<|endoftext|>"},
};

static const struct family *family_of(const char *path, int64_t ranks)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strstr(name, families[i].name))
            return &families[i];
    for (size_t i = sizeof families / sizeof *families; i > 0; i--)
        if (ranks == families[i - 1].ranks)
            return &families[i - 1];
    return NULL;
}

/* ---- tokens ---- */

static int base64_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *found = c ? strchr(digits, c) : NULL;
    return found ? (int)(found - digits) : -1;
}

/* Adds the bytes; false: the text is no base64. */
static bool decode_base64(const char *text, size_t length, struct buffer *out)
{
    while (length && text[length - 1] == '=')
        length--;
    unsigned bits = 0, count = 0;
    for (size_t i = 0; i < length; i++) {
        const int digit = base64_of(text[i]);
        if (digit < 0)
            return false;
        bits = bits << 6 | (unsigned)digit;
        count += 6;
        if (count >= 8) {
            count -= 8;
            (void)buffer_append(out, &(char){(char)(bits >> count)}, 1); /* out remembers a failure */
        }
    }
    return length % 4 != 1;
}

/* A token of these bytes: its text in the vocabulary is in GPT-2's letters. */
static int add_ranked(struct bpe *bpe, const struct buffer *bytes, int64_t id, struct muster_error *err)
{
    scope_buffer letters = {0};
    alphabet_letters(bytes->data ? bytes->data : "", bytes->length, &letters);
    if (bytes->failed || letters.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the vocabulary");
    if (!bytes->length)
        return error_set(err, MUSTER_E_INVALID, "the token %lld has no bytes", (long long)id);
    return bpe_add_token(bpe, letters.data, letters.length, id, err);
}

/* Every pair of tokens whose bytes together are a token. */
static int add_all_merges(struct bpe *bpe, struct muster_error *err)
{
    for (int64_t id = 0; id < bpe->words.size; id++) {
        size_t length;
        const char *text = vocabulary_text(&bpe->words, id, &length);
        for (size_t at = 1; text && at < length; at++) {
            const int32_t left = vocabulary_find(&bpe->words, text, at),
                          right = vocabulary_find(&bpe->words, text + at, length - at);
            if (left >= 0 && right >= 0 &&
                merges_add(&bpe->merges, left, right, (uint32_t)id, (int32_t)id, err) < 0)
                return -1;
        }
    }
    return 0;
}

/* tiktoken, Tekken: a word that is a token needs no merges, and every byte is a token. */
static int finish_ranked(struct bpe *bpe, const char *pattern, struct muster_error *err)
{
    struct pre_step step = {.kind = PRE_SPLITTER, .split = split_by_pattern(pattern)};
    for (int byte = 0; byte < 256; byte++)
        if (vocabulary_find(&bpe->words, &(char){(char)byte}, 1) < 0)
            return error_set(err, MUSTER_E_INVALID, "the byte 0x%02X is no token", (unsigned)byte);
    bpe->whole_words = true;
    if (!step.split) { /* what no match takes is no word */
        step.kind = PRE_FIND;
        step.behaviour = PRE_REMOVED;
        step.inverted = true;
        if (!(step.finder = finder_of_pattern(pattern, PATTERN_RUST, err)))
            return -1;
    }
    if (pre_tokenizer_add(&bpe->pre, &step, err) < 0 || add_all_merges(bpe, err) < 0)
        return -1;
    return bpe_finish(bpe, err);
}

static int add_special(struct bpe *bpe, const char *text, int64_t id, struct muster_error *err)
{
    const struct added_token token = {.text = (char *)text, .length = strlen(text), .id = (int32_t)id};
    return bpe_add_added(bpe, &token, 0, err);
}

/* ---- .tiktoken ---- */

/* "dGhl 1820" of `length` bytes. */
static int read_ranked(struct bpe *bpe, const char *line, size_t length, struct muster_error *err)
{
    scope_buffer bytes = {0}, number = {0};
    const char *blank = memchr(line, ' ', length);
    int64_t rank = -1;
    if (blank && (buffer_append(&number, blank + 1, length - (size_t)(blank + 1 - line)) < 0 ||
                  buffer_append(&number, "", 1) < 0))
        return error_set(err, MUSTER_E_NOMEM, "no memory for the vocabulary");
    if (!blank || !text_int64(number.data, &rank) || !decode_base64(line, (size_t)(blank - line), &bytes))
        return error_set(err, MUSTER_E_INVALID, "it is no token in base64 with its rank");
    return add_ranked(bpe, &bytes, rank, err);
}

bool tiktoken_begins(const char *text, size_t length)
{
    const char *end = memchr(text, '\n', length < 400 ? length : 400);
    const size_t line = end ? (size_t)(end - text) : 0;
    size_t at = 0;
    while (at < line && (base64_of(text[at]) >= 0 || text[at] == '='))
        at++;
    if (at < 2 || at >= line || text[at] != ' ')
        return false;
    for (at++; at < line; at++)
        if (text[at] != '\r' && (text[at] < '0' || text[at] > '9'))
            return false;
    return true;
}

struct bpe *bpe_parse_tiktoken(const char *name, const char *text, size_t length, struct muster_error *err)
{
    GUARD(guard_bpe) struct bpe *bpe = bpe_create(err);
    for (size_t at = 0, line = 1; bpe && at < length; line++) {
        const char *begin = text + at, *end = memchr(begin, '\n', length - at);
        size_t bytes = end ? (size_t)(end - begin) : length - at;
        at += bytes + 1;
        bytes -= bytes > 0 && begin[bytes - 1] == '\r';
        if (bytes && read_ranked(bpe, begin, bytes, err) < 0) {
            (void)error_wrap(err, "%s: line %zu", name, line);
            return NULL;
        }
    }
    const struct family *family = bpe ? family_of(name, bpe->words.count) : NULL;
    if (bpe && !family)
        (void)error_set(
            err, MUSTER_E_UNSUPPORTED,
            "%s: it has %lld ranks, and no known expression for words: the file's name has to contain "
            "r50k, p50k, cl100k, o200k, o200k_harmony, llama3, llama4 or qwen",
            name, (long long)bpe->words.count);
    if (!family)
        return NULL;
    for (const struct numbered_token *token = family->special; token->text; token++) {
        /* a file of few ranks, which is none of the real ones: the next free ids */
        const int64_t id = bpe->words.count == family->ranks ? token->id : bpe->all.size;
        if (add_special(bpe, token->text, id, err) < 0) {
            (void)error_wrap(err, "%s", name);
            return NULL;
        }
    }
    if (finish_ranked(bpe, family->pattern, err) < 0) {
        (void)error_wrap(err, "%s", name);
        return NULL;
    }
    bpe->special.bos =
        family->bos ? vocabulary_find(&bpe->all, family->bos, strlen(family->bos)) : TOKEN_NONE;
    bpe->special.eos = vocabulary_find(&bpe->all, family->eos, strlen(family->eos));
    return take_pointer(&bpe);
}

/* ---- tekken.json ---- */

/* Files before version 7 do not list them. */
static const char *const tekken_special[] = {"<unk>",
                                             "<s>",
                                             "</s>",
                                             "[INST]",
                                             "[/INST]",
                                             "[AVAILABLE_TOOLS]",
                                             "[/AVAILABLE_TOOLS]",
                                             "[TOOL_RESULTS]",
                                             "[/TOOL_RESULTS]",
                                             "[TOOL_CALLS]",
                                             "[IMG]",
                                             "<pad>",
                                             "[IMG_BREAK]",
                                             "[IMG_END]",
                                             "[PREFIX]",
                                             "[MIDDLE]",
                                             "[SUFFIX]",
                                             "[SYSTEM_PROMPT]",
                                             "[/SYSTEM_PROMPT]",
                                             "[TOOL_CONTENT]"};

static int add_tekken_special(struct bpe *bpe, const json_t *rows, int64_t count, struct muster_error *err)
{
    const size_t given =
        json_is_array(rows) ? json_array_size(rows) : sizeof tekken_special / sizeof *tekken_special;
    for (int64_t id = 0; id < count; id++) {
        char filler[40];
        const json_t *row = json_array_get(rows, (size_t)id);
        const char *text = json_is_array(rows)  ? json_string_value(json_object_get(row, "token_str"))
                           : (size_t)id < given ? tekken_special[id]
                                                : NULL;
        if (row && (!text || !*text || json_integer_value(json_object_get(row, "rank")) != id))
            return error_set(err, MUSTER_E_INVALID,
                             "row %lld of special_tokens has no token_str or another rank", (long long)id);
        (void)snprintf(filler, sizeof filler, "<SPECIAL_%lld>", (long long)id); /* fits */
        if (add_special(bpe, text ? text : filler, id, err) < 0)
            return -1;
    }
    return given <= (size_t)count
               ? 0
               : error_set(err, MUSTER_E_INVALID, "it has more than %lld special_tokens", (long long)count);
}

static int add_tekken_words(struct bpe *bpe, const json_t *rows, int64_t count, int64_t first,
                            struct muster_error *err)
{
    for (int64_t rank = 0; rank < count; rank++) {
        const json_t *row = json_array_get(rows, (size_t)rank), *number = json_object_get(row, "rank");
        const char *text = json_string_value(json_object_get(row, "token_bytes"));
        scope_buffer bytes = {0};
        if (!text || !json_is_integer(number) || json_integer_value(number) != rank ||
            !decode_base64(text, strlen(text), &bytes))
            return error_set(err, MUSTER_E_INVALID, "row %lld of vocab has no token_bytes or another rank",
                             (long long)rank);
        if (add_ranked(bpe, &bytes, rank + first, err) < 0)
            return -1;
    }
    return 0;
}

static int read_tekken(struct bpe *bpe, const json_t *root, struct muster_error *err)
{
    const json_t *config = json_object_get(root, "config"), *words = json_object_get(root, "vocab");
    const char *pattern = json_string_value(json_object_get(config, "pattern"));
    const int64_t size = json_integer_value(json_object_get(config, "default_vocab_size")),
                  special = json_integer_value(json_object_get(config, "default_num_special_tokens"));
    if (!pattern || !json_is_array(words) || special < 0 || size <= special || size > VOCABULARY_LIMIT ||
        (int64_t)json_array_size(words) < size - special)
        return error_set(err, MUSTER_E_INVALID,
                         "its config has no pattern, or sizes that its vocab of %zu tokens does not have",
                         json_array_size(words));
    if (add_tekken_special(bpe, json_object_get(root, "special_tokens"), special, err) < 0 ||
        add_tekken_words(bpe, words, size - special, special, err) < 0 ||
        finish_ranked(bpe, pattern, err) < 0)
        return -1;
    bpe->special.bos = vocabulary_find(&bpe->all, "<s>", 3);
    bpe->special.eos = vocabulary_find(&bpe->all, "</s>", 4);
    bpe->special.unk = vocabulary_find(&bpe->all, "<unk>", 5);
    bpe->special.pad = vocabulary_find(&bpe->all, "<pad>", 5);
    return 0;
}

struct bpe *bpe_parse_tekken(const char *name, const char *text, size_t length, struct muster_error *err)
{
    GUARD(guard_json) json_t *root = json_text_object(name, text, length, JSON_ALLOW_NUL, err);
    GUARD(guard_bpe) struct bpe *bpe = root ? bpe_create(err) : NULL;
    if (!bpe)
        return NULL;
    if (read_tekken(bpe, root, err) < 0) {
        (void)error_wrap(err, "%s", name);
        return NULL;
    }
    return take_pointer(&bpe);
}

/* ---- files ---- */

int ranked_tokenizer_open(const char *path, bool tekken, struct tokenizer_opened *out,
                          struct muster_error *err)
{
    scope_buffer text = {0};
    if (io_read_file(path, BPE_JSON_LIMIT, &text, err) < 0)
        return -1;
    struct bpe *bpe =
        (tekken ? bpe_parse_tekken : bpe_parse_tiktoken)(path, text.data ? text.data : "", text.length, err);
    if (!bpe)
        return -1;
    *out = (struct tokenizer_opened){&bpe_ops, bpe, text_hash(TEXT_HASH_START, text.data, text.length)};
    return 0;
}
