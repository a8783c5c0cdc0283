/* walk.c - see walk.h. */
#include "trainer/data/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "trainer/data/stream.h"

enum {
    DEPTH_LIMIT = 16, /* folders in folders: deeper is a loop or a mistake */
    LISTED_NAMES = 3, /* most names listed for a reason */
};

/* Whether the first `length` bytes of text end in `end`, after at least one other byte. */
static bool ends_in(const char *text, size_t length, const char *end)
{
    const size_t tail = strlen(end);
    return length > tail && !memcmp(text + length - tail, end, tail);
}

static bool ends_with(const char *text, const char *end)
{
    return ends_in(text, strlen(text), end);
}

static bool ends_in_one(const char *text, size_t length, const char *const *ends)
{
    for (; *ends; ends++)
        if (ends_in(text, length, *ends))
            return true;
    return false;
}

/* ---- the kind of a file ---- */

struct looked {
    struct content content;
    bool packed;
    bool has_text; /* the first line is a record with a text */
    uint64_t ends; /* hash of the first and last bytes; tells texts of the same length apart */
};

static bool is_packed(const struct content *content)
{
    return content->kind == CONTENT_OTHER && !strncmp(content->what, CONTENT_PACKED, strlen(CONTENT_PACKED));
}

/* Replaces the first bytes of a packed file by its first unpacked bytes. */
static int unpack_start(const char *path, char *start, ssize_t *length, struct muster_error *err)
{
    GUARD(guard_stream) struct stream *stream = stream_open(path, err);
    ssize_t got = stream ? 1 : -1;
    *length = 0;
    while (got > 0 && *length < CONTENT_BYTES) {
        got = stream_read(stream, start + *length, (size_t)(CONTENT_BYTES - *length), err);
        *length += got > 0 ? got : 0;
    }
    return got < 0 ? -1 : 0;
}

static int look_into(const struct walk *walk, const char *path, int64_t bytes, struct looked *out,
                     struct muster_error *err)
{
    char start[CONTENT_BYTES], end[CONTENT_BYTES];
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, start, sizeof start);
    while (length < 0 && fd >= 0 && errno == EINTR)
        length = read(fd, start, sizeof start);
    if (length < 0)
        return error_errno(err, "cannot read %s", path);
    const int64_t from = bytes > CONTENT_BYTES ? bytes - CONTENT_BYTES : 0;
    const ssize_t last = pread(fd, end, sizeof end, from);
    out->ends = text_hash(TEXT_HASH_START, start, (size_t)length);
    out->ends =
        text_hash(out->ends, end, last > 0 ? (size_t)last : 0); /* reading the text will report an error */
    out->content = content_of(start, (size_t)length, length == bytes);
    out->packed = is_packed(&out->content);
    if (out->packed) {
        if (unpack_start(path, start, &length, err) < 0)
            return -1;
        out->content = content_of(start, (size_t)length, length < CONTENT_BYTES);
    }
    out->has_text = walk->text_key && out->content.kind == CONTENT_LINES &&
                    content_has_text(start, (size_t)length, walk->text_key);
    return 0;
}

/* Under other names, records are recognized by certain content: an array, or a first line with a text. */
static enum walk_kind walk_kind_of(const struct walk *walk, const char *path, size_t ending,
                                   const struct looked *looked)
{
    static const char *const records[] = {".jsonl", ".ndjson", ".jsonlines", ".json", NULL};
    const size_t length = strlen(path) - ending;
    const bool named = ends_in_one(path, length, records);
    if (looked->content.kind == CONTENT_ARRAY && (named || walk->text_key))
        return WALK_ARRAY;
    if (named || looked->has_text)
        return WALK_LINES;
    return ends_in(path, length, ".csv")   ? WALK_COMMAS
           : ends_in(path, length, ".tsv") ? WALK_TABS
                                           : WALK_TEXT;
}

/* Whether a file is a program or a note, which is left out next to other texts. */
static bool is_companion(const char *path)
{
    static const char *const ends[] = {".py",  ".ipynb", ".sh",  ".md",  ".rst", ".yaml",
                                       ".yml", ".toml",  ".cfg", ".ini", ".log", ".pkl",
                                       ".c",   ".h",     ".rs",  ".js",  NULL};
    static const char *const names[] = {"README", "LICENSE",  "LICENCE",    "COPYING",
                                        "NOTICE", "Makefile", "Dockerfile", NULL};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    for (int i = 0; names[i]; i++)
        if (!strncmp(name, names[i], strlen(names[i])))
            return true;
    return ends_in_one(name, strlen(name), ends);
}

