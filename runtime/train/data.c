/* data.c - see data.h. */
#include "runtime/train/data.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"

enum {
    DEPTH_LIMIT = 16,   /* folders in folders: deeper is a loop or a mistake */
    SNIFF_BYTES = 8192, /* a NUL byte among the first bytes marks a binary file */
};
static const size_t corpus_limit = (size_t)64
                                   << 30; /* bytes held in memory; larger corpora need a streaming reader */

struct data {
    struct buffer text;
    int files, T;
    uint64_t seed, windows;
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

struct data *data_open(const char *path, int T, uint64_t seed, struct muster_error *err)
{
    struct data *data = mem_calloc(1, sizeof *data);
    if (!data) {
        error_set(err, MUSTER_E_NOMEM, "no memory for the data");
        return NULL;
    }
    data->T = T;
    data->seed = seed;
    int result = add_path(data, path, 0, err);
    if (!result && data->text.length == 0)
        result = error_set(err, MUSTER_E_INVALID, "data.path %s holds no text: every file is empty or binary",
                           path);
    if (!result && data->text.length < (size_t)T + 1)
        result = error_set(
            err, MUSTER_E_INVALID,
            "data.path %s holds %zu tokens, fewer than one window of training.sequence_length %d + 1", path,
            data->text.length, T);
    if (result < 0) {
        data_destroy(data);
        return NULL;
    }
    data->windows = (data->text.length - 1) / (size_t)T;
    return data;
}

void data_destroy(struct data *data)
{
    if (!data)
        return;
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

/* splitmix64's finaliser: mixes all bits of its input. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

uint64_t data_permute(uint64_t seed, uint64_t epoch, uint64_t index, uint64_t n)
{
    if (n < 2)
        return 0;
    int half = 1; /* bits of one half; 2*half bits cover n, and at most 4n values are visited */
    while (half < 32 && (UINT64_C(1) << (2 * half)) < n)
        half++;
    uint64_t mask = (UINT64_C(1) << half) - 1, key = mix(seed + UINT64_C(0x9E3779B97F4A7C15) * (epoch + 1));
    do {
        uint64_t left = index >> half, right = index & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t swapped = left ^ (mix(key + round * UINT64_C(0xD1B54A32D192ED03) + right) & mask);
            left = right;
            right = swapped;
        }
        index = (left << half) | right;
    } while (index >= n);
    return index;
}

void data_sample(const struct data *data, uint64_t g, int32_t *tokens, int32_t *targets)
{
    uint64_t window = data_permute(data->seed, g / data->windows, g % data->windows, data->windows);
    const unsigned char *from = (const unsigned char *)data->text.data + window * (uint64_t)data->T;
    for (int t = 0; tokens && t < data->T; t++)
        tokens[t] = from[t];
    for (int t = 0; targets && t < data->T; t++)
        targets[t] = from[t + 1];
}

void data_batch(const struct data *data, int64_t first, int rank, int world_size, int micro_batches, int B,
                int32_t *tokens, int32_t *targets)
{
    for (int micro = 0; micro < micro_batches; micro++) {
        for (int b = 0; b < B; b++) {
            uint64_t g = (uint64_t)first +
                         ((uint64_t)micro * (uint64_t)world_size + (uint64_t)rank) * (uint64_t)B +
                         (uint64_t)b;
            int64_t row = ((int64_t)micro * B + b) * data->T;
            data_sample(data, g, tokens + row, targets + row);
        }
    }
}
