/* batch_source.c - see batch_source.h. */
#include "runtime/app/batch_source.h"

static int read_text_sample(const struct batch_source *source, uint64_t g, void *input, int32_t *targets,
                            struct muster_error *err)
{
    return data_sample(source->from, g, input, targets, err);
}

struct batch_source batch_source_texts(const struct data *data, int positions)
{
    return (struct batch_source){.from = data,
                                 .input_bytes = (size_t)positions * sizeof(int32_t),
                                 .targets = positions,
                                 .samples = data_samples(data),
                                 .read = read_text_sample};
}

static int read_picture_sample(const struct batch_source *source, uint64_t g, void *input, int32_t *targets,
                               struct muster_error *err)
{
    (void)err; /* pictures are in memory, and were checked */
    pictures_sample(source->from, g, input, targets);
    return 1;
}

struct batch_source batch_source_pictures(const struct pictures *pictures)
{
    return (struct batch_source){.from = pictures,
                                 .input_bytes = (size_t)pictures_elements(pictures) * sizeof(float),
                                 .targets = 1,
                                 .samples = pictures_samples(pictures),
                                 .read = read_picture_sample};
}
