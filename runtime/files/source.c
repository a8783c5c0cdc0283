/* source.c - opens a path of any supported format and reads the headers of its files. See files.h. */
#include "runtime/files/files_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "proto/json/json_text.h"
#include "proto/tree/tree.h"
#include "runtime/files/adapter_json.h"
#include "runtime/files/codes.h"
#include "runtime/files/layout.h"
#include "runtime/files/safetensors.h"

/* ---- one file ---- */

/* Takes path. Returns the index of the file. */
static int open_file(struct files *files, char *path, struct muster_error *err)
{
    struct stat status;
    struct source_file *file =
        path ? mem_realloc(files->file, (size_t)files->file_count + 1, sizeof *file) : NULL;
    if (!file) {
        mem_free(path);
        return error_set(err, MUSTER_E_NOMEM, "no memory to open %s", files->path);
    }
    files->file = file;
    file += files->file_count++;
    *file = (struct source_file){.path = path, .fd = open(path, O_RDONLY | O_CLOEXEC)};
    if (file->fd < 0 || fstat(file->fd, &status))
        return error_errno(err, "cannot read %s", path);
    if (!S_ISREG(status.st_mode))
        return error_set(err, MUSTER_E_INVALID, "%s is no file", path);
    file->bytes = status.st_size;
    return files->file_count - 1;
}

static int read_start(const struct source_file *file, int64_t offset, void *out, size_t bytes,
                      struct muster_error *err)
{
    if (lseek(file->fd, offset, SEEK_SET) < 0)
        return error_errno(err, "cannot read %s", file->path);
    return io_read_all(file->fd, out, bytes, file->path, err);
}

static int read_safetensors(struct files *files, int index, struct muster_error *err)
{
    const struct source_file *file = &files->file[index];
    unsigned char start[SAFETENSORS_LENGTH] = {0};
    if (file->bytes >= SAFETENSORS_LENGTH && read_start(file, 0, start, sizeof start, err))
        return -1;
    int64_t length = safetensors_header_length(file->path, start, file->bytes, err);
    if (length < 0)
        return -1;
    scope_free char *header = mem_calloc((size_t)length + 1, 1);
    if (!header)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the header of %s", file->path);
    if (read_start(file, SAFETENSORS_LENGTH, header, (size_t)length, err))
        return -1;
    return safetensors_parse(file->path, header, (size_t)length, file->bytes, index, &files->tensors, err);
}

static int read_of_source(void *context, int64_t offset, void *out, size_t bytes, struct muster_error *err)
{
    return read_start(context, offset, out, bytes, err);
}

/* By its first bytes, not by its name. */
static int read_tensors(struct files *files, int index, struct muster_error *err)
{
    struct source_file *file = &files->file[index];
    unsigned char start[16] = {0};
    const size_t bytes = file->bytes < (int64_t)sizeof start ? (size_t)file->bytes : sizeof start;
    if (read_start(file, 0, start, bytes, err))
        return -1;
    const struct zip_source source = {file->path, file->bytes, read_of_source, file};
    if (torch_file_begins(start, bytes))
        return torch_file_parse(&source, index, &files->tensors, err);
    return torch_file_refuse(file->path, start, bytes, err) < 0 ? -1 : read_safetensors(files, index, err);
}

static int read_llmc(struct files *files, int index, struct muster_error *err)
{
    const struct source_file *file = &files->file[index];
    unsigned char header[LLMC_HEADER];
    if (read_start(file, 0, header, sizeof header, err))
        return -1;
    files->has_architecture = true;
    files->architecture.kind = ARCHITECTURE_GPT2;
    return llmc_parse(file->path, header, file->bytes, &files->architecture.gpt2, &files->tensors, err);
}

/* By its first bytes, not by its name. */
static int read_single(struct files *files, struct muster_error *err)
{
    int index = open_file(files, mem_strdup(files->path), err);
    unsigned char start[4] = {0};
    if (index < 0)
        return -1;
    const struct source_file *file = &files->file[index];
    if (file->bytes >= LLMC_HEADER && read_start(file, 0, start, sizeof start, err))
        return -1;
    uint32_t magic =
        (uint32_t)start[0] | (uint32_t)start[1] << 8 | (uint32_t)start[2] << 16 | (uint32_t)start[3] << 24;
    return magic == LLMC_MAGIC ? read_llmc(files, index, err) : read_tensors(files, index, err);
}

/* ---- folders ---- */

