/* part_file.c - see prepare_internal.h. */
#include "trainer/corpus/prepare_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "proto/base/error.h"
#include "proto/base/io.h"

enum { FLUSH_BYTES = 1 << 18, BLOCK_BYTES = 1 << 17, SPAN_BYTES = 2 * sizeof(uint32_t) };
#define PART_MAGIC UINT64_C(0x32545241504D4353)

struct part_header {
    uint64_t magic, key;
    struct part_counts counts;
    uint64_t bands;
    uint64_t size; /* bytes of the file of texts, spans included */
};

/* ---- writing ---- */

struct part_writer {
    struct new_file texts, records;
    int bands;
    uint64_t key, kept, bytes, size;
};

static char *part_path(const char *folder, uint64_t key, const char *ending)
{
    return mem_printf("%s/%016llx.%s", folder, (unsigned long long)key, ending);
}

struct part_writer *part_writer_create(const char *folder, uint64_t key, int bands, struct muster_error *err)
{
    static const struct part_header empty = {0};
    GUARD(guard_part_writer) struct part_writer *w = mem_calloc(1, sizeof *w);
    if (!w) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a part");
        return NULL;
    }
    w->texts.fd = w->records.fd = -1;
    w->bands = bands;
    w->key = key;
    if (new_file_open(&w->texts, part_path(folder, key, "texts"), err) < 0 ||
        new_file_open(&w->records, part_path(folder, key, "records"), err) < 0)
        return NULL;
    (void)buffer_append(&w->records.held, &empty, sizeof empty); /* held remembers a failure */
    return take_pointer(&w);
}

int part_writer_add(struct part_writer *w, const char *text, size_t length, uint32_t shingles,
                    const uint64_t *keys, const struct jinja_spans *spans, struct muster_error *err)
{
    static const uint64_t none[MINHASH_BANDS] = {0};
    const XXH128_hash_t hash = XXH3_128bits(text, length);
    const struct part_record record = {.offset = w->size,
                                       .hash = {hash.low64, hash.high64},
                                       .length = (uint32_t)length,
                                       .shingles = keys ? shingles : 0,
                                       .chat = spans != NULL,
                                       .spans = spans ? (uint32_t)spans->count : 0};
    (void)buffer_append(&w->texts.held, text, length); /* the buffers remember failures */
    for (uint32_t i = 0; i < record.spans; i++) {
        const uint32_t span[] = {(uint32_t)spans->span[i].from, (uint32_t)spans->span[i].to};
        (void)buffer_append(&w->texts.held, span, sizeof span);
    }
    (void)buffer_append(&w->records.held, &record, sizeof record);
    (void)buffer_append(&w->records.held, keys ? keys : none, (size_t)w->bands * sizeof *keys);
    w->bytes += length;
    w->size += length + record.spans * SPAN_BYTES;
    w->kept++;
    return new_file_flush(&w->texts, FLUSH_BYTES, err) < 0 ? -1
                                                           : new_file_flush(&w->records, FLUSH_BYTES, err);
}

int part_writer_finish(struct part_writer *w, struct part_counts *counts, struct muster_error *err)
{
    counts->kept = w->kept;
    counts->kept_bytes = w->bytes;
    const struct part_header header = {PART_MAGIC, w->key, *counts, (uint64_t)w->bands, w->size};
    /* the records last: a reader that finds them finds the texts */
    return new_file_finish(&w->texts, NULL, 0, err) < 0
               ? -1
               : new_file_finish(&w->records, &header, sizeof header, err);
}

void part_writer_destroy(struct part_writer *w)
{
    if (!w)
        return;
    new_file_close(&w->texts);
    new_file_close(&w->records);
    mem_free(w);
}

/* ---- reading ---- */

struct part_reader {
    char *name;
    int fd_texts, fd_records;
    size_t record_bytes;
    int64_t at, count; /* records */
    char *block;       /* (held) records from `first` on */
    int64_t first, held;
    uint64_t keys[MINHASH_BANDS];
};

static int open_part_file(const char *folder, uint64_t key, const char *ending, struct muster_error *err)
{
    scope_free char *path = part_path(folder, key, ending);
    if (!path)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? error_errno(err, "cannot read %s", path) : fd;
}

static int check_header(struct part_reader *r, int bands, uint64_t key, struct part_counts *counts,
                        struct muster_error *err)
{
    struct part_header header;
    const off_t texts = lseek(r->fd_texts, 0, SEEK_END), records = lseek(r->fd_records, 0, SEEK_END);
    if (pread(r->fd_records, &header, sizeof header, 0) != sizeof header || header.magic != PART_MAGIC ||
        header.key != key || header.bands != (uint64_t)bands || texts != (off_t)header.size ||
        records != (off_t)(sizeof header + header.counts.kept * r->record_bytes))
        return error_set(err, MUSTER_E_NOT_FOUND, "%s was made with other settings or from another input",
                         r->name);
    r->count = (int64_t)header.counts.kept;
    *counts = header.counts;
    return 0;
}

