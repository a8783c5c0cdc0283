/* fiber.cpp - fibers. A switch saves what the calling convention has a function keep and nothing more. */
#include "tests/gpu/emulator/fiber.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#if defined __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SWITCH_BEGINS(fake, stack, bytes) __sanitizer_start_switch_fiber(fake, stack, bytes)
#define SWITCH_ENDS(fake, stack, bytes)   __sanitizer_finish_switch_fiber(fake, stack, bytes)
#else
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#define SWITCH_BEGINS(fake, stack, bytes) ((void)(fake), (void)(stack), (void)(bytes))
#define SWITCH_ENDS(fake, stack, bytes)   ((void)(fake), (void)(stack), (void)(bytes))
#endif

/* This file is not instrumented for the thread sanitizer: its own data is no part of the kernels. */
#ifdef EMU_TSAN
#include <sanitizer/tsan_interface.h>
enum { NO_ORDER = 1 };
#define TSAN_SWITCH(to)  __tsan_switch_to_fiber(to, NO_ORDER)
#define TSAN_CURRENT()   __tsan_get_current_fiber()
#define TSAN_MAKE()      __tsan_create_fiber(0)
#define TSAN_FREE(fiber) __tsan_destroy_fiber(fiber)
#define TSAN_RELEASE(p)  __tsan_release(p)
#define TSAN_ACQUIRE(p)  __tsan_acquire(p)
#else
#define TSAN_SWITCH(to)  (void)0
#define TSAN_CURRENT()   nullptr
#define TSAN_MAKE()      nullptr
#define TSAN_FREE(fiber) (void)0
#define TSAN_RELEASE(p)  (void)(p)
#define TSAN_ACQUIRE(p)  (void)(p)
#endif

/* PAGE: of any machine. LAST_FRAMES: of the functions in which a fiber ended, whose zones are still marked.
 */
enum { PAGE = 64 << 10, STACK = 128 << 10, LAST_FRAMES = 4096 };
/* Stacks begin at different lines of a page: those of a block would use the same few lines of the processor's
 * cache otherwise. */
enum { PLACES = 11, PLACE = 256 };

/* Saves this side in *save and continues at the other, `to`, which was saved so or made by fiber_start. */
extern "C" void fiber_switch(void **save, void *to);

#if defined __x86_64__
enum { SAVED_WORDS = 6 };
asm(".text\n"
    ".globl fiber_switch\n"
    ".hidden fiber_switch\n"
    ".type fiber_switch, @function\n"
    "fiber_switch:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, (%rdi)\n"
    "  mov %rsi, %rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"
    "  ret\n"
    ".size fiber_switch, .-fiber_switch\n");

void fiber_start(struct fiber *fiber, void (*entry)())
{
    void **top = (void **)fiber->top;
    *--top = nullptr; /* where entry would return to; and it is as aligned as after a call */
    *--top = (void *)entry;
    for (int i = 0; i < SAVED_WORDS; i++)
        *--top = nullptr;
    fiber->stack_pointer = top;
    fiber->fake_stack = nullptr;
    ASAN_UNPOISON_MEMORY_REGION((char *)fiber->top - LAST_FRAMES, LAST_FRAMES);
}
#elif defined __aarch64__
enum { SAVED_WORDS = 20 }; /* x19 to x30, d8 to d15 */
asm(".text\n"
    ".globl fiber_switch\n"
    ".hidden fiber_switch\n"
    ".type fiber_switch, %function\n"
    "fiber_switch:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n"
    "  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
    "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n"
    "  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n"
    ".size fiber_switch, .-fiber_switch\n");

void fiber_start(struct fiber *fiber, void (*entry)())
{
    void **top = (void **)fiber->top - SAVED_WORDS;
    memset(top, 0, SAVED_WORDS * sizeof *top);
    top[11] = (void *)entry; /* x30: where the switch returns to */
    fiber->stack_pointer = top;
    fiber->fake_stack = nullptr;
    ASAN_UNPOISON_MEMORY_REGION((char *)fiber->top - LAST_FRAMES, LAST_FRAMES);
}
#else
#error "fiber.cpp: write fiber_switch for this processor"
#endif

/* The thread that resumes, and the fiber that it resumed. */
static thread_local struct {
    struct fiber *fiber;
    void *stack_pointer, *tsan, *fake_stack;
    const void *stack;
    size_t stack_bytes;
} here;

struct fiber *fiber_make()
{
    static std::atomic<unsigned> made;
    char *map = (char *)mmap(nullptr, PAGE + STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct fiber *fiber = new struct fiber();
    if (map == MAP_FAILED || mprotect(map + PAGE, STACK, PROT_READ | PROT_WRITE) != 0) {
        fprintf(stderr, "emulator: no memory for the stacks of a block's threads\n");
        abort();
    }
    fiber->stack = map + PAGE;
    fiber->top = fiber->stack + STACK - 64 - made++ % PLACES * PLACE;
    fiber->tsan = TSAN_MAKE();
    return fiber;
}

void fiber_free(struct fiber *fiber)
{
    munmap(fiber->stack - PAGE, PAGE + STACK);
    TSAN_FREE(fiber->tsan);
    delete fiber;
}

__attribute__((noinline)) void fiber_resume(struct fiber *fiber)
{
    here.fiber = fiber;
    here.tsan = TSAN_CURRENT();
    TSAN_SWITCH(fiber->tsan);
    SWITCH_BEGINS(&here.fake_stack, fiber->stack, STACK);
    fiber_switch(&here.stack_pointer, fiber->stack_pointer);
    SWITCH_ENDS(here.fake_stack, nullptr, nullptr);
}

__attribute__((noinline)) void fiber_leave(bool last)
{
    struct fiber *fiber = here.fiber;
    TSAN_SWITCH(here.tsan);
    SWITCH_BEGINS(last ? nullptr : &fiber->fake_stack, here.stack, here.stack_bytes);
    fiber_switch(&fiber->stack_pointer, here.stack_pointer);
    SWITCH_ENDS(fiber->fake_stack, &here.stack, &here.stack_bytes);
}

void fiber_entered()
{
    SWITCH_ENDS(nullptr, &here.stack, &here.stack_bytes);
}

void fiber_release(void *p)
{
    TSAN_RELEASE(p);
}

void fiber_acquire(void *p)
{
    TSAN_ACQUIRE(p);
}
