/* tokenizer.c - opens a tokenizer by name or path, and calls its kind. See tokenizer.h. */
#include "trainer/tokens/tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "proto/json/json_text.h"
#include "trainer/tokens/kinds.h"

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

/* ---- the tokenizer whose ids are the bytes of the text ---- */

enum { BYTES = 256 };

static void bytes_destroy(void *self)
{
    (void)self; /* it has no state */
}

static int64_t bytes_vocabulary(const void *self)
{
    (void)self;
    return BYTES;
}

static struct tokenizer_special bytes_special(const void *self)
{
    (void)self;
    return TOKENIZER_NO_SPECIAL;
}

static int32_t bytes_find(const void *self, const char *text)
{
    (void)self;
    return text[0] && !text[1] ? (unsigned char)text[0] : TOKEN_NONE;
}

static size_t bytes_cut(const void *self, const char *text, size_t length, size_t most)
{
    (void)self;
    (void)text;
    (void)length;
    return most;
}

static int bytes_encode(void *self, const char *text, size_t length, struct token_list *out,
                        struct muster_error *err)
{
    (void)self;
    int32_t *to = token_list_reserve(out, length);
    if (!to)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %zu tokens", length);
    for (size_t i = 0; i < length; i++)
        to[i] = (unsigned char)text[i];
    out->count += length;
    return 0;
}

static int bytes_decode(void *self, const int32_t *tokens, size_t count, struct buffer *out,
                        struct muster_error *err)
{
    (void)self;
    char *to = buffer_reserve(out, count);
    if (!to)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a text of %zu bytes", count);
    for (size_t i = 0; i < count; i++)
        to[i] = (char)tokens[i];
    out->length += count;
    return 0;
}

static int64_t bytes_bytes(void *self, int32_t token)
{
    (void)self;
    (void)token;
    return 1;
}

static const struct tokenizer_ops bytes_ops = {.kind = "bytes",
                                               .destroy = bytes_destroy,
                                               .vocabulary = bytes_vocabulary,
                                               .special = bytes_special,
                                               .find = bytes_find,
                                               .cut = bytes_cut,
                                               .encode = bytes_encode,
                                               .decode = bytes_decode,
                                               .bytes = bytes_bytes};

static int bytes_open(struct tokenizer_opened *out)
{
    *out = (struct tokenizer_opened){.ops = &bytes_ops, .fingerprint = BYTES};
    return 0;
}

/* ---- opening ---- */

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

/* The path of the file `name` in the folder of the file at path. */
static char *sibling(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');
    return slash ? mem_printf("%.*s/%s", (int)(slash - path), path, name) : mem_strdup(name);
}

/* vocab.bpe goes with encoder.json, merges.txt with vocab.json. */
static int open_pair(const char *merges, const struct companions *files, struct tokenizer_opened *out,
                     struct muster_error *err)
{
    scope_free char *words = sibling(merges, ends_with(merges, "vocab.bpe") ? "encoder.json" : "vocab.json");
    scope_buffer class = {0};
    if (!words)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    return companions_class(files, &class, err) < 0
               ? -1
               : bpe_tokenizer_open_pair(words, merges, class.data,
                                         companions_flag(files, "add_prefix_space", false), out, err);
}

/* tekken.json, tekken_240911.json. */
static bool is_tekken(const char *path)
{
    const char *slash = strrchr(path, '/');
    return ends_with(path, ".json") && !strncmp(slash ? slash + 1 : path, "tekken", 6);
}

/* Llama 3's tokenizer.model is a file of tiktoken. */
static int open_model_file(const char *path, bool every_piece, struct tokenizer_opened *out,
                           struct muster_error *err)
{
    char begin[400];
    scope_fclose FILE *file = fopen(path, "rb");
    const size_t length = file ? fread(begin, 1, sizeof begin, file) : 0; /* the opening reports a failure */
    return tiktoken_begins(begin, length) ? ranked_tokenizer_open(path, false, out, err)
                                          : sentencepiece_tokenizer_open(path, every_piece, out, err);
}

