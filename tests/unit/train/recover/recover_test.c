/* recover_test.c - ranks that are lost and made anew while the others keep their trainers: ranks as threads,
 * which go on at one step with the parameters of a run without a loss. */
#include "tests/support/cmocka_all.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "rendezvous/store/kv_memory.h"
#include "runtime/train/recover/recover.h"
#include "runtime/train/trainer_state.h"
#include "tests/support/rank_threads.h"
#include "tests/unit/train/recover/cut_step.h"
#include "tests/unit/train/train_harness.h"

enum { RANKS = 4, STEPS = 20, LOSSES = 2, EVERY = 4, COPIES = 4 };

struct loss {
    int after; /* finished steps of the rank that is lost, which none has more of */
    int rank;
    enum cut_at cut; /* CUT_NOWHERE: before the next step; else in it, of which some ranks see no more */
};

struct run {
    struct training training;
    int copies;  /* every so many steps; 0: none */
    bool uneven; /* nodes of one, one and two ranks; else of one each */
    struct loss losses[LOSSES];
    int loss_count;
    struct kv_memory *memory[LOSSES + 1];
    struct kv_store store[LOSSES + 1]; /* of each round */
    pthread_barrier_t barrier;
    int64_t moved[RANKS][LOSSES];  /* bytes, for the state and for copies */
    int64_t begins[RANKS][LOSSES]; /* the step with which a rank has gone on; -1: none had a state */
    float *params;
};

/* What a rank has until it is lost. */
struct rank {
    struct run *run;
    int rank, round;
    struct model *model;
    struct trainer *trainer;
    struct recover_copies *copies;
};

static struct trainer_options options_of(const struct rank *r)
{
    struct trainer_options options = training_options(&r->run->training, r->rank);
    options.plan.state_copies = r->run->copies ? COPIES : 0;
    options.store = &r->run->store[r->round];
    options.timeout_ns = 20 * NS_PER_S;
    options.draws_late = r->round > 0;
    return options;
}

static int make(struct rank *r, struct muster_error *err)
{
    const struct trainer_options options = options_of(r);
    r->model = gpt2_create(&r->run->training.gpt, err);
    r->trainer = r->model ? trainer_create(r->model, &options, err) : NULL;
    if (!r->trainer)
        return -1;
    r->copies =
        r->run->copies ? recover_copies_create(r->trainer, r->run->uneven && r->rank > 1 ? 2 : 1, err) : NULL;
    return r->run->copies && !r->copies ? -1 : 0;
}

static void lose(struct rank *r)
{
    recover_copies_destroy(r->copies);
    trainer_destroy(r->trainer);
    model_destroy(r->model);
    r->copies = NULL;
    r->trainer = NULL;
    r->model = NULL;
}

static int recover(struct rank *r, struct muster_error *err)
{
    scope_buffer mine = {0}, theirs = {0};
    char expected[32];
    int64_t moved = 0;
    buffer_printf(&mine, "step %lld", (long long)trainer_whole(r->trainer));
    const bool late = r->trainer->draw != NULL; /* of a rank that is new */
    const int result = trainer_recover(r->trainer, r->copies, NULL, &mine, &theirs, &moved, err);
    if (result < 0)
        return -1;
    if (late != (r->run->losses[r->round - 1].rank == r->rank) ||
        (r->trainer->draw != NULL) != (late && !result))
        return error_set(err, MUSTER_E_STATE,
                         "initial values are drawn by a rank that gets a state, or never");
    r->run->moved[r->rank][r->round - 1] = moved;
    r->run->begins[r->rank][r->round - 1] = result ? trainer_whole(r->trainer) : -1;
    (void)snprintf(expected, sizeof expected, "step %lld", (long long)trainer_whole(r->trainer));
    if (result && (theirs.length != strlen(expected) || memcmp(theirs.data, expected, theirs.length) != 0))
        return error_set(err, MUSTER_E_STATE, "the text is not of the step: %.*s", (int)theirs.length,
                         theirs.data);
    return result || !trainer_restart(r->trainer, err) ? 0 : -1;
}

