/* launcher_warm_test.c - the messages between an agent and a template. The processes:
 * tests/e2e/warm_test.py. */
#include <stdlib.h>
#include <string.h>

#include "launcher/warm/warm_message.h"
#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"
#include "tests/support/faults.h"

static void answers(void **state)
{
    static const struct {
        const char *message;
        struct warm_answer answer;
    } rows[] = {
        {"ready", {WARM_READY, 0, 0, ""}},
        {"ready\ntorch\tstarts threads", {WARM_READY, 0, 0, "torch\tstarts threads"}},
        {"worker 0 1", {WARM_WORKER, 0, 1, ""}},
        {"worker 4095 2147483647", {WARM_WORKER, 4095, 2147483647, ""}},
        {"failed 3 cannot fork: no room", {WARM_FAILED, 3, 0, "cannot fork: no room"}},
        {"failed 3", {WARM_FAILED, 3, 0, ""}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct warm_answer answer;
        assert_true(warm_answer_parse(rows[i].message, &answer));
        assert_int_equal(answer.kind, rows[i].answer.kind);
        assert_int_equal(answer.number, rows[i].answer.number);
        assert_int_equal(answer.pid, rows[i].answer.pid);
        assert_string_equal(answer.text, rows[i].answer.text);
    }
}

static void no_answers(void **state)
{
    static const char *const rows[] = {"",
                                       "read",
                                       "readyx",
                                       "worker",
                                       "worker 1",
                                       "worker 1 0",
                                       "worker 1 x",
                                       "worker -1 5",
                                       "worker 1 5 6",
                                       "worker 1 2147483648",
                                       "failed",
                                       "failed x y",
                                       "failed 99999999999999999999 x"};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct warm_answer answer;
        assert_false(warm_answer_parse(rows[i], &answer));
    }
}

static void requests(void **state)
{
    struct numa_mask cpus = {0};
    (void)state;
    scope_buffer plain = {0}, bound = {0}, payload = {0};
    assert_int_equal(warm_request_write(7, 1234, NULL, &plain), 0);
    assert_string_equal(plain.data, "fork 7 1234 -");
    for (int cpu = 0; cpu < 4; cpu++)
        numa_mask_add(&cpus, cpu);
    numa_mask_add(&cpus, 8);
    assert_int_equal(warm_request_write(0, 1, &cpus, &bound), 0);
    assert_string_equal(bound.data, "fork 0 1 0-3,8");
    char *const argv[] = {"python3", "", "x y", NULL}, *const envp[] = {"A=1", NULL};
    static const char wanted[] = "3\0python3\0\0x y\0001\0A=1"; /* and the array's NUL */
    assert_int_equal(warm_payload_write(argv, envp, &payload), 0);
    assert_int_equal(payload.length, sizeof wanted);
    assert_memory_equal(payload.data, wanted, sizeof wanted);
}

static void the_python_command(void **state)
{
    char *const worker[] = {"/usr/bin/python3", "-u", "train.py", "--lr", NULL};
    scope_text_list command = {0};
    (void)state;
    assert_int_equal(warm_python_command("torch,,numpy,", worker, &command), 0);
    assert_int_equal(command.count, 11);
    assert_string_equal(command.items[0], "/usr/bin/python3");
    assert_string_equal(command.items[2], "-c");
    assert_non_null(strstr(command.items[3], "MUSTER_TEMPLATE_FD"));
    assert_string_equal(command.items[4], "torch");
    assert_string_equal(command.items[5], "numpy");
    assert_string_equal(command.items[6], "--");
    assert_string_equal(command.items[10], "--lr");
}

static int all_texts(void *context)
{
    char *const worker[] = {"python3", "-u", "x.py", NULL};
    scope_text_list command = {0};
    scope_buffer payload = {0};
    (void)context;
    return warm_python_command("a,b", worker, &command) < 0 ||
                   warm_payload_write(worker, worker, &payload) < 0
               ? -1
               : 0;
}

static void without_memory(void **state)
{
    (void)state;
    faults_sweep(all_texts, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(answers), cmocka_unit_test(no_answers),
                                       cmocka_unit_test(requests), cmocka_unit_test(the_python_command),
                                       cmocka_unit_test(without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