struct part_reader *part_reader_open(const char *folder, uint64_t key, int bands, struct part_counts *counts,
                                     struct muster_error *err)
{
    GUARD(guard_part_reader) struct part_reader *r = mem_calloc(1, sizeof *r);
    if (!r || !(r->name = mem_printf("%s/%016llx", folder, (unsigned long long)key)) ||
        !(r->block = mem_calloc(BLOCK_BYTES, 1))) {
        if (r)
            r->fd_texts = r->fd_records = -1;
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to read a part");
        return NULL;
    }
    r->record_bytes = sizeof(struct part_record) + (size_t)bands * sizeof(uint64_t);
    r->fd_records = open_part_file(folder, key, "records", err);
    r->fd_texts = r->fd_records < 0 ? -1 : open_part_file(folder, key, "texts", err);
    return r->fd_texts < 0 || check_header(r, bands, key, counts, err) < 0 ? NULL : take_pointer(&r);
}

struct part_reader *prepare_open_part(const struct prepare *p, int part, struct muster_error *err)
{
    struct part_counts counts;
    return part_reader_open(p->work, p->part[part].key, p->bands.bands, &counts, err);
}

void part_reader_close(struct part_reader *r)
{
    if (!r)
        return;
    if (r->fd_texts >= 0)
        (void)close(r->fd_texts); /* cannot lose data: both were only read */
    if (r->fd_records >= 0)
        (void)close(r->fd_records);
    mem_free(r->name);
    mem_free(r->block);
    mem_free(r);
}

static int read_at(const struct part_reader *r, int fd, void *out, size_t bytes, uint64_t from,
                   struct muster_error *err)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = pread(fd, (char *)out + done, bytes - done, (off_t)(from + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? error_errno(err, "cannot read %s", r->name)
                           : error_set(err, MUSTER_E_IO,
                                       "%s has become shorter; another program writes to it", r->name);
        done += (size_t)got;
    }
    return 0;
}

/* Reads a block of records, from the next record on. */
static int fill_block(struct part_reader *r, int64_t records, struct muster_error *err)
{
    const int64_t left = r->count - r->at;
    r->first = r->at;
    r->held = left < records ? left : records;
    return read_at(r, r->fd_records, r->block, (size_t)r->held * r->record_bytes,
                   sizeof(struct part_header) + (uint64_t)r->at * r->record_bytes, err);
}

int part_reader_next(struct part_reader *r, struct part_record *record, const uint64_t **keys,
                     struct muster_error *err)
{
    if (r->at >= r->count)
        return 0;
    if ((r->at < r->first || r->at >= r->first + r->held) &&
        fill_block(r, (int64_t)(BLOCK_BYTES / r->record_bytes), err) < 0)
        return -1;
    const char *from = r->block + (size_t)(r->at - r->first) * r->record_bytes;
    memcpy(record, from, sizeof *record);
    memcpy(r->keys, from + sizeof *record, r->record_bytes - sizeof *record);
    if (keys)
        *keys = r->keys;
    r->at++;
    return 1;
}

/* Reads a single record: the record after it is rarely read next. */
int part_reader_seek(struct part_reader *r, int64_t record, struct muster_error *err)
{
    r->at = record;
    if (record < r->count && (record < r->first || record >= r->first + r->held))
        return fill_block(r, 1, err);
    return 0;
}

int part_reader_text(struct part_reader *r, const struct part_record *record, struct buffer *out,
                     struct muster_error *err)
{
    buffer_clear(out);
    char *to = buffer_reserve(out, record->length + 1);
    if (!to)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a text of %u bytes", record->length);
    if (read_at(r, r->fd_texts, to, record->length, record->offset, err) < 0)
        return -1;
    to[record->length] = '\0';
    out->length = record->length;
    return 0;
}

int part_reader_spans(struct part_reader *r, const struct part_record *record, struct jinja_spans *out,
                      struct muster_error *err)
{
    out->count = 0;
    for (uint32_t i = 0; i < record->spans; i++) {
        uint32_t span[2];
        if (read_at(r, r->fd_texts, span, sizeof span, record->offset + record->length + i * SPAN_BYTES,
                    err) < 0 ||
            jinja_spans_add(out, (struct jinja_span){span[0], span[1]}, err) < 0)
            return -1;
    }
    return 0;
}
