/* block.cpp - runs the blocks of a launch: threads take turns until each has ended, and where all threads of
 * a block, or all lanes of a mask, have come to the same place, they go on.
 *
 * Rules that a GPU would not check, or answer with a hang, end the program here: lanes that meet in different
 * places, a mask that names a lane which has ended, a barrier that some threads never reach. */
#include "tests/gpu/emulator/block.h"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tests/gpu/emulator/fiber.h"
#include "tests/gpu/emulator/shared.h"

enum { WARP = 32 };

enum turn { RUNS, AT_BARRIER, AT_WARP, ENDED };

/* One thread of the block that runs. */
struct thread {
    struct emu_thread where;
    struct fiber *fiber;
    enum turn turn;
    /* what it waits for */
    const char *file;
    int line;
    enum emu_kind kind;
    unsigned mask;
    uint64_t payload;
    int value;
    unsigned barriers, meetings; /* so far: of the block, and of the whole warp */
    /* what it gets */
    const uint64_t *got; /* payloads of the first lane that met */
    int sum;
};

/* What runs kernels: they take turns (launch.cpp), and one does for all streams. */
struct worker {
    std::vector<struct fiber *> fibers; /* all of them; not for the thread sanitizer, those that are free */
    std::vector<struct thread> threads;
    std::vector<std::array<uint64_t, WARP>> payloads; /* a meeting's, by its first lane */
    std::vector<unsigned> turns;                      /* the order of this round */
    struct emu_launch_call *call;
    struct thread *now;
    uint64_t random;
    /* Addresses that the thread sanitizer knows orders by. Two for barriers, in turn: a thread may come to
     * the next one before another has left this one, which is no order between what they do until then. Lanes
     * that are not the whole warp have the third. Blocks have no order between them: those that follow each
     * other have addresses of their own. */
    char sync_begin, sync_end;
    struct block_sync {
        char barrier[2], warp[WARP][3];
    } syncs[16], *sync;

    ~worker()
    {
        for (struct fiber *fiber : fibers)
            fiber_free(fiber);
    }
};

__thread struct emu_thread *emu_now;
static __thread struct worker *worker; /* this thread's: a launch asks for it very often */

#ifdef EMU_TSAN
enum {
    OWN_FIBERS = true
}; /* to the thread sanitizer, what one fiber does is in order: no two threads share one */
static struct worker *its_worker()
{
    static thread_local struct worker owner; /* which frees it when the stream's thread ends */
    return &owner;
}
#else
enum { OWN_FIBERS = false };
static struct worker *its_worker()
{
    static struct worker *const owner = new struct worker; /* streams may run while the process exits */
    return owner;
}
#endif

__attribute__((format(printf, 1, 2), noreturn)) static void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "emulator: %s (%s): ", worker->call->kernel, worker->call->operation);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    abort();
}

static uint64_t random_next()
{
    worker->random ^= worker->random << 13;
    worker->random ^= worker->random >> 7;
    worker->random ^= worker->random << 17;
    return worker->random;
}

/* turns[0..n-1] = the order of n turns. */
static void order_turns(std::vector<unsigned> &turns, unsigned n, enum emu_order order)
{
    turns.resize(n);
    for (unsigned i = 0; i < n; i++)
        turns[i] = order == EMU_DOWN ? n - 1 - i : i;
    if (order == EMU_SHUFFLED)
        for (unsigned i = n; i > 1; i--)
            std::swap(turns[i - 1], turns[random_next() % i]);
}

/* ---- what a thread calls ---- */

static void thread_main()
{
    struct worker *mine = worker;
    fiber_entered();
    fiber_acquire(&mine->sync_begin);
    mine->call->body->run();
    fiber_release(&mine->sync_end);
    mine->now->turn = ENDED;
    fiber_leave(true);
}

int emu_block(int value, const char *file, int line)
{
    struct worker *mine = worker;
    struct thread *me = mine->now;
    me->value = value;
    me->file = file;
    me->line = line;
    me->turn = AT_BARRIER;
    char *order = &mine->sync->barrier[me->barriers++ % 2];
    fiber_release(order);
    fiber_leave(false);
    fiber_acquire(order);
    return me->sum;
}