static int open_words(const char *path, const struct companions *files, struct tokenizer_opened *out,
                      struct muster_error *err)
{
    const bool lowercase = companions_flag(files, "do_lower_case", true);
    const struct wordpiece_settings settings = {
        .lowercase = lowercase,
        .chinese = companions_flag(files, "tokenize_chinese_chars", true),
        .accents = companions_flag(files, "strip_accents", lowercase)};
    return wordpiece_tokenizer_open(path, &settings, out, err);
}

static int open_by_name(const char *path, const struct companions *files, struct tokenizer_opened *out,
                        struct muster_error *err)
{
    if (ends_with(path, "vocab.bpe") || ends_with(path, "merges.txt"))
        return open_pair(path, files, out, err);
    if (ends_with(path, ".tiktoken") || is_tekken(path))
        return ranked_tokenizer_open(path, !ends_with(path, ".tiktoken"), out, err);
    if (ends_with(path, ".json"))
        return bpe_tokenizer_open_json(path, out, err);
    if (ends_with(path, "vocab.txt"))
        return open_words(path, files, out, err);
    if (strstr(path, ".model")) /* tokenizer.model, tokenizer.model.v1 */
        return open_model_file(path, companions_flag(files, "legacy", false), out, err);
    return error_set(err, MUSTER_E_UNSUPPORTED,
                     "%s is no tokenizer that is known by its name: tokenizer.json, tekken.json, a .model of "
                     "sentencepiece, a "
                     ".tiktoken, vocab.bpe, merges.txt, vocab.txt, or a folder with such a file",
                     path);
}

/* Opens the file at path, with the tokens of its companions. */
static int open_named_file(struct tokenizer *tokenizer, const char *path, struct muster_error *err)
{
    struct tokenizer_opened *out = &tokenizer->opened;
    GUARD(companions_free) struct companions files = {0};
    tokenizer->path = mem_strdup(path);
    if (!tokenizer->path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    if (companions_read(&files, path, err) < 0 || open_by_name(path, &files, out, err) < 0)
        return -1;
    tokenizer->special = out->ops->special(out->self);
    if (companions_add_tokens(&files, path, out, &out->fingerprint, err) < 0)
        return -1;
    companions_special(&files, out, &tokenizer->special);
    return 0;
}

static const char *const folder_names[] = {"tokenizer.json", "tokenizer.model", "tekken.json", "merges.txt",
                                           "vocab.bpe",      "qwen.tiktoken",   "vocab.txt"};
enum { FOLDER_NAMES = sizeof folder_names / sizeof *folder_names };

/* muster-train never falls back to another file by itself, since its ids may differ: the error names a file
 * that can be read, and the user chooses. */
static void advise_other(const char *folder, int refused, struct muster_error *err)
{
    for (int i = refused + 1; i < FOLDER_NAMES; i++) {
        GUARD(guard_tokenizer) struct tokenizer *other = mem_calloc(1, sizeof *other);
        scope_free char *path = mem_printf("%s/%s", folder, folder_names[i]);
        if (!other || !path || access(path, F_OK) != 0 || open_named_file(other, path, NULL) < 0)
            continue;
        const struct muster_error why = *err;
        (void)error_set(err, (enum muster_error_code)why.code,
                        "%.*s; %s can be read and named in its place, but its ids may be others",
                        (int)(sizeof why.text * 3 / 4), why.text, path);
        return;
    }
}

/* Opens the first file of folder_names that exists. */
static int open_folder(struct tokenizer *tokenizer, const char *folder, struct muster_error *err)
{
    for (int i = 0; i < FOLDER_NAMES; i++) {
        struct muster_error why = {0};
        scope_free char *path = mem_printf("%s/%s", folder, folder_names[i]);
        if (!path)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
        const int there = io_exists(path, err);
        if (there < 0)
            return -1;
        if (!there)
            continue;
        if (!open_named_file(tokenizer, path, &why))
            return 0;
        if (why.code == MUSTER_E_UNSUPPORTED)
            advise_other(folder, i, &why);
        return error_set(err, (enum muster_error_code)why.code, "%s", why.text);
    }
    return error_set(
        err, MUSTER_E_NOT_FOUND,
        "folder %s has no tokenizer: no tokenizer.json, tokenizer.model, tekken.json, merges.txt, vocab.bpe, "
        "qwen.tiktoken or vocab.txt",
        folder);
}

static int open_named(struct tokenizer *tokenizer, const char *name, struct muster_error *err)
{
    struct stat status;
    if (!strcmp(name, "bytes"))
        return bytes_open(&tokenizer->opened);
    if (stat(name, &status) < 0)
        return error_errno(err, "cannot read the tokenizer %s", name);
    return (S_ISDIR(status.st_mode) ? open_folder : open_named_file)(tokenizer, name, err);
}

struct tokenizer *tokenizer_open(const char *name, struct muster_error *err)
{
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = mem_calloc(1, sizeof *tokenizer);
    if (!tokenizer) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a tokenizer");
        return NULL;
    }
    tokenizer->special = TOKENIZER_NO_SPECIAL;
    return open_named(tokenizer, name, err) < 0 ? NULL : take_pointer(&tokenizer);
}

