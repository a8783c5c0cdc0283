/* random_main.h - the main of a fuzz entry that is built without libFuzzer: replays files, or mutates seeds
 * at random.
 *
 * NAME_fuzz FILE... replays files; NAME_fuzz --random COUNT [SEED [FILE...]] runs COUNT inputs, input i from
 * seed SEED + i, made of the files and of the program's own texts. */
#ifndef MUSTER_TESTS_FUZZ_RANDOM_MAIN_H
#define MUSTER_TESTS_FUZZ_RANDOM_MAIN_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz_seed {
    const void *data;
    size_t size;
};

#ifndef MUSTER_LIBFUZZER

#include <stdio.h>
#include <string.h>

#include "proto/base/io.h"
#include "proto/base/text.h"

enum { FUZZ_INPUT = 8192 };

static uint64_t fuzz_state;

static unsigned fuzz_draw(unsigned below)
{
    fuzz_state = fuzz_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return below ? (unsigned)(fuzz_state >> 33) % below : 0;
}

/* A seed with bytes flipped, cut out and repeated; now and then pure noise. */
static size_t fuzz_mutate(const struct fuzz_seed *seeds, unsigned count, uint8_t *out)
{
    const struct fuzz_seed *seed = &seeds[fuzz_draw(count)];
    size_t size = seed->size < FUZZ_INPUT / 2 ? seed->size : FUZZ_INPUT / 2;
    memcpy(out, seed->data, size);
    if (fuzz_draw(20) == 0) {
        size = fuzz_draw(300);
        for (size_t i = 0; i < size; i++)
            out[i] = (uint8_t)fuzz_draw(256);
    }
    for (unsigned n = fuzz_draw(6); n && size; n--) {
        size_t at = fuzz_draw((unsigned)size), run = 1 + fuzz_draw(16);
        run = run < size - at ? run : size - at;
        switch (fuzz_draw(3)) {
        case 0:
            out[at] ^= (uint8_t)(1u << fuzz_draw(8));
            break;
        case 1:
            memmove(out + at, out + at + run, size - at - run);
            size -= run;
            break;
        default:
            if (size + run <= FUZZ_INPUT) {
                memmove(out + at + run, out + at, size - at);
                size += run;
            }
        }
    }
    return size;
}

enum { FUZZ_SEEDS = 64 };

static int fuzz_main(int argc, char **argv, const struct fuzz_seed *seeds, unsigned seed_count)
{
    int64_t count = 0, seed = 1;
    struct fuzz_seed all[FUZZ_SEEDS];
    struct buffer files[FUZZ_SEEDS] = {{0}};
    if (argc < 2 || strcmp(argv[1], "--random") != 0) {
        int failed = 0;
        for (int i = 1; i < argc; i++) {
            scope_buffer input = {0};
            if (io_read_file(argv[i], (size_t)1 << 20, &input, NULL) < 0) {
                fprintf(stderr, "cannot read %s\n", argv[i]);
                return 1;
            }
            failed |= LLVMFuzzerTestOneInput((const uint8_t *)input.data, input.length);
        }
        return failed;
    }
    if (argc < 3 || !text_int64(argv[2], &count) || (argc > 3 && !text_int64(argv[3], &seed))) {
        fprintf(stderr, "usage: %s FILE... | --random COUNT [SEED [FILE...]]\n", argv[0]);
        return 2;
    }
    for (unsigned i = 0; i < seed_count; i++)
        all[i] = seeds[i];
    for (int i = 4; i < argc && seed_count < FUZZ_SEEDS; i++) {
        struct buffer *file = &files[seed_count];
        if (io_read_file(argv[i], (size_t)1 << 20, file, NULL) < 0) {
            fprintf(stderr, "cannot read %s\n", argv[i]);
            return 1;
        }
        all[seed_count++] = (struct fuzz_seed){file->data, file->length};
    }
    printf("%lld random inputs from seed %lld\n", (long long)count, (long long)seed);
    for (int64_t i = 0; i < count; i++) {
        uint8_t input[FUZZ_INPUT];
        fuzz_state = (uint64_t)(seed + i);
        size_t size = fuzz_mutate(all, seed_count, input);
        if (LLVMFuzzerTestOneInput(input, size))
            return 1;
    }
    for (unsigned i = 0; i < seed_count; i++)
        buffer_free(&files[i]);
    return 0;
}

#endif
#endif
