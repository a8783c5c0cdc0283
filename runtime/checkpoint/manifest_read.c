/* manifest_read.c - manifest.h: reads a manifest and checks it against a model. */
#include "runtime/checkpoint/manifest.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/json/json_text.h"
#include "runtime/files/tensors.h"

struct reading {
    const char *name;
    const struct model *model;
    struct manifest *m;
    struct muster_error *err;
};

static int damaged(const struct reading *r, const char *what)
{
    return error_set(r->err, MUSTER_E_INVALID, "%s is damaged: %s", r->name, what);
}

/* ---- members ---- */

/* An integer of at least 0; -1: none. */
static int64_t count_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) && json_integer_value(value) >= 0 ? json_integer_value(value) : -1;
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* Eight digits. Reads no further: a manifest that was cut off ends with the last one, without a zero byte. */
static bool parse_crc(const char *text, uint32_t *crc)
{
    static const char digits[] = "0123456789abcdef";
    uint32_t value = 0;
    for (int i = 0; i < 8; i++) {
        const char *digit = text && text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit)
            return false;
        value = value << 4 | (uint32_t)(digit - digits);
    }
    *crc = value;
    return true;
}

uint32_t manifest_chunk_crc(const struct manifest_slice *slice, int64_t chunk)
{
    uint32_t crc = 0;
    (void)parse_crc(slice->crc + 8 * chunk, &crc); /* checked when the manifest was read */
    return crc;
}

/* The last member is the checksum of all text before it. */
static int check_crc(const struct reading *r, const char *text, size_t length)
{
    static const char tail[] = ",\n\"crc32c\":\"00000000\"}\n";
    const size_t end = sizeof tail - 1, key = strlen(",\n\"crc32c\":\"");
    struct checksum table;
    uint32_t written;
    if (length < end || memcmp(text + length - end, tail, key) != 0 ||
        !parse_crc(text + length - end + key, &written) || text[length - 1] != '\n')
        return damaged(r, "it is cut off");
    checksum_make(&table, true);
    if (checksum_add(&table, 0, text, (int64_t)(length - end)) != written)
        return damaged(r, "its checksum differs");
    return 0;
}

/* ---- the run ---- */

static int read_texts(const struct reading *r, const char *key, manifest_texts *out)
{
    const json_t *list = json_object_get(r->m->root, key);
    size_t count = json_array_size(list);
    const char **texts = mem_calloc(count + 1, sizeof *texts);
    *out = texts;
    if (!texts)
        return error_set(r->err, MUSTER_E_NOMEM, "no memory to read %s", r->name);
    for (size_t i = 0; i < count; i++) {
        texts[i] = json_string_value(json_array_get(list, i));
        if (!texts[i])
            return damaged(r, key);
    }
    return 0;
}

/* An axis that the writer did not know is 1. */
static struct mesh read_mesh(const json_t *object)
{
    struct mesh mesh;
    for (int side = 0; side < SIDE_COUNT; side++) {
        const char *name = mesh_side_name((enum mesh_side)side);
        mesh.side[side] = json_object_get(object, name) ? (int)count_of(object, name) : 1;
    }
    return mesh;
}

static int read_run(const struct reading *r)
{
    struct manifest_run *run = &r->m->run;
    const json_t *root = r->m->root, *scale = json_object_get(root, "loss_scale"),
                 *overflow = json_object_get(scale, "last_overflow");
    run->step = count_of(root, "step");
    run->updates = count_of(root, "updates");
    run->samples = count_of(root, "samples");
    run->world_size = (int)count_of(root, "world_size");
    run->mesh = read_mesh(json_object_get(root, "mesh"));
    run->scale = (struct loss_scale){.scale = json_number_value(json_object_get(scale, "scale")),
                                     .step = count_of(scale, "step"),
                                     .last_overflow = json_integer_value(overflow),
                                     .left = (int)count_of(scale, "left")};
    run->numerics = text_of(root, "numerics");
    if (run->step < 0 || run->updates < 0 || run->samples < 0 || run->world_size < 1 || !run->numerics ||
        mesh_size(run->mesh) < 1 || run->scale.step < 0 || run->scale.left < 0 ||
        count_of(root, "chunk") != MANIFEST_CHUNK)
        return damaged(r, "a number of the run is missing or wrong");
    return read_texts(r, "settings", &run->settings) || read_texts(r, "notes", &run->notes) ? -1 : 0;
}

/* ---- the model ---- */

