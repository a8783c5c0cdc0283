/* read.c - the first stage of prepare.h: reads the files of the input, in parts; keeps the cleaned texts that
 * pass the rules, with their signatures. */
#include <math.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"
#include "trainer/corpus/input.h"
#include "trainer/corpus/prepare_internal.h"
#include "trainer/corpus/texts.h"
#include "trainer/data/documents.h"
#include "trainer/data/stream.h"

/* A thread's memory, reused from document to document. */
struct read_room {
    struct clean_room clean;
    struct measure_room measure;
    struct words words;
    struct shingles shingles;
    struct buffer text;
    struct language *language; /* NULL: no --languages */
    struct chat *chat;         /* NULL: no --chat_template */
};

static void close_room(void *opened)
{
    struct read_room *room = opened;
    if (!room)
        return;
    clean_room_free(&room->clean);
    measure_room_free(&room->measure);
    words_free(&room->words);
    shingles_free(&room->shingles);
    buffer_free(&room->text);
    language_close(room->language);
    chat_destroy(room->chat);
    mem_free(room);
}

static void *open_room(void *context, struct muster_error *err)
{
    const struct corpus_settings *s = ((const struct prepare *)context)->settings;
    struct read_room *room = mem_calloc(1, sizeof *room);
    if (!room)
        (void)error_set(err, MUSTER_E_NOMEM, "no memory to read texts");
    if (!room)
        return NULL;
    if (*s->chat_template && !(room->chat = prepare_open_chat(s, err))) {
        close_room(room);
        return NULL;
    }
    if (!*s->languages)
        return room;
    room->language = language_open(s->languages, s->language_data, err);
    if (room->language)
        return room;
    close_room(room);
    return NULL;
}

/* ---- a document ---- */

static int measure_document(const struct prepare *p, struct read_room *room,
                            const struct split_document *document, struct measures *out,
                            struct muster_error *err)
{
    const struct measure_lists lists = {*p->settings->blocked_words ? &p->blocked : NULL,
                                        *p->settings->required_words ? &p->required : NULL};
    size_t invalid = 0;
    buffer_clear(&room->text);
    if (document->spans && buffer_append(&room->text, document->text, document->length) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a chat of %zu bytes", document->length);
    /* a chat stays as its template writes it, and its spans with it */
    if (!document->spans &&
        clean_text(&room->clean, document->text, document->length, &room->text, &invalid, err) < 0)
        return -1;
    const char *text = room->text.data ? room->text.data : "";
    if (words_split(&room->words, text, room->text.length) < 0 ||
        measure_text(&room->measure, &lists, text, room->text.length, &room->words, out) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the words of a text of %zu bytes",
                         room->text.length);
    out->value[RULE_JSON] = document->broken;
    out->value[RULE_UTF8] = document->length ? (double)invalid / (double)document->length : 0;
    if (room->language && rules_check(out, p->settings->limits) == RULE_PASSED)
        out->value[RULE_LANGUAGE] = language_measure(room->language, text, room->text.length);
    return 0;
}

static int keep_document(const struct prepare *p, struct read_room *room, const struct jinja_spans *spans,
                         struct part_writer *writer, struct muster_error *err)
{
    uint64_t keys[MINHASH_BANDS];
    if (shingles_make(&room->shingles, &room->words) < 0)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the words of a text of %zu bytes",
                         room->text.length);
    if (room->shingles.count)
        minhash_keys(&room->shingles, p->bands, keys);
    return part_writer_add(writer, room->text.data ? room->text.data : "", room->text.length,
                           (uint32_t)room->shingles.count, room->shingles.count ? keys : NULL, spans, err);
}

static int take_document(const struct prepare *p, struct read_room *room,
                         const struct split_document *document, struct part_writer *writer,
                         struct part_counts *counts, struct muster_error *err)
{
    struct measures measures;
    if (measure_document(p, room, document, &measures, err) < 0)
        return -1;
    const int broken = rules_check(&measures, p->settings->limits);
    counts->documents++;
    counts->bytes += document->bytes;
    if (broken == RULE_PASSED)
        return keep_document(p, room, document->spans, writer, err);
    counts->dropped[broken]++;
    counts->dropped_bytes[broken] += document->bytes;
    return 0;
}

/* ---- a part ---- */

static ssize_t read_stream(void *context, char *out, size_t size, struct muster_error *err)
{
    return stream_read(context, out, size, err);
}

