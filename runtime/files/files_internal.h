/* files_internal.h - the inside of this folder: opened files, exports under way, and the formats that need no
 * header of their own. */
#ifndef MUSTER_RUNTIME_FILES_FILES_INTERNAL_H
#define MUSTER_RUNTIME_FILES_FILES_INTERNAL_H

#include <stdio.h>
#include <string.h>

#include "proto/archive/zip.h"
#include "runtime/files/architecture.h"
#include "runtime/files/config_json.h"
#include "runtime/files/files.h"
#include "runtime/files/layout.h"
#include "runtime/files/output.h"
#include "runtime/files/tensors.h"

/* ---- match.c ---- */

/* Which tensor of a file belongs to which parameter of a model. Pure. */

/* Names that an error lists before it gives the number of the others. */
enum { MATCH_LISTED = 3 };

/* tensor[i]: index of the tensor of model.params[i], -1 where it is not looked for; tied: index of a tensor
 * that has to be equal to it, -1 for none. tensors: sorted. architecture: NULL where names are the
 * parameters' own. MUSTER_E_INVALID lists tensors that are missing, unexpected, or of a wrong shape or type;
 * path stands for the source. */
struct match {
    int *tensor;
    int tied, tied_param;
    int drawn;           /* parameters of a head that are not there, and keep the values that were drawn */
    struct buffer notes; /* names of these, and of other heads' tensors; empty: none */
};
int match_tensors(const char *path, const struct file_tensors *tensors, const struct model *model,
                  const struct architecture *architecture, struct match *match, struct muster_error *err);
/* As match_tensors, for a file of PEFT's adapters: looks for the adapters alone, which match_tensors leaves
 * out. */
int match_adapters(const char *path, const struct file_tensors *tensors, const struct model *model,
                   const struct architecture *architecture, struct match *match, struct muster_error *err);
void match_free(struct match *match);

/* ---- source.c ---- */

/* The inside of opened files, for source.c and load.c. */

enum { SOURCE_FILES = 512 }; /* shards of one model: all are open at once */

struct source_file {
    char *path;
    int fd;
    int64_t bytes;
};

struct files {
    char *path, *page; /* page: the user's file; NULL: none */
    bool folder;
    struct source_file *file;
    int file_count;
    struct architecture architecture;
    bool has_architecture;
    struct config_notes notes;
    bool adapters;               /* PEFT's adapters, without a base */
    struct lora lora;            /* theirs */
    struct file_tensors tensors; /* sorted */
    const struct model *model;   /* matched */
    struct match match;
};

/* ---- llmc.c ---- */

/* GPT-2 checkpoints of llm.c (gpt2_124M.bin), read. Pure.
 *
 * 256 32-bit little-endian words: magic 20240326, version (3: float32, 5: bfloat16), max_seq_len, vocab_size,
 * num_layers, num_heads, channels, padded vocab_size; then each kind of parameter for all layers, wte with
 * the padded rows, matrices as (out,in). Format: github.com/karpathy/llm.c, write_model in train_gpt2.py. */

enum { LLMC_HEADER = 1024, LLMC_MAGIC = 20240326 };

/* header: the file's first LLMC_HEADER bytes. Fills the sizes and appends the tensors under the names of our
 * gpt2. MUSTER_E_INVALID where a number is out of bounds or the file has another size than they give;
 * MUSTER_E_UNSUPPORTED names a version. */
int llmc_parse(const char *name, const void *header, int64_t file_bytes, struct gpt2_config *config,
               struct file_tensors *tensors, struct muster_error *err);

/* ---- torch_file.c ---- */

/* The state dict in a file of torch.save (the archive of PyTorch since 1.6). */

/* Whether a file's first bytes are an archive's; for other files that name parameters, an error with
 * the way out (a pickle of PyTorch before 1.6, GGUF, HDF5), or 0. */
bool torch_file_begins(const void *start, size_t bytes);
int torch_file_refuse(const char *name, const void *start, size_t bytes, struct muster_error *err);

/* Appends the tensors of the state dict, which is the saved object, or the value of its key state_dict,
 * model_state_dict, model, module, net. file: copied into each. Errors name the tensor or the member. */
int torch_file_parse(const struct zip_source *source, int file, struct file_tensors *tensors,
                     struct muster_error *err);

/* ---- pickle.c ---- */

/* A state dict as PyTorch pickles it: an OrderedDict of tensors whose storages are members of the
 * archive. Pure.
 *
 * Only what torch.load(weights_only=True) accepts: protocol 2, the globals collections.OrderedDict,
 * torch._utils._rebuild_tensor_v2 and the storage types. Format: torch/serialization.py of PyTorch 2. */

/* Tensor i is storage number i ("data/i" in the archive). alias: another name of tensor number alias_of,
 * which shares its storage; NULL: none. MUSTER_E_UNSUPPORTED for a type, MUSTER_E_NOMEM. */
int pickle_state_dict(const struct file_tensor *tensors, int count, const char *alias, int alias_of,
                      struct buffer *out, struct muster_error *err);

/* ---- export.c ---- */

/* One export under way, for export.c; rank 0 alone has files. */

enum {
    EXPORT_BLOCK = 1 << 18, /* elements that are converted at a time */
    PTH_ALIGN = 64,         /* alignment of a storage in the archive, as in PyTorch */
};

struct exporting {
    struct trainer *trainer;
    const struct model *model;
    const struct files_export *what;
    enum dtype real; /* type of the trainer's values */
    char *path;
    struct layout layout;
    struct output *output; /* [layout.file_count] */
    int opened;
    struct zip zip;
    struct crc32 crc;
    int first_member; /* index of the archive's first tensor */
    void *block, *turned;
    /* For a base that gets the adapters' products added: [model.param_count], NULL without adapters; and room
     * for one parameter. */
    void **adapters;
    void *merged;
    int64_t merged_room; /* elements */
};

/* Output in the form of a folder. */
bool export_is_folder(enum files_format format);
/* export_merge.c: whether adapters are added to the base. */
bool export_merges(const struct exporting *exporting);
/* Collective, before parameters are written: rank 0 takes the adapters' values. */
int export_take_adapters(struct exporting *exporting, bool writes, struct muster_error *err);
/* The values with the adapters' product added, until the next call; as they are where there is none. NULL: no
 * memory. */
const void *export_merged(struct exporting *exporting, int param, const void *values,
                          struct muster_error *err);
void export_free_adapters(struct exporting *exporting);

/* Where a format goes that is named by path; owned by the caller, NULL: no memory. */
char *export_path(const char *path, enum files_format format);

#endif
