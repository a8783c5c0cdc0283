/* rows.c - see rows.h. Rows with the same room left are in a chain. A bitmap of two levels has the rooms that
 * some row has, so that a document finds its row within T / 4096 words. */
#include "trainer/data/rows.h"

#include <stdbool.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

enum { NONE = -1, BITS = 64 };

/* Rooms from 0 to T, each with a chain of rows. */
struct rooms {
    int64_t *first;         /* (T + 1): a row with so much room; NONE */
    int64_t *next;          /* (n): the next row with the same room */
    uint64_t *some, *words; /* bits of the rooms with a row, and of the words of `some` with a bit */
    int T;
};

static void set_bit(struct rooms *rooms, int room)
{
    rooms->some[room / BITS] |= UINT64_C(1) << room % BITS;
    rooms->words[room / BITS / BITS] |= UINT64_C(1) << room / BITS % BITS;
}

static void clear_bit(struct rooms *rooms, int room)
{
    rooms->some[room / BITS] &= ~(UINT64_C(1) << room % BITS);
    if (!rooms->some[room / BITS])
        rooms->words[room / BITS / BITS] &= ~(UINT64_C(1) << room / BITS % BITS);
}

/* The first bit at or after `at` of `count` bits; NONE. */
static int next_bit(const uint64_t *bits, int at, int count)
{
    for (int word = at / BITS; word * BITS < count; word++) {
        const uint64_t here = word == at / BITS ? bits[word] >> at % BITS << at % BITS : bits[word];
        if (here)
            return word * BITS + __builtin_ctzll(here);
    }
    return NONE;
}

/* The least room with a row that is at least `wanted`; NONE. */
static int least_room(const struct rooms *rooms, int wanted)
{
    const int words = rooms->T / BITS + 1, word = wanted / BITS;
    const uint64_t here = rooms->some[word] >> wanted % BITS << wanted % BITS;
    if (here)
        return word * BITS + __builtin_ctzll(here);
    const int later = next_bit(rooms->words, word + 1, words);
    return later == NONE ? NONE : later * BITS + __builtin_ctzll(rooms->some[later]);
}

static int64_t take_row(struct rooms *rooms, int room)
{
    const int64_t row = rooms->first[room];
    rooms->first[room] = rooms->next[row];
    if (rooms->first[room] == NONE)
        clear_bit(rooms, room);
    return row;
}

static void put_row(struct rooms *rooms, int64_t row, int room)
{
    rooms->next[row] = rooms->first[room];
    rooms->first[room] = row;
    set_bit(rooms, room);
}

/* Documents by length, the longest first, of one length in their order: `by` (n). */
static bool sort_by_length(const int32_t *length, int64_t n, int T, int64_t *by)
{
    scope_free int64_t *at = mem_calloc((size_t)T + 2, sizeof *at);
    if (!at)
        return false;
    for (int64_t i = 0; i < n; i++)
        at[T - length[i] + 1]++;
    for (int room = 0; room < T; room++)
        at[room + 1] += at[room];
    for (int64_t i = 0; i < n; i++)
        by[at[T - length[i]]++] = i;
    return true;
}

/* row[i]: the row of document i. Returns the number of rows; -1: no memory. */
static int64_t find_rows(const int32_t *length, int64_t n, int T, int64_t *row)
{
    const size_t words = (size_t)T / BITS + 1;
    scope_free int64_t *by = mem_calloc((size_t)n + 1, sizeof *by),
                       *first = mem_calloc((size_t)T + 1, sizeof *first),
                       *next = mem_calloc((size_t)n + 1, sizeof *next);
    scope_free uint64_t *some = mem_calloc(words, sizeof *some),
                        *summary = mem_calloc(words / BITS + 1, sizeof *summary);
    if (!by || !first || !next || !some || !summary || !sort_by_length(length, n, T, by))
        return -1;
    struct rooms rooms = {first, next, some, summary, T};
    int64_t rows = 0;
    for (int room = 0; room <= T; room++)
        first[room] = NONE;
    for (int64_t i = 0; i < n; i++) {
        const int wanted = length[by[i]], room = least_room(&rooms, wanted);
        row[by[i]] = room == NONE ? rows++ : take_row(&rooms, room);
        put_row(&rooms, row[by[i]], (room == NONE ? T : room) - wanted);
    }
    return rows;
}

/* Numbers the rows anew, in the order of their first documents. */
static void order_rows(int64_t *row, int64_t n, int64_t *number, int64_t rows)
{
    int64_t count = 0;
    for (int64_t r = 0; r < rows; r++)
        number[r] = NONE;
    for (int64_t i = 0; i < n; i++) {
        if (number[row[i]] == NONE)
            number[row[i]] = count++;
        row[i] = number[row[i]];
    }
}

int rows_pack(const int32_t *length, int64_t n, int T, struct rows *out, struct muster_error *err)
{
    scope_free int64_t *row = mem_calloc((size_t)n + 1, sizeof *row),
                       *number = mem_calloc((size_t)n + 1, sizeof *number);
    *out = (struct rows){0};
    out->count = row && number ? find_rows(length, n, T, row) : -1;
    if (out->count >= 0) {
        out->document = mem_calloc((size_t)n + 1, sizeof *out->document);
        out->start = mem_calloc((size_t)out->count + 2, sizeof *out->start);
    }
    if (!out->document || !out->start) {
        rows_free(out);
        return error_set(err, MUSTER_E_NOMEM, "no memory to pack %lld documents", (long long)n);
    }
    order_rows(row, n, number, out->count);
    for (int64_t i = 0; i < n; i++)
        out->start[row[i] + 2]++;
    for (int64_t r = 0; r < out->count; r++)
        out->start[r + 2] += out->start[r + 1];
    for (int64_t i = 0; i < n; i++)
        out->document[out->start[row[i] + 1]++] = i;
    return 0;
}

void rows_free(struct rows *rows)
{
    if (!rows)
        return;
    mem_free(rows->document);
    mem_free(rows->start);
    *rows = (struct rows){0};
}
