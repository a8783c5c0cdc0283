/* launcher_local_missing_test.c - files of a pod that this machine lacks: which are found, and when a warning
 * would be wrong. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/local/local_internal.h"
#include "proto/base/guard.h"
#include "proto/base/log.h"
#include "tests/support/cmocka_all.h"

static char *env[] = {"TRAINING=/nowhere/training", "HERE=/etc", "PATH=/usr/bin:/bin", NULL};

/* command, expected kind and path (NULL: nothing is missing) */
static const struct {
    char *command[6];
    const char *kind, *path;
    char *working_dir;
} table[] = {
    {{"python", "/workspace/train.py"}, "its script", "/workspace/train.py", NULL},
    {{"python3", "-u", "-X", "dev", "/workspace/train.py"}, "its script", "/workspace/train.py", NULL},
    {{"/bin/muster", "run", "--nproc-per-node=2"}, "its program", "/bin/muster", NULL},
    {{"/bin/sh", "/workspace/run.sh"}, "its script", "/workspace/run.sh", NULL},
    {{"/workspace/run.sh"}, "its program", "/workspace/run.sh", NULL},
    {{"no-such-program", "x"}, "its program", "no-such-program", NULL},
    {{"python", "train.py"}, "its script", "/etc/train.py", "/etc"},
    {{"python", "train.py"}, "its workingDir", "/workspace", "/workspace"},
    {{"sh", "-c", "exec torchrun \"$TRAINING/train.py\""}, "its script", "/nowhere/training/train.py", NULL},
    {{"bash", "-lc", "python -u ${TRAINING}/train.py --steps 3"},
     "its script",
     "/nowhere/training/train.py",
     NULL},
    /* present, or not to be known */
    {{"true"}, NULL, NULL, NULL},
    {{"/bin/sh", "-c", "true"}, NULL, NULL, NULL},
    {{"sh", "-c", "python $HERE/passwd"}, NULL, NULL, NULL},
    {{"sh", "-c", "cp a.py /tmp/b.py && python /tmp/b.py"}, NULL, NULL, NULL},
    {{"sh", "-c", "python $UNSET/train.py"}, NULL, NULL, NULL},
    {{"sh", "-c", "python $(which train.py)"}, NULL, NULL, NULL},
    {{"sh", "-c", "python \"open"}, NULL, NULL, NULL},
    {{"python", "-m", "package", "/workspace/conf.py"}, NULL, NULL, NULL},
    {{"python", "-c", "pass", "x.py"}, NULL, NULL, NULL},
    {{"torchrun", "--standalone"}, NULL, NULL, NULL},
    {{"python"}, NULL, NULL, NULL},
};

static void every_command(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct local_pod pod = {.name = "p",
                                .env = env,
                                .command = (char **)table[i].command,
                                .working_dir = table[i].working_dir};
        const char *kind = NULL;
        scope_free char *missing = missing_file_find(&pod, "/usr/bin:/bin", &kind);
        if (!missing != !table[i].path ||
            (missing && (strcmp(missing, table[i].path) || strcmp(kind, table[i].kind))))
            fail_msg("row %zu: %s %s", i, missing ? kind : "nothing", missing ? missing : "");
    }
}

static void no_command(void **state)
{
    (void)state;
    struct local_pod pod = {.name = "p", .env = env};
    const char *kind = NULL;
    assert_null(missing_file_find(&pod, NULL, &kind));
}

struct lines {
    int count;
    char last[600], first[600];
};

static void keep_line(void *context, enum log_level level, const char *text)
{
    struct lines *lines = context;
    assert_int_equal(level, LOG_LEVEL_WARNING);
    (void)snprintf(lines->count ? lines->last : lines->first, sizeof lines->last, "%s", text);
    lines->count++;
}

static void one_warning_for_pods_that_lack_the_same(void **state)
{
    (void)state;
    struct lines lines = {0};
    struct log_sink log = {keep_line, &lines, LOG_LEVEL_DEBUG, NULL};
    char *command[] = {"python", "/workspace/train.py", NULL};
    struct local_pod pods[3] = {{.name = "j-master-0", .env = env, .command = command},
                                {.name = "j-worker-0", .env = env, .command = command, .type = LOCAL_WORKER},
                                {.name = "j-worker-1", .env = env, .command = command, .type = LOCAL_WORKER}};
    struct local_job job = {.name = "j", .pods = pods, .pod_count = 3, .backoff_limit = -1};
    missing_files_warn(&job, &log);
    assert_int_equal(lines.count, 2);
    assert_non_null(strstr(
        lines.first, "pod j-master-0, container pytorch: its script /workspace/train.py does not exist"));
    assert_non_null(strstr(lines.first, "restartPolicy OnFailure restarts it without end (no backoffLimit)"));
    assert_string_equal(lines.last, "warning: 2 more pods lack /workspace/train.py");
    job.backoff_limit = 3;
    lines = (struct lines){0};
    missing_files_warn(&job, &log);
    assert_null(strstr(lines.first, "without end"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command),
        cmocka_unit_test(no_command),
        cmocka_unit_test(one_warning_for_pods_that_lack_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
