/* data.c - see data.h. */
#include "runtime/data/data.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "runtime/data/order.h"

enum {
    DEPTH_LIMIT = 16,   /* folders in folders: deeper is a loop or a mistake */
    SNIFF_BYTES = 8192, /* a NUL byte among the first bytes marks a binary file */
};
static const size_t corpus_limit = (size_t)64
                                   << 30; /* bytes held in memory; larger corpora need a streaming reader */

/* A set of samples: consecutive windows of the corpus. */
struct data {
    const struct data *whole; /* whose text it reads */
    struct buffer text;       /* of the whole alone */
    int files, T;
    uint64_t seed, first, samples; /* windows first .. first + samples - 1 */
    bool ordered;                  /* as in the corpus */
    struct data *validation;
};

static int add_file(struct data *data, const char *path, struct muster_error *err)
{
    size_t before = data->text.length;
    if (io_read_file(path, corpus_limit, &data->text, err) < 0)
        return -1;
    size_t added = data->text.length - before;
    if (added && memchr(data->text.data + before, '\0', added < SNIFF_BYTES ? added : SNIFF_BYTES)) {
        data->text.length = before;
        return 0;
    }
    data->files += added > 0;
    return 0;
}

static int wanted(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return entry->d_name[0] != '.' && !(length > 4 && !strcmp(entry->d_name + length - 4, ".dat"));
}

static void free_entries(struct dirent **entries, int count)
{
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

static int add_path(struct data *data, const char *path, int depth, struct muster_error *err);

static int add_folder(struct data *data, const char *path, int depth, struct muster_error *err)
{
    if (depth >= DEPTH_LIMIT)
        return error_set(err, MUSTER_E_LIMIT, "%s: folders are nested more than %d deep", path, DEPTH_LIMIT);
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, wanted, alphasort);
    if (count < 0)
        return error_errno(err, "cannot read folder %s", path);
    int result = 0;
    for (int i = 0; !result && i < count; i++) {
        scope_free char *inside = mem_printf("%s/%s", path, entries[i]->d_name);
        struct stat status;
        if (!inside)
            result = error_set(err, MUSTER_E_NOMEM, "no memory for a path");
        else if (lstat(inside, &status) < 0)
            result = error_errno(err, "cannot examine %s", inside);
        else if (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))
            result = add_path(data, inside, depth + 1, err);
    }
    free_entries(entries, count);
    return result;
}

static int add_path(struct data *data, const char *path, int depth, struct muster_error *err)
{
    struct stat status;
    if (stat(path, &status) < 0)
        return error_errno(err, "cannot read data.path %s", path);
    if (S_ISDIR(status.st_mode))
        return add_folder(data, path, depth, err);
    if (!S_ISREG(status.st_mode)) /* a pipe or device may never end, and not every rank can read it */
        return error_set(err, MUSTER_E_INVALID, "data.path %s is neither a file nor a folder", path);
    return add_file(data, path, err);
}

/* How many of all windows are held out. */
static uint64_t held_out(uint64_t windows, double share)
{
    uint64_t count = (uint64_t)((double)windows * share + 0.5);
    return !(share > 0) ? 0 : count < 1 ? 1 : count;
}

static int hold_out(struct data *data, const struct data_options *options, struct muster_error *err)
{
    const uint64_t windows = (data->text.length - 1) / (size_t)data->T,
                   held = held_out(windows, options->validation_share);
    if (held >= windows)
        return error_set(err, MUSTER_E_INVALID,
                         "data.path %s has %llu samples of training.sequence_length %d, and "
                         "data.validation_share %g leaves none of them to train on",
                         options->path, (unsigned long long)windows, data->T, options->validation_share);
    data->whole = data;
    data->samples = windows - held;
    if (!held)
        return 0;
    data->validation = mem_calloc(1, sizeof *data->validation);
    if (!data->validation)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the data");
    *data->validation =
        (struct data){.whole = data, .T = data->T, .first = data->samples, .samples = held, .ordered = true};
    return 0;
}

static int open_text(struct data *data, const struct data_options *options, struct muster_error *err)
{
    if (add_path(data, options->path, 0, err) < 0)
        return -1;
    if (data->text.length == 0)
        return error_set(err, MUSTER_E_INVALID, "data.path %s holds no text: every file is empty or binary",
                         options->path);
    if (data->text.length < (size_t)data->T + 1)
        return error_set(
            err, MUSTER_E_INVALID,
            "data.path %s holds %zu tokens, fewer than one window of training.sequence_length %d + 1",
            options->path, data->text.length, data->T);
    return hold_out(data, options, err);
}

struct data *data_open(const struct data_options *options, struct muster_error *err)
{
    struct data *data = mem_calloc(1, sizeof *data);
    if (!data) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the data");
        return NULL;
    }
    data->T = options->positions;
    data->seed = options->seed;
    if (open_text(data, options, err) < 0) {
        data_destroy(data);
        return NULL;
    }
    return data;
}

void data_destroy(struct data *data)
{
    if (!data)
        return;
    mem_free(data->validation);
    buffer_free(&data->text);
    mem_free(data);
}

int64_t data_tokens(const struct data *data)
{
    return (int64_t)data->text.length;
}

int data_files(const struct data *data)
{
    return data->files;
}

const struct data *data_validation(const struct data *data)
{
    return data->validation;
}

int64_t data_samples(const struct data *data)
{
    return (int64_t)data->samples;
}

int data_targets_each(const struct data *data)
{
    return data->T;
}

int data_sample(const struct data *data, uint64_t g, int32_t *tokens, int32_t *targets,
                struct muster_error *err)
{
    (void)err; /* all of it is in memory */
    const uint64_t epoch = g / data->samples, index = g % data->samples,
                   window = data->first +
                            (data->ordered ? index : order_permute(data->seed, epoch, index, data->samples));
    const unsigned char *from = (const unsigned char *)data->whole->text.data + window * (uint64_t)data->T;
    for (int t = 0; tokens && t < data->T; t++)
        tokens[t] = from[t];
    for (int t = 0; targets && t < data->T; t++)
        targets[t] = from[t + 1];
    return data->T;
}
