/* bpe_pair.c - reads GPT-2's pair of files: encoder.json (vocab.json) with the ids of tokens, and vocab.bpe
 * (merges.txt) with one merge a line, after a first line "#version: 0.2". */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "proto/json/json_text.h"
#include "trainer/tokens/bpe.h"

/* How the classes of `transformers` cut words; the names are without "Fast". */
static const struct pair_class {
    const char *name;
    splitter split;
    bool nfc;
} pair_classes[] = {{"GPT2Tokenizer", split_gpt2, false},    {"RobertaTokenizer", split_gpt2, false},
                    {"BartTokenizer", split_gpt2, false},    {"LongformerTokenizer", split_gpt2, false},
                    {"LEDTokenizer", split_gpt2, false},     {"CodeGenTokenizer", split_gpt2, false},
                    {"WhisperTokenizer", split_gpt2, false}, {"Qwen2Tokenizer", NULL, true}};
enum { PAIR_CLASSES = sizeof pair_classes / sizeof *pair_classes };
#define QWEN2_PATTERN                                                                                        \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"      \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static int choose_class(struct bpe *bpe, const char *by_class, struct muster_error *err)
{
    const struct pair_class *found = &pair_classes[0];
    for (int i = 0; by_class && i < PAIR_CLASSES; i++)
        if (!strcmp(by_class, pair_classes[i].name))
            found = &pair_classes[i];
    if (by_class && strcmp(by_class, found->name) != 0)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "the words of tokenizer_class %.64s (tokenizer_config.json) are not known for a "
                         "vocabulary with merges; its tokenizer.json has how they are cut",
                         by_class);
    if (found->nfc && !(bpe->normalizer = normalizer_nfc(err)))
        return -1;
    return pre_tokenizer_add(
        &bpe->pre,
        &(struct pre_step){.kind = PRE_SPLITTER,
                           .split = found->split ? found->split : split_by_pattern(QWEN2_PATTERN)},
        err);
}

/* GPT-2's only added token; it is found in a text as `transformers` finds it. */
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
    bpe->special.bos = bpe->special.eos = bpe->special.unk = end;
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
                           size_t merges_length, const char *by_class, struct muster_error *err)
{
    const size_t mark = text_byte_order_mark(merges, merges_length);
    GUARD(guard_json) json_t *root = json_text_object(name, words, words_length, 0, err);
    GUARD(guard_bpe) struct bpe *bpe = root ? bpe_create(err) : NULL;
    if (!bpe || choose_class(bpe, by_class, err) < 0 || read_words(bpe, name, root, err) < 0 ||
        read_merge_lines(bpe, merges + mark, merges_length - mark, err) < 0)
        return NULL;
    return bpe_finish(bpe, err) < 0 ? NULL : take_pointer(&bpe);
}

int bpe_tokenizer_open_pair(const char *vocabulary, const char *merges, const char *by_class,
                            bool prefix_blank, struct tokenizer_opened *out, struct muster_error *err)
{
    scope_buffer words = {0}, lines = {0};
    if (io_read_file(vocabulary, BPE_JSON_LIMIT, &words, err) < 0 ||
        io_read_file(merges, BPE_JSON_LIMIT, &lines, err) < 0)
        return -1;
    struct bpe *bpe = bpe_parse_pair(vocabulary, words.data ? words.data : "", words.length,
                                     lines.data ? lines.data : "", lines.length, by_class, err);
    if (!bpe)
        return error_wrap(err, "%s", merges);
    if (prefix_blank) { /* before the splitter */
        bpe->pre.step[bpe->pre.count++] = bpe->pre.step[0];
        bpe->pre.step[0] = (struct pre_step){.kind = PRE_BLANK};
    }
    const bool nfc =
        !normalizer_removes(bpe->normalizer) && normalizer_changes(bpe->normalizer, "\xC3\xA9", 2);
    uint64_t hash = text_hash(TEXT_HASH_START, words.data, words.length);
    if (nfc || prefix_blank) /* the same files give other ids */
        hash = text_hash(hash, (const bool[]){nfc, prefix_blank}, 2 * sizeof(bool));
    *out = (struct tokenizer_opened){&bpe_ops, bpe, text_hash(hash, lines.data, lines.length)};
    return 0;
}
