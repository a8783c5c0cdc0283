/* sample.c - see data.h: the order of samples, their tokens and targets. */
#include <string.h>

#include "proto/base/error.h"
#include "trainer/data/data_internal.h"
#include "trainer/data/order.h"
#include "trainer/data/token_file.h"

enum { BLOCK = 1024 }; /* tokens at a time */

/* A sample of a part. */
struct place {
    const struct data_part *part;
    int64_t index;
};

static struct place place_among(const struct data *data, int64_t index)
{
    const struct data_part *part = data->part;
    for (; index >= part->samples; part++)
        index -= part->samples;
    return (struct place){part, index};
}

static struct place place_of(const struct data *data, uint64_t g)
{
    const uint64_t samples = (uint64_t)data->samples, epoch = g / samples;
    if (data->ordered)
        return place_among(data, (int64_t)(g % samples));
    if (!data->shares || data->count == 1)
        return place_among(data, (int64_t)order_permute(data->seed, epoch, g % samples, samples));
    const struct order_turn turn = order_turn(data->seed, data->shares, data->count, g);
    const struct data_part *part = &data->part[turn.source];
    const uint64_t own = (uint64_t)part->samples;
    const uint64_t index =
        order_permute(data->seed + (uint64_t)turn.source, turn.number / own, turn.number % own, own);
    return (struct place){part, (int64_t)index};
}

/* Fills `count` positions from count + 1 tokens of the corpus. Returns the number of targets that count. */
static int fill_block(const struct data *data, const int32_t *values, int count, int32_t *tokens,
                      int32_t *targets, struct muster_error *err)
{
    int counted = 0;
    for (int t = 0; t < count; t++) {
        const int32_t token = values[t] & ~TOKEN_MASK, target = values[t + 1] & ~TOKEN_MASK;
        const bool counts = !(values[t + 1] & TOKEN_MASK);
        if (token >= data->vocabulary || target >= data->vocabulary)
            return error_set(err, MUSTER_E_INVALID, "the data has token %d, and model.vocabulary is %lld",
                             (int)(token >= data->vocabulary ? token : target), (long long)data->vocabulary);
        if (tokens)
            tokens[t] = token;
        if (targets)
            targets[t] = counts ? target : DATA_NO_TARGET;
        counted += counts;
    }
    return counted;
}

/* Fills the first `count` positions of a sample with the tokens from `from` on, of the selection or of the
 * corpus. */
static int fill_positions(const struct data *data, const struct data_part *part, bool selected, int64_t from,
                          int count, int32_t *tokens, int32_t *targets, struct muster_error *err)
{
    int32_t values[BLOCK + 1];
    int counted = 0;
    for (int at = 0; at < count; at += BLOCK) {
        const int here = count - at < BLOCK ? count - at : BLOCK;
        if (selected)
            selection_read(&part->selection, part->corpus, from + at, here + 1, values);
        else
            corpus_read(part->corpus, from + at, here + 1, values);
        const int block =
            fill_block(data, values, here, tokens ? tokens + at : NULL, targets ? targets + at : NULL, err);
        if (block < 0)
            return -1;
        counted += block;
    }
    return counted;
}

/* Fills the positions after a document: token 0, no target. */
static void fill_up(const struct data *data, int from, int32_t *tokens, int32_t *targets)
{
    for (int t = from; t < data->T; t++) {
        if (tokens)
            tokens[t] = 0;
        if (targets)
            targets[t] = DATA_NO_TARGET;
    }
}

int sample_document(const struct data *data, const struct data_part *part, int64_t index, int64_t *begin)
{
    const int64_t number = part->kept ? part->kept[index] : part->first + index;
    int64_t end;
    corpus_document(part->corpus, part->selection.count ? part->selection.document[number] : number, begin,
                    &end);
    return end - *begin > data->T ? data->T : (int)(end - *begin) - 1;
}

/* The documents of a sample: first..end-1 of the part's. */
struct members {
    int64_t first, end;
};
static struct members members_of(struct place place, int64_t *one)
{
    const struct rows *rows = &place.part->rows;
    *one = place.index;
    return rows->start ? (struct members){rows->start[place.index], rows->start[place.index + 1]}
                       : (struct members){0, 1};
}

int data_sample(const struct data *data, uint64_t g, int32_t *tokens, int32_t *targets,
                struct muster_error *err)
{
    const struct place place = place_of(data, g);
    const struct data_part *part = place.part;
    if (data->packing == DATA_STREAM) {
        const int64_t number = part->kept ? part->kept[place.index] : part->first + place.index;
        return fill_positions(data, part, part->selection.count > 0, number * data->T, data->T, tokens,
                              targets, err);
    }
    int64_t one;
    const struct members members = members_of(place, &one);
    const int64_t *document = part->rows.start ? part->rows.document : &one;
    int at = 0, counted = 0;
    for (int64_t i = members.first; i < members.end; i++) {
        int64_t begin;
        const int count = sample_document(data, part, document[i], &begin);
        const int here = fill_positions(data, part, false, begin, count, tokens ? tokens + at : NULL,
                                        targets ? targets + at : NULL, err);
        if (here < 0)
            return -1;
        counted += here;
        at += count;
    }
    fill_up(data, at, tokens, targets);
    return counted;
}

void data_positions(const struct data *data, uint64_t g, int32_t *positions)
{
    int at = 0;
    if (data->packing == DATA_PACKED) {
        const struct place place = place_of(data, g);
        int64_t one, begin;
        const struct members members = members_of(place, &one);
        for (int64_t i = members.first; i < members.end; i++) {
            const int count = sample_document(data, place.part, place.part->rows.document[i], &begin);
            for (int t = 0; t < count; t++)
                positions[at++] = t;
        }
    }
    for (int t = at; t < data->T; t++)
        positions[t] = data->packing == DATA_PACKED ? 0 : t;
}
