/* bpe.c - see bpe.h: encoding and decoding. bpe_json.c and bpe_pair.c read the files. */
#include "trainer/tokens/bpe.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "trainer/tokens/unicode.h"

enum {
    CACHE_WORDS = 1 << 16,
    WORD_BYTES = 22, /* longest word in the cache */
    WORD_TOKENS = 8,
};

/* A word and its tokens, in one line of a processor's cache. The hash gives the place: a word replaces the
 * word that had its place before. */
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
    if (bpe->by_chars || !alphabet_bytes(text, length, &bytes))
        return 0; /* no word has these bytes; only an added token can have this text */
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
                                      : "the joined text");
    return merges_add(&bpe->merges, first, second, rank, joined, err);
}

/* Marks the bytes that come before a mark in any token: merges join a mark to these bytes alone. */
static void find_glue(struct bpe *bpe)
{
    if (vocabulary_find(&bpe->all, NORMALIZE_MARK, NORMALIZE_MARK_BYTES) < 0)
        memset(bpe->glued, true, sizeof bpe->glued); /* an unknown mark may be fused with its neighbours */
    for (int64_t id = 0; id < bpe->all.size; id++) {
        size_t length;
        const char *text = vocabulary_text(&bpe->all, id, &length);
        for (size_t at = 1; text && at < length; at++)
            if (normalize_is_mark(text + at, length - at))
                bpe->glued[(unsigned char)text[at - 1]] = true;
    }
}

static void find_bytes(struct bpe *bpe)
{
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        const int length = snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte); /* fits */
        bpe->bytes[byte] = bpe->by_chars ? vocabulary_find(&bpe->all, name, (size_t)length)
                                         : vocabulary_find(&bpe->words, &(char){(char)byte}, 1);
    }
}

static int bpe_no_memory(size_t length, struct muster_error *err)
{
    return error_set(err, MUSTER_E_NOMEM, "no memory for a text of %zu bytes", length);
}

/* Adds the normalized form of a piece to out. */
static int normalize_piece(const struct bpe *bpe, const char *text, size_t length, struct buffer *out,
                           struct muster_error *err)
{
    scope_buffer composed = {0};
    if (bpe->nfc && normalize_nfc(text, length, &composed, err) < 0)
        return -1;
    if (bpe->nfc) {
        text = composed.data;
        length = composed.length;
    }
    if (bpe->marks_early)
        normalize_blanks(bpe->early_prefix, true, text, length, out);
    else
        (void)buffer_append(out, text, length); /* out remembers a failure */
    return out->failed ? bpe_no_memory(length, err) : 0;
}

int bpe_add_added(struct bpe *bpe, const struct added_token *token, int pass, struct muster_error *err)
{
    scope_buffer normal = {0};
    if (vocabulary_add(&bpe->all, token->text, token->length, token->id, err) < 0 ||
        (pass && normalize_piece(bpe, token->text, token->length, &normal, err) < 0))
        return -1;
    return added_add(&bpe->added[pass], pass ? normal.data : token->text,
                     pass ? normal.length : token->length, token, err);
}

/* Prepares the search; called after the last added token. */
static void finish_added(void *self)
{
    struct bpe *bpe = self;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < bpe->added[pass].count; i++)
            bpe->line_in_added = bpe->line_in_added ||
                                 memchr(bpe->added[pass].item[i].text, '\n', bpe->added[pass].item[i].length);
    added_finish(&bpe->added[0]);
    added_finish(&bpe->added[1]);
}

int bpe_finish(struct bpe *bpe, struct muster_error *err)
{
    find_bytes(bpe);
    if (bpe->by_chars)
        find_glue(bpe);
    if (bpe->all.count == 0)
        return error_set(err, MUSTER_E_INVALID, "the vocabulary is empty");
    finish_added(bpe);
    return 0;
}

/* ---- encoding ---- */

/* Writes the tokens of a word's bytes; returns their number. */
static size_t bytes_of_word(const struct bpe *bpe, const char *text, size_t length, int32_t *tokens)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++) {
        const int32_t token = bpe->bytes[(unsigned char)text[i]];
        if (token >= 0 || bpe->unknown >= 0)
            tokens[count++] = token >= 0 ? token : bpe->unknown;
    }
    return count;
}

static bool has_bytes(const struct bpe *bpe, const char *text, size_t length)
{
    bool all = bpe->byte_fallback;
    for (size_t i = 0; i < length; i++)
        all = all && bpe->bytes[(unsigned char)text[i]] >= 0;
    return all;
}

