/* checksum.h - CRC-32 as in zip, and CRC-32C (Castagnoli's polynomial, as iSCSI and ext4 use it), the latter
 * by the processor's own instruction where it has one: a table would be slower than the disk. Pure. */
#ifndef MUSTER_PROTO_BASE_CHECKSUM_H
#define MUSTER_PROTO_BASE_CHECKSUM_H

#include <stdbool.h>
#include <stdint.h>

/* CRC-32 as in zip, eight bytes at a time. */
struct crc32 {
    uint32_t table[8][256];
};
void crc32_make(struct crc32 *crc);
/* Sets the table of another polynomial, reflected, for crc32_add. */
void crc32_make_table(struct crc32 *crc, uint32_t polynomial);
/* Returns the sum of all bytes so far and these; begin with 0. */
uint32_t crc32_add(const struct crc32 *crc, uint32_t value, const void *data, int64_t bytes);

/* Three lanes of so many bytes are summed side by side: the instruction takes three cycles, and one begins in
 * each. Whole lines of the cache; twelve lanes are nearly 64 KB. */
enum { CHECKSUM_LANE = 5440 };

struct checksum {
    bool by_instruction;
    struct crc32 table;    /* otherwise */
    uint32_t past[4][256]; /* a sum of which CHECKSUM_LANE zeros follow, by its bytes */
};

/* instruction: false: by the table, on any processor. */
void checksum_make(struct checksum *checksum, bool instruction);
/* Returns the sum of all bytes so far and these; begin with 0. */
uint32_t checksum_add(const struct checksum *checksum, uint32_t value, const void *data, int64_t bytes);
/* The same, and copies them, which do not overlap with `to`, on the way: they are read from memory once. The
 * copy bypasses the caches: it is for data that is not read soon. */
uint32_t checksum_copy(const struct checksum *checksum, uint32_t value, void *to, const void *from,
                       int64_t bytes);

#endif
