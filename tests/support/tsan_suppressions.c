/* tsan_suppressions.c - what the thread sanitizer is told, in every program that is built with it: no
 * environment has to carry the path of a file, which its options cannot name where it has a blank.
 *
 * libzmq, and libsodium under it, are not instrumented: what their threads hand to each other looks like a
 * race. */

__attribute__((visibility("default"))) const char *__tsan_default_suppressions(void);

const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:libzmq.so\n"
           "race:libzmq.so\n"
           "race:libsodium.so\n";
}
