/* merges.c - see bpe.h. */
#include "trainer/tokens/bpe.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

enum { FIRST_TABLE = 1 << 10, SHORT_WORD = 48 };
static const uint64_t merge_empty = UINT64_MAX;
static const uint32_t no_rank = UINT32_MAX;

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static int64_t slot_of(const struct merges *m, uint64_t pair)
{
    uint64_t hash = pair * UINT64_C(0x9E3779B97F4A7C15);
    int64_t slot = (int64_t)((hash ^ hash >> 32) & (uint64_t)(m->size - 1));
    while (m->table[slot].pair != pair && m->table[slot].pair != merge_empty)
        slot = (slot + 1) & (m->size - 1);
    return slot;
}

static int grow_merges(struct merges *m)
{
    if (m->table && m->count * 2 < m->size)
        return 0;
    struct merges grown = {.size = m->size ? m->size * 2 : FIRST_TABLE, .count = m->count};
    grown.table = mem_calloc((size_t)grown.size, sizeof *grown.table);
    if (!grown.table)
        return -1;
    for (int64_t i = 0; i < grown.size; i++)
        grown.table[i].pair = merge_empty;
    for (int64_t i = 0; i < m->size; i++)
        if (m->table[i].pair != merge_empty)
            grown.table[slot_of(&grown, m->table[i].pair)] = m->table[i];
    mem_free(m->table);
    *m = grown;
    return 0;
}

int merges_add(struct merges *m, int32_t left, int32_t right, uint32_t rank, int32_t joined,
               struct muster_error *err)
{
    if (grow_merges(m) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the merges");
    const int64_t slot = slot_of(m, pair_of(left, right));
    m->count += m->table[slot].pair == merge_empty;
    m->table[slot] = (struct merge){pair_of(left, right), rank, joined};
    return 0;
}

void merges_free(struct merges *m)
{
    if (m) {
        mem_free(m->table);
        *m = (struct merges){0};
    }
}

/* The merge of two neighbours; NULL: none. */
static const struct merge *merge_of(const struct merges *m, int32_t left, int32_t right)
{
    const struct merge *found = &m->table[slot_of(m, pair_of(left, right))];
    return found->pair == merge_empty ? NULL : found;
}

static uint32_t rank_of(const struct merges *m, int32_t left, int32_t right)
{
    const struct merge *found = merge_of(m, left, right);
    return found ? found->rank : no_rank;
}

/* Each round looks at all neighbours: the fastest way for words of text. */
static size_t apply_short(const struct merges *m, int32_t *tokens, size_t count)
{
    uint32_t ranks[SHORT_WORD];
    for (size_t i = 0; i + 1 < count; i++)
        ranks[i] = rank_of(m, tokens[i], tokens[i + 1]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            best = ranks[i] < ranks[best] ? i : best;
        if (ranks[best] == no_rank)
            break;
        tokens[best] = merge_of(m, tokens[best], tokens[best + 1])->joined;
        memmove(tokens + best + 1, tokens + best + 2, (count - best - 2) * sizeof *tokens);
        if (best + 2 < count)
            memmove(ranks + best, ranks + best + 1, (count - best - 2) * sizeof *ranks);
        count--;
        if (best > 0)
            ranks[best - 1] = rank_of(m, tokens[best - 1], tokens[best]);
        if (best + 1 < count)
            ranks[best] = rank_of(m, tokens[best], tokens[best + 1]);
    }
    return count;
}

/* ---- long words: a queue of merges over a chain of tokens ---- */

struct link {
    int32_t token, before, after; /* indices of the neighbours, -1: none. token -1: joined to the left */
};
struct waiting {
    uint32_t rank;
    int32_t at; /* place of the left token */
    int32_t left, right, joined;
};
struct queue {
    struct waiting *heap;
    size_t count;
};

static int earlier(const struct waiting *a, const struct waiting *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void queue_push(struct queue *q, struct waiting item)
{
    size_t at = q->count++;
    for (; at > 0 && earlier(&item, &q->heap[(at - 1) / 2]); at = (at - 1) / 2)
        q->heap[at] = q->heap[(at - 1) / 2];
    q->heap[at] = item;
}

static struct waiting queue_pop(struct queue *q)
{
    const struct waiting first = q->heap[0], item = q->heap[--q->count];
    size_t at = 0;
    for (size_t child = 1; child < q->count; child = 2 * at + 1) {
        child += child + 1 < q->count && earlier(&q->heap[child + 1], &q->heap[child]);
        if (!earlier(&q->heap[child], &item))
            break;
        q->heap[at] = q->heap[child];
        at = child;
    }
    q->heap[at] = item;
    return first;
}

static void queue_pair(const struct merges *m, struct queue *q, const struct link *links, int32_t at)
{
    if (at < 0 || links[at].after < 0)
        return;
    const int32_t left = links[at].token, right = links[links[at].after].token;
    const struct merge *merge = merge_of(m, left, right);
    if (merge)
        queue_push(q, (struct waiting){merge->rank, at, left, right, merge->joined});
}

static void join_links(const struct merges *m, struct queue *q, struct link *links,
                       const struct waiting *item)
{
    struct link *left = &links[item->at];
    if (left->token != item->left || left->after < 0 || links[left->after].token != item->right)
        return; /* an earlier merge took one of the two tokens */
    struct link *right = &links[left->after];
    left->token = item->joined;
    right->token = -1;
    left->after = right->after;
    if (left->after >= 0)
        links[left->after].before = item->at;
    queue_pair(m, q, links, left->before);
    queue_pair(m, q, links, item->at);
}

static int64_t apply_long(const struct merges *m, int32_t *tokens, size_t count, struct muster_error *err)
{
    /* A merge takes one token away and adds at most two neighbours to the queue. */
    scope_free struct link *links = mem_calloc(count, sizeof *links);
    scope_free struct waiting *heap = mem_calloc(count, 3 * sizeof *heap);
    if (!links || !heap || count > INT32_MAX / 4)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a word of %zu bytes", count);
    struct queue q = {.heap = heap};
    for (size_t i = 0; i < count; i++)
        links[i] = (struct link){tokens[i], (int32_t)i - 1, i + 1 < count ? (int32_t)i + 1 : -1};
    for (size_t i = 0; i + 1 < count; i++)
        queue_pair(m, &q, links, (int32_t)i);
    while (q.count > 0) {
        const struct waiting item = queue_pop(&q);
        join_links(m, &q, links, &item);
    }
    int64_t left = 0;
    for (int32_t at = 0; at >= 0; at = links[at].after)
        tokens[left++] = links[at].token;
    return left;
}

int64_t merges_apply(const struct merges *m, int32_t *tokens, size_t count, struct muster_error *err)
{
    if (count < 2 || m->count == 0)
        return (int64_t)count;
    return count <= SHORT_WORD ? (int64_t)apply_short(m, tokens, count) : apply_long(m, tokens, count, err);
}
