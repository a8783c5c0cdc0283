/* export.c - the parameters of a trainer into files: every rank gathers a group at a time, rank 0 writes. See
 * files.h. */
#include "runtime/files/files_internal.h"

#include <sys/stat.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "runtime/files/elements.h"
#include "runtime/files/folder.h"
#include "runtime/files/safetensors.h"

/* ---- opening: all places are decided before the first parameter is gathered ---- */

enum { METADATA_TEXTS = 16 }; /* the model's pairs, ours, and a terminating NULL */

/* A file of its own names the machine's part of the settings that its last bits depend on; transformers'
 * files have "format" alone. */
static int fill_metadata(const struct exporting *e, const char *metadata[METADATA_TEXTS],
                         struct buffer *numerics, struct muster_error *err)
{
    struct fingerprint print;
    int count = 0;
    metadata[count++] = "format"; /* expected by readers for PyTorch */
    metadata[count++] = "pt";
    if (e->what->format == FILES_SAFETENSORS) {
        trainer_fingerprint(e->trainer, &print);
        if (fingerprint_format_machine(&print, numerics))
            return error_set(err, MUSTER_E_NOMEM, "no memory for the metadata");
        metadata[count++] = "numerics";
        metadata[count++] = numerics->data;
        for (const char *const *text = e->model->metadata; text && *text; text++) {
            if (count == METADATA_TEXTS - 1)
                return error_set(err, MUSTER_E_LIMIT, "the model has more than %d pairs of metadata",
                                 (METADATA_TEXTS - 5) / 2);
            metadata[count++] = *text;
        }
    }
    metadata[count] = NULL;
    return 0;
}

static int open_safetensors(struct exporting *e, int file, struct muster_error *err)
{
    const char *metadata[METADATA_TEXTS];
    char name[LAYOUT_NAME];
    scope_buffer numerics = {0}, header = {0};
    struct layout *layout = &e->layout;
    bool folder = export_is_folder(e->what->format);
    scope_free char *path =
        folder ? mem_printf("%s/%s", e->path, layout_file_name(layout, file, name)) : mem_strdup(e->path);
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write %s", e->path);
    int first = layout->first[file], count = layout->first[file + 1] - first;
    if (fill_metadata(e, metadata, &numerics, err) ||
        safetensors_format(layout->tensors.item + first, count, metadata, &header, err) < 0 ||
        output_open(&e->output[file], path, err))
        return -1;
    e->opened++;
    return output_write(&e->output[file], 0, header.data, (int64_t)header.length, err);
}

static int all_files(struct exporting *e, struct muster_error *err)
{
    enum { FILES_LIMIT = 512 }; /* all are open at once */
    if (e->layout.file_count > FILES_LIMIT)
        return error_set(
            err, MUSTER_E_LIMIT,
            "%s: shards of %lld bytes make %d files, and at most %d are written: use larger ones", e->path,
            (long long)e->what->shard_bytes, e->layout.file_count, FILES_LIMIT);
    e->output = mem_calloc((size_t)e->layout.file_count, sizeof *e->output);
    if (!e->output)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write %s", e->path);
    for (int i = 0; i < e->layout.file_count; i++) {
        if (open_safetensors(e, i, err))
            return -1;
    }
    return 0;
}

/* Members that are known now are written with their checksums at once: data.pkl, byteorder, version. */
static int add_text(struct exporting *e, const char *name, const void *data, size_t bytes,
                    struct muster_error *err)
{
    int member = zip_add(&e->zip, name, (int64_t)bytes, PTH_ALIGN, err);
    if (member < 0)
        return -1;
    e->zip.member[member].crc = crc32_add(&e->crc, 0, data, (int64_t)bytes);
    return output_write(e->output, e->zip.member[member].data, data, (int64_t)bytes, err);
}

