/* data.c - see data.h: opens the sources of a run, and divides them into samples to train on and samples held
 * out. sample.c reads the samples. */
#include "trainer/data/data.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "trainer/chat/chat.h"
#include "trainer/data/data_internal.h"
#include "trainer/data/identity.h"
#include "trainer/data/order.h"
#include "trainer/tokens/tokenizer.h"

/* The options with defaults applied. */
struct opening {
    const struct data_options *options;
    struct tokenizer *tokenizer;
    int32_t end;
};

void data_destroy(struct data *data)
{
    if (!data)
        return;
    data_destroy(data->validation);
    for (int i = 0; i < data->count; i++) {
        selection_free(&data->part[i].selection);
        mem_free(data->part[i].kept);
        rows_free(&data->part[i].rows);
    }
    for (int i = 0; data->owned && i < data->count; i++)
        corpus_destroy(data->part[i].corpus);
    buffer_free(&data->identity);
    mem_free(data->part);
    mem_free(data->shares);
    mem_free(data);
}
GUARD_DEFINE(data, struct data *, data_destroy);

static struct data *create_data(const struct data_options *o, int parts, struct muster_error *err)
{
    GUARD(guard_data) struct data *data = mem_calloc(1, sizeof *data);
    if (data)
        data->part = mem_calloc((size_t)parts, sizeof *data->part);
    if (!data || !data->part) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the data");
        return NULL;
    }
    data->T = o->positions;
    data->packing = o->packing;
    data->vocabulary = o->vocabulary ? o->vocabulary : INT32_MAX;
    data->seed = o->seed;
    return take_pointer(&data);
}

static bool by_documents(const struct data *data)
{
    return data->packing == DATA_DOCUMENTS || data->packing == DATA_PACKED;
}

static const char *packing_name(enum data_packing packing)
{
    return packing == DATA_DOCUMENTS ? "documents" : packing == DATA_PACKED ? "packed" : "stream";
}

/* Samples of a source; -1: it has too few tokens. */
static int64_t count_samples(const struct data *data, const char *path, const struct corpus *corpus,
                             struct muster_error *err)
{
    const int64_t tokens = corpus_tokens(corpus), documents = corpus_documents(corpus);
    if (by_documents(data) && documents < 0)
        return error_set(err, MUSTER_E_UNSUPPORTED,
                         "data.packing is %s, but the token shards of %s do not say where documents end",
                         packing_name(data->packing), path);
    if (tokens == 0)
        return error_set(err, MUSTER_E_INVALID,
                         "data.path %s holds no text: its files, or the texts in them, are empty", path);
    if (by_documents(data))
        return documents;
    if (tokens < (int64_t)data->T + 1)
        return error_set(
            err, MUSTER_E_INVALID,
            "data.path %s holds %lld tokens, fewer than one window of training.sequence_length %d + 1", path,
            (long long)tokens, data->T);
    return (tokens - 1) / data->T;
}

/* name: the source's name in the identity. */
static int add_source(struct data *data, const struct opening *opening, const char *path, const char *name,
                      struct muster_error *err)
{
    const struct data_options *o = opening->options;
    const struct corpus_options options = {.path = path,
                                           .tokenizer = opening->tokenizer,
                                           .text_key = o->text_key ? o->text_key : "text",
                                           .end = opening->end,
                                           .chat = o->chat,
                                           .cache_dir = o->cache_dir,
                                           .progress = o->progress,
                                           .notes = o->notes,
                                           .identity = &data->identity,
                                           .identity_name = name};
    GUARD(guard_corpus) struct corpus *corpus = corpus_open(&options, err);
    if (!corpus)
        return -1;
    const struct token_file_chats chats = corpus_chats(corpus);
    data->chats.chats += chats.chats;
    data->chats.empty_turns += chats.empty_turns;
    data->chats.unasked += chats.unasked;
    data->chats.in_parts += chats.in_parts;
    data->part[data->count++] = (struct data_part){.corpus = take_pointer(&corpus)};
    return 0;
}

