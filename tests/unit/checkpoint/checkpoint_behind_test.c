/* checkpoint_behind_test.c - a checkpoint that is written while steps go on, on a disk so slow that they have
 * to wait for it: it holds the state of its own step, to the byte; and the files that a failing disk leaves.
 */
#include "tests/support/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "proto/base/clock.h"
#include "proto/base/guard.h"
#include "proto/base/io.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/folder.h"
#include "tests/unit/train/train_harness.h"

enum { STEPS = 4, FILE_LIMIT = 64 << 20 };

/* ---- a slow disk, a full disk ---- */

static _Atomic(int64_t) nap_ns;     /* time of every write */
static atomic_int writes_left = -1; /* until the disk is full; -1: it is not */
static atomic_bool refuses;         /* writes past the page cache are refused during steps */
static atomic_bool no_direct;       /* they are refused now */

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    const struct timespec nap = {.tv_nsec = atomic_load(&nap_ns)};
    (void)nanosleep(&nap, NULL); /* shorter is no harm */
    int left = atomic_load(&writes_left);
    while (left > 0 && !atomic_compare_exchange_weak(&writes_left, &left, left - 1))
        ;
    if (left == 0) {
        errno = ENOSPC;
        return -1;
    }
    if (atomic_load(&no_direct) && fcntl(fd, F_GETFL) & O_DIRECT) {
        errno = EINVAL;
        return -1;
    }
    return syscall(SYS_pwrite64, fd, data, bytes, offset);
}

/* ---- a run of which one state is saved twice ---- */

enum change { BY_STEPS, BY_SETTING, BY_RESTART };

struct twice {
    char at_once[64], behind[64];
    enum change change;
    bool fails;        /* the disk is full during steps */
    atomic_int during; /* looks that found it being written */
    atomic_int failed_io, failed_peer;
    struct checkpoint_writer *writer[4];
    struct checkpoint_kept kept[4];
    _Atomic(int64_t) stall_ns;
};

static struct checkpoint_save what(struct trainer *trainer, int rank, const char *folder, int64_t step,
                                   struct checkpoint_kept *kept)
{
    return (struct checkpoint_save){.trainer = trainer,
                                    .folder = folder,
                                    .rank = rank,
                                    .kept = kept,
                                    .retention = {.last = 1},
                                    .run = {.step = step, .samples = step * 8}};
}

static int change_all(const struct twice *t, struct trainer *trainer)
{
    struct muster_error err = {0};
    if (t->change == BY_RESTART)
        return trainer_restart(trainer, &err);
    const struct model *model = trainer_model(trainer);
    for (int i = 0; i < model->param_count; i++) {
        scope_free double *zeros = mem_calloc((size_t)param_elements(&model->params[i]), sizeof *zeros);
        if (!zeros || trainer_set_param(trainer, i, zeros, &err) < 0)
            return -1;
    }
    return 0;
}

/* The end of a checkpoint written during steps; -1: not the expected checkpoint. */
static int look(struct twice *t, int rank, bool last)
{
    struct muster_error err = {0};
    if (!t->writer[rank])
        return 0; /* it has ended before */
    int result = checkpoint_poll(t->writer[rank], NULL, last, &err);
    if (!result) {
        atomic_fetch_add(&t->during, 1);
        return 0;
    }
    atomic_fetch_add(&t->stall_ns, checkpoint_figures(t->writer[rank]).stall_ns);
    atomic_fetch_add(err.code == MUSTER_E_PEER ? &t->failed_peer : &t->failed_io, result < 0);
    checkpoint_end(take_pointer(&t->writer[rank]));
    checkpoint_kept_free(&t->kept[rank]);
    return (result < 0) == t->fails ? 0 : -1;
}

