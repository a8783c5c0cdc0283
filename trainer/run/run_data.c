/* run_data.c - what a run reads, by its settings: the tokenizer, the sources with their weights, and how many
 * steps an epoch has. See run.h. */
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "runtime/config/train_config_check.h"
#include "trainer/data/corpus.h"
#include "trainer/data/prepared.h"
#include "trainer/run/run.h"

struct tokenizer *run_tokenizer_open(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    struct run_tokenizer *about = &run->tokenizer;
    GUARD(guard_tokenizer)
    struct tokenizer *tokenizer = !strcmp(c->tokenizer, "auto") ? tokenizer_open_of_model(c->model_path, err)
                                                                : tokenizer_open(c->tokenizer, err);
    if (!tokenizer)
        return NULL;
    const char *path = tokenizer_path(tokenizer);
    about->kind = tokenizer_kind(tokenizer);
    about->vocabulary = tokenizer_vocabulary(tokenizer);
    about->path = path ? mem_strdup(path) : NULL;
    about->name = mem_strdup(path ? path : "bytes");
    if (!about->name || (path && !about->path)) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a path");
        return NULL;
    }
    if (!train_config_gives_sizes(c) || about->vocabulary <= c->vocabulary)
        return take_pointer(&tokenizer);
    (void)error_set(err, MUSTER_E_INVALID,
                    "model.vocabulary %lld is below the %lld tokens of data.tokenizer %s",
                    (long long)c->vocabulary, (long long)about->vocabulary, c->tokenizer);
    return NULL;
}

/* The token behind each document; TOKEN_NONE: nothing. */
static int document_end(const struct run *run, const struct tokenizer *tokenizer, int32_t *end,
                        struct muster_error *err)
{
    const char *name = run->config.document_end;
    *end = TOKEN_NONE;
    if (!strcmp(name, "none"))
        return 0;
    *end = !strcmp(name, "auto") ? tokenizer_special(tokenizer).eos : tokenizer_find(tokenizer, name);
    if (*end < 0 && strcmp(name, "auto") != 0)
        return error_set(err, MUSTER_E_INVALID, "data.document_end '%s' is no token of data.tokenizer", name);
    return 0;
}

/* "0.7 PATH", or "PATH". */
static struct data_source source_of(const char *text)
{
    const char *blank = strchr(text, ' ');
    scope_free char *number = blank ? mem_strndup(text, (size_t)(blank - text)) : NULL;
    double weight;
    if (number && text_double(number, &weight))
        return (struct data_source){blank + 1 + strspn(blank + 1, " "), weight};
    return (struct data_source){text, 0};
}

static int open_sources(struct run *run, struct data_options *options, struct muster_error *err)
{
    struct data_source sources[DATA_SOURCES];
    int count = 0;
    char *const *texts = run->config.data_sources;
    for (; texts && texts[count]; count++) {
        if (count == DATA_SOURCES)
            return error_set(err, MUSTER_E_LIMIT, "data.sources has more than %d sources", DATA_SOURCES);
        sources[count] = source_of(texts[count]);
    }
    if (count) {
        options->sources = sources;
        options->source_count = count;
    }
    run->data = data_open(options, err);
    return run->data ? 0 : -1;
}

int run_count_steps(struct run *run, int64_t samples, struct muster_error *err)
{
    struct train_config *c = &run->config;
    train_config_set_epoch(c, samples);
    if (!(c->epochs > 0))
        return 0;
    const double steps = ceil(c->epochs * (double)samples / (double)c->global_batch);
    if (steps > 1e9)
        return error_set(err, MUSTER_E_LIMIT, "training.epochs %g of %lld samples are %g steps; at most 1e9",
                         c->epochs, (long long)samples, steps);
    train_config_set_steps(c, steps < 1 ? 1 : (int64_t)steps);
    return train_config_check("", c, TRAIN_TRAINING, err); /* what depends on the steps */
}

/* ---- how far tokenizing is ---- */

#define FIRST_LINE_NS (2 * NS_PER_S)
#define LINE_NS       (5 * NS_PER_S)

void run_print_tokenized(void *context, const char *path, int64_t bytes, int64_t of)
{
    struct run_tokenizing *t = context;
    const struct instant now = clock_now(NULL);
    char done[32], all[32], rate[32];
    if (t->path != path)
        *t = (struct run_tokenizing){t->path ? now : t->begun, instant_add(now, FIRST_LINE_NS), path};
    if (instant_diff_ns(now, t->next) < 0 || bytes == 0)
        return;
    const double seconds = (double)instant_diff_ns(now, t->begun) / (double)NS_PER_S,
                 per_second = (double)bytes / seconds;
    printf("tokenizing %s: %s of %s, %s/s, %.0f s left\n", path, text_format_bytes(done, sizeof done, bytes),
           text_format_bytes(all, sizeof all, of), text_format_bytes(rate, sizeof rate, (int64_t)per_second),
           (double)(of - bytes) / per_second);
    (void)fflush(stdout); /* a closed console does not stop the training */
    t->next = instant_add(now, LINE_NS);
}