/* Counts the samples of each source, after the packing is known. */
static int count_sources(struct data *data, const struct data_source *sources, struct muster_error *err)
{
    for (int i = 0; i < data->count; i++) {
        data->part[i].samples = count_samples(data, sources[i].path, data->part[i].corpus, err);
        if (data->part[i].samples < 0)
            return -1;
        data->samples += data->part[i].samples;
    }
    return 0;
}

static int64_t take_from(struct data_part *part, int64_t held, struct data *validation)
{
    if (held > 0)
        validation->part[validation->count++] = (struct data_part){
            .corpus = part->corpus, .first = part->first + part->samples - held, .samples = held};
    part->samples -= held;
    return held;
}

/* Moves the end of each source into the validation split: at least one sample in all, and never a whole
 * source. */
static int hold_out(struct data *data, const struct data_options *o, struct muster_error *err)
{
    struct data *validation = create_data(o, data->count, err);
    int largest = 0;
    data->validation = validation;
    if (!validation)
        return -1;
    validation->packing = data->packing;
    validation->ordered = true;
    for (int i = 0; i < data->count; i++) {
        const int64_t samples = data->part[i].samples,
                      share = (int64_t)((double)samples * o->validation_share + 0.5),
                      held = share < samples ? share : samples - 1;
        largest = samples > data->part[largest].samples ? i : largest;
        validation->samples += take_from(&data->part[i], held, validation);
    }
    if (validation->samples == 0 && data->part[largest].samples > 1)
        validation->samples = take_from(&data->part[largest], 1, validation);
    if (validation->samples == 0)
        return error_set(err, MUSTER_E_INVALID,
                         "there is one sample of training.sequence_length %d, and data.validation_share %g "
                         "leaves none to train on",
                         data->T, o->validation_share);
    data->samples -= validation->samples;
    return 0;
}

static int64_t selected_samples(const struct data *data, const struct selection *selection)
{
    const int64_t tokens = selection_tokens(selection);
    return by_documents(data) ? selection->count : tokens > 0 ? (tokens - 1) / data->T : 0;
}

/* Divides the documents of a source; sets the number of samples of both parts. */
static int hold_out_of(struct data *data, struct data_part *part, double share, struct muster_error *err)
{
    struct data *validation = data->validation;
    struct data_part *held = &validation->part[validation->count];
    if (corpus_documents(part->corpus) < 0)
        return error_set(
            err, MUSTER_E_UNSUPPORTED,
            "data.validation_split is documents, but token shards do not say where documents end");
    validation->count++; /* data_destroy frees its selection, after a failure too */
    held->corpus = part->corpus;
    if (selection_split(part->corpus, share, &part->selection, &held->selection, err) < 0)
        return -1;
    part->samples = selected_samples(data, &part->selection);
    held->samples = held->selection.count ? selected_samples(data, &held->selection) : 0;
    if (part->samples > 0)
        return 0;
    return error_set(
        err, MUSTER_E_INVALID,
        "data.validation_share %g by documents leaves no sample of training.sequence_length %d to train "
        "on in a source of %lld documents",
        share, data->T, (long long)corpus_documents(part->corpus));
}

static int hold_out_documents(struct data *data, const struct data_options *o, struct muster_error *err)
{
    data->validation = create_data(o, data->count, err);
    if (!data->validation)
        return -1;
    data->validation->packing = data->packing;
    data->validation->ordered = true;
    data->samples = 0;
    for (int i = 0; i < data->count; i++) {
        if (hold_out_of(data, &data->part[i], o->validation_share, err) < 0)
            return -1;
        data->samples += data->part[i].samples;
        data->validation->samples += data->validation->part[data->validation->count - 1].samples;
    }
    return data->validation->samples
               ? 0
               : error_set(err, MUSTER_E_INVALID,
                           "the documents that data.validation_share %g holds out have no sample of "
                           "training.sequence_length %d: raise it, or set data.validation_split: end",
                           o->validation_share, data->T);
}

