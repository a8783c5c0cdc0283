/* checksum.h - CRC-32C (Castagnoli's polynomial, as iSCSI and ext4 use it), by the processor's own
 * instruction where it has one: a table would be slower than the disk. Pure. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_CHECKSUM_H
#define MUSTER_RUNTIME_CHECKPOINT_CHECKSUM_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/files/zip.h"

struct checksum {
    bool by_instruction;
    struct crc32 table; /* otherwise */
};

/* instruction: false: by the table, whatever the processor has. */
void checksum_make(struct checksum *checksum, bool instruction);
/* Of all bytes so far and these; begin with 0. */
uint32_t checksum_add(const struct checksum *checksum, uint32_t value, const void *data, int64_t bytes);

#endif
