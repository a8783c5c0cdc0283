/* No allocation from step 2 on, by any thread: this program's own malloc counts, so that ours, OpenMP's,
 * BLAS's and libc's calls are seen alike. Under a sanitizer, which has its own malloc, the test is skipped.
 */
#include "tests/support/cmocka_all.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/base/io.h"
#include "proto/base/text.h"
#include "tests/unit/train/train_harness.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS 0
#else
#define COUNTS 1
#endif

static atomic_long allocations;
static atomic_bool counting;

#if COUNTS
/* The C library's own names for what we replace. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

static void note(void)
{
    if (atomic_load(&counting))
        atomic_fetch_add(&allocations, 1);
}

void *malloc(size_t size)
{
    note();
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    note();
    return __libc_calloc(count, size);
}

void *realloc(void *block, size_t size)
{
    note();
    return __libc_realloc(block, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    note();
    return __libc_memalign(alignment, size);
}

int posix_memalign(void **block, size_t alignment, size_t size)
{
    note();
    *block = __libc_memalign(alignment, size);
    return *block ? 0 : ENOMEM;
}
#endif

/* Rank 0 counts from the end of its third step to the end of its eighth; no rank creates or destroys anything
 * in that time, since none can be more than a step apart and there are twelve. */
static int count_between(const struct training *run, struct trainer *trainer, int rank, int step)
{
    (void)run, (void)trainer;
    if (rank == 0 && step == 3)
        atomic_store(&counting, true);
    if (rank == 0 && step == 8)
        atomic_store(&counting, false);
    return 0;
}

static void check_no_allocation(struct training run)
{
    run.steps = 12;
    run.visit = count_between;
    atomic_store(&allocations, 0);
    assert_int_equal(training_run(&run), 0);
    assert_int_equal(atomic_load(&allocations), 0);
}

static void steps_allocate_nothing(void **state)
{
    (void)state;
    if (!COUNTS)
        skip_because("a sanitizer has its own malloc");
    atomic_store(&counting, true);
    void *volatile block = malloc(1); /* the counter counts; volatile, or the compiler drops the pair */
    free(block);
    atomic_store(&counting, false);
    assert_true(atomic_load(&allocations) > 0);
    struct training run = training_small();
    run.micro_batches = 2;
    check_no_allocation(run);
    run.mesh.shard = 2;
    run.strategy = STRATEGY_FULL_SHARD;
    check_no_allocation(run);
    run.param_dtype = run.reduce_dtype = DTYPE_BF16;
    check_no_allocation(run);
    run.param_dtype = run.reduce_dtype = DTYPE_F16; /* with steps that overflow and are looked through */
    run.loss_scale = loss_scale_defaults();
    run.loss_scale.initial = 0x1p30;
    check_no_allocation(run);
}

/* ---- the process ---- */

static atomic_long pss_most, planned; /* bytes */

static long pss(void)
{
    scope_buffer text = {0};
    assert_int_equal(io_read_file("/proc/self/smaps_rollup", 1 << 16, &text, NULL), 0);
    return (long)text_row(text.data, "Pss");
}

static int look_at_process(const struct training *run, struct trainer *trainer, int rank, int step)
{
    if (step == 0) {
        for (int i = 0; i < MEMORY_CLASS_COUNT; i++)
            atomic_fetch_add(&planned, (long)trainer_arena_bytes(trainer, (enum memory_class)i));
    } else if (rank == 0 && step == run->steps - 1) {
        atomic_store(&pss_most, pss()); /* every page was touched, and no rank can end before our last step */
    }
    return 0;
}

static void check_process(struct training run)
{
    run.gpt =
        (struct gpt2_config){.layers = 4, .channels = 256, .heads = 4, .vocab = 256, .max_positions = 128};
    run.positions = 128;
    run.steps = 4;
    run.group_bytes = 0;
    run.visit = look_at_process;
    atomic_store(&planned, 0);
    long before = pss();
    assert_int_equal(training_run(&run), 0);
    long grown = atomic_load(&pss_most) - before, plan = atomic_load(&planned);
    printf("planned %.1f MB, grown by %.1f MB\n", (double)plan / 1048576, (double)grown / 1048576);
    assert_true(grown <= plan + (16 << 20) + plan / 100);
    assert_true(grown > plan / 2); /* the measurement sees the plan at all */
}

static void the_process_grows_by_the_plan(void **state)
{
    (void)state;
    if (!COUNTS)
        skip_because("a sanitizer has its own malloc");
    struct training run = training_small();
    check_process(run);
    run.mesh.shard = 2;
    run.strategy = STRATEGY_FULL_SHARD;
    check_process(run);
    run.param_dtype = run.reduce_dtype = DTYPE_BF16;
    check_process(run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(the_process_grows_by_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
