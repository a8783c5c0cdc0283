/* tokenizer.c - opens a tokenizer by name or path, and calls its kind. See tokenizer.h. */
#include "runtime/tokens/tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "runtime/tokens/kinds.h"
#include "runtime/tokens/special.h"

struct tokenizer {
    struct tokenizer_opened opened;
    char *path;
    struct tokenizer_special special;
};

void tokenizer_destroy(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    if (tokenizer->opened.ops)
        tokenizer->opened.ops->destroy(tokenizer->opened.self);
    mem_free(tokenizer->path);
    mem_free(tokenizer);
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

/* The file of that name beside the one at path. */
static char *beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return slash ? mem_printf("%.*s/%s", (int)(slash - path), path, name) : mem_strdup(name);
}

/* vocab.bpe goes with encoder.json, merges.txt with vocab.json. */
static int open_pair(const char *merges, struct tokenizer_opened *out, struct muster_error *err)
{
    scope_free char *words = beside(merges, ends_with(merges, "vocab.bpe") ? "encoder.json" : "vocab.json");
    if (!words)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    return bpe_tokenizer_open_pair(words, merges, out, err);
}

static int open_named_file(struct tokenizer *tokenizer, const char *path, struct muster_error *err)
{
    struct tokenizer_opened *out = &tokenizer->opened;
    tokenizer->path = mem_strdup(path);
    if (!tokenizer->path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    if (ends_with(path, "vocab.bpe") || ends_with(path, "merges.txt"))
        return open_pair(path, out, err);
    if (ends_with(path, ".json"))
        return bpe_tokenizer_open_json(path, out, err);
    if (strstr(path, ".model")) /* tokenizer.model, tokenizer.model.v1 */
        return sentencepiece_tokenizer_open(path, out, err);
    return error_set(
        err, MUSTER_E_UNSUPPORTED,
        "%s is no tokenizer that is known by its name: tokenizer.json, a .model of sentencepiece, "
        "vocab.bpe, merges.txt, or a folder with one of them",
        path);
}

/* The first of a model's files that is supported; the error is that of the first that is there. */
static int open_folder(struct tokenizer *tokenizer, const char *folder, struct muster_error *err)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model", "merges.txt", "vocab.bpe"};
    struct muster_error first = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct muster_error here = {0};
        scope_free char *path = mem_printf("%s/%s", folder, names[i]);
        if (!path)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
        if (access(path, F_OK) != 0)
            continue;
        if (!open_named_file(tokenizer, path, &here))
            return 0;
        mem_free(take_pointer(&tokenizer->path));
        if (!first.code)
            first = here;
        if (here.code != MUSTER_E_UNSUPPORTED)
            break;
    }
    if (!first.code)
        return error_set(err, MUSTER_E_NOT_FOUND,
                         "folder %s has no tokenizer: no tokenizer.json, tokenizer.model, merges.txt or "
                         "vocab.bpe",
                         folder);
    return error_set(err, (enum muster_error_code)first.code, "%s", first.text);
}

static int open_named(struct tokenizer *tokenizer, const char *name, struct muster_error *err)
{
    struct stat status;
    if (!strcmp(name, "bytes"))
        return bytes_tokenizer_open(&tokenizer->opened);
    if (stat(name, &status) < 0)
        return error_errno(err, "cannot read the tokenizer %s", name);
    if ((S_ISDIR(status.st_mode) ? open_folder : open_named_file)(tokenizer, name, err) < 0)
        return -1;
    tokenizer->special = tokenizer->opened.ops->special(tokenizer->opened.self);
    return special_read_beside(tokenizer, &tokenizer->special, err);
}

struct tokenizer *tokenizer_open(const char *name, struct muster_error *err)
{
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = mem_calloc(1, sizeof *tokenizer);
    if (!tokenizer) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a tokenizer");
        return NULL;
    }
    tokenizer->special = (struct tokenizer_special){TOKEN_NONE, TOKEN_NONE, TOKEN_NONE};
    return open_named(tokenizer, name, err) < 0 ? NULL : take_pointer(&tokenizer);
}

const char *tokenizer_kind(const struct tokenizer *tokenizer)
{
    return tokenizer->opened.ops->kind;
}

const char *tokenizer_path(const struct tokenizer *tokenizer)
{
    return tokenizer->path;
}

int64_t tokenizer_vocabulary(const struct tokenizer *tokenizer)
{
    return tokenizer->opened.ops->vocabulary(tokenizer->opened.self);
}

struct tokenizer_special tokenizer_special(const struct tokenizer *tokenizer)
{
    return tokenizer->special;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text)
{
    return tokenizer->opened.ops->find(tokenizer->opened.self, text);
}

uint64_t tokenizer_fingerprint(const struct tokenizer *tokenizer)
{
    return tokenizer->opened.fingerprint;
}

size_t tokenizer_cut(const struct tokenizer *tokenizer, const char *text, size_t length, size_t most)
{
    const struct tokenizer_opened *opened = &tokenizer->opened;
    return length <= most || !opened->ops->cut ? length : opened->ops->cut(opened->self, text, length, most);
}

int tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t length, struct token_list *out,
                     struct muster_error *err)
{
    if (length > TOKENIZER_TEXT_LIMIT)
        return error_set(
            err, MUSTER_E_LIMIT,
            "a text of %zu bytes; at most %d become tokens at once: cut it, or make JSON lines of it", length,
            TOKENIZER_TEXT_LIMIT);
    return length ? tokenizer->opened.ops->encode(tokenizer->opened.self, text, length, out, err) : 0;
}

int tokenizer_decode(struct tokenizer *tokenizer, const int32_t *tokens, size_t count, struct buffer *out,
                     struct muster_error *err)
{
    const int64_t vocabulary = tokenizer_vocabulary(tokenizer);
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocabulary)
            return error_set(err, MUSTER_E_INVALID, "token %d is not from 0 to %lld", (int)tokens[i],
                             (long long)vocabulary - 1);
    return count ? tokenizer->opened.ops->decode(tokenizer->opened.self, tokens, count, out, err) : 0;
}
