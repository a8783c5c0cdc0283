/* raw_call.h - system calls that touch nothing but their arguments, for a child that borrows its parent's
 * memory while the parent runs: the C library's own write errno, which is the parent's too then. */
#ifndef MUSTER_LAUNCHER_PROCESS_RAW_CALL_H
#define MUSTER_LAUNCHER_PROCESS_RAW_CALL_H

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Returns what the kernel does: -1 to -4095 is an error's number, negated. */
#if defined(__x86_64__)
#define RAW_CALLS_LEAVE_ERRNO 1
static inline long raw_call(long number, long a, long b, long c, long d)
{
    long result = number;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
    return result;
}
#elif defined(__aarch64__)
#define RAW_CALLS_LEAVE_ERRNO 1
static inline long raw_call(long number, long a, long b, long c, long d)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
#else
#define RAW_CALLS_LEAVE_ERRNO 0
static inline long raw_call(long number, long a, long b, long c, long d)
{
    long result = syscall(number, a, b, c, d);
    return result < 0 ? -errno : result;
}
#endif

#endif