static int open_validation(struct data *data, const struct opening *opening, struct muster_error *err)
{
    if (!opening->options->validation_path || !*opening->options->validation_path)
        return !(opening->options->validation_share > 0) ? 0
               : opening->options->validation_split == DATA_SPLIT_DOCUMENTS
                   ? hold_out_documents(data, opening->options, err)
                   : hold_out(data, opening->options, err);
    data->validation = create_data(opening->options, 1, err);
    if (!data->validation)
        return -1;
    data->validation->ordered = data->validation->owned = true;
    data->validation->packing = data->packing;
    const struct data_source only = {.path = opening->options->validation_path};
    if (add_source(data->validation, opening, only.path, "validation", err) < 0 ||
        count_sources(data->validation, &only, err) < 0)
        return error_wrap(err, "data.validation_path");
    return 0;
}

static int weigh(struct data *data, const struct data_source *sources, struct muster_error *err)
{
    double weights[DATA_SOURCES];
    if (!(sources[0].weight > 0))
        return 0;
    for (int i = 0; i < data->count; i++)
        weights[i] = sources[i].weight;
    data->shares = mem_calloc((size_t)data->count, sizeof *data->shares);
    if (!data->shares)
        return error_set(err, MUSTER_E_NOMEM, "no memory for the data");
    order_shares(weights, data->count, data->shares);
    return 0;
}

static int check_sources(const struct data_source *sources, int count, struct muster_error *err)
{
    if (count < 1 || count > DATA_SOURCES)
        return error_set(err, MUSTER_E_LIMIT, "%d sources of data; 1 to %d are supported", count,
                         DATA_SOURCES);
    for (int i = 0; i < count; i++)
        if ((sources[i].weight > 0) != (sources[0].weight > 0) || !(sources[i].weight >= 0))
            return error_set(
                err, MUSTER_E_INVALID,
                "data.sources: %s has the weight %g; either all have a weight above 0 or none has "
                "one",
                sources[i].path, sources[i].weight);
    return 0;
}

static void count_figures(struct data *data)
{
    for (int i = 0; i < data->count; i++) {
        data->tokens += corpus_tokens(data->part[i].corpus);
        data->files += corpus_files(data->part[i].corpus);
        data->masked = data->masked || corpus_masked(data->part[i].corpus);
    }
    if (!data->validation)
        return;
    data->validation->masked = data->masked;
    if (data->validation->owned) {
        count_figures(data->validation);
        data->tokens += data->validation->tokens;
        data->files += data->validation->files;
    }
}

static void count_cut(struct data *data)
{
    for (int i = 0; by_documents(data) && i < data->count; i++) {
        for (int64_t d = 0; d < corpus_documents(data->part[i].corpus); d++) {
            int64_t begin, end;
            corpus_document(data->part[i].corpus, d, &begin, &end);
            data->cut += end - begin > data->T + 1;
        }
    }
}

/* Adds the settings that determine the samples to the identity. */
static int identify(struct data *data, const struct opening *opening, struct muster_error *err)
{
    const struct data_options *o = opening->options;
    struct buffer *out = &data->identity;
    identity_add(out, "packing", "%s", packing_name(data->packing));
    if (data_has_text(data)) {
        identity_add(out, "tokenizer", "%s (%016llx)", tokenizer_kind(opening->tokenizer),
                     (unsigned long long)tokenizer_fingerprint(opening->tokenizer));
        identity_add(out, "document_end", "%d", opening->end);
        identity_add(out, "text_key", "%s", o->text_key ? o->text_key : "text");
        if (data->chats.chats)
            identity_add(out, "chat_template", "%016llx", (unsigned long long)chat_fingerprint(o->chat));
    }
    for (int i = 0; data->shares && i < data->count; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "share of source %d", i); /* fits */
        identity_add(out, name, "%d of %d", data->shares[i], ORDER_BLOCK);
    }
    const bool shared = data->validation && !data->validation->owned;
    identity_add(out, "validation_share",
                 shared && o->validation_split == DATA_SPLIT_DOCUMENTS ? "%g of the documents" : "%g",
                 shared ? o->validation_share : 0);
    return out->failed ? error_set(err, MUSTER_E_NOMEM, "no memory for the data") : 0;
}

