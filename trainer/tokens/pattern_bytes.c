/* pattern_bytes.c - a byte for each group of code points that lie in the same sets of an expression.
 */
#include <stdlib.h>
#include <string.h>

#include "trainer/tokens/pattern.h"

static int compare_edges(const void *left, const void *right)
{
    const struct point_range *a = left, *b = right;
    return (a->first > b->first) - (a->first < b->first);
}

int pattern_bytes_fill(const struct pattern_text *t, const struct point_set *sets, int count, uint8_t *map,
                       struct pattern_bytes *bytes)
{
    struct point_set edges = {0};
    int failed = 0;
    for (int i = 0; i < count && !failed; i++)
        for (size_t k = 0; k < sets[i].count && !failed; k++)
            failed = point_set_add(&edges, sets[i].range[k].first, 0) < 0 ||
                     point_set_add(&edges, sets[i].range[k].last + 1, 0) < 0;
    if (failed || point_set_add(&edges, 0, 0) < 0 || point_set_add(&edges, POINT_LAST + 1, 0) < 0) {
        point_set_free(&edges);
        return pattern_no_memory(t);
    }
    qsort(edges.range, edges.count, sizeof *edges.range, compare_edges);
    bytes->count = 0;
    for (size_t i = 0; i + 1 < edges.count; i++) {
        const uint32_t first = edges.range[i].first, end = edges.range[i + 1].first;
        uint64_t bits[PATTERN_WORDS] = {0};
        int class = 0;
        if (first == end)
            continue;
        for (int k = 0; k < count; k++)
            bits[k / 64] |= (uint64_t)point_set_has(&sets[k], first) << (k % 64);
        while (class < bytes->count && memcmp(bytes->in_sets[class], bits, sizeof bits) != 0)
            class ++;
        if (class == 256) {
            point_set_free(&edges);
            return pattern_refuse(t, "an expression with so many different classes,");
        }
        if (class == bytes->count)
            memcpy(bytes->in_sets[bytes->count++], bits, sizeof bits);
        memset(map + first, class, end - first);
    }
    point_set_free(&edges);
    return 0;
}

void pattern_bytes_write(const struct pattern_bytes *bytes, int set, struct buffer *out)
{
    int have = 0;
    for (int c = 0; c < bytes->count; c++)
        have += bytes->in_sets[c][set / 64] >> (set % 64) & 1;
    if (!have) {
        (void)buffer_text(out, "(?!)"); /* out remembers a failure */
        return;
    }
    (void)buffer_text(out, "[");
    for (int c = 0; c < bytes->count; c++)
        if (bytes->in_sets[c][set / 64] >> (set % 64) & 1)
            (void)buffer_printf(out, "\\x%02x", (unsigned)c);
    (void)buffer_text(out, "]");
}
