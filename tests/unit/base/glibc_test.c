/* glibc_test.c - the substitutes of proto/glibc do what libc does on this machine, and the constructors of a
 * program run once. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"

static int constructed;

__attribute__((constructor)) static void count_constructors(void)
{
    constructed++;
}

static void constructors_run_once(void **state)
{
    (void)state;
    assert_int_equal(constructed, 1);
}

/* libc's own function of a name, past ours in this program. */
static void *of_libc(const char *name)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD), *found = libc ? dlsym(libc, name) : NULL;
    assert_non_null(found);
    return found;
}

typedef int stat_function(const char *path, struct stat *result);
typedef int stat_at_function(int folder, const char *path, struct stat *result, int flags);

static void assert_same_file(const struct stat *ours, const struct stat *theirs)
{
    assert_int_equal(ours->st_ino, theirs->st_ino);
    assert_int_equal(ours->st_mode, theirs->st_mode);
    assert_int_equal(ours->st_size, theirs->st_size);
    assert_int_equal(ours->st_mtim.tv_nsec, theirs->st_mtim.tv_nsec);
    assert_int_equal(ours->st_blksize, theirs->st_blksize);
    assert_int_equal(ours->st_nlink, theirs->st_nlink);
}

static void files_are_described_as_by_libc(void **state)
{
    stat_function *their_stat = of_libc("stat"), *their_lstat = of_libc("lstat");
    stat_at_function *their_fstatat = of_libc("fstatat");
    struct stat ours, theirs;
    char folder[FOLDER_PATH], link[64];
    (void)state;
    assert_ptr_not_equal((void *)their_stat, (void *)stat); // NOLINT
    assert_int_equal(folder_make(folder, "glibc-test"), 0);
    (void)snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink("/proc/self/exe", link), 0);
    assert_int_equal(stat(link, &ours), 0);
    assert_int_equal(their_stat(link, &theirs), 0);
    assert_same_file(&ours, &theirs);
    assert_true(S_ISREG(ours.st_mode));
    assert_int_equal(lstat(link, &ours), 0);
    assert_int_equal(their_lstat(link, &theirs), 0);
    assert_same_file(&ours, &theirs);
    assert_true(S_ISLNK(ours.st_mode));
    const int fd = open(folder, O_RDONLY | O_CLOEXEC);
    assert_int_equal(fstat(fd, &ours), 0);
    assert_int_equal(their_fstatat(fd, "", &theirs, AT_EMPTY_PATH), 0);
    assert_same_file(&ours, &theirs);
    assert_int_equal(fstatat(fd, "link", &ours, AT_SYMLINK_NOFOLLOW), 0);
    assert_true(S_ISLNK(ours.st_mode));
    (void)close(fd);
    (void)unlink(link);
    (void)rmdir(folder);
    errno = 0;
    assert_int_equal(stat(link, &ours), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(fstat(-1, &ours), -1);
    assert_int_equal(errno, EBADF);
}

static void a_thread_has_its_number(void **state)
{
    (void)state;
    assert_int_equal(gettid(), getpid());
}

#if __GLIBC_PREREQ(2, 30)
static void waits_end_by_any_clock(void **state)
{
    static const clockid_t clocks[] = {CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_BOOTTIME};
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct timespec until;
    (void)state;
    assert_int_equal(pthread_mutex_lock(&mutex), 0);
    for (size_t i = 0; i < sizeof clocks / sizeof clocks[0]; i++) {
        const int64_t before = clock_now(NULL).ns;
        assert_int_equal(clock_gettime(clocks[i], &until), 0);
        until.tv_nsec += 30000000;
        if (until.tv_nsec >= 1000000000)
            until.tv_sec++, until.tv_nsec -= 1000000000;
        assert_int_equal(pthread_cond_clockwait(&condition, &mutex, clocks[i], &until), ETIMEDOUT);
        assert_true(clock_now(NULL).ns - before >= 29000000);
        assert_true(clock_now(NULL).ns - before < 20000000000);
    }
    assert_int_equal(pthread_cond_clockwait(&condition, &mutex, 12345, &until), EINVAL);
    assert_int_equal(pthread_mutex_unlock(&mutex), 0);
}
#endif

#if __GLIBC_PREREQ(2, 35)
typedef int find_function(void *place, struct dl_find_object *found);

static void the_tables_of_code_are_those_that_libc_finds(void **state)
{
    find_function *theirs = of_libc("_dl_find_object");
    void *places[] = {(void *)a_thread_has_its_number, of_libc("qsort"),
                      dlsym(RTLD_DEFAULT, "_cmocka_run_group_tests")}; // NOLINT
    (void)state;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        struct dl_find_object ours = {0}, found = {0};
        assert_non_null(places[i]);
        assert_int_equal(_dl_find_object(places[i], &ours), 0);
        assert_int_equal(theirs(places[i], &found), 0);
        assert_ptr_equal(ours.dlfo_eh_frame, found.dlfo_eh_frame);
        assert_in_range((uintptr_t)places[i], (uintptr_t)ours.dlfo_map_start, (uintptr_t)ours.dlfo_map_end);
    }
    struct dl_find_object none;
    assert_int_equal(_dl_find_object(&none, &none), -1); /* the stack is no code */
    assert_int_equal(_dl_find_object(NULL, &none), -1);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(constructors_run_once),
        cmocka_unit_test(files_are_described_as_by_libc),
        cmocka_unit_test(a_thread_has_its_number),
#if __GLIBC_PREREQ(2, 30)
        cmocka_unit_test(waits_end_by_any_clock),
#endif
#if __GLIBC_PREREQ(2, 35)
        cmocka_unit_test(the_tables_of_code_are_those_that_libc_finds),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
