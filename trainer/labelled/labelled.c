/* labelled.c - see labelled.h. */
#include "trainer/labelled/labelled.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/mem.h"
#include "proto/base/text.h"
#include "trainer/data/identity.h"
#include "trainer/data/order.h"
#include "trainer/data/token_cache.h"
#include "trainer/labelled/labelled_internal.h"

struct labelled {
    struct token_file file;
    struct label_names names;    /* in the order of the file */
    int number[LABELS_LIMIT];    /* class of each name */
    int place[LABELS_LIMIT];     /* index in names of each class; not where there are labels of the model's */
    struct label_names given;    /* labels of the model, if the texts have those; else empty */
    int32_t begin, end;          /* tokens around a text; TOKEN_NONE: none */
    int64_t first, samples, all; /* first and number of shuffled texts; texts of both splits */
    bool ordered;                /* a validation split: read in its order */
    bool cached;
    uint64_t seed;
    int positions, files;
    int64_t cut;
    const struct labelled *owner; /* the set that owns the file; NULL: this set */
    struct labelled *validation;
    struct buckets *buckets; /* NULL: none */
    struct buffer identity;
};

void labelled_destroy(struct labelled *set)
{
    if (!set)
        return;
    labelled_destroy(set->validation);
    buckets_destroy(set->buckets);
    if (!set->owner) {
        token_file_close(&set->file);
        label_names_free(&set->names);
        label_names_free(&set->given);
    }
    buffer_free(&set->identity);
    mem_free(set);
}

static struct labelled *labelled_create(const struct labelled_options *o, struct muster_error *err)
{
    struct labelled *set = mem_calloc(1, sizeof *set);
    if (!set) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a set of texts");
        return NULL;
    }
    set->seed = o->seed;
    set->positions = o->positions;
    set->begin = o->framed ? o->begin : TOKEN_NONE;
    set->end = o->framed ? o->end : TOKEN_NONE;
    return set;
}

/* ---- tokens ---- */

struct tokenizing {
    const struct labelled_options *options;
    const char *path;
    int64_t done, bytes;
};

static void add_tokenized(void *context, int64_t bytes)
{
    struct tokenizing *t = context;
    t->done += bytes;
    t->options->progress->take(t->options->progress->context, t->path, t->done, t->bytes);
}

static int tokenize(const struct labelled_options *o, const struct labelled_files *files,
                    const struct token_cache *cache, struct token_file *out, struct muster_error *err)
{
    const int64_t vocabulary = tokenizer_vocabulary(o->tokenizer);
    struct tokenizing tokenizing = {.options = o, .path = files->path};
    for (int i = 0; i < files->walk.count; i++)
        tokenizing.bytes += files->walk.file[i].bytes;
    const struct labelled_read read = {.tokenizer = o->tokenizer,
                                       .text_key = o->text_key,
                                       .label_key = o->label_key,
                                       .folders = files->folders,
                                       .read = o->progress ? add_tokenized : NULL,
                                       .context = &tokenizing};
    GUARD(guard_token_sink)
    struct token_sink *sink = token_sink_create(
        &(struct token_sink_options){.path = cache->path,
                                     .key = cache->key,
                                     .vocabulary = vocabulary > LABELS_LIMIT ? vocabulary : LABELS_LIMIT},
        err);
    return sink && !labelled_read(&read, &files->walk, sink, err) ? token_sink_finish(sink, out, err) : -1;
}

static int open_tokens(struct labelled *set, const struct labelled_options *o,
                       const struct labelled_files *files, struct muster_error *err)
{
    struct token_cache cache __attribute__((cleanup(token_cache_close))) = TOKEN_CACHE_NONE;
    /* The cache depends on these settings too, and differs from the cache of plain texts. */
    scope_free char *keys = mem_printf("labelled 1, %s, %s, %d", o->text_key, o->label_key, files->folders);
    if (!keys)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a set of texts");
    const struct corpus_options corpus = {.path = files->path,
                                          .tokenizer = o->tokenizer,
                                          .text_key = keys,
                                          .end = TOKEN_NONE,
                                          .cache_dir = o->cache_dir};
    const int found = token_cache_open(&cache, &corpus, &files->walk, &set->file, err);
    set->cached = found == 0;
    if (found < 0 || (found > 0 && tokenize(o, files, &cache, &set->file, err) < 0))
        return -1;
    const int named = label_names_parse(&set->file, &set->names, err);
    if (named > 0)
        return error_set(err, MUSTER_E_IO, "token cache %s differs from the written bytes; remove it",
                         cache.path ? cache.path : "");
    set->files = files->walk.count;
    set->samples = set->all = set->file.documents ? set->file.documents - 1 : 0; /* the last has the names */
    return named;
}