static int open_pth(struct exporting *e, struct muster_error *err)
{
    const struct tensor_naming naming = architecture_naming(e->what->architecture);
    scope_buffer pickle = {0};
    char name[64];
    struct file_tensors *tensors = &e->layout.tensors;
    int tied = -1;
    for (int i = 0; naming.tied && i < e->model->param_count; i++)
        tied = strcmp(e->model->params[i].name, naming.tied_to) ? tied : e->layout.tensor[i];
    crc32_make(&e->crc);
    e->output = mem_calloc(1, sizeof *e->output);
    if (!e->output)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write %s", e->path);
    if (output_open(e->output, e->path, err))
        return -1;
    e->opened = 1;
    if (pickle_state_dict(tensors->item, tensors->count, tied >= 0 ? naming.tied : NULL, tied, &pickle,
                          err) ||
        add_text(e, "model/data.pkl", pickle.data, pickle.length, err) ||
        add_text(e, "model/byteorder", "little", 6, err))
        return -1;
    e->first_member = e->zip.count;
    for (int i = 0; i < tensors->count; i++) {
        (void)snprintf(name, sizeof name, "model/data/%d", i); /* fits */
        int member = zip_add(&e->zip, name, tensors->item[i].bytes, PTH_ALIGN, err);
        if (member < 0)
            return -1;
        tensors->item[i].offset = e->zip.member[member].data;
    }
    return add_text(e, "model/version", "3\n", 2, err);
}

static int open_export(struct exporting *e, const char *path, struct muster_error *err)
{
    e->path = export_path(path, e->what->format);
    e->block = mem_realloc(NULL, EXPORT_BLOCK, sizeof(double)); /* not zeroed */
    e->turned = mem_realloc(NULL, EXPORT_BLOCK, sizeof(double));
    if (!e->path || !e->block || !e->turned)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write %s", path);
    if (export_is_folder(e->what->format) && io_make_directories(e->path, 0777, err))
        return -1;
    if (e->what->format == FILES_PEFT)
        return layout_adapters(e->model, e->what->architecture, e->what->dtype, &e->layout, err) ||
                       all_files(e, err)
                   ? -1
                   : 0;
    if (layout_make(e->model, e->what->architecture, e->what->format != FILES_SAFETENSORS, e->what->dtype,
                    e->what->format == FILES_HF ? e->what->shard_bytes : 0, &e->layout, err))
        return -1;
    return e->what->format == FILES_PTH ? open_pth(e, err) : all_files(e, err);
}

/* ---- writing ---- */

/* Elements of the trainer's type; first: in the order of the file. */
static int write_run(struct exporting *e, int tensor, int64_t first, int64_t count, const void *values,
                     struct muster_error *err)
{
    const struct file_tensor *t = &e->layout.tensors.item[tensor];
    int64_t size = t->integer ? (int64_t)sizeof(int64_t) : dtype_size(t->dtype);
    struct output *output = &e->output[t->file];
    if (t->integer) {
        elements_to_integers(e->block, values, e->real, count);
        values = e->block;
    } else if (t->dtype != e->real) {
        elements_convert(e->block, t->dtype, values, e->real, count);
        values = e->block;
    }
    if (e->what->format == FILES_PTH) {
        struct zip_member *member = &e->zip.member[e->first_member + tensor];
        member->crc = crc32_add(&e->crc, member->crc, values, count * size);
    }
    return output_write(output, t->offset + first * size, values, count * size, err);
}

/* A parameter (rows, columns) that its file has as (columns, rows): some columns at a time. */
static int write_turned(struct exporting *e, const struct param_desc *param, int tensor, const char *values,
                        struct muster_error *err)
{
    int64_t rows = param->dim[0], columns = param->dim[1], size = dtype_size(e->real);
    int64_t wide = EXPORT_BLOCK / rows;
    if (!wide)
        return error_set(err, MUSTER_E_LIMIT, "%s has %lld rows; at most %d can be transposed", param->name,
                         (long long)rows, EXPORT_BLOCK);
    for (int64_t column = 0; column < columns; column += wide) {
        int64_t count = columns - column < wide ? columns - column : wide;
        elements_transpose(e->turned, rows, values + column * size, columns, rows, count, (int)size);
        if (write_run(e, tensor, column * rows, count * rows, e->turned, err))
            return -1;
    }
    return 0;
}

static int write_param(void *context, int param, const void *values, struct muster_error *err)
{
    struct exporting *e = context;
    const struct param_desc *desc = &e->model->params[param];
    int tensor = e->layout.tensor[param];
    int64_t elements = param_elements(desc), size = dtype_size(e->real);
    if (tensor < 0)
        return 0;
    if (!(values = export_merged(e, param, values, err)))
        return -1;
    if (desc->file_transposed)
        return write_turned(e, desc, tensor, values, err);
    for (int64_t first = 0; first < elements; first += EXPORT_BLOCK) {
        int64_t count = elements - first < EXPORT_BLOCK ? elements - first : EXPORT_BLOCK;
        if (write_run(e, tensor, first, count, (const char *)values + first * size, err))
            return -1;
    }
    return 0;
}

