/* selection.c - see data_internal.h: the documents of a split, and the samples without a target that counts.
 */
#include "proto/base/error.h"
#include "proto/base/text.h"
#include "trainer/data/data_internal.h"
#include "trainer/data/token_file.h"

enum { HASHED = 256 }; /* tokens at a document's start */

/* Mixes text_hash's result, whose first bits are alike for short texts. */
static uint64_t spread(uint64_t x)
{
    x = (x ^ (x >> 33)) * UINT64_C(0xFF51AFD7ED558CCD);
    x = (x ^ (x >> 33)) * UINT64_C(0xC4CEB9FE1A85EC53);
    return x ^ (x >> 33);
}

static uint64_t hash_document(const struct corpus *corpus, int64_t number)
{
    int32_t tokens[HASHED];
    int64_t begin, end;
    corpus_document(corpus, number, &begin, &end);
    const int64_t count = end - begin < HASHED ? end - begin : HASHED;
    corpus_read(corpus, begin, count, tokens);
    return spread(text_hash(TEXT_HASH_START, tokens, (size_t)count * sizeof *tokens));
}

/* ---- dividing ---- */

struct extremes {
    int64_t smallest, largest; /* documents with the smallest and the largest hash */
};

static struct extremes hash_all(const struct corpus *corpus, uint64_t *hashes, int64_t count)
{
    struct extremes found = {0, 0};
    for (int64_t i = 0; i < count; i++) {
        hashes[i] = hash_document(corpus, i);
        found.smallest = hashes[i] < hashes[found.smallest] ? i : found.smallest;
        found.largest = hashes[i] > hashes[found.largest] ? i : found.largest;
    }
    return found;
}

static int selection_create(struct selection *s, int64_t most, struct muster_error *err)
{
    *s = (struct selection){.document = mem_calloc((size_t)most + 1, sizeof *s->document),
                            .start = mem_calloc((size_t)most + 1, sizeof *s->start)};
    return s->document && s->start ? 0 : error_set(err, MUSTER_E_NOMEM, "no memory for the data");
}

static void add_document(struct selection *s, const struct corpus *corpus, int64_t number)
{
    int64_t begin, end;
    corpus_document(corpus, number, &begin, &end);
    s->document[s->count] = number;
    s->start[s->count + 1] = s->start[s->count] + end - begin;
    s->count++;
}

int selection_split(const struct corpus *corpus, double share, struct selection *rest, struct selection *held,
                    struct muster_error *err)
{
    const int64_t count = corpus_documents(corpus);
    scope_free uint64_t *hashes = mem_calloc((size_t)count + 1, sizeof *hashes);
    *rest = *held = (struct selection){0};
    if (!hashes || selection_create(rest, count, err) < 0 || selection_create(held, count, err) < 0)
        return hashes ? -1 : error_set(err, MUSTER_E_NOMEM, "no memory for the data");
    const struct extremes ends = hash_all(corpus, hashes, count);
    const double below = share * 18446744073709551616.0; /* share of 2^64 */
    for (int64_t i = 0; i < count; i++) {
        const bool holds = (double)hashes[i] < below || i == ends.smallest;
        add_document(holds && i != ends.largest ? held : rest, corpus, i);
    }
    return 0;
}

void selection_free(struct selection *s)
{
    if (!s)
        return;
    mem_free(s->document);
    mem_free(s->start);
    *s = (struct selection){0};
}

/* ---- reading ---- */

int64_t selection_tokens(const struct selection *s)
{
    return s->start[s->count];
}

/* The document that has token `at`. */
static int64_t document_of(const struct selection *s, int64_t at)
{
    int64_t low = 0, high = s->count - 1;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (at < s->start[middle + 1])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void selection_read(const struct selection *s, const struct corpus *corpus, int64_t from, int64_t count,
                    int32_t *out)
{
    for (int64_t i = count ? document_of(s, from) : 0; count > 0; i++) {
        const int64_t left = s->start[i + 1] - from, here = left < count ? left : count;
        int64_t begin, end;
        corpus_document(corpus, s->document[i], &begin, &end);
        corpus_read(corpus, begin + from - s->start[i], here, out);
        from += here;
        out += here;
        count -= here;
    }
}

/* ---- samples without a target that counts ---- */

enum { LOOKED_AT = 256 }; /* targets at a time */

static bool counts_in(const struct data_part *part, bool selected, int64_t from, int64_t count)
{
    int32_t values[LOOKED_AT];
    for (int64_t at = 0; at < count; at += LOOKED_AT) {
        const int64_t here = count - at < LOOKED_AT ? count - at : LOOKED_AT;
        if (selected)
            selection_read(&part->selection, part->corpus, from + at, here, values);
        else
            corpus_read(part->corpus, from + at, here, values);
        for (int64_t i = 0; i < here; i++)
            if (!(values[i] & TOKEN_MASK))
                return true;
    }
    return false;
}

/* number: sample of the corpus or of the selection, as in sample.c. */
static bool is_usable(const struct data *data, const struct data_part *part, int64_t number)
{
    const bool selected = part->selection.count > 0;
    int64_t begin, end;
    if (data->packing == DATA_STREAM)
        return counts_in(part, selected, number * data->T + 1, data->T);
    corpus_document(part->corpus, selected ? part->selection.document[number] : number, &begin, &end);
    const int64_t targets = end - begin > data->T ? data->T : end - begin - 1;
    return targets > 0 && (!data->masked || counts_in(part, false, begin + 1, targets));
}

static int64_t keep_usable(struct data *data, struct data_part *part, struct muster_error *err)
{
    int64_t kept = 0, empty = 0;
    for (int64_t i = 0; i < part->samples; i++)
        empty += !is_usable(data, part, part->first + i);
    if (!empty)
        return 0;
    part->kept = mem_calloc((size_t)(part->samples - empty + 1), sizeof *part->kept);
    if (!part->kept)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a list of samples");
    for (int64_t i = 0; i < part->samples; i++)
        if (is_usable(data, part, part->first + i))
            part->kept[kept++] = part->first + i;
    part->samples = kept;
    return empty;
}

int64_t usable_keep(struct data *data, struct muster_error *err)
{
    int64_t dropped = 0;
    if (data->packing == DATA_STREAM && !data->masked)
        return 0; /* all targets count */
    for (int i = 0; i < data->count; i++) {
        const int64_t empty = keep_usable(data, &data->part[i], err);
        if (empty < 0)
            return -1;
        dropped += empty;
    }
    data->samples -= dropped;
    return dropped;
}
