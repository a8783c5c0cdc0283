/* bpe.c - see bpe.h: encoding and decoding. bpe_json.c, bpe_pair.c, tiktoken.c and wordpiece.c read the
 * files. */
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
        bpe->special = TOKENIZER_NO_SPECIAL;
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
    normalizer_destroy(bpe->normalizer);
    pre_tokenizer_free(&bpe->pre);
    decoder_destroy(bpe->decoder);
    mem_free(bpe->unknown_missing);
    mem_free(bpe->prefix);
    mem_free(bpe->suffix);
    mem_free(bpe->cache);
    mem_free(bpe);
}

int bpe_add_token(struct bpe *bpe, const char *text, size_t length, int64_t id, struct muster_error *err)
{
    scope_buffer bytes = {0};
    const int32_t known = vocabulary_find(&bpe->all, text, length);
    if (known >= 0 && known != id)
        return error_set(err, MUSTER_E_INVALID, "the token '%.*s' has two ids, %d and %lld",
                         (int)(length < 64 ? length : 64), text, (int)known, (long long)id);
    if (vocabulary_add(&bpe->all, text, length, id, err) < 0)
        return -1;
    if (bpe->by_chars)
        return vocabulary_add(&bpe->words, text, length, id, err);
    if (!alphabet_bytes(text, length, &bytes))
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
    const size_t left_out = bpe->prefix ? strlen(bpe->prefix) : 0; /* the start of the right text */
    if (right_length < left_out)
        return error_set(err, MUSTER_E_INVALID, "merge %u has a second text that is shorter than '%.64s'",
                         rank, bpe->prefix);
    if (buffer_append(&both, left, left_length) < 0 ||
        buffer_append(&both, right + left_out, right_length - left_out) < 0)
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
    /* an unknown mark may be fused with its neighbours; affixes are where words begin and end, and a whole
     * word is the whole piece */
    if (vocabulary_find(&bpe->words, NORMALIZE_MARK, NORMALIZE_MARK_BYTES) < 0 || bpe->prefix ||
        bpe->suffix || bpe->whole_words || bpe->model != BPE_MERGES)
        memset(bpe->glued, true, sizeof bpe->glued);
    for (int64_t id = 0; id < bpe->words.size; id++) {
        size_t length;
        const char *text = vocabulary_text(&bpe->words, id, &length);
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
        bpe->bytes[byte] = bpe->by_chars ? vocabulary_find(&bpe->words, name, (size_t)length)
                                         : vocabulary_find(&bpe->words, &(char){(char)byte}, 1);
    }
}

int bpe_add_added(struct bpe *bpe, const struct added_token *token, int pass, struct muster_error *err)
{
    scope_buffer normal = {0};
    if (vocabulary_add(&bpe->all, token->text, token->length, token->id, err) < 0 ||
        (pass && normalizer_apply(bpe->normalizer, token->text, token->length, &normal, err) < 0))
        return -1;
    if (pass && !normal.length)
        return 0; /* nothing of it can be found */
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
    if (!bpe->normalizer && !(bpe->normalizer = normalizer_read(&(struct part_reader){.err = err}, NULL)))
        return -1;
    finish_added(bpe);
    return 0;
}

/* ---- encoding ---- */

/* Writes the tokens of a word's bytes; returns their number, -1: a byte that is no token. */
static int64_t bytes_of_word(const struct bpe *bpe, const char *text, size_t length, int32_t *tokens)
{
    int64_t count = 0;
    for (size_t i = 0; i < length; i++) {
        const int32_t token = bpe->bytes[(unsigned char)text[i]];
        if (token >= 0 || bpe->unknown >= 0)
            tokens[count++] = token >= 0 ? token : bpe->unknown;
        else if (bpe->unknown_missing)
            return -1;
    }
    return count;
}

enum { CHAR_BYTES = 256 }; /* a character with its affixes */

/* Whether all bytes are tokens, so that a character can be spelled. */
static bool has_bytes(const struct bpe *bpe, const char *text, size_t length)
{
    bool all = bpe->byte_fallback;
    for (size_t i = 0; i < length; i++)
        all = all && bpe->bytes[(unsigned char)text[i]] >= 0;
    return all;
}

