/* remains_files.h: files left by dead workers, and files that look like them and are not. */
#include "launcher/process/remains.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/folder.h"

static void only_leftovers_of_the_dead_are_ours(void **state)
{
    (void)state;
    static const pid_t dead[] = {812, 813};
    static const struct {
        const char *name;
        uid_t uid;
        int64_t changed_ns;
        bool sees_all, ours;
    } rows[] = {
        {"torch_812_1234_0", 7, 150, false, true},
        {"torch_812_1234_0", 8, 150, true, false}, /* another user's */
        {"torch_812_1234_0", 7, 99, true, false},  /* older than the round: the number was another's */
        {"torch_814_1234_0", 7, 150, true, false}, /* another program's */
        {"torch_81", 7, 150, true, false},
        {"torch_812", 7, 150, true, false},
        {"torch__812_", 7, 150, true, false},
        {"__KMP_REGISTERED_LIB_813_7", 7, 150, false, true},
        {"nccl-Ab3dE6", 7, 150, true, true},
        {"mpich_shm_7c55df62_0", 7, 150, true, true},
        {"mpich_shm_7c55df62_0", 7, 150, false, false},
        {"nccl-Ab3dE6", 7, 150, false, false}, /* another pod may use it unseen */
        {"nccl-Ab3dE6", 7, 99, true, false},
        {"nccl", 7, 150, true, false},
        {"psm_1234", 7, 150, true, false}, /* nobody can tell whose */
        {"sem.mp-abc", 7, 150, true, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct remains_files_scope scope = {7, 100, rows[i].sees_all, dead, 2};
        struct remains_files_file file = {rows[i].name, rows[i].uid, rows[i].changed_ns};
        assert_int_equal(remains_files_is_candidate(&file, &scope), rows[i].ours);
    }
}

/* A round of 100 s that began at 5,000 s; a file is of its 60th second. */
static void a_clock_that_was_set_hides_no_file(void **state)
{
    (void)state;
    static const pid_t dead[] = {812};
    static const struct {
        int64_t now_s, file_s;
    } rows[] = {
        {5100, 5060}, /* it was not set */
        {1500, 1460}, /* back, before the file was made */
        {1500, 5060}, /* back, after that */
        {9100, 9060}, /* the same forward */
        {9100, 5060},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int64_t since_ns =
            remains_files_since(5000 * NS_PER_S, 100 * NS_PER_S, rows[i].now_s * NS_PER_S);
        const struct remains_files_scope scope = {7, since_ns, true, dead, 1};
        const struct remains_files_file file = {"torch_812_1234_0", 7, rows[i].file_s * NS_PER_S};
        assert_true(remains_files_is_candidate(&file, &scope));
    }
    assert_true(remains_files_since(5000, 100, 5100) == 5000); /* older files are another's */
}

static void put_file(const char *directory, const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 4096), 0);
    (void)close(fd);
}

static bool is_there(const char *directory, const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

static void what_is_mapped_or_open_stays(void **state)
{
    (void)state;
    char directory[FOLDER_PATH], path[128];
    static const pid_t dead[] = {812};
    static const char *const names[] = {"torch_812_free", "torch_812_mapped", "torch_812_open",
                                        "torch_999_other"};
    assert_int_equal(folder_make(directory, "cleanup"), 0);
    struct remains_files_scope scope = {geteuid(), clock_wall_ns() - NS_PER_S, false, dead, 1};
    for (int i = 0; i < 4; i++)
        put_file(directory, names[i]);
    (void)snprintf(path, sizeof path, "%s/torch_812_mapped", directory);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    void *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    (void)close(fd);
    (void)snprintf(path, sizeof path, "%s/torch_812_open", directory);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);

    struct remains_files *cleanup;
    struct background_job *job = remains_files_start(&scope, directory, &cleanup, NULL);
    assert_non_null(job);
    assert_true(background_job_wait(job, 60 * NS_PER_S));
    assert_int_equal(cleanup->count, 1);
    assert_string_equal(cleanup->removed.data, "torch_812_free");
    background_job_release(job);
    assert_false(is_there(directory, names[0]));
    for (int i = 1; i < 4; i++) {
        assert_true(is_there(directory, names[i]));
        (void)snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        (void)unlink(path);
    }
    (void)close(fd);
    (void)munmap(map, 4096);
    (void)rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_leftovers_of_the_dead_are_ours),
        cmocka_unit_test(a_clock_that_was_set_hides_no_file),
        cmocka_unit_test(what_is_mapped_or_open_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
