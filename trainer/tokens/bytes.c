/* bytes.c - the tokenizer whose ids are the bytes of the text. */
#include "trainer/tokens/kinds.h"

#include "proto/base/error.h"

enum { BYTES = 256 };

static void bytes_destroy(void *self)
{
    (void)self; /* it has no state */
}

static int64_t bytes_vocabulary(const void *self)
{
    (void)self;
    return BYTES;
}

static struct tokenizer_special bytes_special(const void *self)
{
    (void)self;
    return (struct tokenizer_special){TOKEN_NONE, TOKEN_NONE, TOKEN_NONE};
}

static int32_t bytes_find(const void *self, const char *text)
{
    (void)self;
    return text[0] && !text[1] ? (unsigned char)text[0] : TOKEN_NONE;
}

static size_t bytes_cut(const void *self, const char *text, size_t length, size_t most)
{
    (void)self;
    (void)text;
    (void)length;
    return most;
}

static int bytes_encode(void *self, const char *text, size_t length, struct token_list *out,
                        struct muster_error *err)
{
    (void)self;
    int32_t *to = token_list_reserve(out, length);
    if (!to)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %zu tokens", length);
    for (size_t i = 0; i < length; i++)
        to[i] = (unsigned char)text[i];
    out->count += length;
    return 0;
}

static int bytes_decode(void *self, const int32_t *tokens, size_t count, struct buffer *out,
                        struct muster_error *err)
{
    (void)self;
    char *to = buffer_reserve(out, count);
    if (!to)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a text of %zu bytes", count);
    for (size_t i = 0; i < count; i++)
        to[i] = (char)tokens[i];
    out->length += count;
    return 0;
}

static const struct tokenizer_ops ops = {.kind = "bytes",
                                         .destroy = bytes_destroy,
                                         .vocabulary = bytes_vocabulary,
                                         .special = bytes_special,
                                         .find = bytes_find,
                                         .cut = bytes_cut,
                                         .encode = bytes_encode,
                                         .decode = bytes_decode};

int bytes_tokenizer_open(struct tokenizer_opened *out)
{
    *out = (struct tokenizer_opened){.ops = &ops, .fingerprint = BYTES};
    return 0;
}
