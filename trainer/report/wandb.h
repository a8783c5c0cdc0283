/* wandb.h - the transaction log of a W&B run, run-ID.wandb, which `wandb sync` uploads. Pure.
 *
 * The file is ":W&B", 0xBEE1 (little-endian), a version of 0, then records in the framing of LevelDB's log:
 * blocks of 32 KB with chunks of a CRC-32 (of type and data), a length of two bytes and a type (1: a whole
 * record; 2, 3, 4: its first, middle and last part). A record is a message of wandb.proto.
 *
 * A row of the history is an entry of the run's log: `train/loss` and so on, with `train/global_step`, the
 * step, which all others are plotted over, and `_step`, the number of the row. */
#ifndef MUSTER_TRAINER_REPORT_WANDB_H
#define MUSTER_TRAINER_REPORT_WANDB_H

#include "proto/base/buffer.h"
#include "proto/base/checksum.h"
#include "trainer/report/entry.h"

#define WANDB_STEP "train/global_step"

enum { WANDB_NAMES = 256, WANDB_BEGIN = 7 }; /* bytes before the first chunk */

/* Of one file; zeroed for a new one, from wandb_cut for one that goes on. */
struct wandb {
    int64_t records, rows, start_ns; /* so far; since 1970 */
    uint32_t names[WANDB_NAMES];     /* hashes of those that were defined */
    int name_count;
};

/* Texts that are NULL or "" are left out. */
struct wandb_run {
    const char *id, *project, *entity, *name, *group, *notes, *job_type;
    const char *tags;     /* with commas between them */
    const char *settings; /* "name=value" lines: the run's configuration */
    const char *host, *os, *program, *folder;
    char *const *arguments; /* NULL-terminated; NULL: none */
    int cpus;
    int64_t memory; /* bytes; 0: not known */
};

/* Each appends records, a length of four bytes before each, for wandb_frame. -1: no memory. */
int wandb_begin(struct wandb *log, const struct wandb_run *run, int64_t wall_ns, struct buffer *out);
/* The configuration of a run that goes on. */
int wandb_set(struct wandb *log, const char *settings, struct buffer *out);
/* The row of an entry, and nothing where its kind is not shown. */
int wandb_add(struct wandb *log, const struct entry *entry, int64_t wall_ns, struct buffer *out);
/* Figures of the machine, such as "gpu.0.gpu". */
int wandb_add_stats(struct wandb *log, const struct entry *entry, int64_t wall_ns, struct buffer *out);
int wandb_end(struct wandb *log, int exit_code, int64_t wall_ns, struct buffer *out);

/* The bytes of records in a file of which `at` bytes are there, the file's beginning included. */
int wandb_frame(const struct crc32 *crc, int64_t at, const char *records, size_t length, struct buffer *out);
/* For a run that goes on after `step`: how many bytes of its file stay. Rows of later steps, the end, and
 * what is incomplete behind a kill go. -1: it is no such file. */
int64_t wandb_cut(const struct crc32 *crc, const char *data, size_t length, int64_t step, struct wandb *log);

#endif