/* ---- labels ---- */

struct label {
    const char *name;
    int place;
    bool numbers; /* all names are whole numbers */
};

static int compare_labels(const void *a_, const void *b_)
{
    const struct label *a = a_, *b = b_;
    int64_t x = 0, y = 0;
    if (!a->numbers || !text_int64(a->name, &x) || !text_int64(b->name, &y))
        return strcmp(a->name, b->name);
    return x < y ? -1 : x > y;
}

/* Numbers the classes in the order of their names: numerical if all names are whole numbers, else by bytes.
 */
static void sort_labels(struct labelled *set)
{
    struct label labels[LABELS_LIMIT];
    bool numbers = true;
    int64_t value;
    for (int i = 0; i < set->names.count; i++)
        numbers = numbers && text_int64(set->names.name[i], &value);
    for (int i = 0; i < set->names.count; i++)
        labels[i] = (struct label){set->names.name[i], i, numbers};
    qsort(labels, (size_t)set->names.count, sizeof *labels, compare_labels);
    for (int i = 0; i < set->names.count; i++) {
        set->place[i] = labels[i].place;
        set->number[labels[i].place] = i;
    }
}

/* The labels of the model, by name or as numbers. */
static int take_given(struct labelled *set, const struct labelled_options *o, struct muster_error *err)
{
    char number[16];
    for (int i = 0; i < o->label_count && i < LABELS_LIMIT; i++) {
        (void)snprintf(number, sizeof number, "%d", i); /* fits */
        set->given.name[i] = mem_strdup(o->labels ? o->labels[i] : number);
        if (!set->given.name[i])
            return error_set(err, MUSTER_E_NOMEM, "no memory for a set of texts");
        set->given.count = i + 1;
    }
    return 0;
}

/* Classes of texts whose labels are all the model's; else the order of their names. */
static int number_labels(struct labelled *set, const struct labelled_options *o, struct muster_error *err)
{
    sort_labels(set);
    int number[LABELS_LIMIT];
    if (!o->label_count)
        return 0;
    if (take_given(set, o, err) < 0)
        return -1;
    for (int i = 0; i < set->names.count; i++)
        if ((number[i] = label_names_find(&set->given, set->names.name[i], strlen(set->names.name[i]))) < 0) {
            label_names_free(&set->given);
            return 0;
        }
    memcpy(set->number, number, (size_t)set->names.count * sizeof *number);
    return 0;
}

static void list_labels(const struct labelled *set, struct buffer *out)
{
    enum { SHOWN = 8 };
    for (int i = 0; i < set->names.count && i < SHOWN; i++)
        (void)buffer_printf(out, "%s%.40s", i ? ", " : "", set->names.name[set->place[i]]);
    if (set->names.count > SHOWN)
        (void)buffer_text(out, ", ...");
}

static int check_labels(const struct labelled *set, int classes, struct muster_error *err)
{
    scope_buffer names = {0};
    if (set->given.count || (set->names.count >= 2 && set->names.count <= classes))
        return 0;
    list_labels(set, &names);
    const char *shown = names.failed || !names.data ? "" : names.data;
    return set->names.count < 2
               ? error_set(err, MUSTER_E_INVALID, "all texts have the label %s; a classifier needs two",
                           shown)
               : error_set(err, MUSTER_E_INVALID, "there are %d labels (%s), and model.num_classes is %d",
                           set->names.count, shown, classes);
}

/* Gives the labels of a separate validation split the classes of the training split. */
static int match_labels(struct labelled *held, const struct labelled *set, struct muster_error *err)
{
    for (int i = 0; i < held->names.count; i++) {
        const char *name = held->names.name[i];
        const int given = label_names_find(&set->given, name, strlen(name));
        const int found = label_names_find(&set->names, name, strlen(name));
        held->number[i] = given;
        if (given >= 0)
            continue;
        if (found < 0)
            return error_set(err, MUSTER_E_INVALID,
                             "the label '%s' is in no text that is trained on; is data.label_key the right "
                             "column?",
                             name);
        held->number[i] = set->number[found];
    }
    return 0;
}

/* ---- texts ---- */

/* The place of text i in the file: its label, then its tokens up to *end. */
static int64_t text_at(const struct labelled *set, int64_t i, int64_t *end)
{
    *end = (int64_t)set->file.ends[i];
    return i ? (int64_t)set->file.ends[i - 1] : 0;
}