/* A character with the affixes of its place in the word; at most CHAR_BYTES. */
static const char *char_with_affixes(const struct bpe *bpe, const char *text, size_t *bytes, bool begins,
                                     bool ends, char room[CHAR_BYTES])
{
    const char *prefix = begins || !bpe->prefix ? "" : bpe->prefix,
               *suffix = ends && bpe->suffix ? bpe->suffix : "";
    const size_t before = strlen(prefix), after = strlen(suffix); /* at most 64 each */
    if (!before && !after)
        return text;
    memcpy(room, prefix, before);
    memcpy(room + before, text, *bytes);
    memcpy(room + before + *bytes, suffix, after);
    *bytes += before + after;
    return room;
}

/* Writes the tokens of a word's characters; returns their number, -1: a character that is no token. The token
 * for unknown ones is written with the next known character, as in `tokenizers`. */
static int64_t chars_of_word(const struct bpe *bpe, const char *text, size_t length, int32_t *tokens)
{
    int64_t count = 0;
    bool waits = false;
    for (size_t at = 0, bytes; at < length; at += bytes) {
        char room[CHAR_BYTES];
        bytes = unicode_next(text + at, length - at).length;
        size_t whole = bytes;
        const char *found = char_with_affixes(bpe, text + at, &whole, !at, at + bytes == length, room);
        const int32_t token = vocabulary_find(&bpe->words, found, whole);
        if (token < 0 && has_bytes(bpe, found, whole)) {
            for (size_t i = 0; i < whole; i++)
                tokens[count++] = bpe->bytes[(unsigned char)found[i]];
            continue;
        }
        if (token < 0 && bpe->unknown < 0) {
            if (bpe->unknown_missing)
                return -1;
            continue;
        }
        if (waits && (token >= 0 || !bpe->fuse_unknown))
            tokens[count++] = bpe->unknown;
        waits = token < 0;
        if (token >= 0)
            tokens[count++] = token;
    }
    if (waits)
        tokens[count++] = bpe->unknown;
    return count;
}