static int refuse_param(const struct reading *r, int i, const char *name, const json_t *shape)
{
    const struct param_desc *param = &r->model->params[i];
    int64_t dim[MODEL_DIMS] = {0};
    scope_buffer theirs = {0}, ours = {0};
    int ndim = (int)json_array_size(shape);
    for (int d = 0; d < ndim && d < MODEL_DIMS; d++)
        dim[d] = json_integer_value(json_array_get(shape, (size_t)d));
    if (tensor_shape_text(&theirs, ndim < MODEL_DIMS ? ndim : MODEL_DIMS, dim) < 0 ||
        tensor_shape_text(&ours, param->ndim, param->dim) < 0)
        return error_set(r->err, MUSTER_E_NOMEM, "no memory to read %s", r->name);
    return error_set(r->err, MUSTER_E_REFUSED,
                     "%s is of another model: its parameter %d is %.64s %s, and this model's is %s %s",
                     r->name, i, name ? name : "without a name", theirs.data, param->name, ours.data);
}

static int read_params(const struct reading *r)
{
    const json_t *list = json_object_get(r->m->root, "parameters");
    if ((int)json_array_size(list) != r->model->param_count)
        return error_set(r->err, MUSTER_E_REFUSED,
                         "%s is of another model: it has %zu parameters, model %s %d", r->name,
                         json_array_size(list), r->model->name, r->model->param_count);
    for (int i = 0; i < r->model->param_count; i++) {
        const struct param_desc *param = &r->model->params[i];
        const json_t *row = json_array_get(list, (size_t)i), *shape = json_object_get(row, "shape");
        const char *name = text_of(row, "name");
        bool same = name && !strcmp(name, param->name) && (int)json_array_size(shape) == param->ndim;
        for (int d = 0; same && d < param->ndim; d++)
            same = json_integer_value(json_array_get(shape, (size_t)d)) == param->dim[d];
        if (!same)
            return refuse_param(r, i, name, shape);
    }
    r->m->param_count = r->model->param_count;
    return 0;
}

/* ---- files and slices ---- */

static int read_files(const struct reading *r)
{
    struct manifest *m = r->m;
    const json_t *list = json_object_get(m->root, "files");
    m->files = mem_calloc(json_array_size(list) + 1, sizeof *m->files);
    if (!m->files)
        return error_set(r->err, MUSTER_E_NOMEM, "no memory to read %s", r->name);
    m->file_count = (int)json_array_size(list);
    for (int i = 0; i < m->file_count; i++) {
        const json_t *row = json_array_get(list, (size_t)i);
        struct manifest_file *file = &m->files[i];
        *file = (struct manifest_file){
            .name = text_of(row, "name"), .bytes = count_of(row, "bytes"), .header = count_of(row, "header")};
        if (!file->name || strchr(file->name, '/') || file->header < 1 || file->bytes < file->header ||
            !parse_crc(text_of(row, "header_crc32c"), &file->header_crc))
            return damaged(r, "the row of a file is wrong");
    }
    return 0;
}

static int find_name(const char *name, const char *(*name_of)(int), int count)
{
    for (int i = 0; name && i < count; i++)
        if (!strcmp(name_of(i), name))
            return i;
    return -1;
}

static const char *tensor_name(int i)
{
    return manifest_tensor_name((enum trainer_tensor)i);
}

static const char *type_name(int i)
{
    return dtype_name((enum dtype)i);
}

static int read_slice(const struct reading *r, const json_t *row, struct manifest_slice *slice)
{
    int tensor = find_name(text_of(row, "tensor"), tensor_name, TRAINER_TENSOR_COUNT),
        dtype = find_name(text_of(row, "dtype"), type_name, DTYPE_COUNT);
    int64_t param = count_of(row, "parameter"), file = count_of(row, "file"),
            replica = tensor == TRAINER_FEEDBACK ? count_of(row, "replica") : 0;
    *slice = (struct manifest_slice){.first = count_of(row, "first"),
                                     .count = count_of(row, "count"),
                                     .offset = count_of(row, "offset"),
                                     .crc = text_of(row, "crc32c")};
    if (tensor < 0 || dtype < 0 || replica < 0 || replica > INT_MAX || param < 0 ||
        param >= r->model->param_count || file < 0 || file >= r->m->file_count || slice->first < 0 ||
        slice->count < 1 || slice->offset < 0 || !slice->crc)
        return damaged(r, "the row of a tensor is wrong");
    slice->tensor = (enum trainer_tensor)tensor;
    slice->dtype = (enum dtype)dtype;
    slice->param = (int)param;
    slice->replica = (int)replica;
    slice->file = (int)file;
    int64_t elements = param_elements(&r->model->params[param]), size = dtype_size(slice->dtype);
    if (slice->first > elements || slice->count > elements - slice->first)
        return damaged(r, "a tensor has more elements than its parameter");
    int64_t bytes = slice->count * size, chunks = (bytes + MANIFEST_CHUNK - 1) / MANIFEST_CHUNK;
    if (bytes > r->m->files[file].bytes || slice->offset > r->m->files[file].bytes - bytes ||
        (int64_t)strlen(slice->crc) != 8 * chunks ||
        (int64_t)strspn(slice->crc, "0123456789abcdef") != 8 * chunks)
        return damaged(r, "a tensor does not fit into its file or has another number of checksums");
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const struct manifest_slice *one = a, *other = b;
    if (one->tensor != other->tensor)
        return one->tensor < other->tensor ? -1 : 1;
    if (one->param != other->param)
        return one->param < other->param ? -1 : 1;
    if (one->replica != other->replica)
        return one->replica < other->replica ? -1 : 1;
    return one->first < other->first ? -1 : one->first > other->first;
}