/* The text of a sample; the split shuffles the texts in an order that no epoch has. */
static int64_t text_of(const struct labelled *set, int64_t index)
{
    if (!set->owner && !(set->samples < set->all))
        return index;
    return (int64_t)order_permute(~set->seed, UINT64_MAX - 1, (uint64_t)(set->first + index),
                                  (uint64_t)set->all);
}

/* Positions without those of the tokens around a text. */
static int own_positions(const struct labelled *set)
{
    const int left = set->positions - (set->begin >= 0) - (set->end >= 0);
    return left > 0 ? left : 0;
}

static int length_of(const void *context, int64_t index)
{
    const struct labelled *set = context;
    int64_t end, from = text_at(set, text_of(set, index), &end);
    const int64_t there = end - from - 1, most = own_positions(set); /* without the label */
    return (int)(there < most ? there : most) + set->positions - own_positions(set);
}

/* Finds the faults of another tokenizer, another model or a damaged file. */
static int check_texts(struct labelled *set, const struct labelled_options *o, struct muster_error *err)
{
    if (o->vocabulary && tokenizer_vocabulary(o->tokenizer) > o->vocabulary)
        return error_set(err, MUSTER_E_INVALID, "the tokenizer has %lld tokens, and model.vocabulary is %lld",
                         (long long)tokenizer_vocabulary(o->tokenizer), (long long)o->vocabulary);
    for (int64_t i = 0; i < set->all; i++) {
        int64_t end, from = text_at(set, i, &end);
        int32_t label;
        token_file_read(&set->file, from, 1, &label);
        if (end <= from || label < 0 || label >= set->names.count)
            return error_set(err, MUSTER_E_IO, "a token cache of data.path differs from the written bytes");
        set->cut += end - from - 1 > own_positions(set);
    }
    return 0;
}

static int open_part(struct labelled *set, const struct labelled_options *o, const char *path,
                     enum labelled_part part, bool *has_test, struct buffer *identity,
                     struct muster_error *err)
{
    struct labelled_files files __attribute__((cleanup(labelled_files_free))) = {0};
    const char *setting = part == LABELLED_TRAIN ? "data.path" : "data.validation_path";
    if (labelled_find(&files, path, part, setting, o->text_key, err) < 0)
        return -1;
    *has_test = files.has_test;
    if (open_tokens(set, o, &files, err) < 0)
        return -1;
    identity_add_files(identity, part == LABELLED_TRAIN ? "texts" : "validation", files.path, &files.walk);
    if (!set->all)
        return error_set(err, MUSTER_E_INVALID, "%s %s holds no text", setting, files.path);
    return number_labels(set, o, err) < 0 ? -1 : check_texts(set, o, err);
}

/* Holds out the last texts in an order by the seed; int((1 - share) * all) texts are trained on. */
static int hold_out_texts(struct labelled *set, const struct labelled_options *o, struct muster_error *err)
{
    const int64_t kept = (int64_t)((1 - o->validation_share) * (double)set->all);
    if (kept < 1 || kept == set->all)
        return error_set(err, MUSTER_E_INVALID, "data.validation_share %g of %lld texts leaves %s",
                         o->validation_share, (long long)set->all,
                         kept ? "none to evaluate on" : "none to train on");
    struct labelled *held = set->validation = mem_calloc(1, sizeof *held);
    if (!held)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a set of texts");
    *held = *set;
    held->identity = (struct buffer){0};
    held->validation = NULL;
    held->owner = set;
    held->ordered = true;
    held->first = kept;
    held->samples = set->all - kept;
    set->samples = kept;
    return 0;
}

static int open_validation(struct labelled *set, const struct labelled_options *o, const char *path,
                           struct muster_error *err)
{
    bool has_test;
    struct labelled *held = set->validation = labelled_create(o, err);
    if (!held || open_part(held, o, path, LABELLED_TEST, &has_test, &set->identity, err) < 0)
        return -1;
    held->ordered = true;
    return match_labels(held, set, err) < 0 ? error_wrap(err, "%s", path) : 0;
}

/* Prepares the order by length, which depends on the size of a step. */
static int open_buckets(struct labelled *set, const struct labelled_options *o, struct muster_error *err)
{
    if (!o->length_buckets)
        return 0;
    set->buckets = buckets_create(&(struct buckets_options){.samples = set->samples,
                                                            .step = o->step,
                                                            .window = o->length_buckets,
                                                            .seed = o->seed,
                                                            .length = length_of,
                                                            .context = set},
                                  err);
    identity_add(&set->identity, "length_buckets", "%lld steps of %lld", (long long)o->length_buckets,
                 (long long)o->step);
    return set->buckets ? 0 : -1;
}

