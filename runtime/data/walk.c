/* walk.c - see walk.h. */
#include "runtime/data/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "runtime/data/token_file.h"

enum {
    DEPTH_LIMIT = 16,   /* folders in folders: deeper is a loop or a mistake */
    SNIFF_BYTES = 8192, /* at a file's ends: a NUL byte among the first ones marks a binary file */
};

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length > tail && !strcmp(text + length - tail, end);
}

static size_t compressed_ending(const char *path)
{
    return ends_with(path, ".gz") ? 3 : ends_with(path, ".zst") ? 4 : 0;
}

static enum walk_kind walk_kind_of(const char *path, size_t ending)
{
    static const char lines[] = ".jsonl";
    const size_t length = strlen(path) - ending, tail = sizeof lines - 1;
    return length > tail && !strncmp(path + length - tail, lines, tail) ? WALK_LINES : WALK_TEXT;
}

enum content { UNREADABLE = -1, PROSE, BINARY, SHARD };

/* ends: a hash of the file's first and last bytes, by which another text of the same length is told. */
static enum content look_into(const char *path, int64_t bytes, uint64_t *ends, struct muster_error *err)
{
    char start[SNIFF_BYTES], end[SNIFF_BYTES];
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, start, sizeof start);
    while (length < 0 && fd >= 0 && errno == EINTR)
        length = read(fd, start, sizeof start);
    if (length < 0) {
        (void)error_errno(err, "cannot read %s", path);
        return UNREADABLE;
    }
    const int64_t from = bytes > SNIFF_BYTES ? bytes - SNIFF_BYTES : 0;
    const ssize_t last = pread(fd, end, sizeof end, from);
    *ends = text_hash(TEXT_HASH_START, start, (size_t)length);
    *ends = text_hash(*ends, end, last > 0 ? (size_t)last : 0); /* an error is met when the text is read */
    if (length >= 4 && token_file_is_shard(start))
        return SHARD;
    return memchr(start, '\0', (size_t)length) ? BINARY : PROSE;
}

static int add_file(struct walk *walk, const char *path, const struct stat *status, bool named,
                    struct muster_error *err)
{
    uint64_t ends = 0;
    const enum content content = look_into(path, status->st_size, &ends, err);
    const bool shard = ends_with(path, ".bin") && (content == SHARD || (named && content != UNREADABLE));
    const size_t ending = walk->compressed ? compressed_ending(path) : 0;
    if (content == UNREADABLE || status->st_size == 0 || (content != PROSE && !shard && !ending))
        return content == UNREADABLE ? -1 : 0;
    const enum walk_kind kind = shard ? WALK_TOKENS : walk_kind_of(path, ending);
    if (walk->count == walk->capacity) {
        const int wanted = walk->capacity * 2 + 16;
        struct walk_file *grown = mem_realloc(walk->file, (size_t)wanted, sizeof *grown);
        if (!grown)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a list of files");
        walk->file = grown;
        walk->capacity = wanted;
    }
    char *copy = mem_strdup(path);
    if (!copy)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    walk->file[walk->count++] = (struct walk_file){
        .path = copy,
        .kind = kind,
        .bytes = status->st_size,
        .mtime_ns = (int64_t)status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec,
        .ends = ends,
    };
    return 0;
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
    if (!S_ISREG(status.st_mode)) /* a pipe or device may never end, and not every rank can read it */
        return error_set(err, MUSTER_E_INVALID, "%s %s is neither a file nor a folder", name, path);
    return add_file(walk, path, &status, depth == 0, err);
}

int walk_path(struct walk *walk, const char *path, struct muster_error *err)
{
    return add_path(walk, path, 0, err);
}

void walk_free(struct walk *walk)
{
    if (!walk)
        return;
    for (int i = 0; i < walk->count; i++)
        mem_free(walk->file[i].path);
    mem_free(walk->file);
    *walk = (struct walk){0};
}
