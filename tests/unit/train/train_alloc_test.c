/* No allocation from step 2 on, by any thread: this program's own malloc counts, so that ours, OpenMP's,
 * BLAS's and libc's calls are seen alike. Under a sanitizer, which has its own malloc, the test is skipped.
 */
#include "tests/support/cmocka_all.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "proto/base/text.h"
#include "runtime/train/recover/recover.h"
#include "runtime/train/trainer_state.h"
#include "tests/unit/train/train_harness.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS 0
#else
#define COUNTS 1
#endif

static atomic_long allocations;
static atomic_bool counting;

#if COUNTS
/* The C library's own names of the replaced functions. */
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
    run.mesh.side[SIDE_SHARD] = 2;
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

static atomic_long pss_most, planned, touched; /* bytes */

static long pss(void)
{
    scope_buffer text = {0};
    assert_int_equal(io_read_file("/proc/self/smaps_rollup", 1 << 16, &text, NULL), 0);
    return (long)text_row(text.data, "Pss");
}

/* Resident pages of all arenas of a rank: pages that something has touched. */
static long touched_bytes(const struct trainer *trainer)
{
    const long page = sysconf(_SC_PAGESIZE);
    long bytes = 0;
    for (int i = 0; i < MEMORY_CLASS_COUNT; i++) {
        const struct device_arena *arena = &trainer->arenas[i];
        const size_t pages = (size_t)((arena->bytes + page - 1) / page);
        scope_free unsigned char *there = mem_calloc(pages + 1, 1);
        if (!there || (pages && mincore(arena->base, (size_t)arena->bytes, there)))
            return -1;
        for (size_t p = 0; p < pages; p++) {
            const long last = (long)(arena->bytes - (int64_t)p * page);
            bytes += there[p] & 1 ? (last < page ? last : page) : 0;
        }
    }
    return bytes;
}

/* Both generations of copies. */
static int make_copies(struct trainer *trainer)
{
    const struct buffer text = {0};
    struct recover_copies *copies = recover_copies_create(trainer, 0, NULL);
    const int failed = !copies || recover_copies_make(copies, &text, NULL) < 0 ||
                       recover_copies_make(copies, &text, NULL) < 0;
    recover_copies_destroy(copies);
    return failed;
}

static int look_at_process(const struct training *run, struct trainer *trainer, int rank, int step)
{
    if (step == 0) {
        for (int i = 0; i < MEMORY_CLASS_COUNT; i++)
            atomic_fetch_add(&planned, (long)trainer_arena_bytes(trainer, (enum memory_class)i));
        return run->state_copies && make_copies(trainer);
    } else if (rank == 0 && step == run->steps - 1) {
        atomic_store(&pss_most, pss()); /* every page was touched, and no rank can end before our last step */
        const long bytes = touched_bytes(trainer);
        if (bytes < 0)
            return -1;
        atomic_store(&touched, bytes);
    }
    return 0;
}

static void check_process(struct training run)
{
    run.gpt =
        (struct gpt2_config){.layers = 4, .channels = 256, .heads = 4, .vocab = 256, .max_positions = 128};
    run.positions = 128;
    run.steps = 2;
    run.group_bytes = 0;
    run.visit = look_at_process;
    atomic_store(&planned, 0);
    long before = pss();
    assert_int_equal(training_run(&run), 0);
    long grown = atomic_load(&pss_most) - before, plan = atomic_load(&planned);
    const double share = (double)atomic_load(&touched) * mesh_size(run.mesh) / (double)plan;
    printf("%s %d of %d, recompute %s, %s: planned %.1f MB, grown by %.1f MB, %.2f%% of the plan was used\n",
           strategy_name(run.strategy), mesh_size(run.mesh), run.micro_batches,
           recompute_name(run.policy.kind), dtype_name(run.param_dtype), (double)plan / 1048576,
           (double)grown / 1048576, 100 * share);
    assert_true(share > 0.98 && share <= 1);
    assert_true(grown <= plan + (16 << 20) + plan / 100);
    assert_true(grown > plan / 2); /* the measurement sees the plan at all */
}

/* The used memory is the plan's, to 2%, and with 16 MB and 1% more the whole growth of the process: under
 * every policy for memory that there is a setting for. */
static void the_process_grows_by_the_plan(void **state)
{
    (void)state;
    if (!COUNTS)
        skip_because("a sanitizer has its own malloc");
    static const struct recompute_options policies[] = {
        {RECOMPUTE_NONE, 0}, {RECOMPUTE_ALL, 0}, {RECOMPUTE_EVERY, 2}, {RECOMPUTE_EXCEPT_LAST, 0}};
    struct training run = training_small();
    for (size_t p = 0; p < sizeof policies / sizeof *policies; p++) {
        run.policy = policies[p];
        run.micro_batches = p == 3 ? 2 : 1;
        check_process(run);
    }
    run.micro_batches = 2;
    run.mesh.side[SIDE_SHARD] = 2;
    for (int s = 0; s < STRATEGY_COUNT; s++) {
        run.strategy = (enum strategy)s;
        run.policy = policies[s % 4];
        run.keep_whole_bytes = s != STRATEGY_NO_SHARD && s % 2 ? 8 << 10 : 0;
        run.optimizer_memory = s % 2 ? MEMORY_DEVICE : MEMORY_HOST;
        check_process(run);
    }
    run.strategy = STRATEGY_FULL_SHARD;
    run.prefetch = 0;
    run.state_copies = 4; /* two of this rank's state, and two of the other's */
    check_process(run);
    run.state_copies = 0;
    run.prefetch = 2;
    run.head_chunk = 64 << 10;
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
