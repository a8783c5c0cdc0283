/* data_test.c - corpus reading, the sample order. */
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"
#include "tests/support/folder.h"
#include "trainer/data/data.h"
#include "trainer/data/order.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[FOLDER_PATH];

static void put(const char *name, const char *text, size_t length)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

static int make_corpus(void **state)
{
    (void)state;
    if (folder_make(directory, "data"))
        return -1;
    char path[300], target[300];
    (void)snprintf(path, sizeof path, "%s/sub", directory);
    if (mkdir(path, 0700))
        return -1;
    put("b.txt", "world", 5);
    put("a.txt", "hello ", 6);
    put("a.txt.dat", "index", 5);
    put("binary", "ab\0cd", 5);
    put("empty", "", 0);
    put("sub/c", "!again", 6);
    (void)snprintf(path, sizeof path, "%s/link", directory);
    (void)snprintf(target, sizeof target, "%s/b.txt", directory);
    return symlink(target, path);
}

static int remove_corpus(void **state)
{
    (void)state;
    const char *names[] = {"b.txt", "a.txt", "a.txt.dat", "binary", "empty", "sub/c", "link"};
    char path[300];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        (void)unlink(path);
    }
    (void)snprintf(path, sizeof path, "%s/sub", directory);
    (void)rmdir(path);
    return rmdir(directory); /* fails if a test left a file */
}

static struct data *open_at(const char *path, int T, struct muster_error *err)
{
    return data_open(&(struct data_options){.path = path, .positions = T, .seed = 7}, err);
}

static void reads_prose_and_skips_the_rest(void **state)
{
    (void)state;
    struct muster_error err = {0};
    struct data *data = open_at(directory, 4, &err);
    if (!data)
        fail_msg("%s", err.text);
    assert_int_equal(data_files(data), 3);
    assert_int_equal(data_tokens(data), 17);
    int seen[4] = {0};
    const char *text = "hello world!again";
    for (uint64_t g = 0; g < 4; g++) {
        int32_t tokens[4], targets[4];
        assert_int_equal(data_sample(data, g, tokens, targets, &err), 4);
        for (int w = 0; w < 4; w++) {
            bool same = true;
            for (int t = 0; t < 4; t++)
                same = same && tokens[t] == text[4 * w + t] && targets[t] == text[4 * w + t + 1];
            seen[w] += same;
        }
    }
    for (int w = 0; w < 4; w++)
        assert_int_equal(seen[w], 1);
    data_destroy(data);
}

static void clear_errors(void **state)
{
    (void)state;
    struct muster_error err = {0};
    char path[300];
    assert_null(open_at("/nowhere/at/all", 4, &err));
    assert_int_equal(err.code, MUSTER_E_NOT_FOUND);
    (void)snprintf(path, sizeof path, "%s/empty", directory);
    assert_null(open_at(path, 4, &err));
    assert_non_null(strstr(err.text, "holds no text"));
    assert_null(open_at("/dev/zero", 4, &err)); /* endless */
    assert_non_null(strstr(err.text, "/dev/zero is neither a file nor a folder"));
    assert_null(open_at(directory, 100, &err));
    assert_non_null(strstr(err.text, "17 tokens, fewer than one window"));
}

static void permutation_is_a_bijection(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 700; n += n < 20 ? 1 : 97) {
        char *seen = calloc(n, 1);
        int moved = 0;
        for (uint64_t i = 0; i < n; i++) {
            uint64_t to = order_permute(3, 5, i, n);
            assert_true(to < n);
            assert_int_equal(seen[to]++, 0);
            moved += order_permute(3, 6, i, n) != to;
        }
        free(seen);
        if (n > 20)
            assert_true(moved > (int)n / 2); /* another epoch is another order */
    }
}

/* Training and validation have no target in common and all of the corpus together; held-out samples come in
 * the order of the corpus, and again from its start. */
static void what_is_held_out_is_not_trained_on(void **state)
{
    (void)state;
    struct muster_error err = {0};
    const char *text = "hello world!again";
    for (int held = 1; held < 8; held++) {
        struct data *data = data_open(
            &(struct data_options){
                .path = directory, .positions = 2, .seed = 3, .validation_share = held / 8.0},
            &err);
        assert_non_null(data);
        const struct data *validation = data_validation(data);
        assert_non_null(validation);
        assert_int_equal(data_samples(validation), held);
        assert_int_equal(data_samples(data), 8 - held);
        for (int g = 0; g < 2 * held; g++) {
            int32_t tokens[2], targets[2];
            const char *at = text + 2 * (8 - held + g % held);
            assert_int_equal(data_sample(validation, (uint64_t)g, tokens, targets, &err), 2);
            assert_true(tokens[0] == at[0] && targets[0] == at[1] && tokens[1] == at[1] &&
                        targets[1] == at[2]);
        }
        for (uint64_t g = 0; g < 40; g++) {
            int32_t targets[2];
            assert_int_equal(data_sample(data, g, NULL, targets, &err), 2);
            bool there = false;
            for (int w = 0; w < 8 - held; w++)
                there = there || (targets[0] == text[2 * w + 1] && targets[1] == text[2 * w + 2]);
            assert_true(there);
        }
        data_destroy(data);
    }
    assert_null(
        data_open(&(struct data_options){.path = directory, .positions = 9, .validation_share = 0.1}, &err));
    assert_non_null(strstr(err.text, "leaves none to train on"));
}

static int open_once(void *context)
{
    (void)context;
    struct data *data = open_at(directory, 4, NULL);
    data_destroy(data);
    return data ? 0 : -1;
}

static void survives_no_memory(void **state)
{
    (void)state;
    faults_sweep(open_once, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_prose_and_skips_the_rest),
        cmocka_unit_test(clear_errors),
        cmocka_unit_test(permutation_is_a_bijection),
        cmocka_unit_test(what_is_held_out_is_not_trained_on),
        cmocka_unit_test(survives_no_memory),
    };
    return cmocka_run_group_tests(tests, make_corpus, remove_corpus);
}
