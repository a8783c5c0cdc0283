/* write.c - the last stage of prepare.h: the tokens of all parts as shards, their index, and the report. */
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/io.h"
#include "trainer/corpus/prepare_internal.h"
#include "trainer/data/prepared.h"

enum { READ_BYTES = 1 << 20 };

/* ---- shards ---- */

struct writing {
    struct prepare *prepare;
    struct shard_writer *train, *held;
    struct buffer tokens;
};

/* Reads the tokens of a part in order. */
struct tokens_reader {
    const char *path;
    FILE *file;
};

static int read_exactly(struct tokens_reader *r, void *out, size_t bytes, struct muster_error *err)
{
    if (fread(out, 1, bytes, r->file) == bytes)
        return 0;
    return ferror(r->file)
               ? error_errno(err, "cannot read %s", r->path)
               : error_set(err, MUSTER_E_IO, "%s has become shorter; another program writes to it", r->path);
}

static int copy_document(struct writing *w, struct tokens_reader *r, size_t width, struct muster_error *err)
{
    uint32_t count;
    if (read_exactly(r, &count, sizeof count, err) < 0)
        return -1;
    struct shard_writer *to = count & TOKENS_HELD ? w->held : w->train;
    const size_t flags = count & TOKENS_CHAT ? 1 : 0; /* bytes a token */
    count &= ~(TOKENS_HELD | TOKENS_CHAT);
    buffer_clear(&w->tokens);
    char *room = buffer_reserve(&w->tokens, (size_t)count * (width + flags) + 1);
    if (!room)
        return error_set(err, MUSTER_E_NOMEM, "no memory for %u tokens", count);
    if (read_exactly(r, room, (size_t)count * (width + flags), err) < 0)
        return -1;
    return shard_writer_add(to, room, flags ? room + (size_t)count * width : NULL, count, err);
}

static int copy_part(struct writing *w, int part, struct muster_error *err)
{
    struct tokens_header header;
    scope_free char *path = prepare_tokens_path(w->prepare, part);
    scope_fclose FILE *file = path ? fopen(path, "re") : NULL;
    struct tokens_reader reader = {path, file};
    if (!file)
        return error_errno(err, "cannot read %s", path ? path : "a part");
    if (setvbuf(file, NULL, _IOFBF, READ_BYTES) != 0 ||
        read_exactly(&reader, &header, sizeof header, err) < 0)
        return error_wrap(err, "tokens");
    for (uint64_t i = 0; i < header.documents; i++)
        if (copy_document(w, &reader, (size_t)header.width, err) < 0)
            return -1;
    return 0;
}

static struct shard_writer *open_split(struct prepare *p, const char *name, struct muster_error *err)
{
    scope_free char *folder = mem_printf("%s/%s", p->settings->output, name);
    if (!folder) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a path");
        return NULL;
    }
    if (io_make_directories(folder, 0755, err) < 0 || shard_writer_clear(folder, err) < 0)
        return NULL;
    const struct shard_writer_options options = {folder, prepare_tokens_width(p),
                                                 (uint64_t)p->settings->shard_tokens};
    return shard_writer_create(&options, err);
}

static struct split_totals totals_of(const struct shard_writer *writer)
{
    struct split_totals totals = {0};
    const struct shard *list = shard_writer_list(writer, &totals.shards);
    for (uint64_t i = 0; i < totals.shards; i++) {
        totals.tokens += list[i].tokens;
        totals.documents += list[i].documents;
    }
    return totals;
}

/* ---- index and report ---- */

/* Gives the value to the object. After a failure, printing the whole fails. */
static void put_json(json_t *object, const char *key, json_t *value)
{
    (void)json_object_set_new(object, key, value);
}

static json_t *json_count(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *split_json(const char *folder, const struct shard_writer *writer)
{
    json_t *split = json_object(), *shards = json_array();
    const struct split_totals totals = totals_of(writer);
    uint64_t count;
    const struct shard *list = shard_writer_list(writer, &count);
    for (uint64_t i = 0; i < count; i++) {
        json_t *shard = json_object();
        put_json(shard, "file", json_sprintf("%s/shard-%05llu.bin", folder, (unsigned long long)i));
        put_json(shard, "tokens", json_count(list[i].tokens));
        put_json(shard, "documents", json_count(list[i].documents));
        (void)json_array_append_new(shards, shard);
    }
    put_json(split, "documents", json_count(totals.documents));
    put_json(split, "tokens", json_count(totals.tokens));
    put_json(split, "shards", shards);
    return split;
}

static int write_json(const char *path, json_t *root, struct muster_error *err)
{
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_ENSURE_ASCII);
    json_decref(root);
    if (!text)
        return error_set(err, MUSTER_E_NOMEM, "no memory to write %s", path);
    const int result = io_write_file_atomic(path, text, strlen(text), 0644, err);
    free(text); /* allocated by jansson, not by mem.h */
    return result;
}