/* ---- a folder of muster-train prepare ---- */

/* The setting becomes value, whose owner it is. */
static void replace(char **setting, char **value)
{
    mem_free(*setting);
    *setting = take_pointer(value);
}

/* data.path by its index: the shards to train on, those that are held out, the tokenizer; what was set by the
 * user stays. */
static int resolve_prepared(struct train_config *c, struct muster_error *err)
{
    struct prepared prepared __attribute__((cleanup(prepared_free))) = {0};
    const int found = c->path && *c->path ? prepared_open(&prepared, c->path, err) : 1;
    if (found)
        return found < 0 ? error_wrap(err, "data.path") : 0;
    replace(&c->path, &prepared.train);
    if (prepared.validation && !(c->validation_share > 0) && !(c->validation_path && *c->validation_path))
        replace(&c->validation_path, &prepared.validation);
    if (!strcmp(c->tokenizer, "auto"))
        replace(&c->tokenizer, &prepared.tokenizer);
    return 0;
}

int run_data_open(struct run *run, struct muster_error *err)
{
    const struct train_config *c = &run->config;
    if (resolve_prepared(&run->config, err) < 0)
        return -1;
    struct run_tokenizing tokenizing = {.begun = clock_now(NULL)};
    scope_buffer notes = {0};
    const struct data_progress progress = {run_print_tokenized, &tokenizing};
    struct data_options options = {.path = c->path,
                                   .text_key = c->text_key,
                                   .cache_dir = c->cache_dir,
                                   .progress = &progress,
                                   .notes = &notes,
                                   .packing = (enum data_packing)c->packing,
                                   .positions = (int)c->sequence_length,
                                   .vocabulary = train_config_gives_sizes(c) ? c->vocabulary : 0,
                                   .seed = (uint64_t)c->seed,
                                   .validation_share = c->validation_share,
                                   .validation_split = (enum data_split)c->validation_split,
                                   .validation_path = c->validation_path};
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = run_tokenizer_open(run, err);
    if (!tokenizer || document_end(run, tokenizer, &options.document_end, err) < 0)
        return -1;
    options.tokenizer = tokenizer;
    if (open_sources(run, &options, err) < 0)
        return -1;
    const char *end;
    for (const char *line = notes.data; run->rank == 0 && line && line < notes.data + notes.length;
         line = end + 1) {
        end = memchr(line, '\n', (size_t)(notes.data + notes.length - line)); /* each has one */
        fprintf(stderr, "muster-train: %.*s\n", (int)(end - line), line);
    }
    tokenizer_destroy(take_pointer(&tokenizer));
    (void)malloc_trim(0); /* its files were read through many small blocks */
    return run_count_steps(run, data_samples(run->data), err);
}

int run_inputs_open(struct run *run, struct muster_error *err)
{
    return run_has_pictures(run) ? run_pictures_open(run, err)
           : run_has_labels(run) ? run_labelled_open(run, err)
                                 : run_data_open(run, err);
}

struct batch_source run_source(const struct run *run)
{
    const int positions = (int)run->config.sequence_length;
    return run->pictures   ? batch_source_pictures(run->pictures)
           : run->labelled ? batch_source_labelled(run->labelled, positions)
                           : batch_source_texts(run->data, positions);
}

const char *run_data_identity(const struct run *run)
{
    return run->pictures   ? pictures_identity(run->pictures)
           : run->labelled ? labelled_identity(run->labelled)
                           : data_identity(run->data);
}

int run_data_copy(const struct run *run, const char *folder, struct muster_error *err)
{
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = tokenizer_open(run->tokenizer.name, err);
    return tokenizer ? tokenizer_copy(tokenizer, folder, err) : -1;
}

int run_data_export(const struct run *run, struct muster_error *err)
{
    const int folder = io_is_folder(run->config.output, err);
    if (folder <= 0)
        return folder; /* one file, of another format */
    return run_data_copy(run, run->config.output, err);
}

void run_data_close(struct run *run)
{
    data_destroy(run->data);
    run->data = NULL;
    pictures_destroy(run->pictures);
    run->pictures = NULL;
    labelled_destroy(run->labelled);
    run->labelled = NULL;
    mem_free(run->tokenizer.name);
    mem_free(run->tokenizer.path);
    run->tokenizer = (struct run_tokenizer){0};
}