/* Refuses bytes for a model that was trained on other tokens: the ids would mean nothing to it. */
static struct tokenizer *open_bytes_for(const char *model_path, struct muster_error *err)
{
    enum { VOCABULARY_OF_BYTES = 1024 }; /* largest vocabulary of a model of bytes: 256, rounded up */
    scope_free char *path = mem_printf("%s/config.json", model_path);
    GUARD(guard_json) json_t *config = path ? json_text_read(path, NULL) : NULL;
    const json_int_t vocabulary = json_integer_value(json_object_get(config, "vocab_size"));
    if (vocabulary <= VOCABULARY_OF_BYTES)
        return tokenizer_open("bytes", err);
    (void)error_set(
        err, MUSTER_E_INVALID,
        "model.path %s has no tokenizer, and a vocabulary of %lld tokens: set data.tokenizer to the "
        "tokenizer that it was trained with, or to bytes",
        model_path, (long long)vocabulary);
    return NULL;
}

struct tokenizer *tokenizer_open_of_model(const char *model_path, struct muster_error *err)
{
    struct muster_error reason = {0};
    const int folder = model_path && *model_path ? io_is_folder(model_path, err) : 0;
    if (folder <= 0)
        return folder < 0 ? NULL : tokenizer_open("bytes", err);
    struct tokenizer *found = tokenizer_open(model_path, &reason);
    if (found)
        return found;
    if (reason.code == MUSTER_E_NOT_FOUND)
        return open_bytes_for(model_path, err);
    (void)error_set(err, (enum muster_error_code)reason.code,
                    "%s; data.tokenizer names another one, or bytes", reason.text);
    return NULL;
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

int64_t tokenizer_bytes(struct tokenizer *tokenizer, int32_t token)
{
    if (token < 0 || token >= tokenizer_vocabulary(tokenizer) || token == tokenizer->special.bos ||
        token == tokenizer->special.eos)
        return 0;
    return tokenizer->opened.ops->bytes(tokenizer->opened.self, token);
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

/* ---- copies of the files ---- */

enum { COPIED_BYTES = 256 << 20 };

static const struct name {
    const char *end, *to; /* end of the file's name, and name of its copy */
} names[] = {{"vocab.bpe", "merges.txt"},
             {"merges.txt", "merges.txt"},
             {"vocab.txt", "vocab.txt"},
             {".json", "tokenizer.json"},
             {"", "tokenizer.model"}};
static const struct name companions[] = {{"encoder.json", "vocab.json"},
                                         {"vocab.json", "vocab.json"},
                                         {"tokenizer_config.json", "tokenizer_config.json"},
                                         {"special_tokens_map.json", "special_tokens_map.json"},
                                         {"added_tokens.json", "added_tokens.json"},
                                         {"chat_template.jinja", "chat_template.jinja"}};

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
    if (is_tekken(path))
        return "tekken.json";
    if (ends_with(path, ".tiktoken")) { /* the name decides how words are cut */
        const char *slash = strrchr(path, '/');
        return slash ? slash + 1 : path;
    }
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
        scope_free char *from =
            mem_printf("%.*s%s", slash ? (int)(slash - path) + 1 : 0, path, companions[i].end);
        if (!from)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
        const int there = io_exists(from, err);
        if (there < 0 || (there && copy_one(from, folder, companions[i].to, err) < 0))
            return -1;
    }
    return copy_one(path, folder, copy_name(path), err);
}
