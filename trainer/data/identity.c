/* identity.c - see identity.h. */
#include "trainer/data/identity.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/text.h"

enum { NAMED = 4, VALUE_SIZE = 400 }; /* most differences in a message; bytes of a value */

/* Replaces line ends, and '=' in a value, by "?". */
static void put_cleaned(struct buffer *out, const char *text, bool is_value)
{
    for (const char *at = text; *at; at++)
        (void)buffer_append(out, *at == '\n' || (is_value && *at == '=') ? "?" : at, 1);
}

void identity_add(struct buffer *out, const char *name, const char *format, ...)
{
    char value[VALUE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(value, sizeof value, format, arguments); /* a long value is cut */
    va_end(arguments);
    put_cleaned(out, name, false);
    (void)buffer_text(out, "=");
    put_cleaned(out, value, true);
    (void)buffer_text(out, "\n");
}

/* The name of a file below the source's path; "" for the path itself. */
static const char *name_below(const char *path, const char *file)
{
    const size_t length = strlen(path);
    if (strncmp(path, file, length) != 0)
        return file;
    file += length;
    return file + strspn(file, "/");
}

static void add_file(struct buffer *out, const char *source, const char *name, const struct walk_file *file)
{
    scope_buffer line = {0};
    (void)buffer_printf(&line, "%s file %s", source, name);
    if (line.failed)
        out->failed = true;
    else
        identity_add(out, line.data, "%lld bytes (%016llx)", (long long)file->bytes,
                     (unsigned long long)file->ends);
}

void identity_add_files(struct buffer *out, const char *source, const char *path, const struct walk *walk)
{
    uint64_t hash = TEXT_HASH_START;
    int64_t bytes = 0;
    for (int i = 0; i < walk->count; i++) {
        const struct walk_file *file = &walk->file[i];
        const char *name = name_below(path, file->path);
        hash = text_hash(hash, name, strlen(name) + 1);
        hash = text_hash(hash, &file->bytes, sizeof file->bytes);
        hash = text_hash(hash, &file->ends, sizeof file->ends);
        bytes += file->bytes;
    }
    identity_add(out, source,
                 walk->count == 1 ? "%d file of %lld bytes (%016llx)" : "%d files of %lld bytes (%016llx)",
                 walk->count, (long long)bytes, (unsigned long long)hash);
    for (int i = 0; walk->count > 1 && i < walk->count && i < IDENTITY_FILES; i++)
        add_file(out, source, name_below(path, walk->file[i].path), &walk->file[i]);
}

/* ---- comparing ---- */

struct line {
    const char *name, *value;
    int name_length, value_length;
};

/* Reads the line at *at and moves *at to the next line; false: the text has ended. */
static bool next_line(const char **at, struct line *line)
{
    if (!**at)
        return false;
    const int length = (int)strcspn(*at, "\n");
    int value = length;
    while (value > 0 && (*at)[value - 1] != '=')
        value--;
    if (value)
        *line = (struct line){*at, *at + value, value - 1, length - value};
    else /* damaged */
        *line = (struct line){*at, *at + length, length, 0};
    *at += length + ((*at)[length] == '\n');
    return true;
}

static bool find_line(const char *text, const struct line *wanted, struct line *found)
{
    while (next_line(&text, found))
        if (found->name_length == wanted->name_length &&
            !memcmp(found->name, wanted->name, (size_t)wanted->name_length))
            return true;
    return false;
}

/* Counts a difference and writes the separator; false: the message has NAMED differences already. */
static bool begin_difference(struct buffer *out, int *count)
{
    if (++*count > NAMED)
        return false;
    (void)buffer_text(out, *count > 1 ? "; " : "");
    return true;
}

static void put_changed(struct buffer *out, const char *written, const char *now, int *count)
{
    struct line was, is;
    while (next_line(&written, &was)) {
        const bool there = find_line(now, &was, &is);
        if (there && is.value_length == was.value_length &&
            !memcmp(is.value, was.value, (size_t)is.value_length))
            continue;
        if (!begin_difference(out, count))
            continue;
        (void)buffer_printf(out, "%.*s ", was.name_length, was.name);
        if (there)
            (void)buffer_printf(out, "is %.*s, and was %.*s", is.value_length, is.value, was.value_length,
                                was.value);
        else
            (void)buffer_text(out, "is gone");
    }
}

static void put_new(struct buffer *out, const char *written, const char *now, int *count)
{
    struct line was, is;
    while (next_line(&now, &is))
        if (!find_line(written, &is, &was) && begin_difference(out, count))
            (void)buffer_printf(out, "%.*s is new", is.name_length, is.name);
}

int identity_compare(const char *written, const char *now, struct buffer *out)
{
    int count = 0;
    put_changed(out, written, now, &count);
    put_new(out, written, now, &count);
    if (count > NAMED)
        (void)buffer_printf(out, "; and %d more", count - NAMED);
    return out->failed ? -1 : 0;
}
