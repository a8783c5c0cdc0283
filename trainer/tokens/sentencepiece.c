/* sentencepiece.c - the tokenizer of a sentencepiece .model file, and the training of a model, by the module
 * of sentencepiece.h. Added tokens of the files next to the model are found before the model gets the text.
 * Models of BPE as Llama has them are encoded by sentencepiece_bpe.c, with the library's ids.
 */
#include "trainer/tokens/sentencepiece.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/library.h"
#include "proto/base/text.h"
#include "trainer/tokens/bpe.h"
#include "trainer/tokens/kinds.h"
#include "trainer/tokens/sentencepiece_train.h"

enum { MODEL_LIMIT = 64 << 20, REASON = 320 };

struct sentencepiece_calls {
    __typeof__(&muster_sentencepiece_open) open;
    __typeof__(&muster_sentencepiece_close) close;
    __typeof__(&muster_sentencepiece_size) size;
    __typeof__(&muster_sentencepiece_special) special;
    __typeof__(&muster_sentencepiece_find) find;
    __typeof__(&muster_sentencepiece_encode) encode;
    __typeof__(&muster_sentencepiece_decode) decode;
};
#define ROW(member)                                                                                          \
    {                                                                                                        \
        "muster_sentencepiece_" #member, offsetof(struct sentencepiece_calls, member), false, NULL           \
    }
static const struct library_function functions[] = {ROW(open), ROW(close),  ROW(size),  ROW(special),
                                                    ROW(find), ROW(encode), ROW(decode)};
#undef ROW
static const struct library module = {
    .file = SENTENCEPIECE_MODULE,
    .needs = "a sentencepiece model needs the module of muster for it, which is built where "
             "libsentencepiece-dev and a C++ compiler are, and libsentencepiece0",
    .functions = functions,
    .count = sizeof functions / sizeof *functions,
};

struct sentencepiece {
    struct sentencepiece_calls calls;
    void *model;
    struct bpe *own; /* encodes in the library's place, which is slower; NULL: the library encodes */
    bool prefix;     /* a text gets a mark in front */
    struct added_tokens added;
    struct vocabulary extra; /* texts and ids of the added tokens */
    bool every_piece;        /* see sentencepiece_tokenizer_open */
    struct token_list start; /* tokens of PIECE_START; empty with every_piece */
};
/* Put in front of a later piece so that the model puts no blank there; its tokens are removed again. */
#define PIECE_START "<unk>"

static void sentencepiece_destroy(void *self)
{
    struct sentencepiece *s = self;
    if (s && s->model)
        s->calls.close(s->model);
    if (s) {
        bpe_destroy(s->own);
        added_free(&s->added);
        vocabulary_free(&s->extra);
        token_list_free(&s->start);
    }
    mem_free(s);
}
GUARD_DEFINE(sentencepiece, struct sentencepiece *, sentencepiece_destroy);

static int64_t sentencepiece_vocabulary(const void *self)
{
    const struct sentencepiece *s = self;
    const int64_t size = s->calls.size(s->model);
    return size > s->extra.size ? size : s->extra.size;
}

static struct tokenizer_special sentencepiece_special(const void *self)
{
    const struct sentencepiece *s = self;
    int found[3];
    s->calls.special(s->model, found);
    struct tokenizer_special special = TOKENIZER_NO_SPECIAL;
    special.unk = found[0];
    special.bos = found[1];
    special.eos = found[2];
    return special;
}

static int32_t sentencepiece_find(const void *self, const char *text)
{
    const struct sentencepiece *s = self;
    const int32_t extra = vocabulary_find(&s->extra, text, strlen(text));
    return extra >= 0 ? extra : s->calls.find(s->model, text);
}