static json_t *count_json(uint64_t documents, uint64_t bytes)
{
    json_t *counts = json_object();
    put_json(counts, "documents", json_count(documents));
    put_json(counts, "bytes", json_count(bytes));
    return counts;
}

static json_t *rules_json(const struct prepare *p)
{
    json_t *rules = json_object();
    for (int i = 0; i < RULE_COUNT; i++) {
        json_t *rule = count_json(p->total.dropped[i], p->total.dropped_bytes[i]);
        put_json(rule, "limit", json_real(p->settings->limits[i]));
        put_json(rules, corpus_rules[i].name, rule);
    }
    return rules;
}

static json_t *tokenizer_json(const struct prepare *p)
{
    json_t *tokenizer = json_object();
    put_json(tokenizer, "vocabulary", json_count((uint64_t)p->vocabulary));
    put_json(tokenizer, "fingerprint", json_sprintf("%016llx", (unsigned long long)p->fingerprint));
    put_json(tokenizer, "sample", count_json(p->sampled, p->sampled_bytes));
    return tokenizer;
}

static json_t *report_json(const struct prepare *p, const struct writing *w)
{
    json_t *report = json_object(), *duplicates = json_object(), *bands = json_object();
    put_json(report, "input", count_json(p->total.documents, p->total.bytes));
    put_json(json_object_get(report, "input"), "files", json_count((uint64_t)p->files.count));
    put_json(report, "dropped", rules_json(p));
    put_json(duplicates, "exact", count_json(p->duplicates[1], p->duplicate_bytes[1]));
    put_json(duplicates, "near", count_json(p->duplicates[2], p->duplicate_bytes[2]));
    put_json(bands, "bands", json_count((uint64_t)p->bands.bands));
    put_json(bands, "rows", json_count((uint64_t)p->bands.rows));
    put_json(duplicates, "minhash", bands);
    put_json(report, "duplicates", duplicates);
    put_json(report, "kept", count_json(p->kept, p->kept_bytes));
    put_json(report, "tokenizer", tokenizer_json(p));
    put_json(report, "train", split_json("train", w->train));
    put_json(report, "validation", split_json("validation", w->held));
    return report;
}

static json_t *index_json(const struct prepare *p, const struct writing *w)
{
    const bool trained = !*p->settings->tokenizer && p->settings->tokenizer_type == CORPUS_SENTENCEPIECE;
    json_t *index = json_object();
    put_json(index, "format", json_string(PREPARED_FORMAT));
    put_json(index, "version", json_integer(PREPARED_VERSION));
    put_json(index, "key", json_sprintf("%016llx", (unsigned long long)p->key));
    /* ".": the files of another tokenizer were copied to this folder */
    put_json(index, "tokenizer",
             json_string(trained                   ? "tokenizer.model"
                         : *p->settings->tokenizer ? "."
                                                   : "bytes"));
    put_json(index, "vocabulary", json_count((uint64_t)p->vocabulary));
    put_json(index, "document_end", json_integer(p->end));
    put_json(index, "width", json_integer(prepare_tokens_width(p)));
    put_json(index, "train", split_json("train", w->train));
    put_json(index, "validation", split_json("validation", w->held));
    return index;
}

static int write_files(struct writing *w, struct muster_error *err)
{
    struct prepare *p = w->prepare;
    scope_free char *report = mem_printf("%s/report.json", p->settings->output),
                    *index = mem_printf("%s/" PREPARED_INDEX, p->settings->output);
    if (!report || !index)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    for (int i = 0; i < p->parts; i++)
        if (copy_part(w, i, err) < 0)
            return -1;
    if (shard_writer_finish(w->train, err) < 0 || shard_writer_finish(w->held, err) < 0)
        return -1;
    const struct split_totals train = totals_of(w->train), held = totals_of(w->held);
    log_info(p->log, "tokens: %llu to train on in %llu shards, %llu held out",
             (unsigned long long)train.tokens, (unsigned long long)train.shards,
             (unsigned long long)held.tokens);
    return write_json(report, report_json(p, w), err) < 0 ? -1 : write_json(index, index_json(p, w), err);
}

int prepare_write(struct prepare *p, struct muster_error *err)
{
    scope_free char *index = mem_printf("%s/" PREPARED_INDEX, p->settings->output);
    if (!index)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    (void)unlink(index); /* an old index, if any, does not fit the new shards */
    struct writing w = {.prepare = p, .train = open_split(p, "train", err)};
    w.held = w.train ? open_split(p, "validation", err) : NULL;
    const int result = w.held ? write_files(&w, err) : -1;
    shard_writer_destroy(w.train);
    shard_writer_destroy(w.held);
    buffer_free(&w.tokens);
    return result;
}
