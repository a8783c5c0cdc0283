/* token_file.c - see token_file.h. */
#include "trainer/data/token_file.h"

#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"

enum { SHARD_HEADER = 256 * 4, RESIDENT_BYTES = 64 << 20 };

static const struct {
    int32_t magic, version;
    int width;
} kinds[] = {{20240520, 1, 2}, {20240801, 7, 4}};

bool token_file_is_shard(const char *start)
{
    int32_t magic;
    memcpy(&magic, start, sizeof magic);
    return magic == kinds[0].magic || magic == kinds[1].magic;
}

int token_file_parse_shard(struct token_file *file, const char *name, const char *data, size_t length,
                           struct muster_error *err)
{
    int32_t header[3];
    if (length < SHARD_HEADER)
        return error_set(err, MUSTER_E_INVALID,
                         "%s: %zu bytes are no token shard of llm.c, whose header has %d", name, length,
                         SHARD_HEADER);
    memcpy(header, data, sizeof header);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (header[0] != kinds[i].magic)
            continue;
        if (header[1] != kinds[i].version)
            return error_set(err, MUSTER_E_UNSUPPORTED, "%s: version %d of a token shard; %d is supported",
                             name, (int)header[1], (int)kinds[i].version);
        const size_t wanted = (size_t)SHARD_HEADER + (size_t)(uint32_t)header[2] * (size_t)kinds[i].width;
        if (header[2] < 0 || wanted != length)
            return error_set(err, MUSTER_E_INVALID, "%s: its header has %d tokens, but it has %zu bytes",
                             name, (int)header[2], length);
        *file =
            (struct token_file){.tokens = data + SHARD_HEADER, .width = kinds[i].width, .count = header[2]};
        return 0;
    }
    return error_set(
        err, MUSTER_E_INVALID,
        "%s is no token shard of llm.c: it begins with %d, not with 20240520 or 20240801 (raw tokens "
        "without a header, as nanoGPT writes them, are not read: name their text)",
        name, (int)header[0]);
}

void token_file_shard_header(int width, int32_t count, int32_t *header)
{
    memset(header, 0, SHARD_HEADER);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].width == width) {
            header[0] = kinds[i].magic;
            header[1] = kinds[i].version;
        }
    header[2] = count;
}

/* Whether the ends ascend up to the last token. */
static bool ends_ascend(const uint64_t *ends, int64_t documents, uint64_t tokens)
{
    uint64_t last = 0;
    for (int64_t i = 0; i < documents; i++) {
        if (ends[i] < last || ends[i] > tokens)
            return false;
        last = ends[i];
    }
    return true;
}

/* Parses an index: the ends of a shard's documents. Pure. */
static int parse_index(struct token_file *file, const char *name, const char *data, size_t length,
                       struct muster_error *err)
{
    struct token_index_header header;
    if (length < sizeof header)
        return error_set(err, MUSTER_E_INVALID, "%s: %zu bytes are no index of a token shard", name, length);
    memcpy(&header, data, sizeof header);
    const uint64_t *ends = (const uint64_t *)(const void *)(data + sizeof header); /* at a multiple of 8 */
    if (header.magic != TOKEN_INDEX_MAGIC || header.tokens != (uint64_t)file->count ||
        header.documents != (length - sizeof header) / sizeof *ends ||
        (length - sizeof header) % sizeof *ends ||
        !ends_ascend(ends, (int64_t)header.documents, header.tokens))
        return error_set(
            err, MUSTER_E_INVALID,
            "%s is not the index of its shard of %lld tokens; without the file documents are not known", name,
            (long long)file->count);
    file->ends = ends;
    file->documents = (int64_t)header.documents;
    return 0;
}

static size_t file_bytes(const struct token_file_header *header)
{
    const uint64_t tokens = header->tokens * header->width;
    return sizeof *header + (size_t)((tokens + 7) / 8 * 8) + (size_t)header->documents * sizeof(uint64_t);
}

int token_file_parse_cache(struct token_file *file, const char *data, size_t length, uint64_t key)
{
    struct token_file_header header;
    if (length < sizeof header)
        return 1;
    memcpy(&header, data, sizeof header);
    if (header.magic != TOKEN_FILE_MAGIC || header.key != key ||
        (header.width != 1 && header.width != 2 && header.width != 4) || header.tokens > length ||
        header.documents > length || file_bytes(&header) != length)
        return 1;
    const char *ends = data + length - header.documents * sizeof(uint64_t);
    *file = (struct token_file){.tokens = data + sizeof header,
                                .width = (int)header.width,
                                .masked = header.masked != 0,
                                .count = (int64_t)header.tokens,
                                .ends = (const uint64_t *)(const void *)ends, /* at a multiple of 8 */
                                .documents = (int64_t)header.documents,
                                .chats = header.chats};
    return !ends_ascend(file->ends, file->documents, header.tokens);
}

