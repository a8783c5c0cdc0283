/* vocabulary.c - see kinds.h: the table of a model's tokens, and the added tokens that are found in a text.
 */
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "trainer/tokens/kinds.h"
#include "trainer/tokens/unicode.h"

enum { FIRST_TABLE = 1 << 10 };

uint64_t vocabulary_hash(const char *text, size_t length)
{
    uint64_t hash = length * UINT64_C(0x9E3779B97F4A7C15);
    for (; length >= 8; text += 8, length -= 8) {
        uint64_t eight;
        memcpy(&eight, text, 8);
        hash = (hash ^ eight) * UINT64_C(0xFF51AFD7ED558CCD);
        hash ^= hash >> 32;
    }
    uint64_t rest = 0;
    memcpy(&rest, text, length);
    hash = (hash ^ rest) * UINT64_C(0xC4CEB9FE1A85EC53);
    return hash ^ hash >> 29;
}

/* The slot of the text in the table, or the empty slot for it. */
static int64_t find_slot(const struct vocabulary *v, const char *text, size_t length)
{
    int64_t slot = (int64_t)(vocabulary_hash(text, length) & (uint64_t)(v->table_size - 1));
    for (;; slot = (slot + 1) & (v->table_size - 1)) {
        const int32_t id = v->table[slot];
        if (id < 0)
            return slot;
        const struct vocabulary_entry *entry = &v->by_id[id];
        if ((size_t)entry->length == length && !memcmp(v->texts.data + entry->at, text, length))
            return slot;
    }
}

static int grow_table(struct vocabulary *v)
{
    if (v->table && v->count * 2 < v->table_size)
        return 0;
    struct vocabulary grown = *v;
    grown.table_size = v->table_size ? v->table_size * 2 : FIRST_TABLE;
    grown.table = mem_calloc((size_t)grown.table_size, sizeof *grown.table);
    if (!grown.table)
        return -1;
    memset(grown.table, 0xFF, (size_t)grown.table_size * sizeof *grown.table);
    for (int64_t i = 0; i < v->table_size; i++) {
        if (v->table[i] < 0)
            continue;
        const struct vocabulary_entry *entry = &v->by_id[v->table[i]];
        grown.table[find_slot(&grown, v->texts.data + entry->at, (size_t)entry->length)] = v->table[i];
    }
    mem_free(v->table);
    *v = grown;
    return 0;
}

static int grow_ids(struct vocabulary *v, int64_t id)
{
    if (id >= v->by_id_capacity) {
        const int64_t wanted = id * 2 + FIRST_TABLE;
        struct vocabulary_entry *grown = mem_realloc(v->by_id, (size_t)wanted, sizeof *grown);
        if (!grown)
            return -1;
        v->by_id = grown;
        v->by_id_capacity = wanted;
    }
    for (; v->size <= id; v->size++)
        v->by_id[v->size] = (struct vocabulary_entry){.length = -1};
    return 0;
}

int vocabulary_add(struct vocabulary *v, const char *text, size_t length, int64_t id,
                   struct muster_error *err)
{
    if (id < 0 || id >= VOCABULARY_LIMIT)
        return error_set(err, MUSTER_E_INVALID, "the id %lld of token '%.*s' is not from 0 to %d",
                         (long long)id, (int)(length < 64 ? length : 64), text, VOCABULARY_LIMIT - 1);
    size_t other;
    const char *there = vocabulary_text(v, id, &other);
    if (there && (other != length || memcmp(there, text, length) != 0))
        return error_set(err, MUSTER_E_INVALID, "two tokens have the id %lld", (long long)id);
    if (there)
        return 0;
    const uint64_t at = v->texts.length;
    if (grow_ids(v, id) < 0 || grow_table(v) < 0 || buffer_append(&v->texts, text, length) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the vocabulary");
    v->by_id[id] = (struct vocabulary_entry){at, (int32_t)length, (int32_t)id};
    const int64_t slot = find_slot(v, text, length);
    v->count += v->table[slot] < 0;
    v->table[slot] = (int32_t)id;
    return 0;
}

int32_t vocabulary_find(const struct vocabulary *v, const char *text, size_t length)
{
    return v->table ? v->table[find_slot(v, text, length)] : -1;
}

const char *vocabulary_text(const struct vocabulary *v, int64_t id, size_t *length)
{
    if (id < 0 || id >= v->size || v->by_id[id].length < 0)
        return NULL;
    *length = (size_t)v->by_id[id].length;
    return v->texts.data + v->by_id[id].at;
}

void vocabulary_free(struct vocabulary *v)
{
    if (!v)
        return;
    buffer_free(&v->texts);
    mem_free(v->by_id);
    mem_free(v->table);
    *v = (struct vocabulary){0};
}

/* ---- added tokens ---- */

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

/* Orders by first byte, then longest first. */
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

static size_t after_blanks(const char *text, size_t at, size_t length)
{
    while (at < length) {
        const struct unicode_char c = unicode_next(text + at, length - at);
        if (!(c.classes & UNICODE_BLANK))
            break;
        at += c.length;
    }
    return at;
}

/* Whether no letter or what else belongs to words is next to text[at .. end): single_word. */
static bool stands_alone(const char *text, size_t at, size_t end, size_t length)
{
    const size_t before = unicode_last(text, at);
    return !(before && (unicode_next(text + at - before, before).classes & UNICODE_RUST_WORD)) &&
           !(end < length && (unicode_next(text + end, length - end).classes & UNICODE_RUST_WORD));
}

bool added_find(const struct added_tokens *added, const char *text, size_t length, struct added_match *match)
{
    const size_t taken = match->end; /* blanks in front of a match begin after the last match */
    if (!added->count)
        return false;
    for (size_t at = match->next; at < length; at++) {
        if (added->only >= 0) {
            const char *next = memchr(text + at, added->only, length - at);
            if (!next)
                return false;
            at = (size_t)(next - text);
        }
        const struct added_token *item = match_at(added, text + at, length - at);
        if (!item)
            continue;
        const size_t end = at + item->length;
        if (item->single_word && !stands_alone(text, at, end, length)) {
            at = end - 1; /* nothing is found inside of it */
            continue;
        }
        *match = (struct added_match){.token = item, .begin = at, .end = end, .next = end};
        if (item->takes_before)
            match->begin = taken < at ? before_blanks(text, taken, at) : taken;
        if (item->takes_after)
            match->end = after_blanks(text, end, length);
        return true;
    }
    return false;
}