/* ---- files that are left out ---- */

static int leave_out(struct walk *walk, const char *path, const char *what, const char *advice,
                     struct muster_error *err)
{
    if (walk->left_count == walk->left_capacity) {
        const int more = walk->left_capacity * 2 + 8;
        struct walk_left *grown = mem_realloc(walk->left, (size_t)more, sizeof *grown);
        if (!grown)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a list of files");
        walk->left = grown;
        walk->left_capacity = more;
    }
    struct walk_left *left = &walk->left[walk->left_count];
    *left = (struct walk_left){mem_strdup(path),
                               mem_printf("%s%s%s", what, advice ? ": " : "", advice ? advice : "")};
    if (!left->path || !left->why) {
        mem_free(left->path);
        mem_free(left->why);
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    }
    walk->left_count++;
    return 0;
}

int walk_list_left(const struct walk *walk, const char *path, struct buffer *out)
{
    scope_free bool *listed = walk->left_count ? mem_calloc((size_t)walk->left_count, sizeof *listed) : NULL;
    if (!listed)
        return walk->left_count ? -1 : 0;
    (void)buffer_printf(out, "%s: %d %s taken", path, walk->count, walk->count == 1 ? "file" : "files");
    for (int i = 0; i < walk->left_count; i++) {
        int count = 0;
        if (listed[i])
            continue;
        (void)buffer_printf(out, "%s", i ? "" : "; left out:");
        for (int j = i; j < walk->left_count; j++) {
            if (listed[j] || strcmp(walk->left[i].why, walk->left[j].why) != 0)
                continue;
            listed[j] = true;
            const char *slash = strrchr(walk->left[j].path, '/');
            if (count++ < LISTED_NAMES)
                (void)buffer_printf(out, "%s %s",
                                    count > 1 ? ","
                                    : i       ? ";"
                                              : "",
                                    slash ? slash + 1 : walk->left[j].path);
        }
        if (count > LISTED_NAMES)
            (void)buffer_printf(out, " and %d more", count - LISTED_NAMES);
        (void)buffer_printf(out, " (%s)", walk->left[i].why);
    }
    return buffer_text(out, "\n"); /* out remembers a failure */
}

/* ---- walking ---- */

