/* cuda_devices_test.c - the table of described GPUs: every row is whole, and a figure with the wrong unit or
 * in the wrong column is out of proportion to the others. */
#include "tests/support/cmocka_all.h"

#include <string.h>

#include "runtime/cuda/devices/devices.h"

static void every_row_is_whole(void **state)
{
    static const char *const names[] = {
#define NAME(symbol, name) name,
        CUDA_DEVICES(NAME)
#undef NAME
    };
    (void)state;
    assert_null(cuda_description(-1));
    assert_null(cuda_description(CUDA_DEVICE_COUNT));
    for (int i = 0; i < CUDA_DEVICE_COUNT; i++) {
        const struct cuda_description *d = cuda_description(i);
        assert_string_equal(d->name, names[i]);
        assert_true(strlen(d->product) > 8 && strlen(d->source) > 8);
        assert_in_range(d->capability, 75, 100);
        assert_in_range(d->sms, 40, 148);
        assert_in_range(d->clock_mhz, 1400, 2000);
        assert_in_range(d->memory_bytes >> 30, 14, 192);
        assert_in_range(d->cache_bytes >> 20, 4, 126);
        assert_true(d->memory_rate > 300e9 && d->memory_rate < 10e12);
        assert_true(d->pcie >= 16e9 && d->pcie <= 64e9);
    }
}

/* fp32: two operations a clock of each of an SM's lanes, 64 of them before sm_90 and 128 from there. */
static void rates_follow_from_the_chip(void **state)
{
    (void)state;
    for (int i = 0; i < CUDA_DEVICE_COUNT; i++) {
        const struct cuda_description *d = cuda_description(i);
        const double lanes = d->capability < 90 ? 64 : 128, peak = 2 * lanes * d->sms * d->clock_mhz * 1e6;
        assert_true(d->fp32 > 0.95 * peak && d->fp32 < 1.1 * peak);
        assert_true(!d->tf32 == (d->capability < 80) && !d->bf16 == (d->capability < 80));
        assert_true(!d->nvlink == (d->capability < 80));
        assert_true(d->fp16 > 7 * d->fp32);
        if (!d->tf32)
            continue;
        assert_true(d->bf16 == d->fp16); /* the vendor's, in the same units */
        assert_true(d->fp16 > 1.9 * d->tf32 && d->fp16 < 2.1 * d->tf32);
    }
}

static struct cuda_facts facts_of(const struct cuda_description *d)
{
    return (struct cuda_facts){.product = "the driver's name",
                               .capability = d->capability,
                               .sms = d->sms,
                               .clock_mhz = d->clock_mhz,
                               .memory_bytes = d->memory_bytes,
                               .memory_rate = d->memory_rate,
                               .count = 1};
}

/* A driver's report of a described GPU gives that row; H100 and H200 differ by memory alone. */
static void a_described_gpu_is_recognised(void **state)
{
    (void)state;
    for (int i = 0; i < CUDA_DEVICE_COUNT; i++) {
        const struct cuda_description *d = cuda_description(i);
        struct cuda_facts facts = facts_of(d);
        struct cuda_description found;
        facts.memory_bytes -= facts.memory_bytes / 50; /* memory for error correction */
        facts.memory_rate = 0;
        assert_true(cuda_describe(&facts, &found));
        assert_string_equal(found.name, d->name);
        assert_true(found.bf16 == d->bf16 && found.memory_rate == d->memory_rate);
    }
}

/* A part of a described GPU: the same chip with fewer multiprocessors has peaks in proportion. */
static void another_gpu_has_the_peaks_of_its_chip(void **state)
{
    (void)state;
    struct cuda_description found;
    struct cuda_facts facts;
    for (int i = 0; i < CUDA_DEVICE_COUNT; i++) {
        const struct cuda_description *d = cuda_description(i);
        facts = facts_of(d);
        facts.sms = d->sms / 2;
        assert_true(cuda_describe(&facts, &found));
        assert_null(found.name);
        assert_string_equal(found.product, "the driver's name");
        const double pairs[][2] = {
            {found.fp32, d->fp32}, {found.tf32, d->tf32}, {found.fp16, d->fp16}, {found.bf16, d->bf16}};
        for (int k = 0; k < 4; k++)
            assert_true(!pairs[k][1] ? !pairs[k][0]
                                     : pairs[k][0] > 0.45 * pairs[k][1] && pairs[k][0] < 0.55 * pairs[k][1]);
        assert_true(found.memory_rate == d->memory_rate && found.pcie == d->pcie && !found.nvlink);
    }
    facts.capability = 89; /* as 86 */
    assert_true(cuda_describe(&facts, &found) && found.fp32 == 256 * facts.sms * (facts.clock_mhz * 1e6));
    facts.capability = 70;
    assert_false(cuda_describe(&facts, &found));
    facts.capability = 90;
    facts.clock_mhz = 0;
    assert_false(cuda_describe(&facts, &found));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_is_whole),
                                       cmocka_unit_test(a_described_gpu_is_recognised),
                                       cmocka_unit_test(another_gpu_has_the_peaks_of_its_chip),
                                       cmocka_unit_test(rates_follow_from_the_chip)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
