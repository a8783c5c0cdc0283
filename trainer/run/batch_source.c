/* batch_source.c - see batch_source.h. */
#include "trainer/run/batch_source.h"

#include "proto/base/mem.h"

static int read_text_sample(const struct batch_source *source, uint64_t g, void *const *to,
                            struct muster_error *err)
{
    return data_sample(source->from, g, to[0], to[1], err);
}

struct batch_source batch_source_texts(const struct data *data, int positions)
{
    const size_t bytes = (size_t)positions * sizeof(int32_t);
    return (struct batch_source){.from = data,
                                 .arrays = 2,
                                 .bytes = {bytes, bytes},
                                 .samples = data_samples(data),
                                 .read = read_text_sample};
}

static int read_picture_sample(const struct batch_source *source, uint64_t g, void *const *to,
                               struct muster_error *err)
{
    (void)err; /* pictures are in memory, and were checked */
    pictures_sample(source->from, g, to[0], to[1]);
    return 1;
}

struct batch_source batch_source_pictures(const struct pictures *pictures)
{
    return (struct batch_source){
        .from = pictures,
        .arrays = 2,
        .bytes = {(size_t)pictures_elements(pictures) * sizeof(float), sizeof(int32_t)},
        .samples = pictures_samples(pictures),
        .read = read_picture_sample};
}

static int read_labelled_sample(const struct batch_source *source, uint64_t g, void *const *to,
                                struct muster_error *err)
{
    (void)err; /* they are mapped, and were checked */
    labelled_sample(source->from, g, to[0], to[1], to[2]);
    return 1;
}

struct batch_source batch_source_labelled(const struct labelled *set, int positions)
{
    return (struct batch_source){
        .from = set,
        .arrays = 3,
        .bytes = {(size_t)positions * sizeof(int32_t), sizeof(int32_t), sizeof(int32_t)},
        .samples = labelled_samples(set),
        .read = read_labelled_sample};
}

bool batch_source_reserve(const struct batch_source *source, size_t samples,
                          void *arrays[BATCH_SOURCE_ARRAYS])
{
    bool there = true;
    for (int i = 0; i < source->arrays; i++) {
        arrays[i] = mem_calloc(samples, source->bytes[i]);
        there = there && arrays[i];
    }
    return there;
}

int batch_source_read(const struct batch_source *source, uint64_t g, void *const arrays[BATCH_SOURCE_ARRAYS],
                      int64_t at, struct muster_error *err)
{
    void *to[BATCH_SOURCE_ARRAYS];
    for (int i = 0; i < source->arrays; i++)
        to[i] = (char *)arrays[i] + (size_t)at * source->bytes[i];
    return source->read(source, g, to, err);
}
