/* start.c - linked into muster-train: a limit of address space (ulimit -v) is looked at before OpenBLAS is
 * loaded. While it is loaded it maps 128 MiB for each thread, and tries for ever where that is refused.
 *
 * It runs before any constructor and before main. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proto/exit_code.h"

static const char *start_variable(char **envp, const char *name)
{
    const size_t length = strlen(name);
    for (; envp && *envp; envp++)
        if (!strncmp(*envp, name, length) && (*envp)[length] == '=')
            return *envp + length + 1;
    return NULL;
}

/* As OpenBLAS counts its threads: the first variable that is set, cut to the processors. */
static int start_threads(char **envp)
{
    static const char *const variables[] = {"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"};
    cpu_set_t set;
    const int cores = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = start_variable(envp, variables[i]);
        const long threads = value ? strtol(value, NULL, 10) : 0;
        if (threads > 0)
            return threads < cores ? (int)threads : cores;
    }
    return cores;
}

static void start_check(int argc, char **argv, char **envp)
{
    enum { MIB = 20, EACH = 128, TEXT = 400 };
    struct rlimit space;
    char text[TEXT];
    if (getrlimit(RLIMIT_AS, &space) || space.rlim_cur == RLIM_INFINITY)
        return;
    const int threads = start_threads(envp);
    const size_t need = (size_t)threads * EACH << MIB;
    void *place = mmap(NULL, need, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place != MAP_FAILED) {
        (void)munmap(place, need); /* cannot fail: it is a whole mapping of ours */
        return;
    }
    const char *name = argc > 0 ? argv[0] : "muster-train", *slash = strrchr(name, '/');
    const int length = snprintf(
        text, sizeof text,
        "%.99s: error: OpenBLAS maps %d MiB of address space for each of %d threads when it is loaded, "
        "and the limit of %llu KiB (ulimit -v) leaves less: raise the limit, or set "
        "OMP_NUM_THREADS to fewer threads\n",
        slash ? slash + 1 : name, EACH, threads, (unsigned long long)space.rlim_cur / 1024);
    ssize_t done = length > 0 ? write(STDERR_FILENO, text, (size_t)length) : 0;
    (void)done; /* there is no other place to say it */
    _exit(EXIT_CODE_ENVIRONMENT);
}

typedef void start_function(int argc, char **argv, char **envp);
static start_function *const start_entry __attribute__((used, section(".preinit_array"))) = start_check;