/* Parses the mask of a shard. Pure. */
static int parse_mask(struct token_file *file, const char *name, const char *data, size_t length,
                      struct muster_error *err)
{
    struct token_mask_header header = {0};
    if (length >= sizeof header)
        memcpy(&header, data, sizeof header);
    if (header.magic != TOKEN_MASK_MAGIC || header.tokens != (uint64_t)file->count ||
        length != sizeof header + ((size_t)file->count + 7) / 8)
        return error_set(err, MUSTER_E_INVALID,
                         "%s is not the mask of its shard of %lld tokens; without the file every token is a "
                         "target",
                         name, (long long)file->count);
    file->mask = (const uint8_t *)data + sizeof header;
    file->chats.chats = header.chats;
    return 0;
}

/* Opens the file with another ending next to NAME.bin, if it exists. */
static int open_next_to(struct token_file *file, const char *path, const char *ending,
                        struct mapping *mapping,
                        int (*parse)(struct token_file *, const char *, const char *, size_t,
                                     struct muster_error *),
                        struct muster_error *err)
{
    struct muster_error reason = {0};
    const size_t length = strlen(path), own = length > 4 && !strcmp(path + length - 4, ".bin") ? 4 : 0;
    scope_free char *name = mem_printf("%.*s%s", (int)(length - own), path, ending);
    if (!name)
        return error_set(err, MUSTER_E_NOMEM, "no memory for a path");
    if (mapping_open(mapping, name, &reason) < 0) {
        if (reason.code == MUSTER_E_NOT_FOUND)
            return 0;
        if (err)
            *err = reason;
        return -1;
    }
    return parse(file, name, mapping->data ? mapping->data : "", mapping->length, err);
}

int token_file_open_shard(struct token_file *file, const char *path, struct muster_error *err)
{
    struct mapping mapping;
    if (mapping_open(&mapping, path, err) < 0)
        return -1;
    if (token_file_parse_shard(file, path, mapping.data ? mapping.data : "", mapping.length, err) < 0) {
        mapping_close(&mapping);
        return -1;
    }
    file->mapping = mapping;
    if (open_next_to(file, path, ".idx", &file->index, parse_index, err) < 0 ||
        open_next_to(file, path, ".mask", &file->mask_file, parse_mask, err) < 0) {
        token_file_close(file);
        return -1;
    }
    return 0;
}

int token_file_open_cache(struct token_file *file, const char *path, uint64_t key, struct muster_error *err)
{
    struct mapping mapping;
    struct muster_error reason = {0};
    if (mapping_open(&mapping, path, &reason) < 0) {
        if (reason.code == MUSTER_E_NOT_FOUND)
            return 1;
        if (err)
            *err = reason;
        return -1;
    }
    if (token_file_parse_cache(file, mapping.data ? mapping.data : "", mapping.length, key)) {
        mapping_close(&mapping);
        return 1;
    }
    file->mapping = mapping;
    return 0;
}

void token_file_close(struct token_file *file)
{
    if (!file)
        return;
    mapping_close(&file->mapping);
    mapping_close(&file->index);
    mapping_close(&file->mask_file);
    mem_free(file->memory);
    mem_free(file->memory_ends);
    *file = (struct token_file){0};
}

void token_file_read(const struct token_file *file, int64_t from, int64_t count, int32_t *out)
{
    const char *at = file->tokens + from * file->width;
    const uint32_t top = file->masked ? UINT32_C(1) << (8 * file->width - 1) : 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t value = 0;
        memcpy(&value, at + i * file->width, (size_t)file->width); /* files and machine are little-endian */
        const uint32_t masked = value & top;
        value &= ~top;
        /* a value that does not fit stays outside of every vocabulary */
        out[i] = (int32_t)(value < TOKEN_MASK ? value : TOKEN_MASK - 1) | (masked ? TOKEN_MASK : 0);
    }
    for (int64_t i = from; file->mask && i < from + count; i++)
        if (file->mask[i / 8] >> i % 8 & 1)
            out[i - from] |= TOKEN_MASK;
    /* A small file may stay resident. */
    if (file->mapping.length > RESIDENT_BYTES)
        mapping_release(&file->mapping, (size_t)(at - file->mapping.data),
                        (size_t)count * (size_t)file->width);
}
