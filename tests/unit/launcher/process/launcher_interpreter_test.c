/* launcher_interpreter_test.c - which Python runs a program, by where this one lies and how it was called. */
#include <string.h>

#include "launcher/process/interpreter.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "tests/support/cmocka_all.h"

#define VENV(folder)                                                                                         \
    {                                                                                                        \
        .path = (folder), .python = "python3", .is_environment = true                                        \
    }
#define SYSTEM(folder)                                                                                       \
    {                                                                                                        \
        .path = (folder), .python = "python3", .has_library = true, .is_system = true                        \
    }
#define PLAIN(folder)                                                                                        \
    {                                                                                                        \
        .path = (folder)                                                                                     \
    }

struct called_place {
    struct interpreter_folder called, link, real; /* link: without a path there is none */
    bool is_activated, has_path;
};

static struct interpreter_facts facts_of(const struct called_place *place)
{
    struct interpreter_facts facts = {.is_activated = place->is_activated, .has_path = place->has_path};
    facts.folders[facts.count++] = place->called;
    if (place->link.path)
        facts.folders[facts.count++] = place->link;
    facts.folders[facts.count++] = place->real;
    return facts;
}

static void each_place_has_its_python(void **state)
{
    static const struct {
        const char *why;
        struct called_place place;
        const char *chosen; /* NULL: PATH's python3 */
        bool of_called;
    } rows[] = {
        {"a venv's torchrun",
         {.called = VENV("/venv/bin"), .real = VENV("/venv/bin"), .has_path = true},
         "/venv/bin/python3",
         false},
        {"a venv that only has python",
         {.called = {.path = "/venv/bin", .python = "python", .is_environment = true}, .has_path = true},
         "/venv/bin/python",
         true},
        {"a link in a venv to a muster elsewhere",
         {.called = VENV("/venv/bin"), .real = PLAIN("/opt/muster/bin"), .has_path = true},
         "/venv/bin/python3",
         true},
        {"a link in the system to a venv's",
         {.called = SYSTEM("/usr/local/bin"), .real = VENV("/opt/venv/bin"), .has_path = true},
         "/opt/venv/bin/python3",
         false},
        {"a link in the system to one in a venv to a muster elsewhere",
         {.called = SYSTEM("/usr/local/bin"),
          .link = VENV("/opt/conda/bin"),
          .real = PLAIN("/opt/muster/bin"),
          .has_path = true},
         "/opt/conda/bin/python3",
         true},
        {"a link from one venv to another",
         {.called = VENV("/a/bin"), .real = VENV("/b/bin"), .has_path = true},
         "/a/bin/python3",
         true},
        {"another venv is activated",
         {.called = VENV("/a/bin"), .real = VENV("/a/bin"), .is_activated = true, .has_path = true},
         "/a/bin/python3",
         false},
        {"the Debian package",
         {.called = SYSTEM("/usr/bin"), .real = SYSTEM("/usr/bin"), .has_path = true},
         NULL,
         false},
        {"the Debian package, a venv is activated",
         {.called = SYSTEM("/usr/bin"), .real = SYSTEM("/usr/bin"), .is_activated = true, .has_path = true},
         NULL,
         false},
        {"the archive",
         {.called = PLAIN("/opt/muster/bin"), .real = PLAIN("/opt/muster/bin"), .has_path = true},
         NULL,
         false},
        {"pyenv, or Python built by hand",
         {.called = {.path = "/root/.pyenv/versions/3.11.4/bin", .python = "python3", .has_library = true},
          .has_path = true},
         "/root/.pyenv/versions/3.11.4/bin/python3",
         true},
        {"conda in /usr/local",
         {.called =
              {.path = "/usr/local/bin", .python = "python3", .is_environment = true, .is_system = true},
          .has_path = true},
         "/usr/local/bin/python3",
         true},
        {"links of commands, one of which is a python3",
         {.called = {.path = "/root/.local/bin", .python = "python3"}, .has_path = true},
         NULL,
         false},
        {"the wheel in the system's Python",
         {.called = {.path = "/usr/local/bin",
                     .python = "python3",
                     .has_library = true,
                     .is_system = true,
                     .wheel = 12,
                     .has_wheel_python = true},
          .has_path = true},
         "/usr/local/bin/python3.12",
         false},
        {"the same, a venv is activated",
         {.called = {.path = "/usr/local/bin",
                     .python = "python3",
                     .has_library = true,
                     .is_system = true,
                     .wheel = 12,
                     .has_wheel_python = true},
          .is_activated = true,
          .has_path = true},
         NULL,
         false},
        {"the user's wheel, whose Python is in PATH",
         {.called = {.path = "/root/.local/bin", .wheel = 9, .has_path_wheel = true}, .has_path = true},
         "python3.9",
         false},
        {"the user's wheel of a Python that is gone",
         {.called = {.path = "/root/.local/bin", .wheel = 9}, .has_path = true},
         NULL,
         false},
        {"a link to the user's wheel",
         {.called = PLAIN("/opt/bin"),
          .real = {.path = "/root/.local/bin", .wheel = 9, .has_path_wheel = true},
          .has_path = true},
         "python3.9",
         false},
        {"cron, whose PATH lacks the folder",
         {.called = SYSTEM("/usr/local/bin"), .real = SYSTEM("/usr/local/bin")},
         "/usr/local/bin/python3",
         false},
        {"no Python anywhere",
         {.called = PLAIN("/opt/muster/bin"), .real = PLAIN("/opt/muster/bin")},
         NULL,
         false},
        {"nothing is known", {.has_path = true}, NULL, false},
        {"no /proc", {.called = VENV("/venv/bin"), .has_path = true}, "/venv/bin/python3", true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct interpreter_facts facts = facts_of(&rows[i].place);
        bool of_called = !rows[i].of_called;
        scope_free char *chosen = interpreter_choose(&facts, &of_called);
        if (!chosen != !rows[i].chosen || (chosen && strcmp(chosen, rows[i].chosen)) ||
            of_called != rows[i].of_called)
            fail_msg("%s: %s, not %s (%d)", rows[i].why, chosen ? chosen : "PATH's",
                     rows[i].chosen ? rows[i].chosen : "PATH's", of_called);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_place_has_its_python)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
