/* host_time.c - the processor's time that a training step takes on the host: muster-train on 2 ranks over a
 * fake whose calls cost what NCCL's do, FULL_SHARD over a plan of four layers.
 *
 *   gpu_host_time      prints microseconds an operation of the plan, of the fastest step, and fails above
 *                      LIMIT_US
 *
 * Counted is the processor's time of the thread that enqueues, as the fake sees it (fake_host_ns): no waiting
 * for the device, and no other process's work. The same with
 * communicators that do not block (MUSTER_NCCL_ORDER=free) is the control: a thread and questions an
 * operation show in it. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/clock.h"
#include "runtime/api/api_trainer.h"
#include "runtime/train/trainer.h"
#include "tests/gpu/sweep/sweep_pair.h"

#define LIMIT_US 25.0
enum { TRIES = 3 };
#define SAYS "host time an operation: "

/* A call of NCCL's enqueues a kernel. Where communicators do not block it starts a thread of 60 us, too. */
static const char costs[] = "ncclAllGather:8,ncclReduceScatter:8,ncclAllReduce:8";
static const char thread_cost[] = "60";

/* ---- in a rank: the linker puts this into the way of muster_trainer_train ---- */

int __real_muster_trainer_train(struct muster_trainer *trainer, const void *const *arrays, int64_t rows,
                                struct muster_result *result_out, struct muster_error *err);
int __wrap_muster_trainer_train(struct muster_trainer *trainer, const void *const *arrays, int64_t rows,
                                struct muster_result *result_out, struct muster_error *err);

static int64_t host_ns(void)
{
    int64_t (*counted)(void) =
        (int64_t(*)(void))(uintptr_t)dlsym(dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD), "fake_host_ns");
    return counted ? counted() : 0;
}

int __wrap_muster_trainer_train(struct muster_trainer *trainer, const void *const *arrays, int64_t rows,
                                struct muster_result *result_out, struct muster_error *err)
{
    const int64_t begun = host_ns();
    const int result = __real_muster_trainer_train(trainer, arrays, rows, result_out, err);
    const int operations = trainer_plan(trainer->trainer)->op_count;
    printf(SAYS "%.2f us, %d operations\n",
           (double)(host_ns() - begun) / (double)NS_PER_US / (double)operations, operations);
    return result;
}

/* ---- both ranks ---- */

/* The fastest step's; 0: there is none. */
static double fastest(const char *said)
{
    double least = 0, us;
    for (const char *at = said; (at = strstr(at, SAYS)); at++) {
        if (sscanf(at + strlen(SAYS), "%lf us", &us) == 1 && (least == 0 || us < least))
            least = us;
    }
    return least;
}

static double measure(const char *folder, uint16_t store, int64_t number, int64_t limit_ns)
{
    static struct sweep_rank ranks[SWEEP_RANKS];
    static const char *const sets[SWEEP_SETS] = {"model.layers=4", "model.channels=32", "training.steps=8",
                                                 "training.checkpoint_every=0"};
    const struct sweep_run run = {.folder = folder,
                                  .comm = "nccl",
                                  .sets = sets,
                                  .store = store,
                                  .number = number,
                                  .limit_ns = limit_ns};
    if (sweep_folder(folder))
        return 0;
    sweep_pair(&run, ranks);
    for (int rank = 0; rank < SWEEP_RANKS; rank++) {
        if (ranks[rank].ended && !ranks[rank].status)
            continue;
        printf("---- rank %d, status %x:\n%s", rank, (unsigned)ranks[rank].status, ranks[rank].said);
        return 0;
    }
    return fastest(ranks[0].said);
}

int main(void)
{
    char folder[] = "/dev/shm/gpu-host-time-XXXXXX";
    const char *sanitized = getenv("MUSTER_SANITIZED");
    const bool slow = sanitized && *sanitized;
    const int64_t limit_ns = (slow ? 360 : 60) * NS_PER_S;
    uint16_t store;
    setenv("FAKE_CUDA_SCHEDULE", "late", 1); /* the device's threads do not run while work is enqueued */
    setenv("FAKE_CUDA_COST", costs, 1);
    setenv("FAKE_NCCL_THREAD", thread_cost, 1);
    if (!mkdtemp(folder) || sweep_load() || !(store = sweep_store()))
        return 2;
    double ours = 0;
    for (int i = 1; i <= TRIES && !(ours > 0 && ours <= LIMIT_US); i++) /* a busy machine's caches are cold */
        ours = measure(folder, store, i, limit_ns);
    setenv("MUSTER_NCCL_ORDER", "free", 1);
    const double control = measure(folder, store, TRIES + 1, limit_ns);
    (void)sweep_folder(folder);
    printf(
        "host time of a FULL_SHARD step: %.2f us an operation (limit %.0f), with communicators that do not "
        "block %.2f us\n",
        ours, LIMIT_US, control);
    return ours > 0 && control > ours && (slow || ours <= LIMIT_US) ? 0 : 1;
}