static int visit(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct twice *t = run->context;
    struct muster_error err = {0};
    if (step == 0)
        return 0;
    if (step > 1)
        return look(t, rank, step == STEPS);
    const struct checkpoint_save at_once = what(trainer, rank, t->at_once, step, NULL),
                                 behind = what(trainer, rank, t->behind, step, &t->kept[rank]);
    double nothing = 0;
    if (checkpoint_save(&at_once, NULL, &err) < 0 || checkpoint_kept_make(behind.kept, &err) < 0)
        return -1;
    if (t->fails && rank == 0)
        atomic_store(&writes_left, 3);
    if (rank == 0)
        atomic_store(&no_direct, atomic_load(&refuses));
    if (trainer_reduce(trainer, &nothing, 1, &err) < 0) /* all ranks meet before one writes */
        return -1;
    t->writer[rank] = checkpoint_begin(&behind);
    return !t->writer[rank] || (t->change != BY_STEPS && change_all(t, trainer) < 0) ? -1 : 0;
}

static struct twice twice_begin(void)
{
    struct twice t = {.at_once = "/tmp/muster-at-once-XXXXXX", .behind = "/tmp/muster-behind-XXXXXX"};
    assert_non_null(mkdtemp(t.at_once));
    assert_non_null(mkdtemp(t.behind));
    return t;
}

static void same_file(const struct twice *t, const char *name)
{
    scope_free char *a = mem_printf("%s/step-1/%s", t->at_once, name),
                    *b = mem_printf("%s/step-1/%s", t->behind, name);
    scope_buffer first = {0}, second = {0};
    struct muster_error err = {0};
    assert_int_equal(io_read_file(a, FILE_LIMIT, &first, &err), 0);
    assert_int_equal(io_read_file(b, FILE_LIMIT, &second, &err), 0);
    assert_int_equal(first.length, second.length);
    assert_memory_equal(first.data, second.data, first.length);
}

static void twice_end(const struct twice *t)
{
    (void)folder_remove(t->at_once, 1, NULL);
    (void)folder_remove(t->behind, 1, NULL);
    assert_int_equal(rmdir(t->at_once), 0); /* nothing else is left */
    assert_int_equal(rmdir(t->behind), 0);
}

/* 9 MB a rank and more, of which a few wait in memory for the disk. */
static struct training large(enum strategy strategy, struct mesh mesh, enum dtype dtype)
{
    struct training run = training_small();
    run.gpt.layers = 6;
    run.gpt.channels = mesh.side[SIDE_SHARD] > 1 ? 160 : 112;
    run.strategy = strategy;
    run.mesh = mesh;
    run.param_dtype = run.reduce_dtype = dtype;
    run.steps = STEPS;
    run.group_bytes = 256 << 10;
    return run;
}

static void run_twice(struct training *run, struct twice *t)
{
    run->context = t;
    run->visit = visit;
    assert_int_equal(training_run(run), 0);
}

/* Returns whether steps ran while it was written, and had to wait: on a busy machine they may come too late.
 */
static bool is_the_state_once(struct training run, enum change change)
{
    struct twice t = twice_begin();
    t.change = change;
    run_twice(&run, &t);
    for (int rank = 0; rank < mesh_size(run.mesh); rank++) {
        scope_free char *name = folder_rank_name(rank);
        same_file(&t, name);
    }
    same_file(&t, MANIFEST_NAME);
    twice_end(&t);
    return run.device || (atomic_load(&t.during) > 0 && atomic_load(&t.stall_ns) > atomic_load(&nap_ns));
}

static void is_the_state_of_its_step(struct training run, enum change change)
{
    bool met = false;
    atomic_store(&nap_ns, 15000000);
    for (int turn = 0; turn < 4 && !met; turn++) {
        met = is_the_state_once(run, change);
        atomic_store(&nap_ns, 3 * atomic_load(&nap_ns));
    }
    assert_true(met);
}

static int slow(void **state)
{
    (void)state;
    atomic_store(&nap_ns, 15000000);
    atomic_store(&writes_left, -1);
    atomic_store(&refuses, false);
    atomic_store(&no_direct, false);
    return 0;
}

/* ---- tests ---- */

