/* added.c - see added.h. */
#include "trainer/tokens/added.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/tokens/unicode.h"

int added_add(struct added_tokens *added, const char *text, size_t length, const struct added_token *like,
              struct muster_error *err)
{
    struct added_token *grown = mem_realloc(added->item, added->count + 1, sizeof *grown);
    if (grown)
        added->item = grown;
    char *copy = grown ? mem_strndup(text, length) : NULL;
    if (!copy)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the added tokens");
    added->item[added->count] = *like;
    added->item[added->count].text = copy;
    added->item[added->count].length = length;
    added->count++;
    return 0;
}

bool added_has(const struct added_tokens *added, int32_t id)
{
    for (size_t i = 0; i < added->count; i++)
        if (added->item[i].id == id)
            return true;
    return false;
}

/* By first byte, then the longest first. */
static int compare_added(const void *left, const void *right)
{
    const struct added_token *a = left, *b = right;
    const int first_a = (unsigned char)a->text[0], first_b = (unsigned char)b->text[0];
    if (first_a != first_b)
        return first_a - first_b;
    return a->length != b->length ? (a->length < b->length) - (a->length > b->length) : a->id - b->id;
}

void added_finish(struct added_tokens *added)
{
    if (added->count)
        qsort(added->item, added->count, sizeof *added->item, compare_added);
    size_t at = 0;
    int kinds = 0;
    added->only = -1;
    for (int byte = 0; byte < 256; byte++) {
        added->first[byte] = (uint32_t)at;
        while (at < added->count && (unsigned char)added->item[at].text[0] == byte)
            at++;
        if (at > added->first[byte]) {
            kinds++;
            added->only = byte;
        }
    }
    added->first[256] = (uint32_t)at;
    if (kinds != 1)
        added->only = -1;
}

void added_free(struct added_tokens *added)
{
    if (!added)
        return;
    for (size_t i = 0; i < added->count; i++)
        mem_free(added->item[i].text);
    mem_free(added->item);
    *added = (struct added_tokens){0};
}

static const struct added_token *match_at(const struct added_tokens *added, const char *text, size_t length)
{
    const unsigned byte = (unsigned char)text[0];
    for (uint32_t i = added->first[byte]; i < added->first[byte + 1]; i++) {
        const struct added_token *item = &added->item[i];
        if (item->length <= length && !memcmp(item->text, text, item->length))
            return item;
    }
    return NULL;
}

static size_t before_blanks(const char *text, size_t from, size_t at)
{
    while (at > from) {
        const size_t bytes = unicode_last(text + from, at - from);
        if (!(unicode_next(text + at - bytes, bytes).classes & UNICODE_BLANK))
            break;
        at -= bytes;
    }
    return at;
}

static size_t behind_blanks(const char *text, size_t at, size_t length)
{
    while (at < length) {
        const struct unicode_char c = unicode_next(text + at, length - at);
        if (!(c.classes & UNICODE_BLANK))
            break;
        at += c.length;
    }
    return at;
}

const struct added_token *added_find(const struct added_tokens *added, const char *text, size_t from,
                                     size_t length, size_t *begin, size_t *end)
{
    if (!added->count)
        return NULL;
    for (size_t at = from; at < length; at++) {
        if (added->only >= 0) {
            const char *next = memchr(text + at, added->only, length - at);
            if (!next)
                return NULL;
            at = (size_t)(next - text);
        }
        const struct added_token *item = match_at(added, text + at, length - at);
        if (!item)
            continue;
        *begin = item->takes_before ? before_blanks(text, from, at) : at;
        *end = at + item->length;
        if (item->takes_behind)
            *end = behind_blanks(text, *end, length);
        return item;
    }
    return NULL;
}
