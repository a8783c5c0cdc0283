/* report_internal.h - private header of this folder: the formats of the log (pure), the folders of trackers,
 * and the thread that writes. */
#ifndef MUSTER_TRAINER_REPORT_REPORT_INTERNAL_H
#define MUSTER_TRAINER_REPORT_REPORT_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "proto/base/checksum.h"
#include "proto/base/clock.h"
#include "proto/base/log.h"
#include "proto/include/muster_error.h"
#include "trainer/report/report.h"

/* ---- entry.c: an entry as a line of JSON. Pure. ---- */

enum { JSON_LINES_SCHEMA = 1 };
#define JSON_LINES_BEGIN "{\"schema\": " /* beginning of every line */

/* Appends {"schema": 1, "kind": "step", "time": 1700000000.123, "step": 12, ...} and a newline. wall_ns:
 * since 1970. -1: no memory. */
int json_lines_add(const struct entry *entry, int64_t wall_ns, struct buffer *out);

/* ---- tensorboard.c: event files of TensorBoard. Pure. ----
 *
 * An event is a record of a TFRecord file: its length (8 bytes, little-endian), the masked CRC-32C of the
 * length, the data, and the masked CRC-32C of the data (tensorflow/core/lib/io/record_writer.cc). The data is
 * a message of tensorboard.proto. */

struct tensorboard {
    struct checksum crc;
};

void tensorboard_make(struct tensorboard *board);
/* Appends the first records of a file: its version, and that the run continues after `step` steps, which
 * makes events of later steps in older files of the folder void. These functions return -1 without memory. */
int tensorboard_begin(const struct tensorboard *board, int64_t step, int64_t wall_ns, struct buffer *out);
/* Appends a record with the numbers, integers and flags of an entry as scalars "train/loss"; nothing for a
 * kind that is not shown. */
int tensorboard_add(const struct tensorboard *board, const struct entry *entry, int64_t wall_ns,
                    struct buffer *out);
/* Appends a record with a text, which TensorBoard renders as Markdown. */
int tensorboard_add_text(const struct tensorboard *board, const char *tag, const char *text, int64_t step,
                         int64_t wall_ns, struct buffer *out);

/* ---- wandb.c: the transaction log of a W&B run, run-ID.wandb, which `wandb sync` uploads. Pure. ----
 *
 * The file is ":W&B", 0xBEE1 (little-endian), a version of 0, then records in the framing of LevelDB's log:
 * blocks of 32 KB with chunks of a CRC-32 (of type and data), a length of two bytes and a type (1: a whole
 * record; 2, 3, 4: its first, middle and last part). A record is a message of wandb.proto.
 *
 * A row of the history is an entry of the run's log: `train/loss` and so on, `train/global_step` (the step,
 * the x axis of all other values), and `_step` (the number of the row). */

#define WANDB_STEP "train/global_step"

enum { WANDB_NAMES = 256, WANDB_BEGIN = 7 }; /* bytes before the first chunk */

/* The state of a log; zeroed for a new log, from wandb_cut for a continued log. */
struct wandb {
    int64_t records, rows, start_ns; /* written so far; start in ns since 1970 */
    uint32_t names[WANDB_NAMES];     /* hashes of the defined names */
    int name_count;
};

/* Append records for wandb_frame, each after a length of four bytes. -1: no memory. */
int wandb_begin(struct wandb *log, const struct wandb_run *run, int64_t wall_ns, struct buffer *out);
/* The configuration of a continued run. */
int wandb_set(struct wandb *log, const char *settings, struct buffer *out);
/* The row of an entry; nothing for a kind that is not shown. */
int wandb_add(struct wandb *log, const struct entry *entry, int64_t wall_ns, struct buffer *out);
/* Figures of the machine, such as "gpu.0.gpu". */
int wandb_add_stats(struct wandb *log, const struct entry *entry, int64_t wall_ns, struct buffer *out);
int wandb_end(struct wandb *log, int exit_code, int64_t wall_ns, struct buffer *out);

/* The bytes of records in a file that has `at` bytes; at 0: with the beginning of a file. */
int wandb_frame(const struct crc32 *crc, int64_t at, const char *records, size_t length, struct buffer *out);
/* For a run that continues after `step`: how many bytes of its file stay. Rows of later steps, the end
 * record, and an incomplete record are cut. -1: another kind of file. */
int64_t wandb_cut(const struct crc32 *crc, const char *data, size_t length, int64_t step, struct wandb *log);

/* ---- mlflow.c: the texts of MLflow's file store, mlruns/EXPERIMENT/RUN/. Pure. ----
 *
 * Experiments and runs have a meta.yaml; metrics/train/loss has a line "milliseconds value step" for each
 * step; params/NAME and tags/NAME have a value each. */

enum { MLFLOW_PARAM_MAX = 6000 }; /* longest value of a parameter that MLflow reads, in bytes */
enum mlflow_status { MLFLOW_RUNNING = 1, MLFLOW_FINISHED = 3, MLFLOW_FAILED = 4, MLFLOW_KILLED = 5 };