/* Writes the tokens of a word's characters; returns their number. */
static size_t chars_of_word(const struct bpe *bpe, const char *text, size_t length, int32_t *tokens)
{
    size_t count = 0;
    bool after_unknown = false;
    for (size_t at = 0, bytes; at < length; at += bytes) {
        bytes = unicode_next(text + at, length - at).length;
        const int32_t token = vocabulary_find(&bpe->all, text + at, bytes);
        const bool spelled = token < 0 && has_bytes(bpe, text + at, bytes), unknown = token < 0 && !spelled;
        if (token >= 0)
            tokens[count++] = token;
        else if (spelled)
            count += bytes_of_word(bpe, text + at, bytes, tokens + count);
        else if (bpe->unknown >= 0 && !(after_unknown && bpe->fuse_unknown))
            tokens[count++] = bpe->unknown;
        after_unknown = unknown;
    }
    return count;
}

static int encode_new_word(struct bpe *bpe, const char *text, size_t length, struct token_list *out,
                           struct muster_error *err)
{
    const struct vocabulary *words = bpe->by_chars ? &bpe->all : &bpe->words;
    const int32_t whole = bpe->whole_words ? vocabulary_find(words, text, length) : TOKEN_NONE;
    int32_t *tokens = token_list_reserve(out, length);
    if (!tokens)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %zu tokens", out->count + length);
    if (whole >= 0) {
        tokens[0] = whole;
        out->count++;
        return 0;
    }
    const size_t count =
        bpe->by_chars ? chars_of_word(bpe, text, length, tokens) : bytes_of_word(bpe, text, length, tokens);
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

/* The end of the word that begins at `from`: a mark, if no token has a mark after the byte before it. */
static size_t find_mark(const struct bpe *bpe, const char *text, size_t from, size_t length)
{
    for (size_t at = from + 1; at < length; at++) {
        const char *mark = memchr(text + at, NORMALIZE_MARK[0], length - at);
        if (!mark)
            break;
        at = (size_t)(mark - text);
        if (normalize_is_mark(mark, length - at) && !bpe->glued[(unsigned char)text[at - 1]])
            return at;
    }
    return length;
}

/* Encodes a piece for a model of characters; words are the parts that no merge can join. */
static int encode_chars(struct bpe *bpe, const char *text, size_t length, struct token_list *out,
                        struct muster_error *err)
{
    for (size_t from = 0, end; from < length; from = end) {
        end = find_mark(bpe, text, from, length);
        if (encode_split(bpe, 0, text + from, end - from, out, err) < 0)
            return -1;
    }
    return 0;
}

/* Encodes a piece of text between added tokens; first: it is the text's first piece. */
static int encode_piece(struct bpe *bpe, bool first, const char *text, size_t length, struct token_list *out,
                        struct muster_error *err)
{
    scope_buffer changed = {0};
    if (bpe->marks)
        normalize_blanks(bpe->prefix, first, text, length, &changed);
    else if (bpe->prefix_blank && text[0] != ' ' && !buffer_text(&changed, " "))
        (void)buffer_append(&changed, text, length); /* changed remembers a failure */
    if (changed.failed)
        return bpe_no_memory(length, err);
    if (changed.length) {
        text = changed.data;
        length = changed.length;
    }
    return (bpe->by_chars ? encode_chars(bpe, text, length, out, err)
                          : encode_split(bpe, 0, text, length, out, err));
}

/* NFC leaves ASCII unchanged. */
static bool is_ascii(const char *text, size_t length)
{
    unsigned char all = 0;
    for (size_t i = 0; i < length; i++)
        all |= (unsigned char)text[i];
    return all < 0x80;
}

/* Finds the added tokens of pass 0, then 1, and encodes the pieces between them. first: text is the text's
 * first piece. */
static int encode_between(struct bpe *bpe, int pass, bool first, const char *text, size_t length,
                          struct token_list *out, struct muster_error *err)
{
    scope_buffer normal = {0};
    if (!length)
        return 0;
    if (pass == 2)
        return encode_piece(bpe, first, text, length, out, err);
    if (pass == 1 && (bpe->marks_early || (bpe->nfc && !is_ascii(text, length)))) {
        if (normalize_piece(bpe, text, length, &normal, err) < 0)
            return -1;
        text = normal.data;
        length = normal.length;
    }
    size_t from = 0, begin = 0, end = 0;
    const struct added_token *found;
    while ((found = added_find(&bpe->added[pass], text, from, length, &begin, &end))) {
        if (encode_between(bpe, pass + 1, first && !from, text + from, begin - from, out, err) < 0)
            return -1;
        token_list_add(out, &found->id, 1);
        from = end;
    }
    return encode_between(bpe, pass + 1, first && !from, text + from, length - from, out, err);
}

static int bpe_encode(void *self, const char *text, size_t length, struct token_list *out,
                      struct muster_error *err)
{
    if (encode_between(self, 0, true, text, length, out, err) < 0)
        return -1;
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory for the tokens") : 0;
}

/* ---- the rest of the table ---- */

/* Whether a text may be cut here: after a line end between two ASCII characters that are no blanks. Every
 * pattern of split.c cuts there, before any text. */
static bool may_cut(const char *at)
{
    const unsigned char before = (unsigned char)at[-2], after = (unsigned char)at[0];
    return at[-1] == '\n' && before > ' ' && before < 0x7F && after > ' ' && after < 0x7F;
}

static size_t bpe_cut(const void *self, const char *text, size_t length, size_t most)
{
    const struct bpe *bpe = self;
    if (bpe->prefix_blank || bpe->line_in_added || bpe->by_chars || bpe->marks)
        return length;
    for (size_t at = most; at >= 2; at--)
        if (may_cut(text + at))
            return at;
    for (size_t at = most + 1; at < length; at++)
        if (may_cut(text + at))
            return at;
    return length;
}

/* The byte of "<0x0A>"; -1: another token. */
static int byte_of_token(const struct bpe *bpe, const char *text, size_t length)
{
    static const char digits[] = "0123456789ABCDEF";
    if (!bpe->byte_fallback || length != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>')
        return -1;
    const char *high = memchr(digits, text[3], 16), *low = memchr(digits, text[4], 16);
    return high && low ? (int)(high - digits) << 4 | (int)(low - digits) : -1;
}

static void put_chars(const struct bpe *bpe, const char *text, size_t length, struct buffer *out)
{
    const int byte = byte_of_token(bpe, text, length);
    if (byte >= 0) {
        (void)buffer_append(out, &(char){(char)byte}, 1); /* out remembers a failure */
        return;
    }
    for (size_t at = 0, bytes; at < length; at += bytes) {
        const bool mark = normalize_is_mark(text + at, length - at);
        bytes = mark ? NORMALIZE_MARK_BYTES : 1;
        (void)buffer_append(out, mark ? " " : text + at, 1);
    }
}

/* Removes the blank that encoding put in front. */
static void drop_prefix(const struct bpe *bpe, size_t begin, struct buffer *out)
{
    const bool prefixed = (bpe->marks && bpe->prefix != NORMALIZE_NONE) ||
                          (bpe->marks_early && bpe->early_prefix != NORMALIZE_NONE);
    if (!prefixed || out->failed || out->length == begin || out->data[begin] != ' ')
        return;
    memmove(out->data + begin, out->data + begin + 1, out->length - begin - 1);
    out->length--;
}

/* An added token with characters outside of the alphabet is written as its text, as in `tokenizers`. */
static int bpe_decode(void *self, const int32_t *tokens, size_t count, struct buffer *out,
                      struct muster_error *err)
{
    const struct bpe *bpe = self;
    const size_t begin = out->length;
    for (size_t i = 0; i < count; i++) {
        size_t length;
        const char *text = vocabulary_text(&bpe->all, tokens[i], &length);
        if (text && bpe->by_chars)
            put_chars(bpe, text, length, out);
        else if (text && !alphabet_bytes(text, length, out))
            (void)buffer_append(out, text, length);
    }
    drop_prefix(bpe, begin, out);
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

static int bpe_add_companion(void *self, const struct added_token *token, bool normalized,
                             struct muster_error *err)
{
    struct bpe *bpe = self;
    const int32_t id = vocabulary_find(&bpe->all, token->text, token->length);
    struct added_token numbered = *token;
    if (id >= 0 && token->id >= 0 && id != token->id)
        return error_set(err, MUSTER_E_INVALID,
                         "the token '%.64s' has the id %d there, and %d in the vocabulary", token->text,
                         (int)token->id, (int)id);
    if (id >= 0 && (added_has(&bpe->added[0], id) || added_has(&bpe->added[1], id)))
        return 0;
    if (token->id < 0)
        numbered.id = id >= 0 ? id : (int32_t)bpe->all.size;
    return bpe_add_added(bpe, &numbered, normalized, err) < 0 ? -1 : 1;
}

static int32_t bpe_find(const void *self, const char *text)
{
    return vocabulary_find(&((const struct bpe *)self)->all, text, strlen(text));
}

const struct tokenizer_ops bpe_ops = {.kind = "byte-level BPE",
                                      .destroy = bpe_destroy_self,
                                      .vocabulary = bpe_vocabulary,
                                      .special = bpe_special,
                                      .find = bpe_find,
                                      .cut = bpe_cut,
                                      .encode = bpe_encode,
                                      .add = bpe_add_companion,
                                      .finish_added = finish_added,
                                      .decode = bpe_decode};
