/* kernels_libraries_test.c - memory of OpenBLAS and oneDNN next to a plan's bytes: what they really take.
 * This program's own malloc counts oneDNN's, which is loaded later and finds it. */
#include "tests/support/cmocka_all.h"

#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/libraries.h"
#include "kernels/ready.h"
#include "tests/unit/kernels/kernels_support.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS 0
#else
#define COUNTS 1
#endif

static atomic_long taken, peak;
static atomic_bool counting;

#if COUNTS
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *block);

static void note(const void *block, long sign)
{
    if (!block || !atomic_load(&counting))
        return;
    const long now = atomic_fetch_add(&taken, sign * (long)malloc_usable_size((void *)(uintptr_t)block)) +
                     sign * (long)malloc_usable_size((void *)(uintptr_t)block);
    if (now > atomic_load(&peak))
        atomic_store(&peak, now);
}

__attribute__((visibility("default"))) int posix_memalign(void **block, size_t alignment, size_t size)
{
    *block = __libc_memalign(alignment, size);
    note(*block, 1);
    return *block ? 0 : ENOMEM;
}

__attribute__((visibility("default"))) void free(void *block)
{
    note(block, -1);
    __libc_free(block);
}
#endif

/* Pages of this process in memory, in bytes. */
static int64_t resident(void)
{
    long all, here;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &all, &here), 2);
    (void)fclose(file);
    return here * sysconf(_SC_PAGESIZE);
}

/* out (N,OC) = in (N,C) weight (OC,C)^T and the gradients of both. */
static void multiply(const struct kernels *k, int N, int C, int OC)
{
    const size_t n = (size_t)N * (size_t)C, m = (size_t)OC * (size_t)C, o = (size_t)N * (size_t)OC;
    scope_memory float *in = floats_new(n, FILL_UNIT), *weight = floats_new(m, FILL_UNIT),
                       *out = floats_new(o, FILL_UNIT);
    const int64_t before = resident();
    atomic_store(&taken, 0);
    atomic_store(&peak, 0);
    atomic_store(&counting, true);
    k->linear_forward(out, in, weight, NULL, N, C, OC, OC, NULL);
    k->linear_backward_input(in, out, weight, N, C, OC, OC, 0, NULL);
    k->linear_backward_weight(weight, NULL, out, in, N, C, OC, OC, 0, NULL);
    atomic_store(&counting, false);
    if (k == kernels_cpu(~0u)) /* maps and keeps */
        atomic_store(&peak, resident() - before);
}

static const struct {
    int N, C, OC;
} sizes[] = {{1024, 768, 2304}, {256, 384, 12000}, {64, 64, 64}};

static void hold(const struct kernels *k, bool onednn)
{
    double most = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int N = sizes[i].N, C = sizes[i].C, OC = sizes[i].OC;
        const int side = N > C ? (N > OC ? N : OC) : C > OC ? C : OC;
        const struct kernels_library_bytes bytes = kernels_cpu_library_bytes(k, side);
        const int64_t stated = onednn ? bytes.onednn : bytes.openblas;
        multiply(k, N, C, OC);
        const long found = atomic_load(&peak);
        if (found > stated)
            fail_msg("%s: N=%d C=%d OC=%d takes %ld bytes, and at most %lld are stated", k->name, N, C, OC,
                     found, (long long)stated);
        most = (double)found / (double)stated > most ? (double)found / (double)stated : most;
    }
    if (most < 0.3) /* a bound that nothing comes near says nothing; on AVX2 oneDNN takes half as much */
        fail_msg("%s takes %.2f of the bytes that are stated", k->name, most);
}

static void openblas_takes_no_more_than_stated(void **state)
{
    (void)state;
    if (!COUNTS)
        skip_because("a sanitizer's memory is its own");
    assert_int_equal(kernels_cpu_threads(1, NULL), 0);
    hold(kernels_cpu(~0u), false);
}

static void onednn_takes_no_more_than_stated(void **state)
{
    struct muster_error err = {0};
    (void)state;
    if (!COUNTS)
        skip_because("a sanitizer has its own malloc");
    const struct kernels *k = kernels_cpu_by(KERNELS_ONEDNN, &err);
    if (!k)
        skip_because("libdnnl is not there");
    assert_int_equal(kernels_cpu_threads(1, NULL), 0);
    kernels_cpu_ready(KERNELS_ONEDNN);
    hold(k, true);
}

static void bytes_of_each_table(void **state)
{
    (void)state;
    const struct kernels_library_bytes alone = kernels_cpu_library_bytes(kernels_cpu(~0u), 1000);
    assert_int_equal(alone.openblas, (1000 + 1024) * 512 * 4);
    assert_int_equal(alone.onednn, 0);
    assert_int_equal(alone.mapped, 128 << 20);
    assert_int_equal(kernels_cpu_library_bytes(kernels_cpu(~0u), 1 << 20).openblas, 128 << 20);
    assert_int_equal(kernels_cpu_library_bytes(kernels_ref_f16(), 1000).mapped, 0);
    const struct kernels *k = kernels_cpu_by(KERNELS_ONEDNN, NULL);
    if (!k)
        return;
    const struct kernels_library_bytes onednn = kernels_cpu_library_bytes(k, 1000);
    assert_int_equal(onednn.openblas, 0);
    assert_int_equal(onednn.mapped, 0);
    assert_int_equal(onednn.onednn, (1000 + 432) * 384 * 4 + (24 << 10));
}

/* In a child: the limit stays. */
static int look_under_a_limit(int64_t more)
{
    struct kernels_library_bytes bytes = kernels_cpu_library_bytes(kernels_cpu(~0u), 1000);
    struct muster_error err = {0};
    long all;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &all) != 1)
        return 2;
    (void)fclose(file);
    const rlim_t bound = (rlim_t)(all * sysconf(_SC_PAGESIZE) + more);
    const struct rlimit limit = {bound, bound};
    struct rlimit now;
    if (setrlimit(RLIMIT_AS, &limit))
        return 3;
    if (getrlimit(RLIMIT_AS, &now) || now.rlim_cur != bound)
        return 5; /* an emulator, which is not limited */
    if (kernels_cpu_library_room(&bytes, 2, &err) == 0)
        return 0;
    return err.code == MUSTER_E_NOMEM && strstr(err.text, "320.0 MB of address space for 2 threads") &&
                   strstr(err.text, "ulimit -v") && strstr(err.text, "training.threads")
               ? 1
               : 4;
}

static int outcome_of(int64_t more)
{
    int status = -1;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child)
        _exit(look_under_a_limit(more));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void address_space_is_looked_for(void **state)
{
    const struct kernels_library_bytes none = {0};
    (void)state;
    assert_int_equal(kernels_cpu_library_room(&none, 1024, NULL), 0);
    if (!COUNTS)
        skip_because("a sanitizer takes all of the address space");
    const int first = outcome_of(319 << 20);
    if (first == 5)
        skip_because("an emulator does not limit itself");
    assert_int_equal(first, 1);
    assert_int_equal(outcome_of(400 << 20), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_of_each_table),
        cmocka_unit_test(address_space_is_looked_for),
        cmocka_unit_test(openblas_takes_no_more_than_stated),
        cmocka_unit_test(onednn_takes_no_more_than_stated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
