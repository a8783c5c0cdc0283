/* fiber.h - fibers of one thread: a stack each and a switch between it and the thread that resumes it. The
 * address sanitizer is told of every switch, and the thread sanitizer too: without an order between the two
 * sides, so that fibers are as unordered as the threads of a block. */
#ifndef MUSTER_TESTS_GPU_FIBER_H
#define MUSTER_TESTS_GPU_FIBER_H

#include <cstddef>

struct fiber {
    void *stack_pointer, *top; /* now; where it starts */
    char *stack;               /* with a page below that faults */
    void *tsan, *fake_stack;
};

/* Aborts where there is no memory. With the thread sanitizer, called by the thread that will resume it. */
struct fiber *fiber_make();
void fiber_free(struct fiber *fiber);
/* The next fiber_resume calls entry(), which ends with fiber_leave(true). */
void fiber_start(struct fiber *fiber, void (*entry)());
/* Runs the fiber until it leaves. Not from within a fiber. */
void fiber_resume(struct fiber *fiber);
/* Back to its resumer; the next fiber_resume goes on here, unless `last`. */
void fiber_leave(bool last);
/* First thing of entry(). */
void fiber_entered();

/* An order for the thread sanitizer: all that was done before fiber_release(p) is seen after
 * fiber_acquire(p). */
void fiber_release(void *p);
void fiber_acquire(void *p);

#endif
