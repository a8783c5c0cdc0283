/* sentencepiece.c - the tokenizer of a sentencepiece .model file, by the module of sentencepiece.h. */
#include "runtime/tokens/sentencepiece.h"

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/library.h"
#include "proto/base/text.h"
#include "runtime/tokens/kinds.h"

enum { MODEL_LIMIT = 64 << 20, REASON = 256 };

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
};

static void sentencepiece_destroy(void *self)
{
    struct sentencepiece *s = self;
    if (s && s->model)
        s->calls.close(s->model);
    mem_free(s);
}
GUARD_DEFINE(sentencepiece, struct sentencepiece *, sentencepiece_destroy);

static int64_t sentencepiece_vocabulary(const void *self)
{
    const struct sentencepiece *s = self;
    return s->calls.size(s->model);
}

static struct tokenizer_special sentencepiece_special(const void *self)
{
    const struct sentencepiece *s = self;
    int found[3];
    s->calls.special(s->model, found);
    return (struct tokenizer_special){.unk = found[0], .bos = found[1], .eos = found[2]};
}

static int32_t sentencepiece_find(const void *self, const char *text)
{
    const struct sentencepiece *s = self;
    return s->calls.find(s->model, text);
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

static int sentencepiece_encode(void *self, const char *text, size_t length, struct token_list *out,
                                struct muster_error *err)
{
    const struct sentencepiece *s = self;
    char reason[REASON];
    if (!s->calls.encode(s->model, text, length, take_ids, out, reason, sizeof reason))
        return 0;
    return error_set(err, out->failed ? MUSTER_E_NOMEM : MUSTER_E_STATE,
                     "sentencepiece cannot encode a text of %zu bytes: %s", length,
                     out->failed ? "no memory" : reason);
}

static int sentencepiece_decode(void *self, const int32_t *tokens, size_t count, struct buffer *out,
                                struct muster_error *err)
{
    const struct sentencepiece *s = self;
    char reason[REASON];
    if (!s->calls.decode(s->model, tokens, count, take_text, out, reason, sizeof reason))
        return 0;
    return error_set(err, out->failed ? MUSTER_E_NOMEM : MUSTER_E_STATE,
                     "sentencepiece cannot decode %zu tokens: %s", count, out->failed ? "no memory" : reason);
}

static const struct tokenizer_ops ops = {.kind = "sentencepiece",
                                         .destroy = sentencepiece_destroy,
                                         .vocabulary = sentencepiece_vocabulary,
                                         .special = sentencepiece_special,
                                         .find = sentencepiece_find,
                                         .encode = sentencepiece_encode,
                                         .decode = sentencepiece_decode};

int sentencepiece_tokenizer_open(const char *path, struct tokenizer_opened *out, struct muster_error *err)
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
    *out = (struct tokenizer_opened){&ops, take_pointer(&s),
                                     text_hash(TEXT_HASH_START, bytes.data, bytes.length)};
    return 0;
}
