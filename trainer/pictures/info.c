/* info.c - see pictures.h. The letters are pickle's operation codes, protocol 2. */
#include "trainer/pictures/pictures.h"

#include <string.h>

#include "proto/archive/zip.h"
#include "proto/base/error.h"

enum { ARCHIVE_ALIGN = 64 }; /* bytes; torch.save's alignment */

/* ---- JSON ---- */

static int64_t held_out(const struct pictures *pictures)
{
    const struct pictures *held = pictures_validation(pictures);
    return held ? pictures_samples(held) : 0;
}

int pictures_info_json(const struct pictures *pictures, struct buffer *out)
{
    (void)buffer_printf(out, "{\"train_size\": %lld, \"val_size\": %lld, \"num_classes\": %d, \"classes\": [",
                        (long long)pictures_samples(pictures), (long long)held_out(pictures),
                        pictures_classes(pictures));
    for (int i = 0; i < pictures_classes(pictures); i++) {
        (void)buffer_text(out, i ? ", " : "");
        (void)buffer_json_string(out, pictures_class(pictures, i));
    }
    return buffer_text(out, "]}\n");
}

/* ---- a pickled dict in an archive ---- */

static void put_little(struct buffer *out, char code, uint32_t value)
{
    const unsigned char bytes[5] = {(unsigned char)code, (unsigned char)value, (unsigned char)(value >> 8),
                                    (unsigned char)(value >> 16), (unsigned char)(value >> 24)};
    (void)buffer_append(out, bytes, sizeof bytes);
}

static void put_text(struct buffer *out, const char *text) /* BINUNICODE */
{
    put_little(out, 'X', (uint32_t)strlen(text));
    (void)buffer_text(out, text);
}

static void put_number(struct buffer *out, const char *key, int64_t value) /* BININT */
{
    put_text(out, key);
    put_little(out, 'J', (uint32_t)value);
}

static void pickle_info(const struct pictures *pictures, struct buffer *out)
{
    (void)buffer_append(out, "\x80\x02}(", 4);
    put_number(out, "train_size", pictures_samples(pictures));
    put_number(out, "val_size", held_out(pictures));
    put_number(out, "num_classes", pictures_classes(pictures));
    put_text(out, "classes");
    (void)buffer_text(out, "](");
    for (int i = 0; i < pictures_classes(pictures); i++) {
        const char *name = pictures_class(pictures, i);
        if (name)
            put_text(out, name);
        else
            (void)buffer_text(out, "N");
    }
    (void)buffer_text(out, "eu.");
}

/* Writes a member after the last member, at the place that zip_add has chosen. */
static int put_member(struct zip *zip, const struct crc32 *crc, const char *name, const void *data,
                      size_t bytes, struct buffer *out, struct muster_error *err)
{
    const int member = zip_add(zip, name, (int64_t)bytes, ARCHIVE_ALIGN, err);
    if (member < 0)
        return -1;
    zip->member[member].crc = crc32_add(crc, 0, data, (int64_t)bytes);
    if (zip_header(&zip->member[member], out) || buffer_append(out, data, bytes))
        return error_set(err, MUSTER_E_NOMEM, "no memory for an archive");
    return 0;
}

static int put_archive(struct zip *zip, const struct buffer *pickle, struct buffer *out,
                       struct muster_error *err)
{
    struct crc32 crc;
    crc32_make(&crc);
    if (put_member(zip, &crc, "dataset_info/data.pkl", pickle->data, pickle->length, out, err) < 0 ||
        put_member(zip, &crc, "dataset_info/byteorder", "little", 6, out, err) < 0 ||
        put_member(zip, &crc, "dataset_info/version", "3\n", 2, out, err) < 0)
        return -1;
    return zip_directory(zip, out) ? error_set(err, MUSTER_E_NOMEM, "no memory for an archive") : 0;
}

int pictures_info_archive(const struct pictures *pictures, struct buffer *out, struct muster_error *err)
{
    scope_buffer pickle = {0};
    struct zip zip = {0};
    pickle_info(pictures, &pickle);
    const int result = pickle.failed ? error_set(err, MUSTER_E_NOMEM, "no memory for an archive")
                                     : put_archive(&zip, &pickle, out, err);
    zip_free(&zip);
    return result;
}