/* Checks that the slices hold each element of a tensor once. */
static int check_cover(const struct reading *r, int tensor, int param, int begin, int end)
{
    int64_t next = 0, elements = param_elements(&r->model->params[param]);
    /* allowed: frozen, or the optimizer has no such moment, or the base of a model with adapters */
    if (begin == end && (tensor != TRAINER_VALUE || model_is_base(r->model, param)))
        return 0;
    const bool all = tensor != TRAINER_FACTOR; /* how many elements a factor has is not known here */
    for (int i = begin; i < end; i++) {
        const bool begins = i > begin && r->m->slices[i].replica != r->m->slices[i - 1].replica;
        if (begins && all && next != elements)
            return damaged(r, "elements of a tensor are missing");
        next = begins ? 0 : next;
        if (r->m->slices[i].first != next)
            return damaged(r, "elements of a tensor are missing or twice there");
        next += r->m->slices[i].count;
    }
    return next == elements || !all ? 0 : damaged(r, "elements of a tensor are missing");
}

static int read_slices(const struct reading *r)
{
    struct manifest *m = r->m;
    const json_t *list = json_object_get(m->root, "slices");
    const int keys = TRAINER_TENSOR_COUNT * m->param_count;
    m->slices = mem_calloc(json_array_size(list) + 1, sizeof *m->slices);
    m->first_slice = mem_calloc((size_t)keys + 1, sizeof *m->first_slice);
    if (!m->slices || !m->first_slice)
        return error_set(r->err, MUSTER_E_NOMEM, "no memory to read %s", r->name);
    m->slice_count = (int)json_array_size(list);
    for (int i = 0; i < m->slice_count; i++)
        if (read_slice(r, json_array_get(list, (size_t)i), &m->slices[i]) < 0)
            return -1;
    if (m->slice_count)
        qsort(m->slices, (size_t)m->slice_count, sizeof *m->slices, by_place);
    for (int key = 0, at = 0; key < keys; key++) {
        int tensor = key / m->param_count, param = key % m->param_count, begin = at;
        m->first_slice[key] = at;
        while (at < m->slice_count && (int)m->slices[at].tensor == tensor && m->slices[at].param == param)
            at++;
        m->first_slice[key + 1] = at;
        if (check_cover(r, tensor, param, begin, at) < 0)
            return -1;
    }
    return 0;
}

int manifest_slices(const struct manifest *manifest, enum trainer_tensor tensor, int param,
                    const struct manifest_slice **slices)
{
    int key = (int)tensor * manifest->param_count + param;
    *slices = &manifest->slices[manifest->first_slice[key]];
    return manifest->first_slice[key + 1] - manifest->first_slice[key];
}

int manifest_parse(const char *name, const char *text, size_t length, const struct model *model,
                   struct manifest *manifest, struct muster_error *err)
{
    struct reading r = {.name = name, .model = model, .m = manifest, .err = err};
    *manifest = (struct manifest){0};
    if (check_crc(&r, text, length) < 0)
        return -1;
    manifest->root = json_text_parse(name, text, length, err);
    if (!manifest->root)
        return -1;
    const char *format = text_of(manifest->root, "format");
    if (!format || strcmp(format, MANIFEST_FORMAT) != 0)
        return error_set(err, MUSTER_E_REFUSED, "%s is of format '%.40s', and this version reads '%s'", name,
                         format ? format : "", MANIFEST_FORMAT);
    return read_run(&r) || read_params(&r) || read_files(&r) || read_slices(&r) ? -1 : 0;
}

void manifest_free(struct manifest *manifest)
{
    mem_free((void *)manifest->run.settings);
    mem_free((void *)manifest->run.notes);
    mem_free(manifest->files);
    mem_free(manifest->slices);
    mem_free(manifest->first_slice);
    json_decref(manifest->root);
    *manifest = (struct manifest){0};
}
