/* duplicates.c - see prepare_internal.h.
 *
 * Pass i of n collects the keys k with k mod n = i, sorts them, and looks at the documents that share a key.
 */
#include "trainer/corpus/prepare_internal.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

enum {
    COMPARED = 64, /* most earlier documents of a key that a document is compared with */
    PAIRS = 1024   /* first capacity of the table of pairs */
};
#define NO_DOCUMENT UINT32_MAX

struct row {
    uint64_t key, second; /* an exact row has both words of the hash; a band's row has second 0 */
    uint32_t document;
};

/* A document and the earliest document that it is near to. */
struct pair {
    uint32_t document, earlier;
};

/* A hash table of pairs by document; few documents have a pair. */
struct pairs {
    struct pair *slot; /* (capacity), a power of 2; a free slot has the document NO_DOCUMENT */
    size_t count, capacity;
};

/* The table of one pass. */
struct table {
    struct row *row;
    size_t count, room;
    uint64_t pass, passes;
};

struct search {
    const struct duplicates_source *source;
    const struct duplicates_options *options;
    uint8_t *out;
    struct pairs near;
    struct table table;
    struct shingles mine, other;
    struct muster_error *err;
};

/* ---- pairs ---- */

static struct pair *pair_slot(const struct pairs *pairs, uint32_t document)
{
    size_t at = document * UINT32_C(0x9E3779B1) & (pairs->capacity - 1);
    while (pairs->slot[at].document != NO_DOCUMENT && pairs->slot[at].document != document)
        at = (at + 1) & (pairs->capacity - 1);
    return &pairs->slot[at];
}

/* The earliest document that `document` is near to; NO_DOCUMENT: none. */
static uint32_t pairs_find(const struct pairs *pairs, uint32_t document)
{
    return pairs->capacity ? pair_slot(pairs, document)->earlier : NO_DOCUMENT;
}

static int pairs_grow(struct pairs *pairs, struct muster_error *err)
{
    struct pairs larger = {.count = pairs->count, .capacity = pairs->capacity ? pairs->capacity * 2 : PAIRS};
    larger.slot = mem_calloc(larger.capacity, sizeof *larger.slot);
    if (!larger.slot)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %zu near duplicates", pairs->count);
    memset(larger.slot, 0xFF, larger.capacity * sizeof *larger.slot);
    for (size_t i = 0; i < pairs->capacity; i++)
        if (pairs->slot[i].document != NO_DOCUMENT)
            *pair_slot(&larger, pairs->slot[i].document) = pairs->slot[i];
    mem_free(pairs->slot);
    *pairs = larger;
    return 0;
}

static int pairs_set(struct pairs *pairs, uint32_t document, uint32_t earlier, struct muster_error *err)
{
    if (pairs->count * 2 >= pairs->capacity && pairs_grow(pairs, err) < 0)
        return -1;
    struct pair *slot = pair_slot(pairs, document);
    pairs->count += slot->document == NO_DOCUMENT;
    *slot = (struct pair){document, earlier};
    return 0;
}

static int compare_pairs(const void *a, const void *b)
{
    const uint32_t x = ((const struct pair *)a)->document, y = ((const struct pair *)b)->document;
    return (x > y) - (x < y);
}

/* ---- the table of a pass ---- */

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->second != y->second)
        return x->second < y->second ? -1 : 1;
    return (x->document > y->document) - (x->document < y->document);
}

static int add_row(struct search *s, uint64_t key, uint64_t second, int64_t document)
{
    struct table *t = &s->table;
    if (key % t->passes != t->pass)
        return 0;
    if (t->count == t->room) { /* a pass has more keys than the mean where many documents share a key */
        struct row *grown = mem_realloc(t->row, t->room + t->room / 4 + 1024, sizeof *grown);
        if (!grown)
            return error_set(s->err, MUSTER_E_NOMEM, "no memory for a table of %zu keys", t->room);
        t->row = grown;
        t->room += t->room / 4 + 1024;
    }
    t->row[t->count++] = (struct row){key, second, (uint32_t)document};
    return 0;
}

static int add_exact(void *call, int64_t document, const struct duplicates_entry *entry)
{
    return add_row(call, entry->hash[0], entry->hash[1], document);
}

static int add_bands(void *call, int64_t document, const struct duplicates_entry *entry)
{
    struct search *s = call;
    if (s->out[document] == DUPLICATE_EXACT || !entry->keys)
        return 0;
    for (int b = 0; b < s->options->bands.bands; b++)
        if (add_row(s, entry->keys[b], 0, document) < 0)
            return -1;
    return 0;
}

static int take_exact(struct search *s, const struct row *rows, size_t count)
{
    for (size_t i = 1; i < count; i++)
        s->out[rows[i].document] = DUPLICATE_EXACT;
    return 0;
}

