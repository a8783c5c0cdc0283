/* llmc.c - see files_internal.h. */
#include "runtime/files/files_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"

/* The kinds of tensors in the order of the file; sizes as products of V (padded), T, C. */
static const struct kind {
    const char *name; /* the parameter's name; with %d: a name for each layer */
    char rows;        /* 'V', 'T', or a multiple of C */
    bool matrix;      /* (rows, columns), otherwise (rows) */
    int columns;      /* a multiple of C */
} kinds[] = {
    {"wte.weight", 'V', true, 1},
    {"wpe.weight", 'T', true, 1},
    {"h.%d.ln_1.weight", 1, false, 0},
    {"h.%d.ln_1.bias", 1, false, 0},
    {"h.%d.attn.c_attn.weight", 3, true, 1},
    {"h.%d.attn.c_attn.bias", 3, false, 0},
    {"h.%d.attn.c_proj.weight", 1, true, 1},
    {"h.%d.attn.c_proj.bias", 1, false, 0},
    {"h.%d.ln_2.weight", 1, false, 0},
    {"h.%d.ln_2.bias", 1, false, 0},
    {"h.%d.mlp.c_fc.weight", 4, true, 1},
    {"h.%d.mlp.c_fc.bias", 4, false, 0},
    {"h.%d.mlp.c_proj.weight", 1, true, 4},
    {"h.%d.mlp.c_proj.bias", 1, false, 0},
    {"ln_f.weight", 1, false, 0},
    {"ln_f.bias", 1, false, 0},
};

struct llmc_reader {
    const char *name;
    const struct gpt2_config *config;
    int padded;
    enum dtype dtype;
    int64_t at, file_bytes;
    struct file_tensors *tensors;
    struct muster_error *err;
};

static int64_t rows_of(const struct llmc_reader *r, const struct kind *kind, bool padded)
{
    if (kind->rows == 'V')
        return padded ? r->padded : r->config->vocab;
    return kind->rows == 'T' ? r->config->max_positions : (int64_t)kind->rows * r->config->channels;
}

/* Sizes are within GPT2_CONFIG_LIMITS: no product is above 2^53. */
static int add_kind(struct llmc_reader *r, const struct kind *kind, int layer)
{
    char name[MODEL_NAME_LIMIT];
    int64_t columns = kind->matrix ? (int64_t)kind->columns * r->config->channels : 1;
    struct file_tensor tensor = {.name = name,
                                 .dtype = r->dtype,
                                 .ndim = kind->matrix ? 2 : 1,
                                 .dim = {rows_of(r, kind, false), kind->matrix ? columns : 0},
                                 .offset = r->at,
                                 .out_in = true};
    (void)snprintf(name, sizeof name, kind->name, layer); /* fits: the longest has 30 characters */
    (void)snprintf(tensor.type, sizeof tensor.type, "%s", r->dtype == DTYPE_F32 ? "F32" : "BF16");
    tensor.bytes = tensor.dim[0] * columns * dtype_size(r->dtype);
    r->at += rows_of(r, kind, true) * columns * dtype_size(r->dtype);
    if (r->at > r->file_bytes)
        return error_set(r->err, MUSTER_E_INVALID,
                         "%s: the file is cut off: %s ends at byte %" PRId64 " of %" PRId64, r->name, name,
                         r->at, r->file_bytes);
    return tensors_add(r->tensors, &tensor, r->err);
}

static int check_sizes(const char *name, const struct gpt2_config *c, int padded, struct muster_error *err)
{
#define CHECK_LIMIT(member, least, most)                                                                     \
    if (c->member < (least) || c->member > (most))                                                           \
        return error_set(err, MUSTER_E_INVALID, "%s: the header's " #member " is %d, but must be %d to %d",  \
                         name, c->member, (int)(least), (int)(most));
    GPT2_CONFIG_LIMITS(CHECK_LIMIT)
#undef CHECK_LIMIT
    if (padded < c->vocab || padded > 1 << 21)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: the header's padded vocabulary is %d, but must be %d to %d", name, padded,
                         c->vocab, 1 << 21);
    return 0;
}

static int32_t word(const void *header, int index)
{
    const unsigned char *b = (const unsigned char *)header + (ptrdiff_t)4 * index;
    return (int32_t)((uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24);
}

int llmc_parse(const char *name, const void *header, int64_t file_bytes, struct gpt2_config *config,
               struct file_tensors *tensors, struct muster_error *err)
{
    enum { KINDS = sizeof kinds / sizeof *kinds };
    if (file_bytes < LLMC_HEADER || word(header, 0) != LLMC_MAGIC)
        return error_set(err, MUSTER_E_INVALID, "%s: not a checkpoint of llm.c: it does not begin with %d",
                         name, LLMC_MAGIC);
    int version = word(header, 1), padded = word(header, 7);
    if (version != 3 && version != 5)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "%s: version %d of llm.c's checkpoints; versions 3 (float32) and 5 (bfloat16) are "
                         "read: write it again with llm.c's train_gpt2.py",
                         name, version);
    *config = (struct gpt2_config){.max_positions = word(header, 2),
                                   .vocab = word(header, 3),
                                   .layers = word(header, 4),
                                   .heads = word(header, 5),
                                   .channels = word(header, 6)};
    if (check_sizes(name, config, padded, err))
        return -1;
    struct llmc_reader r = {.name = name,
                            .config = config,
                            .padded = padded,
                            .dtype = version == 3 ? DTYPE_F32 : DTYPE_BF16,
                            .at = LLMC_HEADER,
                            .file_bytes = file_bytes,
                            .tensors = tensors,
                            .err = err};
    for (int i = 0; i < KINDS; i++) {
        int layers = strchr(kinds[i].name, '%') ? config->layers : 1;
        for (int layer = 0; layer < layers; layer++) {
            if (add_kind(&r, &kinds[i], layer))
                return -1;
        }
    }
    if (r.at != file_bytes)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: the parameters end at byte %" PRId64 ", the file at %" PRId64, name, r.at,
                         file_bytes);
    return 0;
}