static int keep_file(struct walk *walk, const char *path, enum walk_kind kind, const struct stat *status,
                     const struct looked *looked, struct muster_error *err)
{
    if (walk->count == walk->capacity) {
        const int more = walk->capacity * 2 + 16;
        struct walk_file *grown = mem_realloc(walk->file, (size_t)more, sizeof *grown);
        if (!grown)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a list of files");
        walk->file = grown;
        walk->capacity = more;
    }
    char *copy = mem_strdup(path);
    if (!copy)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    walk->companions += is_companion(path);
    walk->file[walk->count++] = (struct walk_file){
        .path = copy,
        .kind = kind,
        .packed = looked->packed,
        .bytes = status->st_size,
        .mtime_ns = (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec,
        .ends = looked->ends,
    };
    return 0;
}

/* Whether a file belongs to the token shard NAME.bin next to it, which reads it. */
static bool is_of_a_shard(const char *path)
{
    static const char *const ends[] = {".idx", ".mask"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        if (!ends_with(path, ends[i]))
            continue;
        scope_free char *shard = mem_printf("%.*s.bin", (int)(strlen(path) - strlen(ends[i])), path);
        if (shard && access(shard, F_OK) == 0)
            return true;
    }
    return false;
}

/* named: the user named this file; false: it was found in a folder. */
static int add_file(struct walk *walk, const char *path, const struct stat *status, bool named,
                    struct muster_error *err)
{
    struct looked looked = {0};
    if (look_into(walk, path, status->st_size, &looked, err) < 0)
        return -1;
    const struct content *content = &looked.content;
    const size_t ending = !looked.packed ? 0 : ends_with(path, ".gz") ? 3 : ends_with(path, ".zst") ? 4 : 0;
    const bool shard = ends_with(path, ".bin") && !looked.packed && (content->kind == CONTENT_SHARD || named);
    const char *what = NULL, *advice = content->advice;
    if (status->st_size == 0)
        return named ? 0 : leave_out(walk, path, "empty", NULL, err);
    if (shard)
        return keep_file(walk, path, WALK_TOKENS, status, &looked, err);
    const bool columns = content->kind == CONTENT_PARQUET || content->kind == CONTENT_ARROW;
    if (columns)
        return keep_file(walk, path, content->kind == CONTENT_PARQUET ? WALK_PARQUET : WALK_ARROW, status,
                         &looked, err);
    if (content->kind == CONTENT_OTHER && !named && is_of_a_shard(path))
        return 0;
    if (content->kind == CONTENT_OTHER)
        what = content->what;
    else if (content->kind == CONTENT_SHARD)
        what = "a token shard whose name does not end in .bin";
    else if (content->kind == CONTENT_OBJECT && ends_in(path, strlen(path) - ending, ".json")) {
        what = "one JSON object";
        advice = "records are an array of objects, or an object a line, such as `jq -c '.data[]'` writes";
    }
    if (!what)
        return keep_file(walk, path, walk_kind_of(walk, path, ending, &looked), status, &looked, err);
    if (ends_with(path, ".bin") && content->kind == CONTENT_OTHER && !content->advice) {
        what = "binary, and no token shard of llm.c";
        advice = "raw tokens without a header, as nanoGPT writes them, are not read; their text is";
    }
    if (!named)
        return leave_out(walk, path, what, advice, err);
    return error_set(err, MUSTER_E_UNSUPPORTED, "%s %s is %s, not a text%s%s",
                     walk->name ? walk->name : "data.path", path, what, advice ? ": " : "",
                     advice ? advice : "");
}

static int wanted(const struct dirent *entry)
{
    return entry->d_name[0] != '.' && !ends_with(entry->d_name, ".dat");
}

static void free_entries(struct dirent **entries, int count)
{
    for (int i = 0; i < count; i++)
        free(entries[i]);
    free(entries);
}

static int add_path(struct walk *walk, const char *path, int depth, struct muster_error *err);

static int add_folder(struct walk *walk, const char *path, int depth, struct muster_error *err)
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
            result = add_path(walk, inside, depth + 1, err);
    }
    free_entries(entries, count);
    return result;
}

static int add_path(struct walk *walk, const char *path, int depth, struct muster_error *err)
{
    struct stat status;
    const char *name = walk->name ? walk->name : "data.path";
    if (stat(path, &status) < 0)
        return error_errno(err, "cannot read %s %s", name, path);
    if (S_ISDIR(status.st_mode))
        return add_folder(walk, path, depth, err);
    if (!S_ISREG(status.st_mode)) /* a pipe or device may never end, and only one rank could read it */
        return error_set(err, MUSTER_E_INVALID, "%s %s is neither a file nor a folder", name, path);
    return add_file(walk, path, &status, depth == 0, err);
}

/* Leaves out programs and notes if there are other texts. */
static int leave_companions(struct walk *walk, struct muster_error *err)
{
    int kept = 0, result = 0;
    if (!walk->companions || walk->companions == walk->count)
        return 0;
    for (int i = 0; i < walk->count; i++) {
        struct walk_file *file = &walk->file[i];
        if (!is_companion(file->path)) {
            walk->file[kept++] = *file;
            continue;
        }
        if (!result)
            result = leave_out(walk, file->path, "programs and notes next to data",
                               "name one itself to train on it", err);
        mem_free(file->path);
    }
    walk->count = kept;
    walk->companions = 0;
    return result;
}

int walk_path(struct walk *walk, const char *path, struct muster_error *err)
{
    return add_path(walk, path, 0, err) < 0 ? -1 : leave_companions(walk, err);
}

void walk_free(struct walk *walk)
{
    if (!walk)
        return;
    for (int i = 0; i < walk->count; i++)
        mem_free(walk->file[i].path);
    for (int i = 0; i < walk->left_count; i++) {
        mem_free(walk->left[i].path);
        mem_free(walk->left[i].why);
    }
    mem_free(walk->left);
    mem_free(walk->file);
    *walk = (struct walk){0};
}