static int is_near(struct search *s, uint32_t earlier, bool *near)
{
    if (s->source->load(s->source->context, earlier, &s->other, s->err) < 0)
        return -1;
    *near = shingles_jaccard(&s->mine, &s->other) >= s->options->threshold;
    return 0;
}

/* Finds the earliest document of the group that is near to row `at`, unless an earlier document is known.
 * Over all groups, in any order, this finds the earliest. */
static int find_earlier(struct search *s, const struct row *rows, size_t at)
{
    const uint32_t document = rows[at].document, known = pairs_find(&s->near, document);
    bool loaded = false, near = false;
    int compared = 0;
    for (size_t i = 0; i < at && compared < COMPARED && !near; i++) {
        const uint32_t earlier = rows[i].document;
        if (earlier >= known)
            break;
        if (!loaded && s->source->load(s->source->context, document, &s->mine, s->err) < 0)
            return -1;
        loaded = true;
        compared++;
        if (is_near(s, earlier, &near) < 0)
            return -1;
        if (near && pairs_set(&s->near, document, earlier, s->err) < 0)
            return -1;
    }
    return 0;
}

static int take_near(struct search *s, const struct row *rows, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (rows[i].document != rows[i - 1].document && find_earlier(s, rows, i) < 0)
            return -1;
    return 0;
}

/* Searches all keys, in as many passes as the memory for a table demands. */
static int search_in_passes(struct search *s, int64_t keys,
                            int (*add)(void *call, int64_t document, const struct duplicates_entry *entry),
                            int (*take)(struct search *s, const struct row *rows, size_t count))
{
    const int64_t bytes = keys * (int64_t)sizeof(struct row);
    struct table *t = &s->table;
    t->passes = (uint64_t)(bytes / s->options->memory) + 1;
    for (t->pass = 0; t->pass < t->passes; t->pass++) {
        t->count = 0;
        if (s->source->visit(s->source->context, add, s, s->err) < 0)
            return -1;
        if (t->count)
            qsort(t->row, t->count, sizeof *t->row, compare_rows);
        for (size_t at = 0, end; at < t->count; at = end) {
            end = at + 1;
            while (end < t->count && t->row[end].key == t->row[at].key &&
                   t->row[end].second == t->row[at].second)
                end++;
            if (end > at + 1 && take(s, t->row + at, end - at) < 0)
                return -1;
        }
    }
    return 0;
}

/* The earlier document of a pair may itself be dropped for a third, which then has to be near too. */
static int decide_pair(struct search *s, const struct pair *pair)
{
    uint32_t kept = pair->earlier;
    while (s->out[kept] == DUPLICATE_NEAR)
        kept = pairs_find(&s->near, kept);
    bool near = kept == pair->earlier;
    if (!near && (s->source->load(s->source->context, pair->document, &s->mine, s->err) < 0 ||
                  is_near(s, kept, &near) < 0))
        return -1;
    if (!near)
        return 0;
    s->out[pair->document] = DUPLICATE_NEAR;
    return pairs_set(&s->near, pair->document, kept, s->err);
}

/* Decides all pairs, in the order of documents. */
static int decide_near(struct search *s)
{
    scope_free struct pair *list = mem_calloc(s->near.count + 1, sizeof *list);
    size_t count = 0;
    if (!list)
        return error_set(s->err, MUSTER_E_NOMEM, "no memory for %zu near duplicates", s->near.count);
    for (size_t i = 0; i < s->near.capacity; i++)
        if (s->near.slot[i].document != NO_DOCUMENT)
            list[count++] = s->near.slot[i];
    if (count)
        qsort(list, count, sizeof *list, compare_pairs);
    for (size_t i = 0; i < count; i++)
        if (decide_pair(s, &list[i]) < 0)
            return -1;
    return 0;
}

static int search_all(struct search *s)
{
    const int64_t documents = s->source->documents;
    if (search_in_passes(s, documents, add_exact, take_exact) < 0)
        return -1;
    if (s->options->threshold > 1)
        return 0;
    return search_in_passes(s, documents * s->options->bands.bands, add_bands, take_near) < 0
               ? -1
               : decide_near(s);
}

int duplicates_find(const struct duplicates_source *source, const struct duplicates_options *options,
                    uint8_t *out, struct muster_error *err)
{
    struct search s = {.source = source, .options = options, .out = out, .err = err};
    if (source->documents >= (int64_t)NO_DOCUMENT)
        return error_set(err, MUSTER_E_LIMIT,
                         "%lld documents are more than the %u that are compared; prepare parts of them",
                         (long long)source->documents, NO_DOCUMENT - 1);
    const int result = search_all(&s);
    mem_free(s.table.row);
    mem_free(s.near.slot);
    shingles_free(&s.mine);
    shingles_free(&s.other);
    return result;
}