/* A rank that waits in a collective learns of the loss by its launcher's word, so it lets go. */
static int go_through_loss(struct rank *r, bool lost, struct muster_error *err)
{
    if (lost)
        lose(r);
    else
        trainer_let_go(r->trainer);
    (void)pthread_barrier_wait(&r->run->barrier);
    r->round++;
    const struct trainer_options options = options_of(r);
    if (lost ? make(r, err) < 0 : trainer_rejoin(r->trainer, &options, err) < 0)
        return -1;
    return recover(r, err);
}

static int make_step(struct rank *r, int32_t *tokens, int32_t *targets, struct muster_error *err)
{
    const struct training *t = &r->run->training;
    struct trainer_stats stats;
    const int step = (int)trainer_whole(r->trainer);
    const struct trainer_step_values values = training_values(t, step);
    scope_buffer text = {0};
    training_batch(t, r->rank, step, tokens, targets);
    if (trainer_step(r->trainer, &(struct batch){{tokens, targets}}, &values, &stats, err))
        return -1;
    if (!r->copies || (step + 1) % r->run->copies)
        return 0;
    buffer_printf(&text, "step %d", step + 1);
    return recover_copies_make(r->copies, &text, err);
}

/* In the step of the loss rank 1 sees no more than the sum; ranks that have the sum go on, and finish the
 * step.
 */
static void make_cut_step(struct rank *r, enum cut_at at, int32_t *tokens, int32_t *targets)
{
    struct muster_error err = {0};
    if (r->rank == 1)
        cut_next_step(r->trainer, at);
    (void)make_step(r, tokens, targets, &err);
    if (at == CUT_IN_SUM) /* the others have finished it: rank 1 must not end their collectives before */
        (void)pthread_barrier_wait(&r->run->barrier);
}

static int train(struct rank *r, struct muster_error *err)
{
    int32_t tokens[1024], targets[1024];
    const struct run *run = r->run;
    for (int step; (step = (int)trainer_whole(r->trainer)) < STEPS;) {
        const struct loss *next = r->round < run->loss_count ? &run->losses[r->round] : NULL;
        const bool lost = next && step >= next->after && r->rank == next->rank;
        const bool cut = next && next->cut && step >= next->after;
        const bool failed = !lost && !cut && make_step(r, tokens, targets, err);
        if (cut)
            make_cut_step(r, next->cut, tokens, targets);
        else if (!lost && !failed)
            continue;
        if (!next || (failed && step < next->after))
            return -1;
        error_clear(err);
        if (go_through_loss(r, lost, err) < 0)
            return -1;
    }
    return 0;
}

static int rank_body(int number, int size, void *context)
{
    struct muster_error err = {0};
    struct rank r = {.run = context, .rank = number};
    (void)size;
    int result = make(&r, &err) < 0 || train(&r, &err) < 0 ? -1 : 0;
    float *at = number ? NULL : r.run->params;
    for (int i = 0; !result && i < r.model->param_count; i++) {
        result = trainer_get_param(r.trainer, i, at, &err);
        at = at ? at + param_elements(&r.model->params[i]) : NULL;
    }
    if (result)
        fprintf(stderr, "rank %d: %s\n", number, err.text);
    lose(&r);
    return result;
}

static void train_all(struct run *run)
{
    assert_int_equal(pthread_barrier_init(&run->barrier, NULL, RANKS), 0);
    for (int i = 0; i <= LOSSES; i++) {
        run->memory[i] = kv_memory_create(NULL);
        assert_non_null(run->memory[i]);
        run->store[i] = kv_memory_store(run->memory[i]);
    }
    assert_int_equal(rank_threads_run(RANKS, rank_body, run), 0);
    for (int i = 0; i <= LOSSES; i++)
        kv_memory_destroy(run->memory[i]);
    (void)pthread_barrier_destroy(&run->barrier);
}

static struct run run_of(enum strategy strategy, int copies)
{
    struct run run = {.training = training_small(), .copies = copies};
    run.training.strategy = strategy;
    run.training.mesh.side[SIDE_SHARD] = strategy == STRATEGY_HYBRID_SHARD ? 2 : RANKS;
    run.training.mesh.side[SIDE_REPLICATE] = strategy == STRATEGY_HYBRID_SHARD ? 2 : 1;
    run.training.clip_norm = 1;
    run.training.comm = cut_comm();
    return run;
}