static void steps_do_not_change_what_is_written_behind_them(void **state)
{
    (void)state;
    const struct mesh one = MESH(1, 1, 1), two = MESH(1, 1, 2), replicas = MESH(1, 2, 1);
    is_the_state_of_its_step(large(STRATEGY_FULL_SHARD, two, DTYPE_F32), BY_STEPS);
    is_the_state_of_its_step(large(STRATEGY_FULL_SHARD, two, DTYPE_BF16), BY_STEPS);
    is_the_state_of_its_step(large(STRATEGY_SHARD_OPTIM, two, DTYPE_F32), BY_STEPS);
    is_the_state_of_its_step(large(STRATEGY_NO_SHARD, one, DTYPE_F16), BY_STEPS);
    struct training replicated = large(STRATEGY_NO_SHARD, replicas, DTYPE_F32);
    replicated.gpt.channels = 160; /* each writes a half */
    is_the_state_of_its_step(replicated, BY_STEPS);
    /* Feedback and factors change before the group's step. */
    replicated.compression = (struct compression_options){.kind = COMPRESSION_TOPK, .ratio = 0.1};
    is_the_state_of_its_step(replicated, BY_STEPS);
    replicated.compression = (struct compression_options){.kind = COMPRESSION_POWERSGD, .rank = 2};
    is_the_state_of_its_step(replicated, BY_STEPS);
}

/* All of it is copied before a byte is written: no step waits for the disk. */
static void nor_what_is_copied_whole(void **state)
{
    (void)state;
    struct training run = large(STRATEGY_FULL_SHARD, (struct mesh)MESH(1, 1, 2), DTYPE_F32);
    run.gpt.layers = 2;
    (void)is_the_state_once(run, BY_STEPS);
    (void)is_the_state_once(run, BY_SETTING);
}

/* Small files and large ones go through the page cache then. */
static void a_disk_with_other_sectors_is_written_too(void **state)
{
    (void)state;
    struct training run = large(STRATEGY_FULL_SHARD, (struct mesh)MESH(1, 1, 2), DTYPE_F32);
    atomic_store(&refuses, true);
    (void)is_the_state_once(run, BY_STEPS);
    atomic_store(&no_direct, false);
    run.gpt.layers = 2;
    (void)is_the_state_once(run, BY_STEPS);
}

static void nor_do_values_that_are_set(void **state)
{
    (void)state;
    is_the_state_of_its_step(large(STRATEGY_FULL_SHARD, (struct mesh)MESH(1, 1, 1), DTYPE_F32), BY_SETTING);
    is_the_state_of_its_step(large(STRATEGY_FULL_SHARD, (struct mesh)MESH(1, 1, 2), DTYPE_BF16), BY_RESTART);
}

static void a_device_with_its_own_memory_is_read_at_once(void **state)
{
    (void)state;
    struct device_ops apart = *device_cpu();
    struct training run = large(STRATEGY_FULL_SHARD, (struct mesh)MESH(1, 1, 2), DTYPE_F32);
    apart.host_memory = false;
    run.device = &apart;
    is_the_state_of_its_step(run, BY_STEPS);
}

static void a_full_disk_ends_it_on_every_rank_and_training_goes_on(void **state)
{
    (void)state;
    struct twice t = twice_begin();
    struct training run = large(STRATEGY_FULL_SHARD, (struct mesh)MESH(1, 1, 2), DTYPE_F32);
    int64_t *steps;
    t.fails = true;
    run_twice(&run, &t);
    assert_int_equal(atomic_load(&t.failed_io) + atomic_load(&t.failed_peer), 2);
    assert_true(atomic_load(&t.failed_io) > 0); /* with its own reason */
    assert_int_equal(folder_list(t.behind, &steps, NULL), 0);
    mem_free(steps);
    twice_end(&t); /* and no hidden folder */
}

static int begin_and_leave(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct twice *t = run->context;
    struct muster_error err = {0};
    const struct checkpoint_save behind = what(trainer, rank, t->behind, step, &t->kept[rank]);
    if (step != 1)
        return 0;
    if (checkpoint_kept_make(behind.kept, &err) < 0)
        return -1;
    struct checkpoint_writer *writer = checkpoint_begin(&behind);
    checkpoint_end(writer);
    checkpoint_kept_free(behind.kept);
    return writer ? 0 : -1;
}

