/* output_file.c - see output_file.h. */
#include "launcher/output/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"

/* A write of at most PIPE_BUF to a pipe is atomic: lines of several processes do not mix, and if it never
 * returns, no byte of it was written. Longer lines are written in steps of this. */
enum { LONG_LINE_STEP = PIPE_BUF, LARGE_PIPE = 1024 * 1024 };

struct output_file *output_file_create(const struct output_file_options *options)
{
    struct output_file *t = mem_calloc(1, sizeof *t);
    struct stat status;
    if (!t)
        return NULL;
    t->fd = options->fd;
    t->owned = options->owned;
    t->name = options->name;
    t->at_start = true;
    bool regular = fstat(t->fd, &status) == 0 && S_ISREG(status.st_mode);
    t->atom = regular ? 0 : PIPE_BUF;
    t->large = regular;
    bool rotates = regular && options->max_size > 0 && options->path;
    t->size = options->size;
    t->max_size = rotates ? options->max_size : 0;
    t->keep = options->keep;
    t->path = rotates ? mem_strdup(options->path) : NULL;
    t->host = options->style ? mem_strdup(options->style->host) : NULL;
    t->style = (struct log_style){options->style ? options->style->format : LOG_FORMAT_TEXT, t->host};
    if ((!rotates || t->path) && (!options->style || t->host))
        return t;
    t->owned = false; /* the caller's still */
    output_file_destroy(t);
    return NULL;
}

void output_file_expect_much(struct output_file *t)
{
    if (!t->large && fcntl(t->fd, F_GETPIPE_SZ) < LARGE_PIPE)
        (void)fcntl(t->fd, F_SETPIPE_SZ,
                    LARGE_PIPE); /* not a pipe, or over the user's limit: it works without */
    t->large = true;
}

void output_file_destroy(struct output_file *t)
{
    if (!t)
        return;
    if (t->owned)
        (void)close(t->fd); /* unwritten bytes were already counted when the write failed */
    mem_free(t->path);
    mem_free(t->host);
    mem_free(t);
}

/* --- missing bytes --- */

static uint64_t count_lines(const char *data, size_t length)
{
    uint64_t lines = 0;
    for (const char *end = data + length; data < end && (data = memchr(data, '\n', (size_t)(end - data)));
         data++)
        lines++;
    return lines;
}

static void miss(struct output_file *t, uint64_t bytes, uint64_t lines)
{
    t->untold_bytes += bytes;
    t->untold_lines += lines;
    (void)__atomic_add_fetch(&t->lost_bytes, bytes, __ATOMIC_RELAXED);
    (void)__atomic_add_fetch(&t->lost_lines, lines, __ATOMIC_RELAXED);
}

/* Bytes between the last record and this one were refused before they were queued, or dropped. */
static void miss_gap(struct output_file *t, uint64_t bytes, uint64_t lines)
{
    miss(t, bytes, lines);
    (void)__atomic_add_fetch(&t->gap_bytes, bytes, __ATOMIC_RELAXED);
    (void)__atomic_add_fetch(&t->gap_lines, lines, __ATOMIC_RELAXED);
}

/* Only the thread writes these, so it reads them without atomics. */
static void see(struct output_file *t, uint64_t bytes, uint64_t lines)
{
    __atomic_store_n(&t->seen_bytes, bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&t->seen_lines, lines, __ATOMIC_RELAXED);
}

/* Parts of which only the first `done` bytes were written. */
static void miss_rest(struct output_file *t, const struct iovec *parts, int count, size_t done)
{
    for (int i = 0; i < count; i++) {
        size_t skip = done < parts[i].iov_len ? done : parts[i].iov_len;
        const char *rest = (const char *)parts[i].iov_base + skip;
        miss(t, parts[i].iov_len - skip, count_lines(rest, parts[i].iov_len - skip));
        done -= skip;
    }
}

static void write_now(struct output_file *t, const struct output_file_port *port, const struct iovec *parts,
                      int count, size_t total)
{
    struct iovec copy[OUTPUT_FILE_PARTS]; /* port->write advances it */
    memcpy(copy, parts, (size_t)count * sizeof *parts);
    size_t done = port->write(port->context, t->fd, copy, count);
    if (done < total)
        miss_rest(t, parts, count, done);
    (void)__atomic_add_fetch(&t->written_bytes, done, __ATOMIC_RELAXED);
    t->size += (int64_t)done;
    const struct iovec *last = &parts[count - 1];
    if (done == total)
        t->at_start = ((const char *)last->iov_base)[last->iov_len - 1] == '\n';
    else if (done)
        t->at_start = false; /* or true by chance: then there is an empty line */
}

/* The notice about missing lines, before the records that follow them. Counts lines if they are known; a
 * log file's raw bytes are counted as such. */
static void tell_missing(struct output_file *t, const struct output_file_port *port)
{
    char text[200];
    scope_buffer line = {0};
    if (!t->untold_bytes)
        return;
    if (t->untold_lines && !t->owned)
        (void)snprintf(text, sizeof text,
                       "muster: warning: %llu lines (%llu bytes) are not shown: %s did not keep up",
                       (unsigned long long)t->untold_lines, (unsigned long long)t->untold_bytes, t->name);
    else
        (void)snprintf(text, sizeof text, "muster: warning: %llu bytes are missing here: %s did not keep up",
                       (unsigned long long)t->untold_bytes, t->name);
    if (!t->at_start)
        buffer_text(&line, "\n");
    if (log_record_agent(&t->style, LOG_LEVEL_WARNING, clock_wall_ns(), text, &line) < 0)
        return; /* without memory the notice waits for the next time */
    struct iovec part = {line.data, line.length}, copy = part;
    size_t done = port->write(port->context, t->fd, &copy, 1);
    t->size += (int64_t)done;
    if (done < line.length)
        return;
    t->at_start = true;
    t->untold_bytes = t->untold_lines = 0;
}