const uint64_t *emu_warp(enum emu_kind kind, unsigned mask, uint64_t payload, const char *file, int line)
{
    struct worker *mine = worker;
    struct thread *me = mine->now;
    char *order =
        &mine->sync->warp[(me - mine->threads.data()) / WARP][mask == 0xffffffffu ? me->meetings++ % 2 : 2];
    me->kind = kind;
    me->mask = mask;
    me->payload = payload;
    me->file = file;
    me->line = line;
    if (!(mask >> me->where.lane & 1))
        die("%s:%d: lane %d calls with a mask that lacks it, %08x", file, line, me->where.lane, mask);
    me->turn = AT_WARP;
    fiber_release(order);
    fiber_leave(false);
    fiber_acquire(order);
    return me->got;
}

bool emu_vectors;

extern "C" int emu_took_vectors(void)
{
    return __atomic_exchange_n(&emu_vectors, false, __ATOMIC_RELAXED);
}

void emu_misaligned(const void *pointer, int bytes, const char *file, int line)
{
    die("%s:%d: memory begins at %p, no multiple of %d bytes", file, line, pointer, bytes);
}

/* ---- who may go on ---- */

static bool same_place(const struct thread *a, const struct thread *b)
{
    return a->line == b->line && (a->file == b->file || strcmp(a->file, b->file) == 0);
}

/* Are all lanes of the mask of `lead` in its place? */
static bool warp_is_whole(unsigned first, const struct thread *lead)
{
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (!(lead->mask >> lane & 1))
            continue;
        if (first + lane >= worker->threads.size() || worker->threads[first + lane].turn == ENDED)
            die("%s:%d: the mask %08x names lane %u, which has ended or never was", lead->file, lead->line,
                lead->mask, lane);
        const struct thread *other = &worker->threads[first + lane];
        if (other->turn != AT_WARP || other->mask != lead->mask)
            return false;
        if (other->kind != lead->kind || !same_place(other, lead))
            die("lanes of one warp meet in %s:%d and %s:%d", lead->file, lead->line, other->file,
                other->line);
    }
    return true;
}

static bool release_warps(unsigned first)
{
    bool released = false;
    unsigned end = first + WARP < worker->threads.size() ? first + WARP : (unsigned)worker->threads.size();
    for (unsigned i = first; i < end; i++) {
        struct thread *lead = &worker->threads[i];
        if (lead->turn != AT_WARP || !warp_is_whole(first, lead))
            continue;
        uint64_t *all = worker->payloads[i].data();
        for (unsigned lane = 0; lane < WARP; lane++) {
            struct thread *other = &worker->threads[first + lane];
            all[lane] = lead->mask >> lane & 1 ? other->payload : ~(uint64_t)0;
            if (lead->mask >> lane & 1) {
                other->got = all; /* all lanes read it in the next round, before another meeting ends */
                other->turn = RUNS;
            }
        }
        released = true;
    }
    return released;
}

static bool release_block(unsigned ended)
{
    struct thread *first = nullptr;
    unsigned waiting = 0;
    int sum = 0;
    for (struct thread &thread : worker->threads) {
        if (thread.turn != AT_BARRIER)
            continue;
        first = first ? first : &thread;
        if (!same_place(&thread, first))
            die("threads of one block wait in %s:%d and %s:%d", first->file, first->line, thread.file,
                thread.line);
        waiting++;
        sum += thread.value;
    }
    if (waiting == 0 || waiting + ended < worker->threads.size())
        return false;
    if (ended)
        die("%u threads have ended and %u wait for them in %s:%d", ended, waiting, first->file, first->line);
    for (struct thread &thread : worker->threads) {
        thread.sum = sum;
        thread.turn = RUNS;
    }
    return true;
}

static void die_of_deadlock(unsigned ended)
{
    unsigned shown = 0;
    for (unsigned i = 0; i < worker->threads.size() && shown < 4; i++)
        if (worker->threads[i].turn != ENDED) {
            fprintf(stderr, "emulator: thread %u waits in %s:%d\n", i, worker->threads[i].file,
                    worker->threads[i].line);
            shown++;
        }
    die("%u of %zu threads have ended and no other can go on", ended, worker->threads.size());
}