/* The file of an index's entry; opened at its first use. -1 with the error. */
static int index_file(struct files *files, const json_t *name_value, struct muster_error *err)
{
    const char *name = json_string_value(name_value);
    if (!name || !*name || strchr(name, '/') || !strcmp(name, "..") || !strcmp(name, "."))
        return error_set(err, MUSTER_E_INVALID,
                         "%s: the index's weight_map names '%.100s', which is no file next to it",
                         files->path, name ? name : "");
    size_t before = strlen(files->path) + 1;
    for (int i = files->file_count - 1; i >= 0; i--) {
        if (!strcmp(files->file[i].path + before, name))
            return i;
    }
    if (files->file_count == SOURCE_FILES)
        return error_set(err, MUSTER_E_LIMIT, "%s: more than %d shards", files->path, SOURCE_FILES);
    int index = open_file(files, mem_printf("%s/%s", files->path, name), err);
    return index < 0 || read_tensors(files, index, err) ? -1 : index;
}

/* Every tensor is in the shard that the index names. */
static int check_index(const struct files *files, const json_t *map, struct muster_error *err)
{
    const char *key;
    const json_t *value;
    size_t before = strlen(files->path) + 1;
    json_object_foreach((json_t *)map, key, value)
    {
        const struct file_tensor *tensor = tensors_find(&files->tensors, key);
        if (!tensor || strcmp(files->file[tensor->file].path + before, json_string_value(value)))
            return error_set(err, MUSTER_E_INVALID, "%s: the index has tensor '%s' in %s, which has no such",
                             files->path, key, json_string_value(value));
    }
    return 0;
}

static int read_index(struct files *files, const char *path, struct muster_error *err)
{
    const char *key;
    const json_t *value;
    GUARD(guard_json) json_t *root = json_text_read(path, err);
    if (!root)
        return -1;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_object_size(map))
        return error_set(err, MUSTER_E_INVALID, "%s has no weight_map", path);
    json_object_foreach(map, key, value)
    {
        if (index_file(files, value, err) < 0)
            return -1;
    }
    return tensors_sort(&files->tensors, files->path, err) || check_index(files, map, err) ? -1 : 0;
}

static int read_sizes(const char *folder, const char *page, struct architecture *architecture,
                      struct config_notes *notes, struct muster_error *err)
{
    scope_buffer text = {0}, words = {0};
    scope_free char *path = mem_printf("%s/config.json", folder);
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", folder);
    if (io_read_file(path, JSON_TEXT_LIMIT, &text, err) < 0)
        return error_wrap(err, "%s is no folder of a model", folder);
    if (page && io_read_file(page, TREE_BYTES_LIMIT, &words, err) < 0)
        return error_wrap(err, "model.page");
    const struct config_page own = {page, words.data ? words.data : "", words.length};
    return config_json_parse(path, text.data ? text.data : "", text.length, page ? &own : NULL, architecture,
                             notes, err);
}

int files_sizes(const char *path, const char *page, struct architecture *architecture,
                struct muster_error *err)
{
    struct config_notes notes;
    return read_sizes(path, page, architecture, &notes, err);
}

static int read_config(struct files *files, struct muster_error *err)
{
    files->has_architecture = true;
    return read_sizes(files->path, files->page, &files->architecture, &files->notes, err);
}

/* Takes path. */
static int read_one(struct files *files, char *path, struct muster_error *err)
{
    int file = open_file(files, path, err);
    return file < 0 || read_tensors(files, file, err) ? -1 : 0;
}

static int read_adapters(struct files *files, const char *config, struct muster_error *err)
{
    scope_free char *path = mem_printf("%s/adapter_model.safetensors", files->path);
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", files->path);
    files->adapters = true;
    if (adapter_json_read(config, &files->lora, err) < 0)
        return -1;
    scope_free char *pickled = mem_printf("%s/adapter_model.bin", files->path); /* name in PEFT before 0.6 */
    if (!pickled)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", files->path);
    if (access(path, F_OK) && !access(pickled, F_OK))
        return read_one(files, take_pointer(&pickled), err);
    return read_one(files, take_pointer(&path), err);
}

