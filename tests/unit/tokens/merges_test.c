/* Byte pair encoding by the definition: a slow version that looks for the best neighbours each time gives
 * what the fast ones give, for short words and long ones. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/cmocka_all.h"
#include "trainer/tokens/bpe.h"

enum { LETTERS = 4, TOKENS = 60, LONGEST = 300 };

struct model {
    struct merges merges;
    int32_t left[TOKENS], right[TOKENS]; /* parts of token LETTERS + i; rank i */
    int count;
};

static unsigned next_random(unsigned *state)
{
    *state = *state * 1664525 + 1013904223;
    return *state >> 8;
}

static void make_model(struct model *model, unsigned seed)
{
    *model = (struct model){.count = TOKENS - LETTERS};
    for (int i = 0; i < model->count; i++) {
        model->left[i] = (int32_t)(next_random(&seed) % (unsigned)(LETTERS + i));
        model->right[i] = (int32_t)(next_random(&seed) % (unsigned)(LETTERS + i));
        for (int j = 0; j < i; j++) /* a pair has one merge */
            if (model->left[j] == model->left[i] && model->right[j] == model->right[i]) {
                model->left[i] = LETTERS + i - 1;
                j = -1;
                model->right[i] = (int32_t)(next_random(&seed) % (unsigned)(LETTERS + i));
            }
        assert_int_equal(
            merges_add(&model->merges, model->left[i], model->right[i], (uint32_t)i, LETTERS + i, NULL), 0);
    }
}

static int rank_in(const struct model *model, int32_t left, int32_t right)
{
    for (int i = 0; i < model->count; i++)
        if (model->left[i] == left && model->right[i] == right)
            return i;
    return model->count;
}

static size_t by_definition(const struct model *model, int32_t *tokens, size_t count)
{
    for (;;) {
        int best = model->count;
        size_t at = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            const int rank = rank_in(model, tokens[i], tokens[i + 1]);
            if (rank < best) {
                best = rank;
                at = i;
            }
        }
        if (best == model->count)
            return count;
        tokens[at] = LETTERS + best;
        memmove(tokens + at + 1, tokens + at + 2, (count - at - 2) * sizeof *tokens);
        count--;
    }
}

static void words_of_all_lengths(void **state)
{
    (void)state;
    unsigned seed = 5;
    for (unsigned trial = 0; trial < 40; trial++) {
        struct model model;
        make_model(&model, trial);
        for (size_t count = 0; count <= LONGEST; count += count < 60 ? 1 : 40) {
            int32_t fast[LONGEST], slow[LONGEST];
            for (size_t i = 0; i < count; i++)
                fast[i] = slow[i] = (int32_t)(next_random(&seed) % LETTERS);
            const int64_t left = merges_apply(&model.merges, fast, count, NULL);
            assert_int_equal(left, by_definition(&model, slow, count));
            assert_memory_equal(fast, slow, (size_t)left * sizeof *fast);
        }
        merges_free(&model.merges);
    }
}

static void without_merges_nothing_is_joined(void **state)
{
    (void)state;
    struct merges none = {0};
    int32_t tokens[] = {1, 2, 3};
    assert_int_equal(merges_apply(&none, tokens, 3, NULL), 3);
    assert_int_equal(tokens[2], 3);
    merges_free(&none);
    merges_free(NULL);
}

static void the_later_of_two_merges_counts(void **state)
{
    (void)state;
    struct merges merges = {0};
    int32_t tokens[] = {1, 2};
    assert_int_equal(merges_add(&merges, 1, 2, 0, 7, NULL), 0);
    assert_int_equal(merges_add(&merges, 1, 2, 1, 8, NULL), 0);
    assert_int_equal(merges.count, 1);
    assert_int_equal(merges_apply(&merges, tokens, 2, NULL), 1);
    assert_int_equal(tokens[0], 8);
    merges_free(&merges);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_of_all_lengths),
        cmocka_unit_test(without_merges_nothing_is_joined),
        cmocka_unit_test(the_later_of_two_merges_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
