/* manifest.h - manifest.json: the contents of a checkpoint, and the place of each element's bytes. Pure.
 *
 * The manifest is one JSON object; its last member is the CRC-32C of all bytes before it. Elements are found
 * by tensor and range, for any number of ranks that wrote them. Each MANIFEST_CHUNK of a range has a
 * checksum. */
#ifndef MUSTER_RUNTIME_CHECKPOINT_MANIFEST_H
#define MUSTER_RUNTIME_CHECKPOINT_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

#include "proto/base/buffer.h"
#include "proto/base/checksum.h"
#include "proto/include/muster_error.h"
#include "runtime/train/trainer.h"

#define MANIFEST_FORMAT "muster-checkpoint-1"
enum { MANIFEST_CHUNK = 1 << 20 }; /* bytes under one checksum */

/* "value", "moment1", "moment2", "average", "feedback", "factor" */
const char *manifest_tensor_name(enum trainer_tensor tensor);

/* Texts in a checkpoint: "key=value", NULL at the end; NULL: none. */
typedef const char *const *manifest_texts;

/* Facts about the run that are not tensors. */
struct manifest_run {
    int64_t step;    /* number of finished steps */
    int64_t updates; /* updates of the parameters: skipped steps do not count */
    int64_t samples; /* samples taken from the data; the next step begins with the sample of this number */
    struct loss_scale scale;
    int world_size;
    struct mesh mesh;
    const char *numerics; /* text of fingerprint_format */
    manifest_texts settings, notes;
};

struct manifest_file {
    const char *name;
    int64_t bytes;
    int64_t header; /* number of bytes before the first tensor */
    uint32_t header_crc;
};

/* Elements of one tensor that are contiguous in one file. */
struct manifest_slice {
    enum trainer_tensor tensor;
    int param;
    int replica;          /* TRAINER_FEEDBACK: whose; else 0 */
    int64_t first, count; /* elements of the parameter */
    int file;
    int64_t offset; /* bytes from the file's start */
    enum dtype dtype;
    const char *crc; /* eight hexadecimal digits for each chunk */
};

struct manifest {
    struct manifest_run run; /* its texts are owned by the manifest */
    struct manifest_file *files;
    int file_count;
    struct manifest_slice *slices; /* sorted by tensor, parameter, replica and first element */
    int slice_count;
    int *first_slice; /* [tensors * parameters + 1]: index of the first slice of each tensor's parameter */
    int param_count;
    json_t *root;
};

/* ---- writing ---- */

/* Text in a slice's row before its digits. It occurs once in a row: names are JSON strings. */
#define MANIFEST_ROW_CRC "\"crc32c\":\""

struct manifest_writer {
    struct buffer files, slices; /* rows written so far */
    struct checksum crc;
};
void manifest_writer_begin(struct manifest_writer *writer);
void manifest_writer_free(struct manifest_writer *writer);
void manifest_add_file(struct manifest_writer *writer, const struct manifest_file *file);
void manifest_add_slice(struct manifest_writer *writer, const struct manifest_slice *slice);
/* Writes the whole text of the manifest. */
int manifest_format(const struct manifest_writer *writer, const struct manifest_run *run,
                    const struct model *model, struct buffer *out, struct muster_error *err);

/* ---- reading ---- */

/* Reads and checks a manifest against a model: MUSTER_E_INVALID where it is damaged (errors have `name` as
 * the file), MUSTER_E_REFUSED where it is of another model or format. The caller frees the manifest in any
 * case (manifest_free). */
int manifest_parse(const char *name, const char *text, size_t length, const struct model *model,
                   struct manifest *manifest, struct muster_error *err);
void manifest_free(struct manifest *manifest); /* accepts a zeroed one */

/* The slices of a parameter's tensor, which together hold each element once: of a feedback once for each
 * replica, and of a factor from its first element on. Returns their number; 0: none. */
int manifest_slices(const struct manifest *manifest, enum trainer_tensor tensor, int param,
                    const struct manifest_slice **slices);
/* Checksum of chunk number `chunk` of a slice. */
uint32_t manifest_chunk_crc(const struct manifest_slice *slice, int64_t chunk);
/* Writes a checksum as eight hexadecimal digits. */
int manifest_put_crc(struct buffer *out, uint32_t crc);

#endif