/* As transformers chooses: one file before an index. */
static int read_folder(struct files *files, struct muster_error *err)
{
    scope_free char *single = mem_printf("%s/model.safetensors", files->path);
    scope_free char *index = mem_printf("%s/model.safetensors.index.json", files->path);
    scope_free char *quantized = mem_printf("%s/" LAYOUT_QUANTIZED, files->path);
    scope_free char *adapters = mem_printf("%s/adapter_config.json", files->path);
    scope_free char *config = mem_printf("%s/config.json", files->path);
    scope_free char *pickled = mem_printf("%s/pytorch_model.bin", files->path);
    scope_free char *pickled_index = mem_printf("%s/pytorch_model.bin.index.json", files->path);
    if (!single || !index || !quantized || !adapters || !config || !pickled || !pickled_index)
        return error_set(err, MUSTER_E_NOMEM, "no memory to read %s", files->path);
    /* a file that cannot be looked at is not absent: the next name must not take its place */
    const char *const looked_for[] = {adapters, config, single, index, quantized};
    enum { ADAPTERS, CONFIG, SINGLE, INDEX, QUANTIZED, LOOKED_FOR };
    int there[LOOKED_FOR];
    for (int i = 0; i < LOOKED_FOR; i++)
        if ((there[i] = io_exists(looked_for[i], err)) < 0)
            return -1;
    if (there[ADAPTERS] && !there[CONFIG])
        return read_adapters(files, adapters, err);
    files->folder = true;
    if (read_config(files, err))
        return -1;
    if (there[SINGLE])
        return read_one(files, take_pointer(&single), err);
    if (there[INDEX])
        return read_index(files, index, err);
    if (there[QUANTIZED])
        return read_one(files, take_pointer(&quantized), err);
    if (!access(pickled, F_OK))
        return read_one(files, take_pointer(&pickled), err);
    if (!access(pickled_index, F_OK))
        return read_index(files, pickled_index, err);
    return error_set(err, MUSTER_E_NOT_FOUND,
                     "%s has neither model.safetensors nor pytorch_model.bin, nor an index of such files",
                     files->path);
}

/* ---- the door ---- */

struct files *files_open(const char *path, struct muster_error *err)
{
    return files_open_by(path, NULL, err);
}

struct files *files_open_by(const char *path, const char *page, struct muster_error *err)
{
    struct stat status;
    GUARD(guard_files) struct files *files = mem_calloc(1, sizeof *files);
    size_t length = strlen(path);
    if (text_refuse_scheme("the model", path, err) < 0)
        return NULL;
    while (length > 1 && path[length - 1] == '/')
        length--;
    if (!files || !(files->path = mem_strndup(path, length)) || (page && !(files->page = mem_strdup(page)))) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to open %s", path);
        return NULL;
    }
    if (stat(files->path, &status)) {
        (void)error_errno(err, "cannot read %s", files->path);
        return NULL;
    }
    if (S_ISDIR(status.st_mode) ? read_folder(files, err) : read_single(files, err))
        return NULL;
    if (page && files->architecture.kind != ARCHITECTURE_PAGE) {
        (void)error_set(err, MUSTER_E_INVALID, "model.page is %s, and %s is no folder with config.json", page,
                        path);
        return NULL;
    }
    tensors_unwrap(&files->tensors);
    if (tensors_sort(&files->tensors, files->path, err) || codes_fold(&files->tensors, files->path, err) < 0)
        return NULL;
    return take_pointer(&files);
}

void files_close(struct files *files)
{
    if (!files)
        return;
    for (int i = 0; i < files->file_count; i++) {
        if (files->file[i].fd >= 0)
            (void)close(files->file[i].fd);
        mem_free(files->file[i].path);
    }
    mem_free(files->file);
    tensors_free(&files->tensors);
    match_free(&files->match);
    architecture_drop(&files->architecture);
    mem_free(files->page);
    mem_free(files->path);
    mem_free(files);
}

const struct architecture *files_architecture(const struct files *files)
{
    return files->has_architecture ? &files->architecture : NULL;
}

const char *files_folder(const struct files *files)
{
    return files->folder ? files->path : NULL;
}

enum dtype files_dtype(const struct files *files)
{
    enum dtype dtype = DTYPE_COUNT;
    bool any = false;
    for (int i = 0; i < files->tensors.count; i++) {
        const struct file_tensor *tensor = &files->tensors.item[i];
        if (architecture_ignores(tensor->name) || tensor->integer)
            continue;
        if (any && tensor->dtype != dtype)
            return DTYPE_COUNT;
        dtype = tensor->dtype;
        any = true;
    }
    return dtype;
}

int files_coded_text(const struct files *files, struct buffer *out)
{
    return codes_text(&files->tensors, out);
}

const char *files_drawn(const struct files *files, int *count)
{
    *count = files->match.drawn;
    return files->match.notes.length ? files->match.notes.data : NULL;
}

const struct lora *files_lora(const struct files *files)
{
    return files->adapters ? &files->lora : NULL;
}

double files_dropout(const struct files *files)
{
    return files->notes.dropout;
}

int files_match(struct files *files, const struct model *model, const struct architecture *architecture,
                struct muster_error *err)
{
    match_free(&files->match);
    files->model = NULL;
    if (files->adapters && model->adapter_scale != lora_scale(&files->lora))
        return error_set(
            err, MUSTER_E_INVALID,
            "%s has adapters whose alpha / rank is %g, and the adapters of %s have %g: name it as lora.path",
            files->path, lora_scale(&files->lora), model->name, model->adapter_scale);
    if ((files->adapters ? match_adapters : match_tensors)(files->path, &files->tensors, model, architecture,
                                                           &files->match, err))
        return -1;
    files->model = model;
    return 0;
}