/* Lines about chats that are not as they should be. */
static int note_chats(const struct data *data, const struct data_options *o, struct muster_error *err)
{
    const struct token_file_chats *c = &data->chats;
    if (!o->notes || !c->chats)
        return 0;
    if (c->empty_turns)
        (void)buffer_printf(o->notes, "%llu turns of the assistant have no text, and train its end alone\n",
                            (unsigned long long)c->empty_turns); /* notes remember a failure */
    if (c->unasked)
        (void)buffer_printf(o->notes, "%llu of %llu chats have no turn of the assistant to train on\n",
                            (unsigned long long)c->unasked, (unsigned long long)c->chats);
    if (c->in_parts)
        (void)buffer_printf(o->notes,
                            "%llu of %llu chats are tokenized turn by turn, since their tokens do not give "
                            "their text back (a normalizer changes it)\n",
                            (unsigned long long)c->in_parts, (unsigned long long)c->chats);
    if (data->packing == DATA_STREAM)
        (void)buffer_printf(
            o->notes,
            "data.packing is stream: chats follow each other in a sample, and a chat sees the "
            "chats in front of it; data.packing documents gives each a sample of its own, and packed "
            "packs several that do not see each other\n");
    return o->notes->failed ? error_set(err, MUSTER_E_NOMEM, "no memory for a line") : 0;
}

/* Leaves out samples without a target that counts, with a note. */
static int keep_usable_samples(struct data *data, const struct data_options *o, const char *of,
                               struct muster_error *err)
{
    const int64_t all = data->samples, dropped = usable_keep(data, err);
    if (dropped < 0)
        return -1;
    for (int i = 0; i < data->count; i++)
        if (dropped && (!data->samples || (data->shares && !data->part[i].samples)))
            return error_set(
                err, MUSTER_E_INVALID,
                "%s: none of the samples has a target that counts within training.sequence_length %d: "
                "prompts fill them, or texts are empty",
                of, data->T);
    if (!dropped || !o->notes)
        return 0;
    return buffer_printf(o->notes,
                         "%s: %lld of %lld samples are left out, since none of their targets counts within "
                         "training.sequence_length %d (a prompt fills them, or their text is empty)\n",
                         of, (long long)dropped, (long long)all, data->T) < 0
               ? error_set(err, MUSTER_E_NOMEM, "no memory for a line")
               : 0;
}

/* DATA_PACKED: rows of documents become the samples. */
static int pack_part(struct data *data, struct data_part *part, struct muster_error *err)
{
    scope_free int32_t *length = mem_calloc((size_t)part->samples + 1, sizeof *length);
    if (!length)
        return error_set(err, MUSTER_E_NOMEM, "no memory to pack %lld documents", (long long)part->samples);
    for (int64_t i = 0; i < part->samples; i++) {
        int64_t begin;
        length[i] = sample_document(data, part, i, &begin);
    }
    if (rows_pack(length, part->samples, data->T, &part->rows, err) < 0)
        return -1;
    part->samples = part->rows.count;
    return 0;
}

static int pack(struct data *data, struct muster_error *err)
{
    if (!data || data->packing != DATA_PACKED)
        return 0;
    data->samples = 0;
    for (int i = 0; i < data->count; i++) {
        if (pack_part(data, &data->part[i], err) < 0)
            return -1;
        data->samples += data->part[i].samples;
    }
    return 0;
}

