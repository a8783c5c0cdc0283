/* png_fuzz.c - arbitrary bytes as a PNG file: a picture in one plane and in three, all within their bounds,
 * or an error with a text. Each input is read as it is, and with checksums that are right, without which
 * little of it would be looked at. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include "proto/base/io.h"
#include "proto/base/mem.h"
#include "tests/fuzz/random_main.h"
#include "trainer/pictures/pictures_internal.h"

enum { HEIGHT = 40, WIDTH = 37, MARGIN = 64, MARK = 0xA5, SIGNATURE = 8, CHUNK = 12 };

/* Bytes after the planes stay unchanged. */
static int read_planes(const char *path, int channels)
{
    const struct picture_shape shape = {channels, HEIGHT, WIDTH};
    const size_t bytes = (size_t)channels * HEIGHT * WIDTH;
    struct muster_error err = {0};
    uint8_t *planes = mem_calloc(bytes + MARGIN, 1);
    if (!planes)
        abort();
    memset(planes, MARK, bytes + MARGIN);
    const int result = picture_file_read(path, &shape, planes, &err);
    if ((result < 0) != (err.text[0] != '\0'))
        abort();
    for (size_t i = bytes; i < bytes + MARGIN; i++)
        if (planes[i] != MARK)
            abort();
    mem_free(planes);
    return result;
}

static void read_file(const uint8_t *data, size_t size)
{
    char path[64];
    const int file = memfd_create("png_fuzz", 0);
    if (file < 0 || io_write_all(file, data, size, "a picture", NULL) < 0)
        abort();
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", file); /* fits */
    if (read_planes(path, 1) != read_planes(path, 3))
        abort(); /* whether it can be read does not depend on the planes */
    (void)close(file);
}

static uint32_t number_at(const uint8_t *data)
{
    return (uint32_t)data[0] << 24 | (uint32_t)data[1] << 16 | (uint32_t)data[2] << 8 | data[3];
}

/* Length, name, bytes, checksum of name and bytes. */
static void write_checksums(uint8_t *data, size_t size)
{
    for (size_t at = SIGNATURE; at + CHUNK <= size;) {
        const size_t length = number_at(data + at);
        if (length > size - at - CHUNK)
            return;
        const uLong sum = crc32(crc32(0, NULL, 0), data + at + 4, (uInt)(length + 4));
        for (size_t i = 0; i < 4; i++)
            data[at + 8 + length + i] = (uint8_t)(sum >> (24 - 8 * i));
        at += CHUNK + length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    read_file(data, size);
    uint8_t *copy = mem_calloc(size ? size : 1, 1);
    if (!copy)
        abort();
    if (size)
        memcpy(copy, data, size);
    write_checksums(copy, size);
    read_file(copy, size);
    mem_free(copy);
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const char head[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\0\0\0";
    const struct fuzz_seed seeds[] = {{head, sizeof head}};
    return fuzz_main(argc, argv, seeds, 1);
}
#endif
