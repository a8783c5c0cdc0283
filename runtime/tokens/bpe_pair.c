/* bpe_pair.c - reads GPT-2's pair of files: encoder.json (vocab.json) with the ids of tokens, and vocab.bpe
 * (merges.txt) with one merge a line, behind a first line "#version: 0.2". */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "runtime/files/json_text.h"
#include "runtime/tokens/bpe.h"

/* Of all added tokens GPT-2 has this one, found in a text as `transformers` does. */
static const char document_end[] = "<|endoftext|>";

static int read_words(struct bpe *bpe, const char *name, json_t *words, struct muster_error *err)
{
    const char *text;
    json_t *id;
    json_object_foreach(words, text, id)
    {
        if (!json_is_integer(id))
            return error_set(err, MUSTER_E_INVALID, "%s: the id of '%.64s' is no whole number", name, text);
        if (bpe_add_token(bpe, text, strlen(text), json_integer_value(id), err) < 0)
            return error_wrap(err, "%s", name);
    }
    const int32_t end = vocabulary_find(&bpe->all, document_end, sizeof document_end - 1);
    if (end < 0)
        return 0;
    bpe->special = (struct tokenizer_special){end, end, end};
    return added_add(&bpe->added[0], document_end, sizeof document_end - 1, &(struct added_token){.id = end},
                     err);
}

static int read_merge_lines(struct bpe *bpe, const char *text, size_t length, struct muster_error *err)
{
    uint32_t rank = 0;
    for (size_t at = 0, line = 1; at < length; line++) {
        const char *start = text + at, *end = memchr(start, '\n', length - at);
        size_t bytes = end ? (size_t)(end - start) : length - at;
        at += bytes + 1;
        bytes -= bytes > 0 && start[bytes - 1] == '\r';
        const char *blank = memchr(start, ' ', bytes);
        if (bytes == 0 || (line == 1 && start[0] == '#'))
            continue;
        if (!blank)
            return error_set(err, MUSTER_E_INVALID, "line %zu is no pair of tokens", line);
        const size_t left = (size_t)(blank - start);
        if (bpe_add_merge(bpe, start, left, blank + 1, bytes - left - 1, rank++, err) < 0)
            return error_wrap(err, "line %zu", line);
    }
    return 0;
}

struct bpe *bpe_parse_pair(const char *name, const char *words, size_t words_length, const char *merges,
                           size_t merges_length, struct muster_error *err)
{
    GUARD(guard_json) json_t *root = json_text_parse(name, words, words_length, err);
    GUARD(guard_bpe) struct bpe *bpe = root ? bpe_create(err) : NULL;
    if (!bpe || read_words(bpe, name, root, err) < 0 || read_merge_lines(bpe, merges, merges_length, err) < 0)
        return NULL;
    bpe->splitters[bpe->splitter_count++] = split_gpt2;
    return bpe_finish(bpe, err) < 0 ? NULL : take_pointer(&bpe);
}

int bpe_tokenizer_open_pair(const char *vocabulary, const char *merges, struct tokenizer_opened *out,
                            struct muster_error *err)
{
    scope_buffer words = {0}, lines = {0};
    if (io_read_file(vocabulary, JSON_TEXT_LIMIT, &words, err) < 0 ||
        io_read_file(merges, JSON_TEXT_LIMIT, &lines, err) < 0)
        return -1;
    struct bpe *bpe = bpe_parse_pair(vocabulary, words.data ? words.data : "", words.length,
                                     lines.data ? lines.data : "", lines.length, err);
    if (!bpe)
        return error_wrap(err, "%s", merges);
    uint64_t hash = text_hash(TEXT_HASH_START, words.data, words.length);
    *out = (struct tokenizer_opened){&bpe_ops, bpe, text_hash(hash, lines.data, lines.length)};
    return 0;
}
