/* pictures_dump.c - the samples of pictures in folders, for folders_pillow_test.py:
 * pictures_dump TRAIN HELD SIZE CLASSES RESIZE AREA COUNT writes, for each of COUNT samples of TRAIN and then
 * for each of HELD, its label (int32) and its planes as bytes. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/mem.h"
#include "trainer/pictures/pictures.h"

static int dump_samples(const struct pictures *set, int64_t count, struct muster_error *err)
{
    const int64_t elements = pictures_elements(set);
    float *out = mem_calloc((size_t)elements, sizeof *out);
    int result = out ? 0 : -1;
    for (int64_t g = 0; g < count && !result; g++) {
        int32_t label = -1;
        result = pictures_sample(set, (uint64_t)g, out, &label, err);
        (void)fwrite(&label, sizeof label, 1, stdout); /* a failure stays in the stream */
        for (int64_t i = 0; i < elements && !result; i++)
            (void)fputc((int)(out[i] * 255 + 0.5f), stdout);
    }
    mem_free(out);
    return result;
}

int main(int argc, char **argv)
{
    struct muster_error err = {0};
    if (argc != 8)
        return 2;
    const int size = (int)strtol(argv[3], NULL, 10);
    struct pictures_options o = {.path = argv[1],
                                 .validation_path = argv[2],
                                 .kind = PICTURES_FOLDERS,
                                 .seed = 3,
                                 .classes = (int)strtol(argv[4], NULL, 10),
                                 .resize = (int)strtol(argv[5], NULL, 10),
                                 .crop_area = strtod(argv[6], NULL),
                                 .augment = {.shape = {3, size, size}}};
    for (int c = 0; c < 3; c++)
        o.augment.deviation[c] = 1;
    struct pictures *set = pictures_open(&o, &err);
    int result = set ? 0 : -1;
    if (!result)
        result = dump_samples(set, strtol(argv[7], NULL, 10), &err);
    if (!result)
        result = dump_samples(pictures_validation(set), pictures_samples(pictures_validation(set)), &err);
    if (result < 0)
        (void)fprintf(stderr, "%s\n", err.text);
    pictures_destroy(set);
    return result < 0 || fflush(stdout) != 0;
}
