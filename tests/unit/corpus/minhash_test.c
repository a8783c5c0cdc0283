/* Words, runs of words and signatures: the similarity is the definition's, and keys find the pairs that the
 * formula says. */
#include <stdio.h>
#include <string.h>

#include "tests/support/cmocka_all.h"
#include "trainer/corpus/texts.h"

static size_t split(struct words *words, const char *text)
{
    assert_int_equal(words_split(words, text, strlen(text)), 0);
    return words->count;
}

static void test_words(void **state)
{
    (void)state;
    struct words a = {0}, b = {0};
    assert_int_equal(split(&a, "The  cat's 3 eyes -- \xC3\x89t\xC3\xA9!"), 6);
    assert_int_equal(split(&b, "the CAT s,3,EYES \xC3\x89t\xC3\xA9"), 6);
    assert_memory_equal(a.hash, b.hash, 6 * sizeof *a.hash);
    assert_int_equal(a.chars, 3 + 3 + 1 + 1 + 4 + 3);
    assert_int_equal(split(&a, "\xE6\x97\xA5\xE6\x9C\xAC\xE8\xAA\x9E"
                               "abc\xE8\xAA\x9E"),
                     5); /* three, abc, one */
    assert_true(a.hash[2] == a.hash[4]);
    assert_int_equal(split(&a, "\xE0\xA4\xB8\xE0\xA4\xA4\xE0\xA5\x8D\xE0\xA4\xAF"),
                     1); /* with its vowel signs */
    assert_int_equal(split(&a, "\xFF!\xC3"), 0);
    assert_int_equal(split(&a, ""), 0);
    words_free(&a);
    words_free(&b);
}

static void make(struct shingles *out, const char *text)
{
    struct words words = {0};
    split(&words, text);
    assert_int_equal(shingles_make(out, &words), 0);
    words_free(&words);
}

static void test_similarity(void **state)
{
    (void)state;
    struct shingles a = {0}, b = {0};
    make(&a, "a b c d e f");
    assert_int_equal(a.count, 2);
    make(&b, "b c d e f g");
    assert_float_equal(shingles_jaccard(&a, &b), 1.0 / 3, 1e-6);
    assert_float_equal(shingles_jaccard(&a, &a), 1, 0);
    make(&b, "a b c");
    assert_int_equal(b.count, 1); /* shorter than a run */
    assert_float_equal(shingles_jaccard(&a, &b), 0, 0);
    make(&b, "x x x x x x x x x");
    assert_int_equal(b.count, 1); /* a set */
    make(&a, "");
    make(&b, "...");
    assert_float_equal(shingles_jaccard(&a, &b), 0, 0);
    shingles_free(&a);
    shingles_free(&b);
}

/* Two sets of n runs with a given similarity, of random numbers. */
static void make_pair(struct shingles *a, struct shingles *b, size_t n, double similarity, uint64_t *random)
{
    const size_t common = (size_t)(2 * (double)n * similarity / (1 + similarity) + 0.5);
    a->count = b->count = n;
    for (size_t i = 0; i < n; i++) {
        *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407;
        a->hash[i] = b->hash[i] = *random ^ (*random >> 29);
        if (i >= common) {
            *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407;
            b->hash[i] = *random ^ (*random >> 29);
        }
    }
}

static double share_found(double similarity, struct minhash_bands bands)
{
    enum { PAIRS = 2000, RUNS = 90 };
    uint64_t room[2][RUNS], keys[2][MINHASH_BANDS], random = 7;
    struct shingles a = {room[0], 0, RUNS}, b = {room[1], 0, RUNS};
    int found = 0;
    for (int i = 0; i < PAIRS; i++) {
        make_pair(&a, &b, RUNS, similarity, &random);
        minhash_keys(&a, bands, keys[0]);
        minhash_keys(&b, bands, keys[1]);
        bool shared = false;
        for (int k = 0; k < bands.bands; k++)
            shared = shared || keys[0][k] == keys[1][k];
        found += shared;
    }
    return (double)found / PAIRS;
}

static void test_keys_find_pairs(void **state)
{
    (void)state;
    const struct minhash_bands bands = minhash_bands_for(0.8);
    assert_int_equal(bands.bands, 20);
    assert_int_equal(bands.rows, 6);
    static const double similarities[] = {0.2, 0.5, 0.6, 0.7, 0.8, 0.9};
    for (size_t i = 0; i < sizeof similarities / sizeof *similarities; i++) {
        const double found = share_found(similarities[i], bands),
                     wanted = minhash_found(bands, similarities[i]);
        print_message("similarity %.1f: %.4f share a key, %.4f by the formula\n", similarities[i], found,
                      wanted);
        assert_true(found > wanted - 0.04 &&
                    found < wanted + 0.04); /* 2,000 pairs: 3.5 sigma of the widest */
    }
}

static void test_bands(void **state)
{
    (void)state;
    for (double similarity = 0.5; similarity <= 1; similarity += 0.01) {
        const struct minhash_bands bands = minhash_bands_for(similarity);
        assert_true(bands.bands >= 1 && bands.bands <= MINHASH_BANDS);
        assert_true(bands.bands * bands.rows <= MINHASH_ROWS);
        assert_true(minhash_found(bands, similarity) >= 0.995);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_words), cmocka_unit_test(test_similarity),
                                       cmocka_unit_test(test_keys_find_pairs), cmocka_unit_test(test_bands)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