static float *params_of(struct run *run)
{
    GUARD(guard_model) struct model *model = gpt2_create(&run->training.gpt, NULL);
    run->params = mem_calloc((size_t)model_parameters(model), sizeof *run->params);
    assert_non_null(run->params);
    train_all(run);
    return run->params;
}

/* The lost rank gets its state and the copy that it has kept; the neighbours send one each, and no other rank
 * any. */
static void check_moved(const struct run *run, int lost)
{
    const int64_t image = run->moved[lost][0] / 2;
    assert_true(image > 0);
    for (int i = 1; i < RANKS; i++)
        assert_int_equal(run->moved[(lost + i) % RANKS][0], i == 1 || i == RANKS - 1 ? image : 0);
}

/* first, second: the steps with which all ranks go on after each loss; -1: no state was left. */
static void check_run(struct run run, struct loss one, struct loss two, int64_t first, int64_t second)
{
    const enum strategy strategy = run.training.strategy;
    struct run base = run;
    GUARD(guard_model) struct model *model = gpt2_create(&run.training.gpt, NULL);
    run.losses[0] = one;
    run.losses[1] = two;
    run.loss_count = LOSSES;
    scope_free float *params = params_of(&run), *expected = params_of(&base);
    for (int rank = 0; rank < RANKS; rank++)
        if (run.begins[rank][0] != first || run.begins[rank][1] != second)
            fail_msg("%s: rank %d goes on at %lld and %lld", strategy_name(strategy), rank,
                     (long long)run.begins[rank][0], (long long)run.begins[rank][1]);
    assert_memory_equal(params, expected, (size_t)model_parameters(model) * sizeof *params);
    if (run.copies && !run.uneven)
        check_moved(&run, one.rank);
}

static void check(enum strategy strategy, int copies, struct loss one, struct loss two, int64_t first,
                  int64_t second)
{
    check_run(run_of(strategy, copies), one, two, first, second);
}

static struct loss before(int after, int rank)
{
    return (struct loss){after, rank, CUT_NOWHERE};
}

/* The lost rank has finished `after` steps, and no rank can finish the next one without it. */
static void replicas_lose_no_step(void **state)
{
    (void)state;
    check(STRATEGY_NO_SHARD, 0, before(5, 2), before(11, 0), 5, 11);
    check(STRATEGY_HYBRID_SHARD, 0, before(6, 3), before(6, 1), 6, 6);
}

/* Ranks 0 and 2 have finished step 6, and of the other shard only rank 1 is left: it has the gradients of
 * that step. Where the norm has not come to all ranks, none may have stepped. */
static void shards_of_two_steps(void **state)
{
    (void)state;
    check(STRATEGY_HYBRID_SHARD, 0, (struct loss){5, 3, CUT_IN_SUM}, (struct loss){11, 3, CUT_IN_SUM}, 6, 12);
    check(STRATEGY_HYBRID_SHARD, 0, (struct loss){5, 3, CUT_IN_NORM}, (struct loss){11, 3, CUT_IN_NORM}, 5,
          11);
}

static void copies_go_back_to_the_last_one(void **state)
{
    (void)state;
    check(STRATEGY_FULL_SHARD, EVERY, before(10, 1), before(13, 3), 8, 12);
    /* The new rank 1 has kept the copy of rank 0, which is lost before the next one is due. */
    check(STRATEGY_SHARD_OPTIM, EVERY, before(10, 1), before(9, 0), 8, 8);
}

/* Ranks 2 and 3 are on one node, and copies of theirs are on another one's. The new rank hears of it from the
 * others, whether its own node has one rank or two. */
static void nodes_of_unequal_size(void **state)
{
    (void)state;
    struct run run = run_of(STRATEGY_FULL_SHARD, EVERY);
    run.uneven = true;
    check_run(run, before(10, 1), before(13, 3), 8, 12);
    check_run(run, before(6, 0), before(9, 2), 4, 8);
}

static void without_either_all_begin_anew(void **state)
{
    (void)state;
    check(STRATEGY_FULL_SHARD, 0, before(5, 1), before(3, 2), -1, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_lose_no_step),          cmocka_unit_test(shards_of_two_steps),
        cmocka_unit_test(copies_go_back_to_the_last_one), cmocka_unit_test(nodes_of_unequal_size),
        cmocka_unit_test(without_either_all_begin_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