/* ---- the end ---- */

static int finish_pth(struct exporting *e, struct muster_error *err)
{
    for (int i = 0; i < e->zip.count; i++) {
        scope_buffer header = {0};
        if (zip_header(&e->zip.member[i], &header))
            return error_set(err, MUSTER_E_NOMEM, "no memory to write %s", e->path);
        if (output_write(e->output, e->zip.member[i].header, header.data, (int64_t)header.length, err))
            return -1;
    }
    scope_buffer directory = {0};
    if (zip_directory(&e->zip, &directory))
        return error_set(err, MUSTER_E_NOMEM, "no memory to write %s", e->path);
    return output_write(e->output, e->zip.end, directory.data, (int64_t)directory.length, err);
}

static int finish_export(struct exporting *e, struct muster_error *err)
{
    if (e->what->format == FILES_PTH && finish_pth(e, err))
        return -1;
    for (int i = 0; i < e->opened; i++) {
        if (output_sync(&e->output[i], err))
            return -1;
    }
    for (int i = 0; i < e->opened; i++) {
        if (output_place(&e->output[i], err))
            return -1;
    }
    if (e->what->format == FILES_PEFT)
        return folder_finish_adapters(e->path, e->model, e->what, err);
    return e->what->format == FILES_HF ? folder_finish(e->path, &e->layout, e->what, err) : 0;
}

static void close_export(struct exporting *e)
{
    for (int i = 0; i < e->opened; i++)
        output_close(&e->output[i]);
    mem_free(e->output);
    export_free_adapters(e);
    layout_free(&e->layout);
    zip_free(&e->zip);
    mem_free(e->path);
    mem_free(e->block);
    mem_free(e->turned);
}

/* A rank 0 that cannot write still takes part in every gather; otherwise the others would wait for it. */
int files_export(struct trainer *trainer, const char *path, const struct files_export *what,
                 struct muster_error *err)
{
    struct exporting e = {.trainer = trainer, .model = trainer_model(trainer), .what = what};
    bool writes = trainer_plan(trainer)->options.rank == 0;
    if (text_refuse_scheme("the export", path, err) < 0) /* the same on every rank */
        return -1;
    e.real = trainer_kernels(trainer)->statistic;
    int failed = writes ? open_export(&e, path, err) : 0;
    if (export_merges(&e))
        failed |= export_take_adapters(&e, writes && !failed, failed ? NULL : err);
    const enum trainer_params which = what->format == FILES_PEFT ? TRAINER_PARAMS_ADAPTERS
                                      : what->lora               ? TRAINER_PARAMS_BASE
                                                                 : TRAINER_PARAMS_ALL;
    failed |= trainer_each_param_of(trainer, which, writes && !failed ? write_param : NULL, &e,
                                    failed ? NULL : err); /* the first error is reported */
    if (!failed && writes)
        failed = finish_export(&e, err);
    close_export(&e);
    return failed;
}

int files_save(struct trainer *trainer, const char *path, struct muster_error *err)
{
    const struct files_export what = {.format = FILES_SAFETENSORS,
                                      .dtype = trainer_kernels(trainer)->statistic};
    return files_export(trainer, path, &what, err);
}

bool export_is_folder(enum files_format format)
{
    return format == FILES_HF || format == FILES_PEFT;
}

char *export_path(const char *path, enum files_format format)
{
    struct stat status;
    const char *name = format == FILES_PTH ? "model.pth" : "model.safetensors";
    if (export_is_folder(format) || stat(path, &status) || !S_ISDIR(status.st_mode))
        return mem_strdup(path);
    return mem_printf("%s/%s", path, name);
}

int files_export_probe(const char *path, const struct files_export *what, struct muster_error *err)
{
    if (text_refuse_scheme("the export", path, err) < 0)
        return -1;
    scope_free char *whole = export_path(path, what->format);
    const bool folder = export_is_folder(what->format);
    scope_free char *file = whole && folder ? mem_printf("%s/config.json", whole) : NULL;
    if (!whole || (folder && !file))
        return error_set(err, MUSTER_E_NOMEM, "no memory to check %s", path);
    if (folder && io_make_directories(whole, 0777, err))
        return -1;
    return output_probe(file ? file : whole, err);
}
