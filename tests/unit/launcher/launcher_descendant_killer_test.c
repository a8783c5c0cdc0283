/* remains_killer.h: a sweep by a thread reaches what descendants.h finds, wakes the loop, and sends
 * nothing once it is called off. */
#include "launcher/process/remains.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/cmocka_all.h"

static char id[DESCENDANTS_ID_LENGTH + 1];

static pid_t start_sleeper(void)
{
    char variable[64];
    (void)snprintf(variable, sizeof variable, "MUSTER_AGENT_ID=%s", id);
    pid_t pid = fork();
    if (pid)
        return pid;
    char *const argv[] = {"sleep", "1000", NULL};
    char *const environment[] = {variable, NULL};
    (void)setsid();
    execve("/bin/sleep", argv, environment);
    _exit(127);
}

/* After its exec: before it, its environment is ours. */
static void wait_for_exec(pid_t pid)
{
    struct instant deadline = instant_add(clock_now(NULL), 120 * NS_PER_S);
    char path[64], name[32] = "";
    (void)snprintf(path, sizeof path, "/proc/%d/comm", (int)pid);
    while (strncmp(name, "sleep", 5) != 0 && !instant_reached(clock_now(NULL), deadline)) {
        FILE *file = fopen(path, "r");
        if (file) {
            if (!fgets(name, sizeof name, file))
                name[0] = '\0';
            (void)fclose(file);
        }
    }
    assert_int_equal(strncmp(name, "sleep", 5), 0);
}

static void turn_until_idle(struct remains_killer *killer)
{
    struct instant deadline = instant_add(clock_now(NULL), 120 * NS_PER_S);
    while (killer->job && !instant_reached(clock_now(NULL), deadline))
        assert_int_equal(loop_turn(killer->loop, deadline, NULL), 0);
    assert_null(killer->job);
}

static int signal_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static bool is_alive(pid_t pid)
{
    return waitpid(pid, NULL, WNOHANG) == 0;
}

static void what_carries_the_id_is_reached_and_listed(void **state)
{
    struct remains_killer *killer = *state;
    pid_t pid = start_sleeper();
    wait_for_exec(pid);
    struct sweep_order order = {.descendants = {.id = id}, .signal = SIGTERM};
    assert_int_equal(remains_killer_start(killer, &order, NULL), 0);
    turn_until_idle(killer);
    assert_int_equal(killer->left_count, 1);
    assert_int_equal(killer->left[0].pid, pid);
    assert_int_equal(signal_of(pid), SIGTERM);
    assert_int_equal(remains_killer_deadline(killer).ns, INSTANT_NEVER.ns);
}

/* A stopped process takes no TERM: the sweep continues it. */
static void a_stopped_process_is_continued(void **state)
{
    struct remains_killer *killer = *state;
    pid_t pid = start_sleeper();
    wait_for_exec(pid);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    struct sweep_order order = {.descendants = {.id = id}, .signal = SIGTERM};
    assert_int_equal(remains_killer_start(killer, &order, NULL), 0);
    assert_int_equal(signal_of(pid), SIGTERM);
    remains_killer_wait(killer, 120 * NS_PER_S);
    assert_null(killer->job);
}

static void groups_of_live_leaders_can_be_spared(void **state)
{
    struct remains_killer *killer = *state;
    pid_t pid = start_sleeper();
    wait_for_exec(pid);
    struct descendants_session session = {pid, false};
    struct sweep_order order = {.descendants = {.id = id, .sessions = &session, .session_count = 1},
                                .signal = SIGTERM,
                                .spare_groups = true};
    assert_int_equal(remains_killer_start(killer, &order, NULL), 0);
    turn_until_idle(killer);
    assert_int_equal(killer->left_count, 1);
    assert_true(is_alive(pid));
    order.signal = SIGKILL;
    order.spare_groups = false;
    assert_int_equal(remains_killer_start(killer, &order, NULL), 0);
    assert_int_equal(signal_of(pid), SIGKILL);
    turn_until_idle(killer);
}

static void what_does_not_answer_is_left_out(void **state)
{
    struct remains_killer *killer = *state;
    pid_t pid = start_sleeper();
    wait_for_exec(pid);
    killer->unread[killer->unread_count++] = pid;
    struct sweep_order order = {.descendants = {.id = id}, .signal = SIGKILL};
    assert_int_equal(remains_killer_start(killer, &order, NULL), 0);
    turn_until_idle(killer);
    assert_int_equal(killer->left_count, 0);
    assert_true(is_alive(pid));
    killer->unread_count = 0;
    assert_int_equal(remains_killer_start(killer, &order, NULL), 0);
    assert_int_equal(signal_of(pid), SIGKILL);
    turn_until_idle(killer);
}

static void sweeps_become_seldom(void **state)
{
    (void)state;
    assert_int_equal(remains_killer_pause_ns(-1), 20 * NS_PER_MS);
    assert_int_equal(remains_killer_pause_ns(0), 20 * NS_PER_MS);
    assert_int_equal(remains_killer_pause_ns(160 * NS_PER_MS), 20 * NS_PER_MS);
    assert_int_equal(remains_killer_pause_ns(800 * NS_PER_MS), 100 * NS_PER_MS);
    assert_int_equal(remains_killer_pause_ns(8 * NS_PER_S), NS_PER_S);
    assert_int_equal(remains_killer_pause_ns(INT64_MAX), NS_PER_S);
}

static void an_overdue_sweep_is_called_off(void **state)
{
    struct remains_killer *killer = *state;
    struct sweep_order order = {.descendants = {.id = id}, .signal = SIGKILL};
    assert_int_equal(remains_killer_start(killer, &order, NULL), 0);
    struct instant due = remains_killer_deadline(killer);
    assert_true(due.ns != INSTANT_NEVER.ns);
    assert_int_equal(remains_killer_tick(killer, instant_add(due, -1)), 0);
    assert_non_null(killer->job);
    while (killer->job) { /* as long as it gets on it is not overdue */
        struct instant then = remains_killer_deadline(killer);
        (void)remains_killer_tick(killer, then); /* whom it was reading is chance here */
        if (killer->job)
            assert_true(remains_killer_deadline(killer).ns > then.ns);
    }
    /* a process that starts now is not signalled: the sweep is cancelled */
    pid_t pid = start_sleeper();
    wait_for_exec(pid);
    struct sweep_order harmless = {.descendants = {.id = id}, .signal = SIGCONT};
    assert_int_equal(remains_killer_start(killer, &harmless, NULL), 0);
    turn_until_idle(killer);
    assert_true(is_alive(pid));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(signal_of(pid), SIGKILL);
}

static int setup(void **state)
{
    static struct loop loop;
    static struct remains_killer killer;
    (void)snprintf(id, sizeof id, "%016llx%016llx", (unsigned long long)getpid(),
                   (unsigned long long)clock_wall_ns());
    killer = (struct remains_killer){.loop = &loop};
    *state = &killer;
    return loop_init(&loop, NULL);
}

static int teardown(void **state)
{
    struct remains_killer *killer = *state;
    remains_killer_cancel(killer);
    loop_close(killer->loop);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_carries_the_id_is_reached_and_listed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stopped_process_is_continued, setup, teardown),
        cmocka_unit_test_setup_teardown(groups_of_live_leaders_can_be_spared, setup, teardown),
        cmocka_unit_test_setup_teardown(what_does_not_answer_is_left_out, setup, teardown),
        cmocka_unit_test_setup_teardown(an_overdue_sweep_is_called_off, setup, teardown),
        cmocka_unit_test(sweeps_become_seldom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