static int encode_new_word(struct bpe *bpe, const char *text, size_t length, struct token_list *out,
                           struct muster_error *err)
{
    const bool merges = bpe->model == BPE_MERGES;
    const int32_t whole = bpe->whole_words || bpe->model == BPE_WHOLE_WORDS
                              ? vocabulary_find(&bpe->words, text, length)
                              : TOKEN_NONE;
    const size_t most = bpe->prefix || bpe->suffix ? CHAR_BYTES : 1; /* tokens of a character's byte */
    int32_t *tokens = length <= SIZE_MAX / 8 / most ? token_list_reserve(out, length * most + 1) : NULL;
    int64_t count = 1;
    if (!tokens)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %zu tokens", out->count + length);
    if (whole >= 0)
        tokens[0] = whole;
    else if (bpe->model == BPE_WORDPIECE)
        count = wordpiece_of_word(bpe, text, length, tokens);
    else if (bpe->model == BPE_WHOLE_WORDS)
        count = (tokens[0] = bpe->unknown) >= 0 ? 1 : -1;
    else
        count = bpe->by_chars ? chars_of_word(bpe, text, length, tokens)
                              : bytes_of_word(bpe, text, length, tokens);
    if (count < 0)
        return error_set(
            err, MUSTER_E_INVALID,
            "the text '%.*s' is no token, and the tokenizer's unk_token '%.64s' is no token of its "
            "vocabulary",
            (int)(length < 40 ? length : 40), text, bpe->unknown_missing ? bpe->unknown_missing : "");
    if (merges && whole < 0 && (count = merges_apply(&bpe->merges, tokens, (size_t)count, err)) < 0)
        return -1;
    out->count += (size_t)count;
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

struct encoding {
    struct bpe *bpe;
    struct token_list *out;
};

/* A word of the pre_tokenizer; for a model of characters it is cut where no merge can join. */
static int take_word(void *context, const char *text, size_t length, struct muster_error *err)
{
    const struct encoding *e = context;
    if (!e->bpe->by_chars || e->bpe->model != BPE_MERGES)
        return encode_word(e->bpe, text, length, e->out, err);
    for (size_t from = 0, end; from < length; from = end) {
        end = find_mark(e->bpe, text, from, length);
        if (encode_word(e->bpe, text + from, end - from, e->out, err) < 0)
            return -1;
    }
    return 0;
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
        return pre_tokenize(&bpe->pre, first, text, length, take_word, &(struct encoding){bpe, out}, err);
    if (pass == 1 && normalizer_changes(bpe->normalizer, text, length)) {
        if (normalizer_apply(bpe->normalizer, text, length, &normal, err) < 0)
            return -1;
        text = normal.data ? normal.data : "";
        length = normal.length;
    }
    struct added_match found = {0};
    size_t from = 0;
    while (added_find(&bpe->added[pass], text, length, &found)) {
        if (found.begin > from &&
            encode_between(bpe, pass + 1, first && !from, text + from, found.begin - from, out, err) < 0)
            return -1;
        token_list_add(out, &found.token->id, 1);
        from = found.end;
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
    if (bpe->line_in_added || bpe->by_chars || !pre_tokenizer_cuts_lines(&bpe->pre) ||
        normalizer_changes(bpe->normalizer, "a", 1))
        return length;
    for (size_t at = most; at >= 2; at--)
        if (may_cut(text + at))
            return at;
    for (size_t at = most + 1; at < length; at++)
        if (may_cut(text + at))
            return at;
    return length;
}

/* The text of a token in a decoded text: an added token that is `normalized` has its normalized one. */
static const char *decoded_text(const struct bpe *bpe, int32_t id, size_t *length)
{
    for (size_t i = 0; i < bpe->added[1].count; i++)
        if (bpe->added[1].item[i].id == id) {
            *length = bpe->added[1].item[i].length;
            return bpe->added[1].item[i].text;
        }
    return vocabulary_text(&bpe->all, id, length);
}

/* The texts of the tokens for the decoder. */
static int decode_parts(const struct bpe *bpe, const int32_t *tokens, size_t count, struct buffer *out,
                        struct muster_error *err)
{
    struct pieces pieces = {0};
    for (size_t i = 0; i < count; i++) {
        size_t length;
        const char *text = decoded_text(bpe, tokens[i], &length);
        if (!text)
            continue;
        (void)buffer_append(&pieces.text, text, length); /* remembers a failure */
        pieces_add(&pieces);
    }
    const int result = decoder_apply(bpe->decoder, &pieces, out, err);
    pieces_free(&pieces);
    return result;
}

/* An added token with characters outside of the alphabet is written as its text, as in `tokenizers`. */
static int bpe_decode(void *self, const int32_t *tokens, size_t count, struct buffer *out,
                      struct muster_error *err)
{
    const struct bpe *bpe = self;
    if (bpe->decoder)
        return decode_parts(bpe, tokens, count, out, err);
    for (size_t i = 0; i < count; i++) {
        size_t length;
        const char *text = decoded_text(bpe, tokens[i], &length);
        if (text && !alphabet_bytes(text, length, out))
            (void)buffer_append(out, text, length);
    }
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory for the text of %zu tokens", count) : 0;
}

static int64_t bpe_bytes(void *self, int32_t token)
{
    const struct bpe *bpe = self;
    size_t length = 0;
    const char *text = vocabulary_text(&bpe->words, token, &length);
    if (bpe->model != BPE_MERGES || bpe->prefix || bpe->suffix)
        return -1;
    if (!text) /* an added token, or an id without a token */
        return vocabulary_text(&bpe->all, token, &length) ? (int64_t)length : 0;
    if (!bpe->by_chars)
        return (int64_t)length;
    int64_t bytes = 0;
    for (size_t at = 0; at < length; bytes++) /* a mark is a blank */
        at += normalize_is_mark(text + at, length - at) ? NORMALIZE_MARK_BYTES : 1;
    return bpe->byte_fallback && length == 6 && !memcmp(text, "<0x", 3) ? 1 : bytes;
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

#define BPE_OPS(name)                                                                                        \
    {                                                                                                        \
        .kind = (name), .destroy = bpe_destroy_self, .vocabulary = bpe_vocabulary, .special = bpe_special,   \
        .find = bpe_find, .cut = bpe_cut, .encode = bpe_encode, .add = bpe_add_companion,                    \
        .finish_added = finish_added, .decode = bpe_decode, .bytes = bpe_bytes                               \
    }
const struct tokenizer_ops bpe_ops = BPE_OPS("byte-level BPE"), wordpiece_ops = BPE_OPS("WordPiece");
