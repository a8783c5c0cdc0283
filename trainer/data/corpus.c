/* corpus.c - see corpus.h. */
#include "trainer/data/corpus.h"

#include <string.h>

#include "proto/base/error.h"
#include "trainer/data/documents.h"
#include "trainer/data/identity.h"
#include "trainer/data/token_cache.h"
#include "trainer/data/token_file.h"
#include "trainer/data/walk.h"

struct corpus {
    struct token_file *file; /* (count): the shards, or a single file with the tokens of all texts */
    int64_t *start;          /* (count + 1): tokens before each file */
    int64_t *document;       /* (count + 1): documents before each file */
    bool known;              /* all files have the ends of documents */
    int count, files;
    bool masked;
};

void corpus_destroy(struct corpus *corpus)
{
    if (!corpus)
        return;
    for (int i = 0; i < corpus->count; i++)
        token_file_close(&corpus->file[i]);
    mem_free(corpus->file);
    mem_free(corpus->start);
    mem_free(corpus->document);
    mem_free(corpus);
}

static int64_t text_bytes(const struct walk *walk)
{
    int64_t bytes = 0;
    for (int i = 0; i < walk->count; i++)
        bytes += walk->file[i].bytes;
    return bytes;
}

struct tokenizing {
    const struct corpus_options *options;
    int64_t done, bytes;
};

static void add_tokenized(void *context, int64_t bytes)
{
    struct tokenizing *t = context;
    t->done += bytes;
    t->options->progress->take(t->options->progress->context, t->options->path, t->done, t->bytes);
}

static int tokenize(const struct corpus_options *o, const struct walk *walk, const char *cache, uint64_t key,
                    struct token_file *out, struct muster_error *err)
{
    struct token_sink_options sink_options = {
        .path = cache, .key = key, .vocabulary = tokenizer_vocabulary(o->tokenizer)};
    struct tokenizing tokenizing = {.options = o, .bytes = text_bytes(walk)};
    const struct documents_options documents = {.tokenizer = o->tokenizer,
                                                .text_key = o->text_key,
                                                .chat = o->chat,
                                                .end = o->end,
                                                .read = o->progress ? add_tokenized : NULL,
                                                .context = &tokenizing};
    for (int i = 0; i < walk->count; i++)
        sink_options.masked = sink_options.masked || walk->file[i].kind != WALK_TEXT;
    GUARD(guard_token_sink) struct token_sink *sink = token_sink_create(&sink_options, err);
    if (!sink)
        return -1;
    for (int i = 0; i < walk->count; i++)
        if (documents_read(&documents, &walk->file[i], sink, err) < 0)
            return -1;
    return token_sink_finish(sink, out, err);
}

static int open_texts(struct corpus *corpus, const struct corpus_options *o, const struct walk *walk,
                      struct muster_error *err)
{
    struct token_cache cache __attribute__((cleanup(token_cache_close))) = TOKEN_CACHE_NONE;
    /* Bytes need no tokenizing; they stay in memory if they fit. */
    if (tokenizer_path(o->tokenizer) || text_bytes(walk) > TOKEN_SINK_MEMORY / 4) {
        const int found = token_cache_open(&cache, o, walk, &corpus->file[0], err);
        if (found <= 0)
            return found;
    }
    return tokenize(o, walk, cache.path, cache.key, &corpus->file[0], err);
}

