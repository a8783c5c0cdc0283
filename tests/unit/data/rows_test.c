/* Documents packed into rows: each once, none over the end, and few rows. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/cmocka_all.h"
#include "trainer/data/data.h"
#include "trainer/data/rows.h"

static void documents_go_where_they_fit_best(void **state)
{
    (void)state;
    static const int32_t length[] = {3, 7, 4, 6, 10, 2, 3, 5};
    /* 10; 7 + 3; 6 + 4; 5 + 3 + 2: rows are numbered by their first documents */
    static const int64_t rows[][3] = {{0, 1, -1}, {2, 3, -1}, {4, -1, -1}, {5, 6, 7}};
    struct rows found;
    assert_int_equal(rows_pack(length, 8, 10, &found, NULL), 0);
    assert_int_equal(found.count, 4);
    for (int r = 0; r < 4; r++) {
        const int64_t members = found.start[r + 1] - found.start[r];
        for (int i = 0; i < 3 && rows[r][i] >= 0; i++) {
            assert_true(i < members);
            assert_int_equal(found.document[found.start[r] + i], rows[r][i]);
        }
    }
    assert_int_equal(found.start[4], 8);
    rows_free(&found);
}

static void every_document_is_in_one_row(void **state)
{
    (void)state;
    static const int rooms[] = {1, 2, 63, 64, 65, 4096, 4097, 9000};
    srand(4);
    for (size_t k = 0; k < sizeof rooms / sizeof *rooms; k++) {
        enum { N = 3000 };
        const int T = rooms[k];
        int32_t length[N];
        char seen[N] = {0};
        int64_t sum = 0;
        for (int i = 0; i < N; i++)
            sum += length[i] = 1 + (rand() % 4 ? rand() % T / 3 : rand() % T);
        struct rows found;
        assert_int_equal(rows_pack(length, N, T, &found, NULL), 0);
        for (int64_t r = 0, before = -1; r < found.count; r++) {
            int64_t filled = 0;
            assert_true(found.start[r + 1] > found.start[r] && found.document[found.start[r]] > before);
            before = found.document[found.start[r]];
            for (int64_t i = found.start[r]; i < found.start[r + 1]; i++) {
                assert_true(i == found.start[r] || found.document[i] > found.document[i - 1]);
                assert_false(seen[found.document[i]]++);
                filled += length[found.document[i]];
            }
            assert_true(filled <= T);
        }
        assert_int_equal(found.start[found.count], N);
        /* best fit, longest first, needs at most 11/9 of the best number of rows, and here hardly more than
         * it */
        assert_true(found.count <= sum / T + 1 + found.count / 50);
        rows_free(&found);
    }
    struct rows none;
    assert_int_equal(rows_pack(NULL, 0, 8, &none, NULL), 0);
    assert_int_equal(none.count, 0);
    rows_free(&none);
}

/* Rows of documents have the tokens and targets that the documents have one by one, and the places in them.
 */
static void rows_have_the_documents(void **state)
{
    (void)state;
    enum { T = 8 };
    static const char text[] =
        "{\"text\": \"abcd\"}\n{\"text\": \"efghijklmnop\"}\n{\"prompt\": \"qr\", \"completion\": \"st\"}\n"
        "{\"text\": \"x\"}\n{\"text\": \"uvw\"}\n{\"text\": \"zy\"}\n";
    static const struct {
        const char *inputs; /* . is a position after the last document */
        int32_t targets[T], positions[T];
    } rows[] = {{"abcqrsuv", {'b', 'c', 'd', -1, 's', 't', 'v', 'w'}, {0, 1, 2, 0, 1, 2, 0, 1}},
                {"efghijkl", {'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm'}, {0, 1, 2, 3, 4, 5, 6, 7}},
                {"z.......", {'y', -1, -1, -1, -1, -1, -1, -1}, {0}}};
    char path[] = "/tmp/muster_rows_XXXXXX.jsonl";
    const int fd = mkstemps(path, 6);
    assert_true(fd >= 0 && write(fd, text, sizeof text - 1) == sizeof text - 1);
    (void)close(fd);
    struct muster_error err = {0};
    struct data *data =
        data_open(&(struct data_options){.path = path, .positions = T, .packing = DATA_PACKED}, &err);
    if (!data)
        fail_msg("%s", err.text);
    assert_int_equal(data_samples(data), 3);
    bool met[3] = {0};
    for (uint64_t g = 0; g < 3; g++) {
        int32_t tokens[T], targets[T], positions[T];
        assert_true(data_sample(data, g, tokens, targets, &err) > 0);
        data_positions(data, g, positions);
        for (int r = 0; r < 3; r++)
            if (tokens[0] == rows[r].inputs[0]) {
                for (int t = 0; t < T; t++)
                    assert_int_equal(tokens[t], rows[r].inputs[t] == '.' ? 0 : rows[r].inputs[t]);
                assert_memory_equal(targets, rows[r].targets, sizeof targets);
                assert_memory_equal(positions, rows[r].positions, sizeof positions);
                met[r] = true;
            }
    }
    assert_true(met[0] && met[1] && met[2]);
    assert_int_equal(data_documents_used(data), 5);
    assert_int_equal(data_documents_cut(data), 1);
    assert_true(data_padding(data) == 1 - 17.0 / 24);
    assert_int_equal(data_targets_each(data), -1);
    assert_non_null(strstr(data_identity(data), "packing=packed"));
    data_destroy(data);
    data = data_open(&(struct data_options){.path = path, .positions = T, .packing = DATA_DOCUMENTS}, &err);
    int32_t positions[T];
    data_positions(data, 0, positions);
    for (int t = 0; t < T; t++)
        assert_int_equal(positions[t], t);
    data_destroy(data);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_go_where_they_fit_best),
        cmocka_unit_test(every_document_is_in_one_row),
        cmocka_unit_test(rows_have_the_documents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) > 0;
}
