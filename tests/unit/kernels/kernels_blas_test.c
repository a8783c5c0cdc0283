/* kernels_blas_test.c - OpenBLAS that is absent, broken, foreign or of another build; and a variable that is
 * set for one call of OpenBLAS: threads that read the environment meanwhile see a whole list, and nothing is
 * left behind.
 *
 *     kernels_blas_test without     the process has no usable OpenBLAS: 0 where all of it is told */
#include "tests/support/cmocka_all.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cpu/openblas/environment.h"
#include "kernels/cpu/openblas/openblas.h"
#include "kernels/kernels.h"

static char seen[32];

static void look(void)
{
    const char *value = getenv("MUSTER_TEST_CORE");
    (void)snprintf(seen, sizeof seen, "%s", value ? value : "none");
}

static void the_variable_is_there_for_one_call(void **state)
{
    (void)state;
    char **const before = environ;
    assert_true(environment_with("MUSTER_TEST_CORE=Haswell", look));
    assert_string_equal(seen, "Haswell");
    assert_null(getenv("MUSTER_TEST_CORE"));
    assert_ptr_equal(environ, before);
}

static void set_another(void)
{
    look();
    assert_int_equal(setenv("MUSTER_TEST_OTHER", "kept", 1), 0);
}

static void a_variable_that_is_set_meanwhile_stays(void **state)
{
    (void)state;
    assert_true(environment_with("MUSTER_TEST_CORE=Zen", set_another));
    assert_string_equal(seen, "Zen");
    assert_null(getenv("MUSTER_TEST_CORE"));
    assert_string_equal(getenv("MUSTER_TEST_OTHER"), "kept");
    assert_int_equal(unsetenv("MUSTER_TEST_OTHER"), 0);
}

static void an_empty_environment_has_it_too(void **state)
{
    (void)state;
    char **const before = environ;
    environ = NULL;
    const bool done = environment_with("MUSTER_TEST_CORE=Nehalem", look);
    char **const after = environ;
    environ = before;
    assert_true(done);
    assert_null(after);
    assert_string_equal(seen, "Nehalem");
}

static _Atomic bool ends;

/* The first variable stands where a list that shrinks or grows is changed. */
static void *read_all_the_time(void *context)
{
    const char *const name = context;
    while (!atomic_load(&ends)) {
        const char *value = getenv(name);
        if (!value || strcmp(value, "stays"))
            abort(); /* an assert may not jump here */
    }
    return NULL;
}

static void readers_are_not_disturbed(void **state)
{
    (void)state;
    enum { READERS = 2, CALLS = 500 };
    pthread_t readers[READERS];
    assert_int_equal(setenv("MUSTER_TEST_READ", "stays", 1), 0);
    for (int i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_all_the_time, "MUSTER_TEST_READ"), 0);
    for (int i = 0; i < CALLS; i++)
        assert_true(environment_with("MUSTER_TEST_CORE=Haswell", look));
    atomic_store(&ends, true);
    for (int i = 0; i < READERS; i++)
        (void)pthread_join(readers[i], NULL);
    assert_int_equal(unsetenv("MUSTER_TEST_READ"), 0);
}

/* ---- the library itself ---- */

static void other_builds_are_refused(void **state)
{
    (void)state;
    for (int parallel = 0; parallel < 2; parallel++) { /* sequential, pthreads */
        struct muster_error err = {0};
        assert_int_equal(openblas_check_build(parallel, "OpenBLAS 0.3.21", &err), -1);
        assert_int_equal(err.code, MUSTER_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "(OpenBLAS 0.3.21) is not the OpenMP build"));
        assert_non_null(strstr(err.text, "libopenblas0-openmp"));
    }
    assert_int_equal(openblas_check_build(2, "", NULL), 0);
}

/* The error goes to the standard output. Exit status 0: no call did anything but report it, and products are
 * right all the same. */