static int sentencepiece_add(void *self, const struct added_token *token, bool normalized,
                             struct muster_error *err)
{
    struct sentencepiece *s = self;
    const int32_t known = sentencepiece_find(s, token->text);
    struct added_token numbered = *token;
    (void)normalized; /* every added token is found in the original text */
    if (known >= 0 && token->id >= 0 && known != token->id)
        return error_set(err, MUSTER_E_INVALID, "the token '%.64s' has the id %d there, and %d in the model",
                         token->text, (int)token->id, (int)known);
    if (known >= 0 && added_has(&s->added, known))
        return 0;
    if (token->id < 0)
        numbered.id = known >= 0 ? known : (int32_t)sentencepiece_vocabulary(s);
    if (known < 0 && numbered.id < s->calls.size(s->model))
        return error_set(err, MUSTER_E_INVALID,
                         "the token '%.64s' has the id %d there, which another token has", token->text,
                         (int)numbered.id);
    if (vocabulary_add(&s->extra, token->text, token->length, numbered.id, err) < 0)
        return -1;
    return added_add(&s->added, token->text, token->length, &numbered, err) < 0 ? -1 : 1;
}

static void sentencepiece_finish_added(void *self)
{
    added_finish(&((struct sentencepiece *)self)->added);
}

static int take_ids(void *context, const int *ids, size_t count)
{
    struct token_list *out = context;
    token_list_add(out, ids, count);
    return out->failed ? -1 : 0;
}

static int take_text(void *context, const char *text, size_t length)
{
    return buffer_append(context, text, length);
}

/* The library's normalization without a charsmap: marks for blanks, U+FFFD for each byte that is no UTF-8. */
static void put_normal(bool prefix, const char *text, size_t length, struct buffer *out)
{
    if (prefix)
        (void)buffer_text(out, NORMALIZE_MARK); /* out remembers a failure */
    for (size_t at = 0, run = 0; at < length; at += run) {
        for (run = 0; at + run < length && text[at + run] != ' ' && (unsigned char)text[at + run] < 0x80;)
            run++;
        (void)buffer_append(out, text + at, run);
        if (run)
            continue;
        run = unicode_next(text + at, length - at).length;
        if (text[at] == ' ')
            (void)buffer_text(out, NORMALIZE_MARK);
        else if (run == 1)
            (void)buffer_text(out, "\xEF\xBF\xBD");
        else
            (void)buffer_append(out, text + at, run);
    }
}

