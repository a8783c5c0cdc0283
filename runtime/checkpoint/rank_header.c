/* rank_header.c - see rank_header.h. */
#include "runtime/checkpoint/rank_header.h"

#include <string.h>

#include "proto/base/mem.h"

int64_t rank_header_find(const struct buffer *header, int64_t from, const char *name, const char *value)
{
    scope_buffer pair = {0};
    (void)buffer_json_string(&pair, name);
    (void)buffer_text(&pair, ":");
    (void)buffer_json_string(&pair, value);
    if (pair.failed || from < 0 || (size_t)from > header->length)
        return -1;
    const char *at = memmem(header->data + from, header->length - (size_t)from, pair.data, pair.length);
    return at ? at - header->data + (int64_t)(pair.length - strlen(value)) - 1 : -1;
}

void rank_header_clear(struct rank_header *header)
{
    buffer_free(&header->text);
    buffer_free(&header->rows);
    mem_free(header->digits);
    *header = (struct rank_header){0};
}

static bool all_digits(const char *at, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(at[i] >= '0' && at[i] <= '9') && !(at[i] >= 'a' && at[i] <= 'f'))
            return false;
    return true;
}

bool rank_header_same(const struct rank_header *header, const struct buffer *text, int64_t bytes)
{
    int64_t from = 0;
    if (!header->count || header->bytes != bytes || header->text.length != text->length)
        return false;
    for (int i = 0; i < header->count; i++) {
        const struct rank_header_digits *digits = &header->digits[i];
        if (memcmp(header->text.data + from, text->data + from, (size_t)(digits->at - from)) != 0 ||
            !all_digits(text->data + digits->at, digits->count))
            return false;
        from = digits->at + digits->count;
    }
    return !memcmp(header->text.data + from, text->data + from, text->length - (size_t)from);
}
