/* bpe.c - see bpe.h: encoding and decoding. What the files hold is read in bpe_json.c and bpe_pair.c. */
#include "runtime/tokens/bpe.h"

#include <string.h>

#include "proto/base/error.h"
#include "runtime/tokens/alphabet.h"

enum {
    CACHE_WORDS = 1 << 16,
    WORD_BYTES = 22, /* of a word that is kept */
    WORD_TOKENS = 8,
};

/* A word and its tokens, in one line of a processor's cache. The place follows from the hash: a later word of
 * the same place replaces an earlier one. */
struct bpe_word {
    uint64_t hash;
    uint8_t length, count; /* length 0: empty */
    char text[WORD_BYTES];
    int32_t tokens[WORD_TOKENS];
};
_Static_assert(sizeof(struct bpe_word) == 64, "one line of a cache");

struct bpe *bpe_create(struct muster_error *err)
{
    GUARD(guard_bpe) struct bpe *bpe = mem_calloc(1, sizeof *bpe);
    if (bpe) {
        bpe->cache = mem_calloc(CACHE_WORDS, sizeof *bpe->cache);
        bpe->unknown = TOKEN_NONE;
        bpe->special = (struct tokenizer_special){TOKEN_NONE, TOKEN_NONE, TOKEN_NONE};
    }
    if (!bpe || !bpe->cache) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a tokenizer");
        return NULL;
    }
    return take_pointer(&bpe);
}

void bpe_destroy(struct bpe *bpe)
{
    if (!bpe)
        return;
    vocabulary_free(&bpe->words);
    vocabulary_free(&bpe->all);
    merges_free(&bpe->merges);
    added_free(&bpe->added[0]);
    added_free(&bpe->added[1]);
    mem_free(bpe->cache);
    mem_free(bpe);
}

