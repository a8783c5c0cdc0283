/* tensorboard.h - event files of TensorBoard: events as records of a TFRecord file. Pure.
 *
 * A record is its length (8 bytes, little-endian), the masked CRC-32C of the length, the data, and their
 * masked CRC-32C (tensorflow/core/lib/io/record_writer.cc); data is a message of tensorboard.proto. */
#ifndef MUSTER_TRAINER_REPORT_TENSORBOARD_H
#define MUSTER_TRAINER_REPORT_TENSORBOARD_H

#include "proto/base/buffer.h"
#include "proto/base/checksum.h"
#include "trainer/report/entry.h"

struct tensorboard {
    struct checksum crc;
};

void tensorboard_make(struct tensorboard *board);
/* The records that a file begins with: its version, and that the run goes on behind `step` steps: events of
 * later steps in older files of the folder are void. All return -1 where there is no memory. */
int tensorboard_begin(const struct tensorboard *board, int64_t step, int64_t wall_ns, struct buffer *out);
/* One record with the numbers, integers and flags of an entry as scalars "train/loss", and nothing where its
 * kind is not shown. */
int tensorboard_add(const struct tensorboard *board, const struct entry *entry, int64_t wall_ns,
                    struct buffer *out);
/* One record with a text, which TensorBoard renders as Markdown. */
int tensorboard_add_text(const struct tensorboard *board, const char *tag, const char *text, int64_t step,
                         int64_t wall_ns, struct buffer *out);

#endif
