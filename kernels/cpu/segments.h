/* segments.h - the segments of an optimizer's call cut into chunks, so that one parallel loop makes one pass
 * over all of them: a group's many small segments (biases, norms) cost no loop each. */
#ifndef MUSTER_KERNELS_CPU_SEGMENTS_H
#define MUSTER_KERNELS_CPU_SEGMENTS_H

#include "kernels/cpu/cpu.h"

struct segments {
    const struct optimizer_segment *list;
    int count;
    int64_t chunks, elements; /* totals of all segments */
};

/* At most CPU_CHUNK elements of one segment. */
struct segment_chunk {
    int64_t at, size;
    int parameter_class;
};

static inline struct segments segments_of(const struct optimizer_segment *list, int count)
{
    struct segments all = {list, count, 0, 0};
    for (int i = 0; i < count; i++) {
        all.chunks += cpu_chunks(list[i].count);
        all.elements += list[i].count;
    }
    return all;
}

/* chunk: 0..chunks-1. The search is cheap next to the chunk's 4,096 elements: a group has a dozen
 * segments. */
static inline struct segment_chunk segments_chunk(const struct segments *all, int64_t chunk)
{
    const struct optimizer_segment *segment = all->list;
    for (; chunk >= cpu_chunks(segment->count); segment++)
        chunk -= cpu_chunks(segment->count);
    return (struct segment_chunk){.at = segment->offset + chunk * CPU_CHUNK,
                                  .size = cpu_chunk_size(segment->count, chunk),
                                  .parameter_class = segment->parameter_class};
}

#endif
