/* reader.h - a fuzz input as a run of small decisions: bytes beyond its end are 0. */
#ifndef MUSTER_TESTS_FUZZ_READER_H
#define MUSTER_TESTS_FUZZ_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct reader {
    const uint8_t *data;
    size_t left;
};

static inline unsigned reader_byte(struct reader *reader)
{
    if (!reader->left)
        return 0;
    reader->left--;
    return *reader->data++;
}

/* 0..below-1 */
static inline unsigned reader_below(struct reader *reader, unsigned below)
{
    return reader_byte(reader) % below;
}

static inline bool reader_flag(struct reader *reader)
{
    return reader_byte(reader) & 1;
}

/* Mostly small, now and then a value at the edge of its type. */
static inline int64_t reader_number(struct reader *reader)
{
    static const int64_t edges[] = {INT64_MAX, INT64_MIN, INT32_MAX, INT32_MIN, UINT32_MAX, -1, 65535, 4096};
    unsigned byte = reader_byte(reader);
    return byte < 248 ? byte % 8 : edges[byte - 248];
}

/* As reader_number, in the range of an int. */
static inline int reader_int(struct reader *reader)
{
    return (int)reader_number(reader);
}

/* 0 to about 16 s, mostly less than one. */
static inline int64_t reader_wait_ns(struct reader *reader)
{
    unsigned byte = reader_byte(reader);
    return (int64_t)(byte < 192 ? byte * 4 : (byte - 191) * 250) * 1000000;
}

/* The next bytes, up to 255 of them, after a byte that says how many. */
static inline const uint8_t *reader_bytes(struct reader *reader, size_t *size)
{
    size_t wanted = reader_byte(reader);
    const uint8_t *bytes = reader->data;
    *size = wanted < reader->left ? wanted : reader->left;
    reader->data += *size;
    reader->left -= *size;
    return bytes;
}

#endif