static int open_files(struct corpus *corpus, const struct corpus_options *o, const struct walk *walk,
                      struct muster_error *err)
{
    int shards = 0;
    for (int i = 0; i < walk->count; i++)
        shards += walk->file[i].kind == WALK_TOKENS;
    if (shards && shards < walk->count)
        return error_set(err, MUSTER_E_INVALID,
                         "data.path %s has token shards and texts; name them apart, in data.sources",
                         o->path);
    corpus->files = walk->count;
    corpus->count = shards ? shards : 1;
    corpus->file = mem_calloc((size_t)corpus->count, sizeof *corpus->file);
    corpus->start = mem_calloc((size_t)corpus->count + 1, sizeof *corpus->start);
    corpus->document = mem_calloc((size_t)corpus->count + 1, sizeof *corpus->document);
    corpus->known = true;
    if (!corpus->file || !corpus->start || !corpus->document) {
        corpus->count = 0;
        return error_set(err, MUSTER_E_NOMEM, "no memory for the data");
    }
    if (!shards && open_texts(corpus, o, walk, err) < 0)
        return -1;
    for (int i = 0; i < shards; i++)
        if (token_file_open_shard(&corpus->file[i], walk->file[i].path, err) < 0)
            return -1;
    for (int i = 0; i < corpus->count; i++) {
        corpus->start[i + 1] = corpus->start[i] + corpus->file[i].count;
        corpus->document[i + 1] = corpus->document[i] + corpus->file[i].documents;
        corpus->known = corpus->known && corpus->file[i].ends;
        corpus->masked = corpus->masked || corpus->file[i].masked || corpus->file[i].mask;
    }
    return 0;
}

struct corpus *corpus_open(const struct corpus_options *options, struct muster_error *err)
{
    struct walk walk __attribute__((cleanup(walk_free))) = {.text_key = options->text_key};
    scope_buffer left = {0};
    GUARD(guard_corpus) struct corpus *corpus = mem_calloc(1, sizeof *corpus);
    if (!corpus) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the data");
        return NULL;
    }
    if (walk_path(&walk, options->path, err) < 0)
        return NULL;
    if (walk_list_left(&walk, options->path, &left) < 0 ||
        (options->notes && left.length && buffer_append(options->notes, left.data, left.length) < 0)) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for a list of files");
        return NULL;
    }
    if (!walk.count) {
        (void)error_set(err, MUSTER_E_INVALID, "data.path %s holds no text%s%.*s", options->path,
                        left.length ? "; " : ": it is empty", (int)(left.length ? left.length - 1 : 0),
                        left.data ? left.data : "");
        return NULL;
    }
    identity_add_files(options->identity, options->identity_name, options->path, &walk);
    return open_files(corpus, options, &walk, err) < 0 ? NULL : take_pointer(&corpus);
}

int corpus_files(const struct corpus *corpus)
{
    return corpus->files;
}

int64_t corpus_tokens(const struct corpus *corpus)
{
    return corpus->start[corpus->count];
}

int64_t corpus_documents(const struct corpus *corpus)
{
    return corpus->known ? corpus->document[corpus->count] : -1;
}

bool corpus_masked(const struct corpus *corpus)
{
    return corpus->masked;
}

struct token_file_chats corpus_chats(const struct corpus *corpus)
{
    struct token_file_chats all = corpus->count ? corpus->file[0].chats : (struct token_file_chats){0};
    for (int i = 1; i < corpus->count; i++) /* shards know their number alone */
        all.chats += corpus->file[i].chats.chats;
    return all;
}

/* The file that has token or document number `at`; before (count + 1): tokens or documents before each file.
 */
static int file_of(const struct corpus *corpus, const int64_t *before, int64_t at)
{
    int low = 0, high = corpus->count - 1;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (at < before[middle + 1])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void corpus_read(const struct corpus *corpus, int64_t from, int64_t count, int32_t *out)
{
    for (int i = count ? file_of(corpus, corpus->start, from) : 0; count > 0; i++) {
        const int64_t left = corpus->start[i + 1] - from, here = left < count ? left : count;
        token_file_read(&corpus->file[i], from - corpus->start[i], here, out);
        from += here;
        out += here;
        count -= here;
    }
}

void corpus_document(const struct corpus *corpus, int64_t i, int64_t *begin, int64_t *end)
{
    const int file = file_of(corpus, corpus->document, i);
    const uint64_t *ends = corpus->file[file].ends;
    const int64_t number = i - corpus->document[file], before = corpus->start[file];
    *begin = before + (number ? (int64_t)ends[number - 1] : 0);
    *end = before + (int64_t)ends[number];
}