struct labelled *labelled_open(const struct labelled_options *o, struct muster_error *err)
{
    GUARD(guard_labelled) struct labelled *set = labelled_create(o, err);
    bool has_test = false;
    if (!set || open_part(set, o, o->path, LABELLED_TRAIN, &has_test, &set->identity, err) < 0 ||
        check_labels(set, o->classes, err) < 0)
        return NULL;
    const char *other = o->validation_path && *o->validation_path ? o->validation_path : NULL;
    if (!other && has_test && !(o->validation_share > 0))
        other = o->path;
    if (other ? open_validation(set, o, other, err) < 0
              : o->validation_share > 0 && hold_out_texts(set, o, err) < 0)
        return NULL;
    if (open_buckets(set, o, err) < 0)
        return NULL;
    identity_add(&set->identity, "tokenizer", "%016llx",
                 (unsigned long long)tokenizer_fingerprint(o->tokenizer));
    identity_add(&set->identity, "keys", "%s, %s", o->text_key, o->label_key);
    identity_add(&set->identity, "positions", "%d", o->positions);
    if (o->framed)
        identity_add(&set->identity, "around", "%d, %d", o->begin, o->end);
    identity_add(&set->identity, "validation_share", "%g", o->validation_share);
    if (set->identity.failed) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a set of texts");
        return NULL;
    }
    return take_pointer(&set);
}

/* ---- samples ---- */

/* The index of sample g in its epoch. */
static int64_t labelled_index(const struct labelled *set, uint64_t g, bool sorted)
{
    const uint64_t samples = (uint64_t)set->samples;
    if (sorted && set->buckets)
        return buckets_at(set->buckets, g);
    return (int64_t)(set->ordered ? g % samples
                                  : order_permute(set->seed, g / samples, g % samples, samples));
}

int labelled_length(const struct labelled *set, uint64_t g, bool sorted)
{
    return length_of(set, labelled_index(set, g, sorted));
}

void labelled_sample(const struct labelled *set, uint64_t g, int32_t *tokens, int32_t *length, int32_t *label)
{
    int32_t name;
    int64_t end, from = text_at(set, text_of(set, labelled_index(set, g, true)), &end);
    token_file_read(&set->file, from, 1, &name);
    const int64_t there = end - from - 1, most = own_positions(set), taken = there < most ? there : most;
    int64_t at = 0;
    if (set->begin >= 0)
        tokens[at++] = set->begin;
    token_file_read(&set->file, from + 1, taken, tokens + at);
    at += taken;
    if (set->end >= 0)
        tokens[at++] = set->end;
    memset(tokens + at, 0, (size_t)(set->positions - at) * sizeof *tokens);
    *length = (int32_t)at;
    *label = set->number[name];
}

int64_t labelled_samples(const struct labelled *set)
{
    return set->samples;
}

const struct labelled *labelled_validation(const struct labelled *set)
{
    return set->validation;
}

static const struct labelled *other_files(const struct labelled *set)
{
    return set->validation && !set->validation->owner ? set->validation : NULL;
}

int64_t labelled_files(const struct labelled *set)
{
    const struct labelled *other = other_files(set);
    return set->files + (other ? other->files : 0);
}

int64_t labelled_cut(const struct labelled *set)
{
    const struct labelled *other = other_files(set);
    return set->cut + (other ? other->cut : 0);
}

bool labelled_cached(const struct labelled *set)
{
    const struct labelled *other = other_files(set);
    return set->cached && (!other || other->cached);
}

int labelled_labels(const struct labelled *set)
{
    return set->given.count ? set->given.count : set->names.count;
}

bool labelled_follows(const struct labelled *set)
{
    return set->given.count > 0;
}

const char *labelled_label(const struct labelled *set, int label)
{
    if (label < 0 || label >= labelled_labels(set))
        return NULL;
    return set->given.count ? set->given.name[label] : set->names.name[set->place[label]];
}

const char *labelled_identity(const struct labelled *set)
{
    return set->identity.data;
}

int labelled_info(const struct labelled *set, struct buffer *out)
{
    (void)buffer_printf(out, "{\"train_size\": %lld, \"val_size\": %lld, \"num_classes\": %d, \"classes\": [",
                        (long long)set->samples, set->validation ? (long long)set->validation->samples : 0LL,
                        labelled_labels(set));
    for (int i = 0; i < labelled_labels(set); i++) {
        (void)buffer_text(out, i ? ", " : "");
        (void)buffer_json_string(out, labelled_label(set, i));
    }
    return buffer_printf(out, "], \"cut\": %lld, \"cached\": %s}\n", (long long)labelled_cut(set),
                         labelled_cached(set) ? "true" : "false");
}
