/* tsan_suppressions.c - options of the thread sanitizer, in every program that is built with it: no
 * environment has to carry the path of a file, which its options cannot name where it has a blank.
 *
 * libzmq, and libsodium under it, are not instrumented: data passed between their threads looks like a race.
 *
 * The sanitizer's clone counts a new process as a fork, in the memory that a spawned worker shares with us
 * until it executes. The sanitizer would then end our process at its next thread ("starting new threads after
 * multi-threaded fork"), and no longer watch its main thread. So our clone is the C library's. */
__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libzmq.so\n"
           "race:libzmq.so\n"
           "race:libsodium.so\n";
}

__attribute__((visibility("default"))) int clone(int (*run)(void *context), void *stack, int flags,
                                                 void *context, ...);
int __clone(int (*run)(void *context), void *stack, int flags, void *context, ...);

int clone(int (*run)(void *context), void *stack, int flags, void *context, ...)
{
    return __clone(run, stack, flags, context); /* no caller of ours gives more */
}