static int read_documents(const struct prepare *p, struct read_room *room, const struct walk_file *file,
                          struct part_writer *writer, struct part_counts *counts, struct muster_error *err)
{
    struct split split __attribute__((cleanup(split_close))) = {0};
    GUARD(guard_stream) struct stream *stream = stream_open(file->path, err);
    struct split_document document;
    int found;
    if (!stream)
        return -1;
    split_open(&split, &(struct split_options){.read = read_stream,
                                               .context = stream,
                                               .name = file->path,
                                               .lines = file->kind == WALK_LINES,
                                               .key = p->settings->text_key,
                                               .chat = room->chat,
                                               .separator = p->settings->separator,
                                               .limit = (size_t)p->settings->max_document_bytes});
    while ((found = split_next(&split, &document, err)) > 0)
        if (take_document(p, room, &document, writer, counts, err) < 0)
            return -1;
    return found;
}

/* Where the records of an array or a table go. */
struct taking {
    const struct prepare *prepare;
    struct read_room *room;
    struct part_writer *writer;
    struct part_counts *counts;
    struct record_room record;
};

static int take_record(void *context, const json_t *record, int64_t bytes, struct muster_error *err)
{
    struct taking *t = context;
    const struct record_options options = {t->prepare->settings->text_key, t->room->chat};
    struct split_document document;
    if (record_document(&options, record, &t->record, &document, err) < 0)
        return -1;
    document.bytes = bytes ? (size_t)bytes : document.length;
    return take_document(t->prepare, t->room, &document, t->writer, t->counts, err);
}

static int read_records(const struct prepare *p, struct read_room *room, const struct walk_file *file,
                        struct part_writer *writer, struct part_counts *counts, struct muster_error *err)
{
    struct mapping text __attribute__((cleanup(mapping_close))) = {0};
    struct taking taking = {.prepare = p, .room = room, .writer = writer, .counts = counts};
    const struct documents_records records = {.text_key = p->settings->text_key,
                                              .setting = "--text_key",
                                              .chats = room->chat != NULL,
                                              .take = take_record,
                                              .context = &taking};
    const int result = stream_map(&text, file, err) < 0 ? -1 : documents_records(&records, file, &text, err);
    record_room_free(&taking.record);
    return result;
}

static int read_part(void *context, void *room, int number, struct muster_error *err)
{
    struct prepare *p = context;
    struct part *part = &p->part[number];
    struct muster_error reason = {0};
    part_reader_close(part_reader_open(p->work, part->key, p->bands.bands, &part->counts, &reason));
    if (!reason.code)
        return 0; /* an earlier run made it */
    part->counts = (struct part_counts){0};
    GUARD(guard_part_writer)
    struct part_writer *writer = part_writer_create(p->work, part->key, p->bands.bands, err);
    if (!writer)
        return -1;
    for (int i = part->first; i < part->first + part->count; i++)
        if ((documents_are_records(p->files.file[i].kind) ? read_records : read_documents)(
                p, room, &p->files.file[i], writer, &part->counts, err) < 0)
            return -1;
    return part_writer_finish(writer, &part->counts, err);
}

static void add_counts(struct part_counts *total, const struct part_counts *counts)
{
    total->documents += counts->documents;
    total->bytes += counts->bytes;
    total->kept += counts->kept;
    total->kept_bytes += counts->kept_bytes;
    for (int i = 0; i < RULE_COUNT; i++) {
        total->dropped[i] += counts->dropped[i];
        total->dropped_bytes[i] += counts->dropped_bytes[i];
    }
}

int prepare_read(struct prepare *p, struct muster_error *err)
{
    const struct workers_job job = {p->parts, p->threads, read_part, open_room, close_room, p};
    char bytes[32];
    if (clean_open(err) < 0 || workers_run(&job, err) < 0)
        return -1;
    for (int i = 0; i < p->parts; i++) {
        p->part[i].document = (int64_t)p->total.kept;
        add_counts(&p->total, &p->part[i].counts);
    }
    log_info(p->log, "read: %d files, %s, %llu documents; %llu pass the rules", p->files.count,
             text_format_bytes(bytes, sizeof bytes, (int64_t)p->total.bytes),
             (unsigned long long)p->total.documents, (unsigned long long)p->total.kept);
    return 0;
}
