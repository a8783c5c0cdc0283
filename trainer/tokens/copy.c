/* copy.c - a tokenizer's files beside an exported model, under the names that Hugging Face's folders have. */
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "trainer/tokens/tokenizer.h"

enum { COPIED_BYTES = 256 << 20 };

static const struct name {
    const char *end, *to; /* what the file's name ends in, and the name of its copy */
} names[] = {{"vocab.bpe", "merges.txt"},
             {"merges.txt", "merges.txt"},
             {".json", "tokenizer.json"},
             {"", "tokenizer.model"}};
static const struct name companions[] = {{"encoder.json", "vocab.json"},
                                         {"vocab.json", "vocab.json"},
                                         {"tokenizer_config.json", "tokenizer_config.json"},
                                         {"special_tokens_map.json", "special_tokens_map.json"},
                                         {"added_tokens.json", "added_tokens.json"}};

static int copy_one(const char *from, const char *folder, const char *name, struct muster_error *err)
{
    scope_buffer bytes = {0};
    scope_free char *to = mem_printf("%s/%s", folder, name);
    if (!to)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    if (io_read_file(from, COPIED_BYTES, &bytes, err) < 0)
        return -1;
    return io_write_file_atomic(to, bytes.data ? bytes.data : "", bytes.length, 0666, err);
}

static const char *copy_name(const char *path)
{
    const size_t length = strlen(path);
    const struct name *name = names;
    while (length < strlen(name->end) || strcmp(path + length - strlen(name->end), name->end) != 0)
        name++; /* the last row fits every path */
    return name->to;
}

int tokenizer_copy(const struct tokenizer *tokenizer, const char *folder, struct muster_error *err)
{
    const char *path = tokenizer_path(tokenizer), *slash = path ? strrchr(path, '/') : NULL;
    if (!path)
        return 0;
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++) {
        scope_free char *beside =
            mem_printf("%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, companions[i].end);
        if (!beside)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
        const int there = io_exists(beside, err);
        if (there < 0 || (there && copy_one(beside, folder, companions[i].to, err) < 0))
            return -1;
    }
    return copy_one(path, folder, copy_name(path), err);
}
