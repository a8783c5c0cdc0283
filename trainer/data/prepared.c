/* prepared.c - see prepared.h. */
#include "trainer/data/prepared.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/json/json_text.h"

enum { INDEX_LIMIT = 256 << 20, SHARD_HEADER = 256 * 4 };

void prepared_free(struct prepared *p)
{
    if (!p)
        return;
    mem_free(p->train);
    mem_free(p->validation);
    mem_free(p->tokenizer);
    *p = (struct prepared){0};
}

static int check_shard(const char *folder, const json_t *shard, int64_t width, struct muster_error *err)
{
    const char *file = json_string_value(json_object_get(shard, "file"));
    const int64_t tokens = json_integer_value(json_object_get(shard, "tokens"));
    scope_free char *path = file ? mem_printf("%s/%s", folder, file) : NULL;
    struct stat status;
    if (!file || !path)
        return error_set(err, MUSTER_E_INVALID, "%s/" PREPARED_INDEX ": a shard without a file", folder);
    if (stat(path, &status) < 0)
        return error_errno(err, "%s is in " PREPARED_INDEX ", but cannot be read", path);
    if (status.st_size != SHARD_HEADER + tokens * width)
        return error_set(err, MUSTER_E_INVALID, "%s has %lld bytes, and %lld tokens by " PREPARED_INDEX, path,
                         (long long)status.st_size, (long long)tokens);
    return 0;
}

/* Checks the shards of a split; *count gets their number. */
static int check_split(const char *folder, const json_t *index, const char *name, size_t *count,
                       struct muster_error *err)
{
    const json_t *shards = json_object_get(json_object_get(index, name), "shards");
    const int64_t width = json_integer_value(json_object_get(index, "width"));
    *count = json_array_size(shards);
    for (size_t i = 0; i < *count; i++)
        if (check_shard(folder, json_array_get(shards, i), width, err) < 0)
            return -1;
    return 0;
}

static int take_index(struct prepared *p, const char *path, const json_t *index, struct muster_error *err)
{
    const char *tokenizer = json_string_value(json_object_get(index, "tokenizer")),
               *key = json_string_value(json_object_get(index, "key"));
    const int64_t version = json_integer_value(json_object_get(index, "version"));
    size_t train, held;
    if (version != PREPARED_VERSION)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "%s/" PREPARED_INDEX " is of version %lld; %d is supported", path,
                         (long long)version, PREPARED_VERSION);
    if (check_split(path, index, "train", &train, err) < 0 ||
        check_split(path, index, "validation", &held, err) < 0)
        return error_wrap(err, "run muster-train prepare again");
    if (!tokenizer || !train)
        return error_set(err, MUSTER_E_INVALID, "%s/" PREPARED_INDEX " names no %s", path,
                         tokenizer ? "shard to train on" : "tokenizer");
    p->train = mem_printf("%s/train", path);
    p->validation = held ? mem_printf("%s/validation", path) : NULL;
    p->tokenizer = !strcmp(tokenizer, "bytes") ? mem_strdup(tokenizer)
                   : !strcmp(tokenizer, ".")   ? mem_strdup(path)
                                               : mem_printf("%s/%s", path, tokenizer);
    p->key = key ? strtoull(key, NULL, 16) : 0;
    return p->train && (p->validation || !held) && p->tokenizer
               ? 0
               : error_set(err, MUSTER_E_NOMEM, "no memory for the paths of %s", path);
}

int prepared_open(struct prepared *p, const char *path, struct muster_error *err)
{
    struct muster_error reason = {0};
    json_error_t problem;
    scope_buffer text = {0};
    *p = (struct prepared){0};
    scope_free char *name = mem_printf("%s/" PREPARED_INDEX, path);
    if (!name)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    const int there = io_exists(name, err);
    if (there <= 0)
        return there < 0 ? -1 : 1;
    if (io_read_file(name, INDEX_LIMIT, &text, &reason) < 0) {
        if (err)
            *err = reason;
        return -1;
    }
    GUARD(guard_json) json_t *index = json_loadb(text.data ? text.data : "", text.length, 0, &problem);
    const char *format = json_string_value(json_object_get(index, "format"));
    if (!format || strcmp(format, PREPARED_FORMAT) != 0)
        return 1; /* another program's index.json */
    if (!take_index(p, path, index, err))
        return 0;
    prepared_free(p);
    return -1;
}

int prepared_is(const char *path, uint64_t key, bool *is, struct muster_error *err)
{
    struct prepared p;
    struct muster_error reason = {0};
    const int found = prepared_open(&p, path, &reason);
    *is = !found && p.key == key;
    prepared_free(&p);
    if (found >= 0 || reason.code != MUSTER_E_NOMEM)
        return 0; /* prepare makes a damaged folder again */
    if (err)
        *err = reason;
    return -1;
}