static void one_that_is_given_up_is_not_there_and_is_in_no_way(void **state)
{
    (void)state;
    struct twice t = twice_begin();
    struct training run = large(STRATEGY_FULL_SHARD, (struct mesh)MESH(1, 1, 2), DTYPE_F32);
    int64_t *steps;
    run.context = &t;
    run.visit = begin_and_leave;
    assert_int_equal(training_run(&run), 0);
    assert_int_equal(folder_list(t.behind, &steps, NULL), 0);
    mem_free(steps);
    run_twice(&run, &t);
    assert_int_equal(folder_list(t.behind, &steps, NULL), 1);
    mem_free(steps);
    twice_end(&t);
}

/* A run in which rank 1 comes to the point between two steps after rank 0. */
struct apart {
    struct twice twice;
    atomic_int been; /* rank 0, in so many steps */
    int ended;       /* the step after which rank 0 saw the end; 0: none yet */
};

/* false: not within a time in which ranks that meet would have given up. */
static bool await(atomic_int *been, int step)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    const struct instant limit = instant_add(clock_now(NULL), 30 * NS_PER_S);
    while (atomic_load(been) < step && !instant_reached(clock_now(NULL), limit))
        (void)nanosleep(&nap, NULL);
    return atomic_load(been) >= step;
}

static int come_one_by_one(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct apart *a = run->context;
    struct twice *t = &a->twice;
    struct muster_error err = {0};
    const struct checkpoint_save behind = what(trainer, rank, t->behind, step, &t->kept[rank]);
    if (step == 1) {
        if (checkpoint_kept_make(behind.kept, &err) < 0)
            return -1;
        t->writer[rank] = checkpoint_begin(&behind);
    }
    if (step > 1 && rank == 1 && !await(&a->been, step))
        return -1;
    const bool was = t->writer[rank];
    if (step > 1 && look(t, rank, false) < 0)
        return -1;
    if (was && !t->writer[rank] && rank == 0)
        a->ended = step;
    if (rank == 0)
        atomic_store(&a->been, step);
    if (t->writer[rank]) { /* so that it ends within the run */
        const struct timespec nap = {.tv_nsec = 20000000};
        (void)nanosleep(&nap, NULL);
    }
    return 0;
}

/* Steps add up what each rank has done: from one's begin to its end no rank waits for another between steps.
 */
static void ranks_agree_by_their_steps(void **state)
{
    (void)state;
    struct apart a = {.twice = twice_begin()};
    struct training run = training_small();
    int64_t *steps;
    atomic_store(&nap_ns, 0);
    run.mesh = (struct mesh)MESH(1, 1, 2);
    run.steps = 400; /* of 1 ms, and slower before the end */
    run.context = &a;
    run.visit = come_one_by_one;
    assert_int_equal(training_run(&run), 0);
    assert_true(a.ended > 2); /* written, committed: each told of by a step of its own */
    assert_int_equal(folder_list(a.twice.behind, &steps, NULL), 1);
    mem_free(steps);
    twice_end(&a.twice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(steps_do_not_change_what_is_written_behind_them, slow),
        cmocka_unit_test_setup(nor_what_is_copied_whole, slow),
        cmocka_unit_test_setup(nor_do_values_that_are_set, slow),
        cmocka_unit_test_setup(a_disk_with_other_sectors_is_written_too, slow),
        cmocka_unit_test_setup(a_device_with_its_own_memory_is_read_at_once, slow),
        cmocka_unit_test_setup(a_full_disk_ends_it_on_every_rank_and_training_goes_on, slow),
        cmocka_unit_test_setup(ranks_agree_by_their_steps, slow),
        cmocka_unit_test_setup(one_that_is_given_up_is_not_there_and_is_in_no_way, slow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