static int encode_by_merges(const struct sentencepiece *s, const char *text, size_t length,
                            struct token_list *out, struct muster_error *err)
{
    scope_buffer normal = {0};
    put_normal(s->prefix, text, length, &normal);
    if (normal.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a text of %zu bytes", length);
    return bpe_ops.encode(s->own, normal.data, normal.length, out, err);
}

static int encode_by_model(const struct sentencepiece *s, const char *text, size_t length,
                           struct token_list *out, struct muster_error *err)
{
    char reason[REASON];
    if (s->own)
        return encode_by_merges(s, text, length, out, err);
    if (!s->calls.encode(s->model, text, length, take_ids, out, reason, sizeof reason))
        return 0;
    return error_set(err, out->failed ? MUSTER_E_NOMEM : MUSTER_E_STATE,
                     "sentencepiece cannot encode a text of %zu bytes: %s", length,
                     out->failed ? "no memory" : reason);
}

/* Encodes a piece of text between added tokens. */
static int encode_model_piece(const struct sentencepiece *s, bool first, const char *text, size_t length,
                              struct token_list *out, struct muster_error *err)
{
    scope_buffer started = {0};
    const size_t before = out->count;
    if (!length)
        return 0;
    if (first || s->every_piece)
        return encode_by_model(s, text, length, out, err);
    if (buffer_text(&started, PIECE_START) < 0 || buffer_append(&started, text, length) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a text of %zu bytes", length);
    if (encode_by_model(s, started.data, started.length, out, err) < 0)
        return -1;
    const size_t found = out->count - before, left_out = found < s->start.count ? found : s->start.count;
    memmove(out->tokens + before, out->tokens + before + left_out, (found - left_out) * sizeof *out->tokens);
    out->count -= left_out;
    return 0;
}

static int sentencepiece_encode(void *self, const char *text, size_t length, struct token_list *out,
                                struct muster_error *err)
{
    const struct sentencepiece *s = self;
    struct added_match found = {0};
    size_t from = 0;
    while (added_find(&s->added, text, length, &found)) {
        if (found.begin > from && encode_model_piece(s, !from, text + from, found.begin - from, out, err) < 0)
            return -1;
        token_list_add(out, &found.token->id, 1);
        from = found.end;
    }
    if (out->failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the tokens");
    return encode_model_piece(s, !from, text + from, length - from, out, err);
}

static int decode_by_model(const struct sentencepiece *s, const int32_t *tokens, size_t count,
                           struct buffer *out, struct muster_error *err)
{
    char reason[REASON];
    if (!s->calls.decode(s->model, tokens, count, take_text, out, reason, sizeof reason))
        return 0;
    return error_set(err, out->failed ? MUSTER_E_NOMEM : MUSTER_E_STATE,
                     "sentencepiece cannot decode %zu tokens: %s", count, out->failed ? "no memory" : reason);
}

/* Reverses encode_model_piece: a later piece has no blank in front that the model would remove. */
static int decode_piece(const struct sentencepiece *s, bool first, const int32_t *tokens, size_t count,
                        struct buffer *out, struct muster_error *err)
{
    scope_token_list all = {0};
    const size_t begin = out->length, start = sizeof PIECE_START - 1;
    if (first || s->every_piece)
        return decode_by_model(s, tokens, count, out, err);
    token_list_add(&all, s->start.tokens, s->start.count);
    token_list_add(&all, tokens, count);
    if (all.failed)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the text of %zu tokens", count);
    if (decode_by_model(s, all.tokens, all.count, out, err) < 0)
        return -1;
    if (out->length - begin >= start && !memcmp(out->data + begin, PIECE_START, start)) {
        memmove(out->data + begin, out->data + begin + start, out->length - begin - start);
        out->length -= start;
    }
    return 0;
}

/* Runs of the model's tokens are decoded by the model, the added tokens between them by their texts. */
static int sentencepiece_decode(void *self, const int32_t *tokens, size_t count, struct buffer *out,
                                struct muster_error *err)
{
    const struct sentencepiece *s = self;
    const int64_t size = s->calls.size(s->model);
    for (size_t from = 0, to; from < count; from = to) {
        size_t length = 0;
        const char *added = vocabulary_text(&s->extra, tokens[from], &length);
        for (to = from;
             to < count && tokens[to] < size && !vocabulary_text(&s->extra, tokens[to], &(size_t){0});)
            to++;
        if (added && buffer_append(out, added, length) < 0)
            return error_set(err, MUSTER_E_NOMEM, "no memory for the text of %zu tokens", count);
        if (to > from && decode_piece(s, !from, tokens + from, to - from, out, err) < 0)
            return -1;
        to += to == from;
    }
    return 0;
}

static int64_t sentencepiece_bytes(void *self, int32_t token)
{
    const struct sentencepiece *s = self;
    scope_buffer text = {0};
    size_t length = 0;
    if (vocabulary_text(&s->extra, token, &length))
        return (int64_t)length;
    /* with `every_piece` the blank in front of a piece is left out */
    return s->every_piece || decode_piece(s, false, &token, 1, &text, NULL) < 0 ? -1 : (int64_t)text.length;
}

static const struct tokenizer_ops ops = {.kind = "sentencepiece",
                                         .destroy = sentencepiece_destroy,
                                         .vocabulary = sentencepiece_vocabulary,
                                         .special = sentencepiece_special,
                                         .find = sentencepiece_find,
                                         .encode = sentencepiece_encode,
                                         .add = sentencepiece_add,
                                         .finish_added = sentencepiece_finish_added,
                                         .decode = sentencepiece_decode,
                                         .bytes = sentencepiece_bytes};

int sentencepiece_tokenizer_open(const char *path, bool every_piece, struct tokenizer_opened *out,
                                 struct muster_error *err)
{
    scope_buffer bytes = {0};
    char reason[REASON] = "";
    if (io_read_file(path, MODEL_LIMIT, &bytes, err) < 0)
        return -1;
    GUARD(guard_sentencepiece) struct sentencepiece *s = mem_calloc(1, sizeof *s);
    if (!s)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a tokenizer");
    if (library_load(&module, &s->calls, NULL, err) < 0)
        return error_wrap(err, "%s", path);
    s->model = s->calls.open(bytes.data ? bytes.data : "", bytes.length, reason, sizeof reason);
    if (!s->model)
        return error_set(err, MUSTER_E_INVALID, "%s is no model of sentencepiece: %s", path, reason);
    if (bpe_of_sentencepiece(bytes.data ? bytes.data : "", bytes.length, &s->own, &s->prefix, err) < 0)
        return -1;
    s->every_piece = every_piece;
    if (!every_piece && encode_by_model(s, PIECE_START, sizeof PIECE_START - 1, &s->start, err) < 0)
        return -1;
    added_finish(&s->added);
    const uint64_t hash = text_hash(TEXT_HASH_START, bytes.data, bytes.length);
    *out = (struct tokenizer_opened){&ops, take_pointer(&s),
                                     every_piece ? hash : text_hash(hash, PIECE_START, sizeof PIECE_START)};
    return 0;
}

/* ---- training ---- */

struct train_calls {
    __typeof__(&muster_sentencepiece_train) train;
};
static const struct library_function train_functions[] = {
    {"muster_sentencepiece_train", offsetof(struct train_calls, train), false, NULL}};
static const struct library train_module = {
    .file = SENTENCEPIECE_MODULE,
    .needs = "training a sentencepiece model needs the module of muster for it, which is built where "
             "libsentencepiece-dev and a C++ compiler are, and libsentencepiece0",
    .functions = train_functions,
    .count = sizeof train_functions / sizeof *train_functions,
};

/* Keeps an error of the caller's sentences until the library returns. */
struct reading {
    const struct sentencepiece_training *training;
    struct muster_error *err;
    bool failed;
};

static int next_sentence(void *context, const char **text, size_t *length)
{
    struct reading *r = context;
    const int result = r->training->next(r->training->context, text, length, r->err);
    r->failed = r->failed || result < 0;
    return result;
}

int sentencepiece_train(const struct sentencepiece_training *training, struct buffer *out,
                        struct muster_error *err)
{
    struct train_calls calls = {0};
    struct reading reading = {.training = training, .err = err};
    char vocabulary[32], coverage[32], longest[32], reason[REASON] = "";
    if (library_load(&train_module, &calls, NULL, err) < 0)
        return -1;
    (void)snprintf(vocabulary, sizeof vocabulary, "%lld", (long long)training->vocabulary);
    (void)snprintf(coverage, sizeof coverage, "%.9g", training->coverage);
    (void)snprintf(longest, sizeof longest, "%d", SENTENCEPIECE_SENTENCE);
    const char *const options[] = {"model_type",
                                   training->bpe ? "bpe" : "unigram",
                                   "vocab_size",
                                   vocabulary,
                                   "character_coverage",
                                   coverage,
                                   "max_sentence_length",
                                   longest,
                                   "hard_vocab_limit",
                                   "false",
                                   "byte_fallback",
                                   "true",
                                   "normalization_rule_name",
                                   "identity",
                                   "remove_extra_whitespaces",
                                   "false",
                                   "num_threads",
                                   "4", /* sums depend on the number of threads, and so does the model */
                                   "minloglevel",
                                   "2",
                                   NULL};
    if (!calls.train(options, next_sentence, &reading, take_text, out, reason, sizeof reason))
        return 0;
    if (reading.failed)
        return -1;
    return error_set(err, out->failed ? MUSTER_E_NOMEM : MUSTER_E_INVALID,
                     "sentencepiece cannot train a model of --vocab_size %lld on these texts: %s",
                     (long long)training->vocabulary, out->failed ? "no memory" : reason);
}
