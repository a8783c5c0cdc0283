/* Which documents are dropped: exact duplicates except the first, near duplicates of a kept document, chains
 * only as far as the kept one is near; the same in any number of passes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "proto/base/buffer.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "tests/support/cmocka_all.h"
#include "trainer/corpus/prepare_internal.h"

enum { MOST = 600 };

struct corpus {
    char *text[MOST];
    int count, visits, fail_at;
    struct minhash_bands bands;
};

static int shingles_of(const char *text, struct shingles *out)
{
    struct words words = {0};
    const int result = words_split(&words, text, strlen(text)) < 0 ? -1 : shingles_make(out, &words);
    words_free(&words);
    return result;
}

static int visit(void *context,
                 int (*each)(void *call, int64_t document, const struct duplicates_entry *entry), void *call,
                 struct muster_error *err)
{
    struct corpus *c = context;
    struct shingles shingles = {0};
    int result = 0;
    c->visits++;
    for (int i = 0; !result && i < c->count; i++) {
        uint64_t keys[MINHASH_BANDS];
        const XXH128_hash_t hash = XXH3_128bits(c->text[i], strlen(c->text[i]));
        assert_int_equal(shingles_of(c->text[i], &shingles), 0);
        if (shingles.count)
            minhash_keys(&shingles, c->bands, keys);
        result = each(call, i,
                      &(struct duplicates_entry){{hash.low64, hash.high64}, shingles.count ? keys : NULL});
    }
    shingles_free(&shingles);
    return result ? -1 : c->visits == c->fail_at ? error_set(err, MUSTER_E_IO, "the disk") : 0;
}

static int load(void *context, int64_t document, struct shingles *out, struct muster_error *err)
{
    (void)err;
    return shingles_of(((struct corpus *)context)->text[document], out);
}

static void find(struct corpus *c, int64_t memory, uint8_t *out)
{
    const struct duplicates_source source = {c->count, visit, load, c};
    c->bands = minhash_bands_for(0.8);
    memset(out, 0, MOST);
    assert_int_equal(duplicates_find(&source, &(struct duplicates_options){c->bands, 0.8, memory}, out, NULL),
                     0);
}

static void add(struct corpus *c, char *text)
{
    assert_non_null(text);
    c->text[c->count++] = text;
}

static void free_corpus(struct corpus *c)
{
    for (int i = 0; i < c->count; i++)
        mem_free(c->text[i]);
}

/* count words of a sequence, from `first` on: two such texts have runs in common by how far they overlap. */
static char *sequence(int series, int first, int count)
{
    struct buffer text = {0};
    for (int i = first; i < first + count; i++)
        buffer_printf(&text, "%sw%dx%d", i > first ? " " : "", series, i);
    return buffer_take(&text);
}

static void test_chains(void **state)
{
    (void)state;
    struct corpus c = {0};
    uint8_t out[MOST];
    add(&c, sequence(1, 0, 104));  /* 100 runs */
    add(&c, sequence(1, 10, 104)); /* 90 of 110 in common: 0.818 */
    add(&c,
        sequence(1, 20, 104)); /* with the first 80 of 120: 0.667, with the second 0.818, which is dropped */
    add(&c, sequence(1, 30, 104)); /* with the third 0.818, which is kept */
    add(&c, sequence(1, 0, 104));
    add(&c, sequence(2, 0, 104));
    add(&c, mem_strdup(""));
    add(&c, mem_strdup("..."));
    add(&c, mem_strdup("!!!"));
    add(&c, mem_strdup("..."));
    find(&c, 1 << 20, out);
    static const uint8_t wanted[] = {DUPLICATE_NONE,  DUPLICATE_NEAR, DUPLICATE_NONE, DUPLICATE_NEAR,
                                     DUPLICATE_EXACT, DUPLICATE_NONE, DUPLICATE_NONE, DUPLICATE_NONE,
                                     DUPLICATE_NONE,  DUPLICATE_EXACT};
    assert_memory_equal(out, wanted, sizeof wanted);
    free_corpus(&c);
}

static double similarity(const char *a, const char *b)
{
    struct shingles x = {0}, y = {0};
    assert_int_equal(shingles_of(a, &x) | shingles_of(b, &y), 0);
    const double result = shingles_jaccard(&x, &y);
    shingles_free(&x);
    shingles_free(&y);
    return result;
}

/* Random overlaps; and the same with a table of one document's size. */
static void test_dropped_are_near_a_kept_one(void **state)
{
    (void)state;
    struct corpus c = {0};
    uint8_t out[MOST], again[MOST];
    unsigned random = 3;
    while (c.count < 300) {
        random = random * 1664525 + 1013904223;
        add(&c, sequence((int)(random >> 28), (int)(random >> 20 & 63), 60 + (int)(random >> 8 & 15)));
    }
    find(&c, 64 << 20, out);
    assert_int_equal(c.visits, 2);
    find(&c, 1 << 12, again);
    assert_true(c.visits > 20);
    assert_memory_equal(out, again, MOST);
    int missed = 0, pairs = 0;
    for (int i = 0; i < c.count; i++) {
        int kept = -1, first = -1; /* earlier near documents */
        for (int j = i - 1; j >= 0; j--)
            if (out[j] != DUPLICATE_EXACT && similarity(c.text[i], c.text[j]) >= 0.8) {
                first = j;
                kept = out[j] == DUPLICATE_NONE ? j : kept;
            }
        assert_true(out[i] != DUPLICATE_NEAR || kept >= 0);
        pairs += first >= 0 && out[first] == DUPLICATE_NONE;
        missed += first >= 0 && out[first] == DUPLICATE_NONE && out[i] == DUPLICATE_NONE;
    }
    print_message("%d of %d documents repeat a kept one, %d missed\n", pairs, c.count, missed);
    assert_true(pairs > 50 && missed * 100 <= pairs);
    free_corpus(&c);
}

static void test_errors(void **state)
{
    (void)state;
    struct corpus c = {.fail_at = 1, .bands = minhash_bands_for(0.8)};
    struct muster_error err = {0};
    uint8_t out[MOST] = {0};
    add(&c, sequence(1, 0, 10));
    struct duplicates_source source = {c.count, visit, load, &c};
    const struct duplicates_options options = {c.bands, 0.8, 1 << 20};
    assert_int_equal(duplicates_find(&source, &options, out, &err), -1);
    assert_string_equal(err.text, "the disk");
    source.documents = INT64_C(1) << 32;
    assert_int_equal(duplicates_find(&source, &options, out, &err), -1);
    assert_int_equal(err.code, MUSTER_E_LIMIT);
    free_corpus(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chains),
                                       cmocka_unit_test(test_dropped_are_near_a_kept_one),
                                       cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
