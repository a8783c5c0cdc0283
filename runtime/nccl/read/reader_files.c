/* reader_files.c - helpers of the reader: files below its root, and growing lists. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/nccl/read/reader_internal.h"

static bool join(const struct reader *r, char path[READER_PATH], const char *format, va_list arguments)
{
    int root = snprintf(path, READER_PATH, "%s", r->options->root ? r->options->root : "");
    if (root < 0 || root >= READER_PATH)
        return false;
    int rest = vsnprintf(path + root, (size_t)(READER_PATH - root), format, arguments);
    return rest >= 0 && rest < READER_PATH - root;
}

bool reader_path(const struct reader *r, char path[READER_PATH], const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    bool fits = join(r, path, format, arguments);
    va_end(arguments);
    return fits;
}

static bool first_line(const char *path, char *out, size_t size)
{
    *out = 0;
    scope_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t got = fd < 0 ? -1 : read(fd, out, size - 1);
    if (got <= 0) {
        *out = 0;
        return false;
    }
    out[got] = 0;
    out[strcspn(out, "\n")] = 0;
    size_t length = strlen(out), blanks = strspn(out, " \t");
    while (length > blanks && isspace((unsigned char)out[length - 1]))
        out[--length] = 0;
    memmove(out, out + blanks, length - blanks + 1);
    return true;
}

bool reader_line(const struct reader *r, char *out, size_t size, const char *format, ...)
{
    char path[READER_PATH];
    va_list arguments;
    va_start(arguments, format);
    bool fits = join(r, path, format, arguments);
    va_end(arguments);
    *out = 0;
    return fits && first_line(path, out, size);
}

int64_t reader_number(const struct reader *r, int64_t otherwise, const char *format, ...)
{
    char path[READER_PATH], line[64], *end;
    va_list arguments;
    va_start(arguments, format);
    bool fits = join(r, path, format, arguments);
    va_end(arguments);
    if (!fits || !first_line(path, line, sizeof line))
        return otherwise;
    long long value = strtoll(line, &end, 0);
    return end != line ? value : otherwise;
}

bool reader_link(const struct reader *r, char *out, size_t size, const char *format, ...)
{
    char path[READER_PATH], target[READER_PATH];
    va_list arguments;
    va_start(arguments, format);
    bool fits = join(r, path, format, arguments);
    va_end(arguments);
    *out = 0;
    ssize_t length = fits ? readlink(path, target, sizeof target - 1) : -1;
    if (length <= 0)
        return false;
    target[length] = 0;
    const char *slash = strrchr(target, '/');
    reader_set(out, size, slash ? slash + 1 : target);
    return true;
}

bool reader_exists(const struct reader *r, const char *format, ...)
{
    char path[READER_PATH];
    va_list arguments;
    va_start(arguments, format);
    bool fits = join(r, path, format, arguments);
    va_end(arguments);
    return fits && access(path, F_OK) == 0;
}

void reader_set(char *field, size_t size, const char *text)
{
    (void)snprintf(field, size, "%s", text);
}

void reader_each(struct reader *r, const char *directory,
                 void (*each)(struct reader *r, const char *name, void *context), void *context)
{
    char path[READER_PATH];
    struct dirent **entries = NULL;
    if (!reader_path(r, path, "%s", directory))
        return;
    int count = scandir(path, &entries, NULL, versionsort);
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.')
            each(r, entries[i]->d_name, context);
        free(entries[i]); /* scandir's own */
    }
    free(entries);
}

void *reader_grow(struct reader *r, void *items_pointer, int *count, size_t size)
{
    char *items;
    memcpy(&items, items_pointer, sizeof items);
    if (*count >= DESCRIPTION_LIST_LIMIT) {
        r->out->omitted++;
        return NULL;
    }
    if ((*count & (*count - 1)) == 0) { /* doubles at each power of two */
        char *more = mem_realloc(items, *count ? 2 * (size_t)*count : 1, size);
        if (!more) {
            r->failed = true;
            return NULL;
        }
        items = more;
        memcpy(items_pointer, &items, sizeof items);
    }
    void *item = items + (size_t)(*count)++ * size;
    memset(item, 0, size);
    return item;
}