static struct data *open_sources(const struct opening *opening, const struct data_source *sources, int count,
                                 struct muster_error *err)
{
    if (check_sources(sources, count, err) < 0)
        return NULL;
    GUARD(guard_data) struct data *data = create_data(opening->options, count, err);
    if (!data)
        return NULL;
    data->owned = true;
    for (int i = 0; i < count; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, count > 1 ? "source %d" : "data", i); /* fits */
        if (add_source(data, opening, sources[i].path, name, err) < 0)
            return NULL;
    }
    data->packing = data->packing != DATA_AUTO ? data->packing
                    : data->chats.chats        ? DATA_DOCUMENTS
                                               : DATA_STREAM;
    if (count_sources(data, sources, err) < 0)
        return NULL;
    count_cut(data);
    if (weigh(data, sources, err) < 0 || open_validation(data, opening, err) < 0)
        return NULL;
    count_figures(data);
    const int64_t before = data->samples;
    if (note_chats(data, opening->options, err) < 0)
        return NULL;
    if (keep_usable_samples(data, opening->options, "data", err) < 0 ||
        (data->validation && keep_usable_samples(data->validation, opening->options, "validation", err) < 0))
        return NULL;
    if (data->samples < before)
        identity_add(&data->identity, "samples without targets", "%lld", (long long)(before - data->samples));
    if (pack(data, err) < 0 || pack(data->validation, err) < 0)
        return NULL;
    return identify(data, opening, err) < 0 ? NULL : take_pointer(&data);
}

struct data *data_open(const struct data_options *options, struct muster_error *err)
{
    const struct data_source only = {.path = options->path};
    GUARD(guard_tokenizer) struct tokenizer *bytes = NULL;
    struct opening opening = {options, options->tokenizer, options->document_end};
    if (!opening.tokenizer) {
        bytes = opening.tokenizer = tokenizer_open("bytes", err);
        opening.end = TOKEN_NONE;
    }
    if (!opening.tokenizer)
        return NULL;
    return options->sources ? open_sources(&opening, options->sources, options->source_count, err)
                            : open_sources(&opening, &only, 1, err);
}

int64_t data_tokens(const struct data *data)
{
    return data->tokens;
}

const char *data_identity(const struct data *data)
{
    return data->identity.data;
}

int data_identity_compare(const char *written, const char *now, struct buffer *out)
{
    return identity_compare(written, now, out);
}

int data_files(const struct data *data)
{
    return data->files;
}

int64_t data_documents_cut(const struct data *data)
{
    return data->cut;
}

int64_t data_chats(const struct data *data)
{
    return (int64_t)data->chats.chats;
}

enum data_packing data_packing(const struct data *data)
{
    return data->packing;
}

int64_t data_documents_used(const struct data *data)
{
    int64_t documents = 0;
    for (int i = 0; by_documents(data) && i < data->count; i++) {
        const struct data_part *part = &data->part[i];
        documents += part->rows.start ? part->rows.start[part->samples] : part->samples;
    }
    return documents;
}

double data_padding(const struct data *data)
{
    double filled = 0, all = 0;
    for (int i = 0; by_documents(data) && i < data->count; i++) {
        const struct data_part *part = &data->part[i];
        const int64_t documents = part->rows.start ? part->rows.start[part->samples] : part->samples;
        for (int64_t k = 0; k < documents; k++) {
            int64_t begin;
            filled += sample_document(data, part, k, &begin);
        }
        all += (double)part->samples * data->T;
    }
    return all > 0 ? 1 - filled / all : 0;
}

bool data_has_text(const struct data *data)
{
    for (int i = 0; i < data->count; i++)
        if (corpus_documents(data->part[i].corpus) >= 0)
            return true;
    return false;
}

const struct data *data_validation(const struct data *data)
{
    return data->validation;
}

int64_t data_samples(const struct data *data)
{
    return data->samples;
}

int data_targets_each(const struct data *data)
{
    return data->packing == DATA_STREAM && !data->masked ? data->T : -1;
}
