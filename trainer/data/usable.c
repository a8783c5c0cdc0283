/* usable.c - see usable.h. */
#include "trainer/data/usable.h"

#include "proto/base/error.h"
#include "trainer/data/token_file.h"

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

/* number: as sample.c has it, of the corpus or of the selection. */
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
