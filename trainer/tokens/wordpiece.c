/* wordpiece.c - see bpe.h and kinds.h: WordPiece (BERT), and its vocab.txt with one token a line. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "trainer/tokens/bpe.h"

enum { PIECE_BYTES = 1024 }; /* longest prefix and piece that are looked for */

/* The longest token at the start of the text, which is not the beginning of the word if `continues`. */
static int32_t longest_piece(const struct bpe *bpe, bool continues, const char *text, size_t length,
                             size_t *taken)
{
    const char *prefix = continues && bpe->prefix ? bpe->prefix : "";
    const size_t before = strlen(prefix);
    char key[PIECE_BYTES];
    memcpy(key, prefix, before);
    size_t end = length < sizeof key - before ? length : sizeof key - before;
    while (end < length && end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80)
        end--;
    memcpy(key + before, text, end);
    for (; end > 0; end -= unicode_last(text, end)) {
        const int32_t token = vocabulary_find(&bpe->words, key, before + end);
        if (token >= 0) {
            *taken = end;
            return token;
        }
    }
    return TOKEN_NONE;
}

int64_t wordpiece_of_word(const struct bpe *bpe, const char *text, size_t length, int32_t *tokens)
{
    int64_t count = 0, chars = 0;
    for (size_t at = 0; at < length; chars++)
        at += unicode_next(text + at, length - at).length;
    for (size_t at = 0, taken = 0; at < length; at += taken) {
        const int32_t token =
            chars > bpe->longest ? TOKEN_NONE : longest_piece(bpe, at > 0, text + at, length - at, &taken);
        if (token < 0) {
            tokens[0] = bpe->unknown;
            return bpe->unknown >= 0 ? 1 : -1;
        }
        tokens[count++] = token;
    }
    return count;
}

/* ---- vocab.txt ---- */

enum { LONGEST_WORD = 100 }; /* characters, as in BERT's own code */

static const char *const bert_special[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

static int read_vocabulary_lines(struct bpe *bpe, const char *text, size_t length, struct muster_error *err)
{
    int64_t id = 0;
    for (size_t at = 0; at < length; id++) {
        const char *begin = text + at, *end = memchr(begin, '\n', length - at);
        size_t bytes = end ? (size_t)(end - begin) : length - at;
        at += bytes + 1;
        bytes -= bytes > 0 && begin[bytes - 1] == '\r';
        if (bytes && bpe_add_token(bpe, begin, bytes, id, err) < 0)
            return error_wrap(err, "line %lld", (long long)id + 1);
    }
    return 0;
}

static int read_wordpiece(struct bpe *bpe, const char *text, size_t length,
                          const struct wordpiece_settings *settings, struct muster_error *err)
{
    bpe->model = BPE_WORDPIECE;
    bpe->by_chars = true;
    bpe->longest = LONGEST_WORD;
    if (!(bpe->prefix = mem_strdup("##")))
        return error_set(err, MUSTER_E_NOMEM, "no memory for a tokenizer");
    bpe->normalizer = normalizer_bert(settings->chinese, settings->accents, settings->lowercase, err);
    if (!bpe->normalizer || pre_tokenizer_add_bert(&bpe->pre, err) < 0 ||
        !(bpe->decoder = decoder_wordpiece(err)) || read_vocabulary_lines(bpe, text, length, err) < 0)
        return -1;
    bpe->unknown = vocabulary_find(&bpe->all, "[UNK]", 5);
    if (bpe->unknown < 0)
        return error_set(err, MUSTER_E_INVALID, "it has no token [UNK], which stands for unknown words");
    bpe->special.unk = bpe->unknown;
    for (size_t i = 0; i < sizeof bert_special / sizeof *bert_special; i++) {
        const struct added_token token = {.text = (char *)bert_special[i], .length = strlen(bert_special[i])};
        const int32_t id = vocabulary_find(&bpe->all, token.text, token.length);
        if (id >= 0 &&
            bpe_add_added(bpe, &(struct added_token){token.text, token.length, id, false, false, false}, 0,
                          err) < 0)
            return -1;
    }
    return bpe_finish(bpe, err);
}

struct bpe *bpe_parse_wordpiece(const char *name, const char *text, size_t length,
                                const struct wordpiece_settings *settings, struct muster_error *err)
{
    const size_t mark = text_byte_order_mark(text, length);
    GUARD(guard_bpe) struct bpe *bpe = bpe_create(err);
    if (!bpe)
        return NULL;
    if (read_wordpiece(bpe, text + mark, length - mark, settings, err) < 0) {
        (void)error_wrap(err, "%s", name);
        return NULL;
    }
    return take_pointer(&bpe);
}

int wordpiece_tokenizer_open(const char *path, const struct wordpiece_settings *settings,
                             struct tokenizer_opened *out, struct muster_error *err)
{
    scope_buffer text = {0};
    if (io_read_file(path, BPE_JSON_LIMIT, &text, err) < 0)
        return -1;
    struct bpe *bpe = bpe_parse_wordpiece(path, text.data ? text.data : "", text.length, settings, err);
    if (!bpe)
        return -1;
    const uint64_t hash = text_hash(TEXT_HASH_START, text.data, text.length);
    *out = (struct tokenizer_opened){&wordpiece_ops, bpe, text_hash(hash, settings, sizeof *settings)};
    return 0;
}