static int live_without(void)
{
    struct muster_error err = {0}, again = {0};
    if (kernels_cpu_open(&err) == 0 || kernels_cpu_threads(1, &again) == 0 || strcmp(err.text, again.text))
        return 1;
    (void)printf("%d %s\n", err.code, err.text);
    if (strcmp(kernels_cpu_blas(), "no OpenBLAS") || *kernels_cpu_blas_note())
        return 2;
    /* (2,3) (2,3)^T, and the transpose of both */
    const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 0, 2, 0, 1, 1}, expected[] = {7, 5, 16, 11};
    const float a_turned[] = {1, 4, 2, 5, 3, 6}, b_turned[] = {1, 0, 0, 1, 2, 1};
    float out[4] = {1, 1, 1, 1}, turned[4] = {1, 1, 1, 1};
    openblas_f32(false, true, 2, 2, 3, a, 3, b, 3, 0, out, 2);
    openblas_f32(true, false, 2, 2, 3, a_turned, 2, b_turned, 2, 1, turned, 2);
    for (int i = 0; i < 4; i++)
        if (out[i] != expected[i] || turned[i] != expected[i] + 1)
            return 3;
    return 0;
}

enum { UNLIMITED = 102 }; /* an emulator, which is not limited */

static void begin_child(const char *folder, rlim_t bound, int out)
{
    const struct rlimit limit = {bound, bound};
    struct rlimit now;
    if (dup2(out, STDOUT_FILENO) < 0 || (folder && setenv("LD_LIBRARY_PATH", folder, 1)) ||
        (bound && setrlimit(RLIMIT_AS, &limit)))
        _exit(100);
    if (bound && (getrlimit(RLIMIT_AS, &now) || now.rlim_cur != bound))
        _exit(UNLIMITED);
    (void)execl("/proc/self/exe", "kernels_blas_test", "without", (char *)NULL);
    _exit(101);
}

/* This program anew, with a folder that is searched first (NULL: none), or under a limit of address space (0:
 * none): code and text of the error. false: this process cannot be limited. */
static bool run_without(const char *folder, rlim_t bound, char *text, size_t room)
{
    int ends[2], status = -1;
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child)
        begin_child(folder, bound, ends[1]);
    (void)close(ends[1]);
    size_t length = 0;
    for (ssize_t got; length + 1 < room && (got = read(ends[0], text + length, room - 1 - length)) > 0;)
        length += (size_t)got;
    text[length] = '\0';
    (void)close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == UNLIMITED)
        return false;
    if (!WIFEXITED(status) || WEXITSTATUS(status))
        fail_msg("status %d: %s", status, text);
    return true;
}

static void hold_text(const char *text, enum muster_error_code code, const char *part, const char *other)
{
    if (atoi(text) != (int)code || !strstr(text, part) || !strstr(text, other))
        fail_msg("not %d with \"%s\" and \"%s\": %s", (int)code, part, other, text);
}

static void a_library_that_is_none_is_named(void **state)
{
    char folder[] = "/tmp/muster-blas-XXXXXX", path[64], text[1024];
    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof path, "%s/libopenblas.so.0", folder); /* fits */
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fclose(file);
    assert_true(run_without(folder, 0, text, sizeof text));
    (void)unlink(path);
    (void)rmdir(folder);
    hold_text(text, MUSTER_E_NOT_FOUND, "libopenblas0-openmp", path);
}

static int processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

static void a_limit_of_address_space_is_named(void **state)
{
    enum { MIB = 20, LEAST = 120 };
    char text[1024];
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip_because("a sanitizer takes all of the address space");
#endif
    if (!run_without(NULL, (rlim_t)LEAST << MIB, text, sizeof text))
        skip_because("an emulator does not limit itself");
    hold_text(text, MUSTER_E_NOMEM, "OpenBLAS needs 320.0 MB of address space",
              "the limit of 120.0 MB (ulimit -v)");
    assert_int_equal(setenv("OPENBLAS_NUM_THREADS", "1000", 1), 0); /* as many as there are processors */
    assert_true(run_without(NULL, (rlim_t)LEAST << MIB, text, sizeof text));
    assert_int_equal(unsetenv("OPENBLAS_NUM_THREADS"), 0);
    hold_text(text, MUSTER_E_NOMEM, "OpenBLAS needs ", processors() > 1 ? "unset OPENBLAS_NUM_THREADS" : "");
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "without"))
        return live_without();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_variable_is_there_for_one_call),
        cmocka_unit_test(a_variable_that_is_set_meanwhile_stays),
        cmocka_unit_test(an_empty_environment_has_it_too),
        cmocka_unit_test(readers_are_not_disturbed),
        cmocka_unit_test(other_builds_are_refused),
        cmocka_unit_test(a_library_that_is_none_is_named),
        cmocka_unit_test(a_limit_of_address_space_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
