/* shard_writer.c - see prepare_internal.h. */
#include "trainer/corpus/prepare_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/io.h"
#include "trainer/data/token_file.h"

enum { FLUSH_BYTES = 1 << 20, LLMC_HEADER = 256 };

struct shard_writer {
    struct shard_writer_options options;
    char *folder;
    struct new_file tokens, index, mask; /* the last shard of the list, while it is open */
    uint8_t bits;                        /* of tokens after the mask's last whole byte */
    uint64_t chats;                      /* in that shard; 0: it gets no mask */
    bool open;
    struct shard *list;
    uint64_t count, room;
};

bool shard_is_full(const struct shard *shard, uint64_t tokens, uint64_t limit)
{
    return shard->documents > 0 && (tokens > limit || shard->tokens > limit - tokens);
}

struct shard_writer *shard_writer_create(const struct shard_writer_options *options, struct muster_error *err)
{
    GUARD(guard_shard_writer) struct shard_writer *w = mem_calloc(1, sizeof *w);
    if (!w || !(w->folder = mem_strdup(options->folder))) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for token shards");
        return NULL;
    }
    w->options = *options;
    w->tokens.fd = w->index.fd = w->mask.fd = -1;
    return take_pointer(&w);
}

void shard_writer_destroy(struct shard_writer *w)
{
    if (!w)
        return;
    new_file_close(&w->tokens);
    new_file_close(&w->index);
    new_file_close(&w->mask);
    mem_free(w->folder);
    mem_free(w->list);
    mem_free(w);
}

/* ---- a shard ---- */

static int open_shard_file(struct new_file *file, const struct shard_writer *w, const char *ending,
                           size_t header, struct muster_error *err)
{
    static const char zeros[LLMC_HEADER * sizeof(int32_t)] = {0};
    if (new_file_open(file, mem_printf("%s/shard-%05llu.%s", w->folder, (unsigned long long)w->count, ending),
                      err) < 0)
        return -1;
    return buffer_append(&file->held, zeros, header) < 0
               ? error_set(err, MUSTER_E_NOMEM, "no memory for a token shard")
               : 0;
}

static int open_shard(struct shard_writer *w, struct muster_error *err)
{
    if (w->count == w->room) {
        struct shard *grown = mem_realloc(w->list, (size_t)w->room * 2 + 16, sizeof *grown);
        if (!grown)
            return error_set(err, MUSTER_E_NOMEM, "no memory for a list of shards");
        w->list = grown;
        w->room = w->room * 2 + 16;
    }
    w->open = true;
    w->bits = 0;
    w->chats = 0;
    if (open_shard_file(&w->tokens, w, "bin", LLMC_HEADER * sizeof(int32_t), err) < 0 ||
        open_shard_file(&w->index, w, "idx", sizeof(struct token_index_header), err) < 0 ||
        open_shard_file(&w->mask, w, "mask", sizeof(struct token_mask_header), err) < 0)
        return -1;
    w->list[w->count++] = (struct shard){0};
    return 0;
}

static int finish_shard(struct shard_writer *w, struct muster_error *err)
{
    const struct shard *shard = &w->list[w->count - 1];
    int32_t header[LLMC_HEADER] = {0};
    const struct token_index_header index = {TOKEN_INDEX_MAGIC, shard->tokens, shard->documents};
    token_file_shard_header(w->options.width, (int32_t)shard->tokens, header);
    const struct token_mask_header mask = {TOKEN_MASK_MAGIC, shard->tokens, w->chats};
    if (shard->tokens % 8)
        (void)buffer_append(&w->mask.held, &w->bits, 1); /* held remembers a failure */
    /* these first: a reader that finds a shard finds its documents and targets */
    if ((w->chats && new_file_finish(&w->mask, &mask, sizeof mask, err) < 0) ||
        new_file_finish(&w->index, &index, sizeof index, err) < 0 ||
        new_file_finish(&w->tokens, header, sizeof header, err) < 0)
        return -1;
    new_file_close(&w->tokens);
    new_file_close(&w->index);
    new_file_close(&w->mask);
    w->open = false;
    return 0;
}

/* `before`: tokens of the shard before these. */
static void add_mask(struct shard_writer *w, const char *masked, uint64_t before, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t bit = (before + i) % 8;
        w->bits |= (uint8_t)((masked && masked[i]) << bit);
        if (bit == 7) {
            (void)buffer_append(&w->mask.held, &w->bits, 1); /* held remembers a failure */
            w->bits = 0;
        }
    }
}

int shard_writer_add(struct shard_writer *w, const void *tokens, const char *masked, uint64_t count,
                     struct muster_error *err)
{
    if (!count)
        return 0;
    if (count > INT32_MAX)
        return error_set(err, MUSTER_E_LIMIT, "a document of %llu tokens; --max_document_bytes cuts it",
                         (unsigned long long)count);
    if (w->open && shard_is_full(&w->list[w->count - 1], count, w->options.limit) && finish_shard(w, err) < 0)
        return -1;
    if (!w->open && open_shard(w, err) < 0)
        return -1;
    struct shard *shard = &w->list[w->count - 1];
    add_mask(w, masked, shard->tokens, count);
    w->chats += masked != NULL;
    shard->tokens += count;
    shard->documents++;
    (void)buffer_append(&w->tokens.held, tokens,
                        (size_t)count * (size_t)w->options.width); /* the buffers remember failures */
    (void)buffer_append(&w->index.held, &shard->tokens, sizeof shard->tokens);
    return new_file_flush(&w->tokens, FLUSH_BYTES, err) < 0 || new_file_flush(&w->index, FLUSH_BYTES, err) < 0
               ? -1
               : new_file_flush(&w->mask, FLUSH_BYTES, err);
}

int shard_writer_finish(struct shard_writer *w, struct muster_error *err)
{
    return w->open ? finish_shard(w, err) : 0;
}

const struct shard *shard_writer_list(const struct shard_writer *w, uint64_t *count)
{
    *count = w->count;
    return w->list;
}

static bool is_shard(const char *name)
{
    return !strncmp(name, "shard-", 6);
}

int shard_writer_clear(const char *folder, struct muster_error *err)
{
    return io_remove_matching(folder, is_shard, err);
}