int bpe_add_token(struct bpe *bpe, const char *text, size_t length, int64_t id, struct muster_error *err)
{
    scope_buffer bytes = {0};
    if (vocabulary_add(&bpe->all, text, length, id, err) < 0)
        return -1;
    if (!alphabet_bytes(text, length, &bytes))
        return 0; /* no word has these bytes: it is found as an added token, if at all */
    if (bytes.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the vocabulary");
    return vocabulary_add(&bpe->words, bytes.data ? bytes.data : "", bytes.length, id, err);
}

int bpe_add_merge(struct bpe *bpe, const char *left, size_t left_length, const char *right,
                  size_t right_length, uint32_t rank, struct muster_error *err)
{
    scope_buffer both = {0};
    const int32_t first = vocabulary_find(&bpe->all, left, left_length),
                  second = vocabulary_find(&bpe->all, right, right_length);
    if (buffer_append(&both, left, left_length) < 0 || buffer_append(&both, right, right_length) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the merges");
    const int32_t joined = vocabulary_find(&bpe->all, both.data, both.length);
    if (first < 0 || second < 0 || joined < 0)
        return error_set(err, MUSTER_E_INVALID, "merge %u joins '%.*s' and '%.*s', and %s is no token", rank,
                         (int)(left_length < 64 ? left_length : 64), left,
                         (int)(right_length < 64 ? right_length : 64), right,
                         first < 0    ? "the first"
                         : second < 0 ? "the second"
                                      : "what they join to");
    return merges_add(&bpe->merges, first, second, rank, joined, err);
}

int bpe_finish(struct bpe *bpe, struct muster_error *err)
{
    for (int byte = 0; byte < 256; byte++)
        bpe->bytes[byte] = vocabulary_find(&bpe->words, &(char){(char)byte}, 1);
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < bpe->added[pass].count; i++)
            bpe->line_in_added = bpe->line_in_added ||
                                 memchr(bpe->added[pass].item[i].text, '\n', bpe->added[pass].item[i].length);
    if (bpe->all.count == 0)
        return error_set(err, MUSTER_E_INVALID, "the vocabulary is empty");
    added_finish(&bpe->added[0]);
    added_finish(&bpe->added[1]);
    return 0;
}

/* ---- encoding ---- */

static int encode_new_word(struct bpe *bpe, const char *text, size_t length, struct token_list *out,
                           struct muster_error *err)
{
    const int32_t whole = bpe->whole_words ? vocabulary_find(&bpe->words, text, length) : TOKEN_NONE;
    int32_t *tokens = token_list_reserve(out, length);
    size_t count = 0;
    if (!tokens)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %zu tokens", out->count + length);
    if (whole >= 0) {
        tokens[0] = whole;
        out->count++;
        return 0;
    }
    for (size_t i = 0; i < length; i++) {
        const int32_t token = bpe->bytes[(unsigned char)text[i]];
        if (token >= 0 || bpe->unknown >= 0)
            tokens[count++] = token >= 0 ? token : bpe->unknown;
    }
    const int64_t left = merges_apply(&bpe->merges, tokens, count, err);
    if (left < 0)
        return -1;
    out->count += (size_t)left;
    return 0;
}

static int encode_word(struct bpe *bpe, const char *text, size_t length, struct token_list *out,
                       struct muster_error *err)
{
    if (length > WORD_BYTES)
        return encode_new_word(bpe, text, length, out, err);
    const uint64_t hash = vocabulary_hash(text, length);
    struct bpe_word *word = &bpe->cache[hash & (CACHE_WORDS - 1)];
    if (word->hash == hash && word->length == length && !memcmp(word->text, text, length)) {
        int32_t *to = token_list_reserve(out, WORD_TOKENS);
        if (!to)
            return error_set(err, MUSTER_E_NOMEM, "no memory for %zu tokens", out->count);
        memcpy(to, word->tokens, sizeof word->tokens);
        out->count += word->count;
        return 0;
    }
    const size_t before = out->count;
    if (encode_new_word(bpe, text, length, out, err) < 0)
        return -1;
    const size_t count = out->count - before;
    if (count <= WORD_TOKENS) {
        *word = (struct bpe_word){.hash = hash, .length = (uint8_t)length, .count = (uint8_t)count};
        memcpy(word->text, text, length);
        memcpy(word->tokens, out->tokens + before, count * sizeof *word->tokens);
    }
    return 0;
}

static int encode_split(struct bpe *bpe, int at, const char *text, size_t length, struct token_list *out,
                        struct muster_error *err)
{
    if (at == bpe->splitter_count)
        return encode_word(bpe, text, length, out, err);
    const splitter split = bpe->splitters[at];
    for (size_t from = 0; from < length;) {
        const size_t word = split(text + from, length - from);
        if (encode_split(bpe, at + 1, text + from, word, out, err) < 0)
            return -1;
        from += word;
    }
    return 0;
}

/* A piece of text between added tokens. */
static int encode_piece(struct bpe *bpe, const char *text, size_t length, struct token_list *out,
                        struct muster_error *err)
{
    if (!bpe->prefix_blank || text[0] == ' ')
        return encode_split(bpe, 0, text, length, out, err);
    scope_buffer with_blank = {0};
    if (buffer_text(&with_blank, " ") < 0 || buffer_append(&with_blank, text, length) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a text of %zu bytes", length);
    return encode_split(bpe, 0, with_blank.data, with_blank.length, out, err);
}

/* pass: of the added tokens that are looked for. */
static int encode_between(struct bpe *bpe, int pass, const char *text, size_t length, struct token_list *out,
                          struct muster_error *err)
{
    if (pass == 2)
        return length ? encode_piece(bpe, text, length, out, err) : 0;
    size_t from = 0, begin = 0, end = 0;
    const struct added_token *found;
    while ((found = added_find(&bpe->added[pass], text, from, length, &begin, &end))) {
        if (encode_between(bpe, pass + 1, text + from, begin - from, out, err) < 0)
            return -1;
        token_list_add(out, &found->id, 1);
        from = end;
    }
    return encode_between(bpe, pass + 1, text + from, length - from, out, err);
}

static int bpe_encode(void *self, const char *text, size_t length, struct token_list *out,
                      struct muster_error *err)
{
    if (encode_between(self, 0, text, length, out, err) < 0)
        return -1;
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory for the tokens") : 0;
}

/* ---- the rest of the table ---- */

/* Behind a single line's end between two characters of ASCII that are no blanks: every pattern of split.h
 * cuts there, whatever follows. */
static bool may_cut(const char *at)
{
    const unsigned char before = (unsigned char)at[-2], behind = (unsigned char)at[0];
    return at[-1] == '\n' && before > ' ' && before < 0x7F && behind > ' ' && behind < 0x7F;
}

static size_t bpe_cut(const void *self, const char *text, size_t length, size_t most)
{
    const struct bpe *bpe = self;
    if (bpe->prefix_blank || bpe->line_in_added)
        return length;
    for (size_t at = most; at >= 2; at--)
        if (may_cut(text + at))
            return at;
    for (size_t at = most + 1; at < length; at++)
        if (may_cut(text + at))
            return at;
    return length;
}

/* An added token may have characters outside of the alphabet: it is its text then, as in `tokenizers`. */
static int bpe_decode(void *self, const int32_t *tokens, size_t count, struct buffer *out,
                      struct muster_error *err)
{
    const struct bpe *bpe = self;
    for (size_t i = 0; i < count; i++) {
        size_t length;
        const char *text = vocabulary_text(&bpe->all, tokens[i], &length);
        if (text && !alphabet_bytes(text, length, out))
            (void)buffer_append(out, text, length);
    }
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory for the text of %zu tokens", count) : 0;
}

static void bpe_destroy_self(void *self)
{
    bpe_destroy(self);
}

static int64_t bpe_vocabulary(const void *self)
{
    return ((const struct bpe *)self)->all.size;
}

static struct tokenizer_special bpe_special(const void *self)
{
    return ((const struct bpe *)self)->special;
}

static int32_t bpe_find(const void *self, const char *text)
{
    return vocabulary_find(&((const struct bpe *)self)->all, text, strlen(text));
}

const struct tokenizer_ops bpe_ops = {"byte-level BPE", bpe_destroy_self, bpe_vocabulary, bpe_special,
                                      bpe_find,         bpe_cut,          bpe_encode,     bpe_decode};
