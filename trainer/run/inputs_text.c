/* inputs_text.c - texts for a language model: the tokenizer of the settings, the sources with their weights,
 * a folder of muster-train prepare. See inputs.h. */
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/text.h"
#include "trainer/chat/chat.h"
#include "trainer/data/corpus.h"
#include "trainer/data/prepared.h"
#include "trainer/run/inputs_internal.h"

/* ---- the tokenizer ---- */

struct tokenizer *inputs_find_tokenizer(struct inputs *inputs, const struct train_config *c,
                                        struct muster_error *err)
{
    GUARD(guard_tokenizer)
    struct tokenizer *tokenizer = !strcmp(c->tokenizer, "auto") ? tokenizer_open_of_model(c->model_path, err)
                                                                : tokenizer_open(c->tokenizer, err);
    if (!tokenizer)
        return NULL;
    const char *path = tokenizer_path(tokenizer);
    inputs->tokenizer_kind = tokenizer_kind(tokenizer);
    inputs->vocabulary = tokenizer_vocabulary(tokenizer);
    inputs->tokenizer_path = path ? mem_strdup(path) : NULL;
    inputs->tokenizer_name = mem_strdup(path ? path : "bytes");
    if (!inputs->tokenizer_name || (path && !inputs->tokenizer_path)) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a path");
        return NULL;
    }
    if (!train_config_gives_sizes(c) || inputs->vocabulary <= c->vocabulary)
        return take_pointer(&tokenizer);
    (void)error_set(err, MUSTER_E_INVALID,
                    "model.vocabulary %lld is below the %lld tokens of data.tokenizer %s",
                    (long long)c->vocabulary, (long long)inputs->vocabulary, c->tokenizer);
    return NULL;
}

void inputs_show_tokenizer(const struct inputs *inputs)
{
    if (inputs->tokenizer_path)
        printf("tokenizer: %s, %s, %lld tokens\n", inputs->tokenizer_path, inputs->tokenizer_kind,
               (long long)inputs->vocabulary);
}

#define FIRST_LINE_NS (2 * NS_PER_S)
#define LINE_NS       (5 * NS_PER_S)

void inputs_print_tokenized(void *context, const char *path, int64_t bytes, int64_t all_bytes)
{
    struct inputs_tokenizing *t = context;
    const struct instant now = clock_now(NULL);
    char done[32], all[32], rate[32];
    if (t->path != path)
        *t = (struct inputs_tokenizing){t->path ? now : t->begun, instant_add(now, FIRST_LINE_NS), path};
    if (instant_diff_ns(now, t->next) < 0 || bytes == 0)
        return;
    const double seconds = (double)instant_diff_ns(now, t->begun) / (double)NS_PER_S,
                 per_second = (double)bytes / seconds;
    printf("tokenizing %s: %s of %s, %s/s, %.0f s left\n", path, text_format_bytes(done, sizeof done, bytes),
           text_format_bytes(all, sizeof all, all_bytes),
           text_format_bytes(rate, sizeof rate, (int64_t)per_second),
           (double)(all_bytes - bytes) / per_second);
    (void)fflush(stdout); /* a closed console does not stop the training */
    t->next = instant_add(now, LINE_NS);
}

void inputs_show_epochs(const struct inputs *inputs, const struct train_config *c, const char *unit)
{
    if (c->epochs > 0)
        printf("epochs: %g of %lld %s are %lld steps\n", c->epochs, (long long)inputs->source.samples, unit,
               (long long)c->steps);
}

/* ---- the sources ---- */

/* The token after each document; TOKEN_NONE: none. */
static int document_end(const struct train_config *c, const struct tokenizer *tokenizer, int32_t *end,
                        struct muster_error *err)
{
    const char *name = c->document_end;
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

static int open_sources(struct inputs *inputs, const struct train_config *c, struct data_options *options,
                        struct muster_error *err)
{
    struct data_source sources[DATA_SOURCES];
    int count = 0;
    char *const *texts = c->data_sources;
    for (; texts && texts[count]; count++) {
        if (count == DATA_SOURCES)
            return error_set(err, MUSTER_E_LIMIT, "data.sources has more than %d sources", DATA_SOURCES);
        sources[count] = source_of(texts[count]);
    }
    if (count) {
        options->sources = sources;
        options->source_count = count;
    }
    inputs->set = data_open(options, err);
    return inputs->set ? 0 : -1;
}

/* ---- a folder of muster-train prepare ---- */

/* The setting takes value, and owns it. */
static void replace(char **setting, char **value)
{
    mem_free(*setting);
    *setting = take_pointer(value);
}

/* data.path by the index of a prepared folder: the shards to train on, the shards held out, the tokenizer.
 * Settings of the user stay. */
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

/* ---- chats ---- */

static struct chat *open_chat(const struct inputs *inputs, const struct train_config *c,
                              struct muster_error *err)
{
    const char *path = inputs->tokenizer_path, *slash = path ? strrchr(path, '/') : NULL;
    scope_free char *folder = slash  ? mem_strndup(path, (size_t)(slash - path))
                              : path ? mem_strdup(".")
                                     : NULL;
    if (path && !folder) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a path");
        return NULL;
    }
    return chat_open(&(struct chat_options){.template_name = c->chat_template,
                                            .folder = folder,
                                            .variables = c->chat_variables,
                                            .all = c->chat_targets == 1,
                                            .date = c->chat_date},
                     err);
}