struct mlflow_run {
    const char *id, *name, *experiment; /* experiment: its id */
    const char *store;                  /* absolute path of mlruns */
    const char *user;
    int64_t start_ms, end_ms; /* since 1970; end 0: the run is running */
    enum mlflow_status status;
};

/* These functions return -1 without memory. */
int mlflow_experiment_text(const char *id, const char *name, const char *store, int64_t now_ms,
                           struct buffer *out);
int mlflow_run_text(const struct mlflow_run *run, struct buffer *out);
/* The metrics of an entry, each as its name, NUL, its line, NUL; nothing for a kind that is not shown. */
int mlflow_add(const struct entry *entry, int64_t wall_ns, struct buffer *out);
/* How many bytes of a metric's file stay if the run continues after `step`. */
size_t mlflow_cut(const char *text, size_t length, int64_t step);
/* The value of "name: 'value'" in a meta.yaml, for the caller to free (mem_free); NULL: none, or no memory.
 */
char *mlflow_read_value(const char *text, const char *name);

/* ---- writer.c: a thread that appends whole entries to files ----
 *
 * A stalled file system does not stall the callers. The waiting entries are bounded: further entries are
 * lost, counted and warned of. */

enum { WRITER_FILES = 4, WRITER_LIMIT = 4 << 20 }; /* most waiting bytes */

/* A file that is open for appending, or a function that writes an entry: all of it or nothing. */
struct writer_file {
    int fd;           /* -1: none; owned by the writer */
    const char *path; /* outlives the writer */
    int (*write)(void *context, const char *data, size_t length, struct muster_error *err); /* NULL: to fd */
    void *context; /* outlives the writer */
};

struct writer;

/* On error the caller still owns the descriptors. */
struct writer *writer_create(const struct writer_file *files, int count, const struct log_sink *log,
                             struct muster_error *err);
/* Hands an entry to a file; all its bytes are written, or none. A failed buffer is a lost entry. Does not
 * wait. */
void writer_put(struct writer *writer, int file, const struct buffer *bytes);
/* Waits until all entries are written, and closes the files; warns of lost entries. false: the deadline has
 * passed; the thread and its memory are left, and a file may end in an incomplete entry. Accepts NULL. */
bool writer_destroy(struct writer *writer, struct instant deadline);

/* ---- tracking.c: a W&B offline run, FOLDER/wandb/offline-run-TIME-ID/run-ID.wandb ---- */

struct wandb_files {
    int fd;                     /* -1: none */
    char *path, *folder, *name; /* path of the log; folder of the run; its last part */
    struct wandb log;
    struct crc32 crc;
    struct buffer first; /* first records to write */
};

/* before: name of the run to continue, or NULL. If its file is gone, a new file gets its id. */
int wandb_files_open(struct wandb_files *files, const char *folder, const struct wandb_run *run,
                     const char *before, int64_t step, struct muster_error *err);
/* writer_file.write: appends records, all or none. */
int wandb_files_write(void *context, const char *data, size_t length, struct muster_error *err);
void wandb_files_free(struct wandb_files *files);

/* ---- mlflow_files.c: a run in MLflow's file store, STORE/EXPERIMENT/RUN ---- */

struct mlflow_files {
    char *store, *folder, *name; /* absolute path of the store; of the run; EXPERIMENT/RUN */
    char *user, *run_name, *id, *experiment;
    int64_t start_ms;
};

/* experiment: its name; a missing experiment is made; "" or NULL: Default. settings: "name=value" lines.
 * before: name of the run to continue after `step`, or NULL. */
int mlflow_files_open(struct mlflow_files *files, const char *store, const char *experiment,
                      const char *run_name, const char *settings, const char *before, int64_t step,
                      struct muster_error *err);
/* writer_file.write: takes the bytes of mlflow_add. */
int mlflow_files_write(void *context, const char *data, size_t length, struct muster_error *err);
int mlflow_files_end(struct mlflow_files *files, int exit_code, struct muster_error *err);
void mlflow_files_free(struct mlflow_files *files);

/* ---- tracking.c: both folders ----
 *
 * A training that continues after a restart continues its W&B and MLflow runs. A file next to the checkpoints
 * keeps their names. Rows of steps that will run again are cut. */

struct tracking {
    struct wandb_files wandb;
    struct mlflow_files mlflow;
};

/* tracking is zeroed. -1: a folder or file cannot be made. */
int tracking_open(struct tracking *tracking, const struct tracking_options *options,
                  struct muster_error *err);

/* Fills the two files of a writer. */
void tracking_files(struct tracking *tracking, struct writer_file *wandb, struct writer_file *mlflow);
/* Called when all entries are written. exit_code: 0: all steps are done; 128 + a signal: the run was stopped.
 */
void tracking_close(struct tracking *tracking, int exit_code, const struct log_sink *log);

/* ---- report.c ---- */

/* The path of an event file: second, nanosecond, host, process. TensorBoard's own writer has the nanosecond
 * at the end. Its reader takes files by name, and of two runs within a second the later one must come last.
 * Returns as snprintf. */
int report_events_path(char *out, size_t size, const char *folder, const char *host, int pid,
                       int64_t wall_ns);

#endif