/* ---- blocks ---- */

/* Fibers that their threads have to themselves for the block. Those of the next block have none of them: a
 * fiber that has met all others of its block would bring that order along. */
static void give_fibers(uint64_t number)
{
    const size_t n = worker->threads.size();
    while (worker->fibers.size() < 2 * n)
        worker->fibers.push_back(fiber_make());
    for (size_t i = 0; i < n; i++) {
        worker->threads[i].fiber = worker->fibers[number % 2 * n + (i + number * 37) % n];
        fiber_start(worker->threads[i].fiber, thread_main);
    }
}

/* The fiber that was left last, whose stack is near at hand: threads that never wait use one alone. */
static void take_fiber(struct thread *thread)
{
    if (worker->fibers.empty())
        worker->fibers.push_back(fiber_make());
    thread->fiber = worker->fibers.back();
    worker->fibers.pop_back();
    fiber_start(thread->fiber, thread_main);
}

static void block_begins(uint3 block, uint64_t number)
{
    const struct emu_launch_call *call = worker->call;
    size_t n = worker->threads.size();
    for (size_t i = 0; i < n; i++) {
        struct thread *thread = &worker->threads[i];
        unsigned x = (unsigned)i % call->block.x, rest = (unsigned)i / call->block.x;
        thread->where.thread = {x, rest % call->block.y, rest / call->block.y};
        thread->where.block = block;
        thread->where.block_dim = call->block;
        thread->where.grid_dim = call->grid;
        thread->where.lane = (int)(i % WARP);
        thread->turn = RUNS;
        thread->barriers = thread->meetings = 0;
        thread->fiber = nullptr;
    }
    if (OWN_FIBERS)
        give_fibers(number);
}

/* Until it waits or ends; whether it has ended. */
static bool run_thread(struct thread *thread)
{
    worker->now = thread;
    emu_now = &thread->where;
    if (!thread->fiber)
        take_fiber(thread);
    fiber_resume(thread->fiber);
    if (thread->turn != ENDED)
        return false;
    if (!OWN_FIBERS)
        worker->fibers.push_back(thread->fiber);
    return true;
}

static void run_block(uint3 block, uint64_t number)
{
    unsigned n = (unsigned)worker->threads.size(), ended = 0;
    worker->sync = &worker->syncs[number % (sizeof worker->syncs / sizeof *worker->syncs)];
    block_begins(block, number);
    emu_shared_fresh(worker->call->shared);
    order_turns(worker->turns, n, worker->call->order);
    fiber_release(&worker->sync_begin);
    while (ended < n) {
        bool moved = false;
        for (unsigned turn : worker->turns) {
            struct thread *thread = &worker->threads[turn];
            if (thread->turn != RUNS)
                continue;
            ended += run_thread(thread);
            moved = true;
        }
        for (unsigned first = 0; first < n; first += WARP)
            moved |= release_warps(first);
        moved |= release_block(ended);
        if (!moved && ended < n)
            die_of_deadlock(ended);
        if (worker->call->order == EMU_SHUFFLED)
            order_turns(worker->turns, n, EMU_SHUFFLED);
    }
}

void emu_run(struct emu_launch_call *call)
{
    const dim3 grid = call->grid;
    const unsigned n = call->block.x * call->block.y * call->block.z;
    const uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    std::vector<unsigned> order;
    worker = its_worker();
    worker->call = call;
    worker->random = call->seed | 1;
    worker->threads.assign(n, {});
    worker->payloads.resize(n);
    order_turns(order, (unsigned)blocks, call->order);
    const char *only = getenv("EMU_ONLY_BLOCK"); /* of a grid too large for a CPU */
    for (unsigned number : order)
        if (!only || strtoull(only, nullptr, 10) == number)
            run_block({number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y}, number);
    fiber_acquire(&worker->sync_end);
    emu_now = nullptr;
}