/* ---- the kind ---- */

static int open_texts(struct inputs *inputs, struct train_config *c, int rank, struct muster_error *err)
{
    if (resolve_prepared(c, err) < 0)
        return -1;
    struct inputs_tokenizing tokenizing = {.begun = clock_now(NULL)};
    scope_buffer notes = {0};
    const struct data_progress progress = {inputs_print_tokenized, &tokenizing};
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
    GUARD(guard_tokenizer) struct tokenizer *tokenizer = inputs_find_tokenizer(inputs, c, err);
    if (!tokenizer || document_end(c, tokenizer, &options.document_end, err) < 0)
        return -1;
    GUARD(guard_chat) struct chat *chat = open_chat(inputs, c, err);
    if (!chat)
        return -1;
    options.tokenizer = tokenizer;
    options.chat = chat;
    if (open_sources(inputs, c, &options, err) < 0)
        return -1;
    const char *end;
    for (const char *line = notes.data; rank == 0 && line && line < notes.data + notes.length;
         line = end + 1) {
        end = memchr(line, '\n', (size_t)(notes.data + notes.length - line)); /* each has one */
        fprintf(stderr, "muster-train: %.*s\n", (int)(end - line), line);
    }
    tokenizer_destroy(take_pointer(&tokenizer));
    (void)malloc_trim(0); /* its files were read through many small blocks */
    const struct data *data = inputs->set, *held = data_validation(data);
    inputs->source = batch_source_texts(data, (int)c->sequence_length);
    if (held)
        inputs->held = batch_source_texts(held, (int)c->sequence_length);
    inputs->identity = data_identity(data);
    inputs->padding = data_padding(data);
    return 0;
}

static void show_texts(const struct inputs *inputs, const struct train_config *c,
                       const struct muster_trainer *trainer)
{
    const struct data *data = inputs->set;
    (void)trainer;
    char *const *sources = c->data_sources;
    int count = 0;
    while (sources && sources[count])
        count++;
    for (int i = 0; count > 1 && i < count; i++)
        printf("source: %s\n", sources[i]);
    if (count > 1)
        printf("data: %d sources, %d files, %lld tokens\n", count, data_files(data),
               (long long)data_tokens(data));
    else
        printf("data: %s, %d files, %lld tokens\n", count ? sources[0] : c->path, data_files(data),
               (long long)data_tokens(data));
    inputs_show_tokenizer(inputs);
    if (data_documents_cut(data))
        printf("%lld documents are longer than training.sequence_length %lld, and are cut\n",
               (long long)data_documents_cut(data), (long long)c->sequence_length);
    if (data_chats(data))
        printf("chats: %lld, by data.chat_template %s%s\n", (long long)data_chats(data), c->chat_template,
               c->chat_targets == 1 ? "; all tokens are targets"
                                    : "; tokens that the assistant did not write are no targets");
    if (data_packing(data) == DATA_PACKED)
        printf("data.packing packed: %lld documents in %lld rows of %lld positions, of which %.1f%% are left "
               "over\n",
               (long long)data_documents_used(data), (long long)data_samples(data),
               (long long)c->sequence_length, 100 * inputs->padding);
    if (data_chats(data) && data_packing(data) == DATA_DOCUMENTS)
        printf("each chat is a sample of its own, and %.0f%% of the positions come after the ends of chats\n",
               100 * inputs->padding);
    inputs_show_epochs(inputs, c, "samples");
}

static int texts_info(const struct inputs *inputs, struct buffer *out)
{
    const struct data *data = inputs->set, *held = data_validation(data);
    return buffer_printf(
        out,
        "{\"train_size\": %lld, \"val_size\": %lld, \"tokens\": %lld, \"files\": %d, \"padding\": %.4f}\n",
        (long long)data_samples(data), held ? (long long)data_samples(held) : 0LL,
        (long long)data_tokens(data), data_files(data), inputs->padding);
}

static void close_texts(void *set)
{
    data_destroy(set);
}

const struct input_kind input_texts = {
    .unit = "tokens", .open = open_texts, .show = show_texts, .info = texts_info, .close = close_texts};
