/* fingerprint.h - the numerics fingerprint: all settings besides configuration and seed on which the last bit
 * of a run depends. Two runs with equal fingerprints are bit-identical. Checkpoints hold the fingerprint. A
 * resume with another fingerprint is refused, and the error names the field. */
#ifndef MUSTER_RUNTIME_TRAIN_FINGERPRINT_H
#define MUSTER_RUNTIME_TRAIN_FINGERPRINT_H

#include <stdbool.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum { FINGERPRINT_TEXT = 192 };

/* field, meaning */
#define FINGERPRINT_NUMBERS(X)                                                                               \
    X(world_size, "ranks")                                                                                   \
    X(mesh_pipeline, "pipeline stages")                                                                      \
    X(mesh_replicate, "replicas")                                                                            \
    X(mesh_shard, "ranks a group is cut into")                                                               \
    X(threads, "OpenMP/BLAS threads of a rank")                                                              \
    X(batch, "rows of a micro-batch")                                                                        \
    X(positions, "positions of a micro-batch")                                                               \
    X(micro_batches, "micro-batches of a step")
#define FINGERPRINT_TEXTS(X)                                                                                 \
    X(strategy, "sharding strategy")                                                                         \
    X(kernels, "kernel table: instruction set and dtype")                                                    \
    X(dtypes, "dtypes that parameters and gradients move in")                                                \
    X(embedding, "how gradients of embeddings go from rank to rank")                                         \
    X(blas, "BLAS version and core type")                                                                    \
    X(comm, "comm and its reduction order")

struct fingerprint {
#define FINGERPRINT_NUMBER_FIELD(name, meaning) int name;
#define FINGERPRINT_TEXT_FIELD(name, meaning)   char name[FINGERPRINT_TEXT];
    FINGERPRINT_NUMBERS(FINGERPRINT_NUMBER_FIELD)
    FINGERPRINT_TEXTS(FINGERPRINT_TEXT_FIELD)
#undef FINGERPRINT_NUMBER_FIELD
#undef FINGERPRINT_TEXT_FIELD
};

/* "name=value" lines, one a field, in the order above. */
int fingerprint_format(const struct fingerprint *fingerprint, struct buffer *out);
/* The lines that do not depend on the mesh and the threads: positions, kernels, dtypes and BLAS. For exports,
 * which are the same bytes for every mesh. */
int fingerprint_format_machine(const struct fingerprint *fingerprint, struct buffer *out);
/* Reads the output of fingerprint_format. MUSTER_E_INVALID names the field that is missing, unknown or
 * wrong. `embedding`, which was not written at first, is "not recorded" where it is missing. */
int fingerprint_parse(const char *text, struct fingerprint *fingerprint, struct muster_error *err);
/* 0 if both are equal; else -1 and MUSTER_E_REFUSED, naming the first field that differs and both values. */
int fingerprint_compare(const struct fingerprint *wanted, const struct fingerprint *found,
                        struct muster_error *err);

#endif