/* --- rotation --- */

/* path.(n) is renamed to path.(n+1), the oldest is replaced. A rename that fails only leaves a gap in the
 * numbers. */
static void rotate(struct output_file *t)
{
    for (int i = t->keep - 1; i >= 0; i--) {
        scope_free char *from = i ? mem_printf("%s.%d", t->path, i) : mem_strdup(t->path);
        scope_free char *to = mem_printf("%s.%d", t->path, i + 1);
        if (from && to)
            (void)rename(from, to);
    }
    int fd = open(t->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0) {
        t->max_size = 0; /* the old one, renamed, gets the rest */
        return;
    }
    (void)close(t->fd); /* unwritten bytes were already counted when the write failed */
    t->fd = fd;
    t->size = 0;
    t->at_start = true;
}

/* How much of data still fits into the file: whole lines if one fits. */
static size_t fitting(const struct output_file *t, const char *data, size_t length)
{
    if (t->size >= t->max_size)
        return 0;
    size_t room = (size_t)(t->max_size - t->size);
    if (length <= room)
        return length;
    const char *newline = memrchr(data, '\n', room);
    if (newline)
        return (size_t)(newline + 1 - data);
    return t->at_start && t->size ? 0 : room; /* a line that no file can hold whole is split */
}

static void write_rotating(struct output_file *t, const struct output_file_port *port, const char *data,
                           size_t length)
{
    while (length) {
        size_t part = t->max_size ? fitting(t, data, length) : length;
        if (part) {
            struct iovec one = {(char *)data, part};
            write_now(t, port, &one, 1, part);
            data += part;
            length -= part;
        }
        if (length)
            rotate(t);
    }
}

/* --- records --- */

void output_file_flush(struct output_file_batch *batch, const struct output_file_port *port)
{
    if (batch->count)
        write_now(batch->target, port, batch->parts, batch->count, batch->total);
    batch->count = 0;
    batch->total = 0;
}

/* How much of data may be added to the batch: all, or up to a line's end; 0: flush first. */
static size_t next_part(const struct output_file *t, const struct output_file_batch *batch, const char *data,
                        size_t length)
{
    if (!t->atom)
        return length;
    if (batch->total + length <= t->atom)
        return length;
    size_t room = t->atom - batch->total;
    const char *newline = memrchr(data, '\n', room);
    if (newline)
        return (size_t)(newline + 1 - data);
    if (batch->total)
        return 0;
    newline = memchr(data + room, '\n', length - room);
    size_t line = newline ? (size_t)(newline + 1 - data) : length;
    return line < LONG_LINE_STEP ? line : LONG_LINE_STEP;
}

static void add(struct output_file_batch *batch, const struct output_file_port *port, const char *data,
                size_t length)
{
    const struct output_file *t = batch->target;
    while (length) {
        size_t part = next_part(t, batch, data, length);
        if (part) {
            batch->parts[batch->count++] = (struct iovec){(char *)data, part};
            batch->total += part;
            data += part;
            length -= part;
        }
        if (!part || length || batch->count == OUTPUT_FILE_PARTS || (t->atom && batch->total >= t->atom))
            output_file_flush(batch, port);
    }
}

/* After a gap a line without its beginning is left out too. Returns how much of the record that is. */
static size_t cut_line(struct output_file *t, const struct output_file_record *record, const char *data)
{
    if (record->starts)
        return 0;
    const char *newline = memchr(data, '\n', record->length);
    size_t cut = newline ? (size_t)(newline + 1 - data) : record->length;
    miss(t, cut, newline != NULL);
    return cut;
}

void output_file_take(struct output_file_batch *batch, const struct output_file_port *port,
                      const struct output_file_record *record, const char *data)
{
    struct output_file *t = record->target;
    size_t skip = 0;
    if (batch->target != t)
        output_file_flush(batch, port);
    batch->target = t;
    if (record->bytes_before > t->seen_bytes) {
        miss_gap(t, record->bytes_before - t->seen_bytes, record->lines_before - t->seen_lines);
        skip = cut_line(t, record, data);
    }
    see(t, record->bytes_before + record->length, record->lines_before + record->lines);
    if (t->untold_bytes) {
        output_file_flush(batch, port);
        tell_missing(t, port);
    }
    if (skip == record->length)
        return;
    if (t->max_size) {
        output_file_flush(batch, port);
        write_rotating(t, port, data + skip, record->length - skip);
    } else {
        add(batch, port, data + skip, record->length - skip);
    }
}

void output_file_settle(struct output_file *t, const struct output_file_port *port)
{
    if (t->due_bytes > t->seen_bytes) {
        miss_gap(t, t->due_bytes - t->seen_bytes, t->due_lines - t->seen_lines);
        see(t, t->due_bytes, t->due_lines);
    }
    tell_missing(t, port);
}
