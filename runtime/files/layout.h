/* layout.h - which tensors an export has, and the files that they are cut into. Pure. */
#ifndef MUSTER_RUNTIME_FILES_LAYOUT_H
#define MUSTER_RUNTIME_FILES_LAYOUT_H

#include "runtime/files/architecture.h"
#include "runtime/files/tensors.h"

struct layout {
    struct file_tensors tensors; /* file by file, by name in each; file and bytes are set, offsets are not */
    int *tensor;                 /* [model.param_count] of each parameter: index into tensors, or -1 */
    int *first;                  /* [file_count + 1] of each file: its first tensor */
    int file_count;
    bool adapters;
    bool quantized; /* tensors are in few bits (codes.h): one file, which other programs do not look for */
};

/* prefixed: names as transformers has them, otherwise the parameters' own. shard_bytes: 0: one file. Shards
 * are filled as huggingface_hub fills them (split_torch_state_dict_into_shards): parameters in transformers'
 * order; a parameter that is larger than a shard gets its own shard. */
int layout_make(const struct model *model, const struct architecture *architecture, bool prefixed,
                enum dtype dtype, int64_t shard_bytes, struct layout *layout, struct muster_error *err);
/* The adapters of a model (the former leaves them out), in one file that PEFT reads. */
int layout_adapters(const struct model *model, const struct architecture *architecture, enum dtype dtype,
                    struct layout *layout, struct muster_error *err);
void layout_free(struct layout *layout);

/* File for tensors in few bits. transformers does not find this name: it would ignore such tensors and begin
 * at random. */
#define LAYOUT_QUANTIZED "quantized.safetensors"

/* "model.safetensors" or "model-00001-of-00003.safetensors". */
enum { LAYOUT_NAME = 64 };
const char *layout_file_name(const struct layout *layout, int file, char out[LAYOUT_NAME]);
/* Whether a name in a folder is of that form, of any number of shards, or the index, or LAYOUT_QUANTIZED. */
bool layout_owns(const char *name);
/* model.safetensors.index.json, as transformers writes it. */
int layout_index(const struct layout *layout, struct buffer *out, struct muster_error *err);

#endif
