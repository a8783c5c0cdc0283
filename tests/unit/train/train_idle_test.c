/* The time in which the stages of a pipeline have nothing to do: the order of calls in an evaluation, and
 * steps and evaluations of layers that sleep. They take no processor, so that a busy machine measures the
 * schedule alone.
 *
 *     train_idle_test [--full]    the order alone, or times of 2, 4 and 8 stages beside their prediction */
#include "tests/support/cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "proto/base/clock.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/model/program_internal.h"
#include "runtime/plan/plan_cut.h"
#include "runtime/plan/plan_stages.h"
#include "tests/unit/train/train_harness.h"

enum { LAYERS = 8, TRIES = 3, RUNS = 4, CHANNELS = 16 }; /* RUNS: as many as a busy machine needs */
static const double forward_s = 0.02, backward_s = 0.04;
static bool full;

/* The time of all calls since it was last looked at: on a busy machine a thread wakes up late. */
static struct slept {
    _Atomic int64_t ns, calls;
} forwards, backwards;

static void sleep_for(double seconds, struct slept *slept)
{
    if (!full)
        return;
    const struct timespec time = {.tv_nsec = (long)(seconds * 1e9)};
    const struct instant begun = clock_now(NULL);
    (void)nanosleep(&time, NULL);
    slept->ns += instant_diff_ns(clock_now(NULL), begun);
    slept->calls++;
}

static double take_mean_s(struct slept *slept)
{
    const double mean = slept->calls ? (double)slept->ns / (double)slept->calls / (double)NS_PER_S : 0;
    slept->ns = slept->calls = 0;
    return mean;
}

static void sleeping_forward(const void *config, const struct layer_context *context)
{
    program_ops.forward(config, context);
    sleep_for(forward_s, &forwards);
}

/* Calls of the first layers of the first stage's two parts, in the order of its compute stream. */
static struct {
    _Atomic int count;
    int part[64], micro[64];
} calls;

static void note_call(int part, const struct layer_context *context)
{
    const int at = calls.count++;
    if (at >= 64)
        return;
    calls.part[at] = part;
    calls.micro[at] = (int)(context->own_sample / context->shape.B);
}

static void first_part(const void *config, const struct layer_context *context)
{
    note_call(0, context);
    sleeping_forward(config, context);
}

static void second_part(const void *config, const struct layer_context *context)
{
    note_call(1, context);
    sleeping_forward(config, context);
}

static void sleeping_backward(const void *config, const struct layer_context *context, unsigned parts)
{
    program_ops.backward(config, context, parts);
    sleep_for(backward_s, &backwards);
}

static struct model *sleeping_model(const struct training *run, struct muster_error *err)
{
    static struct layer_ops sleeping, first, second;
    struct writer w = writer_begin("sleeping");
    const int tokens = writer_input(&w, "tokens", DTYPE_I32, true, 1);
    const int targets = writer_input(&w, "targets", DTYPE_I32, true, 1);
    int last = program_layer(&w, "embedding");
    const int table = program_parameter(&w, "table", run->gpt.vocab, CHANNELS, PARAM_INIT_NORMAL, 0.3);
    program_result(&w, program_embedding(&w, tokens, table, -1));
    for (int i = 0; i < LAYERS - 2; i++) {
        const int layer = program_layer(&w, "block%d", i), x = program_input(&w, last);
        program_result(&w, program_add(&w, x, program_linear(&w, x, CHANNELS, "in", true, 0.2)));
        last = layer;
    }
    (void)program_layer(&w, "head");
    const int head = program_parameter(&w, "head", run->gpt.vocab, CHANNELS, PARAM_INIT_NORMAL, 0.3);
    program_cross_entropy(&w, program_input(&w, last), head, targets);
    struct model *model = writer_finish(&w, err);
    sleeping = program_ops;
    sleeping.forward = sleeping_forward;
    sleeping.backward = sleeping_backward;
    first = second = sleeping;
    first.forward = first_part;
    second.forward = second_part;
    for (int l = 0; model && l < model->layer_count; l++)
        model->layers[l].ops = l == 0 ? &first : l == LAYERS / 2 ? &second : &sleeping;
    return model;
}

/* The same on every rank: from the first rank's begin to the last one's end. */
static int64_t meet_ns(struct trainer *trainer, struct instant begun)
{
    double seconds = (double)instant_diff_ns(clock_now(NULL), begun) / (double)NS_PER_S;
    return trainer_maximum(trainer, &seconds, 1, NULL) < 0 ? -1 : (int64_t)(seconds * (double)NS_PER_S);
}

/* How long one thing took, beside the mean time of the calls in it. */
struct taken {
    double seconds, forward_s, backward_s;
};

static struct taken take(double seconds)
{
    struct taken taken = {.seconds = seconds};
    taken.forward_s = take_mean_s(&forwards);
    taken.backward_s = take_mean_s(&backwards);
    return taken;
}

/* Evaluations of two steps' micro-batches, without a meeting between them. */
static int evaluate(const struct training *run, struct trainer *trainer, int rank, int step)
{
    struct taken *found = run->context;
    const int most = trainer_forward_micros(trainer);
    int32_t tokens[512], targets[512];
    assert_true(!step && most == run->micro_batches && run->samples * run->positions <= 512);
    training_batch(run, rank, 1000, tokens, targets);
    for (int i = 0; i < TRIES; i++) {
        double all = 1;
        struct trainer_forward forward = {.micros = most, .samples = run->samples};
        if (rank == 0)
            (void)take(0);
        if (trainer_reduce(trainer, &all, 1, NULL) < 0)
            return -1;
        const struct instant begun = clock_now(NULL);
        for (int pass = 0; pass < 2; pass++)
            if (trainer_forward(trainer, &(struct batch){{tokens, targets}}, &forward, NULL) < 0)
                return -1;
        const int64_t ns = meet_ns(trainer, begun);
        if (ns < 0)
            return -1;
        if (rank == 0)
            found[i] = take((double)ns / (double)NS_PER_S);
    }
    return 0;
}

static int evaluate_once(const struct training *run, struct trainer *trainer, int rank, int step)
{
    int32_t tokens[64], targets[64];
    struct trainer_forward forward = {.micros = trainer_forward_micros(trainer), .samples = run->samples};
    assert_true(!step && run->samples * run->positions <= 64);
    training_batch(run, rank, 1000, tokens, targets);
    return trainer_forward(trainer, &(struct batch){{tokens, targets}}, &forward, NULL);
}

static int time_steps(const struct training *run, struct trainer *trainer, int rank, int step)
{
    (void)trainer;
    struct taken *found = run->context;
    if (rank == 0 && step == 0)
        (void)take(0);
    else if (rank == 0)
        found[step - 1] = take((double)run->stats[step - 1].step_ns / (double)NS_PER_S);
    return 0;
}

static struct training sleeping_run(int stages, int chunks, int micro_batches)
{
    struct training run = training_small();
    run.create = sleeping_model;
    run.mesh = (struct mesh)MESH(stages, 1, 1);
    run.micro_batches = run.samples = micro_batches;
    run.positions = 4;
    run.steps = 0;
    run.chunks = chunks;
    run.schedule = chunks > 1 ? PIPE_INTERLEAVED : PIPE_1F1B;
    return run;
}

/* A stage is busy for its layers and micro-batches, and idle while the first one comes and the last one goes.
 * limit: of the time that an evaluation takes more than that. */
static void check_evaluation(int stages, int chunks, int micro_batches, double limit)
{
    struct training run = sleeping_run(stages, chunks, micro_batches);
    struct taken found[TRIES];
    double best = INFINITY;
    run.context = found;
    run.visit = evaluate;
    for (int i = 0; i < RUNS * TRIES && best > limit; i++) {
        if (i % TRIES == 0)
            assert_int_equal(training_run(&run), 0);
        const struct taken *one = &found[i % TRIES];
        const double layer_s = one->forward_s, busy = 2 * micro_batches * LAYERS * layer_s / stages,
                     edge = (stages - 1) * LAYERS * layer_s / (stages * chunks);
        const double more = one->seconds / (busy + edge) - 1;
        if (more < best)
            printf("evaluation, %d stages of %d parts, 2 x %d micro-batches: %.3f s, idle %.1f%%, at least "
                   "%.1f%%\n",
                   stages, chunks, micro_batches, one->seconds, 100 * (1 - busy / one->seconds),
                   100 * edge / (busy + edge));
        best = more < best ? more : best;
    }
    assert_true(best <= limit);
}

/* Two micro-batches go through a stage's first part before one goes through its second one: then the stage
 * has work while the next stage has the first of them. */
static void an_evaluation_has_the_order_of_the_schedule(void **state)
{
    (void)state;
    static const int parts[] = {0, 0, 1, 1, 0, 0, 1, 1}, micros[] = {0, 1, 0, 1, 2, 3, 2, 3};
    struct training run = sleeping_run(2, 2, 4);
    run.visit = evaluate_once;
    calls.count = 0;
    assert_int_equal(training_run(&run), 0);
    assert_int_equal(calls.count, 8);
    assert_memory_equal(calls.part, parts, sizeof parts);
    assert_memory_equal(calls.micro, micros, sizeof micros);
}

static void all_stages_work_in_an_evaluation(void **state)
{
    (void)state;
    if (full)
        check_evaluation(2, 2, 4, 0.05); /* with one micro-batch at a time 0.5 */
    for (int stages = 2; full && stages <= 8; stages *= 2)
        for (int chunks = 1; chunks <= 2 && stages * chunks <= LAYERS; chunks++)
            check_evaluation(stages, chunks, 8, 0.05);
}

/* Of a step whose calls take as long as these. */
static double predicted(const struct training *run, const struct taken *taken)
{
    struct muster_error err = {0};
    struct trainer_options options = training_options(run, 0);
    struct plan_layer_times times[LAYERS];
    struct plan_stages stages = {0};
    struct plan_stages_cost cost;
    const struct plan_cut cut = {
        .stages = run->mesh.side[SIDE_PIPELINE], .chunks = run->chunks, .even = true};
    struct plan_rates rates = plan_rates_nominal(1);
    GUARD(guard_model) struct model *model = run->create(run, &err);
    for (int l = 0; l < LAYERS; l++)
        times[l] = (struct plan_layer_times){taken->forward_s, taken->backward_s, 0};
    rates.layers = times;
    options.plan.kernels = kernels_ref_f32();
    if (!model || plan_cut_model(model, &options.plan, &cut, &err) < 0 ||
        plan_stages_build(model, &options.plan, &stages, &err) < 0 ||
        plan_stages_run(model, &stages, &rates, &cost, &err) < 0)
        fail_msg("%s", err.text);
    plan_stages_free(&stages);
    return cost.step_s;
}

/* Within a twentieth of the prediction. */
static void steps_take_as_long_as_predicted(void **state)
{
    (void)state;
    for (int stages = 2; full && stages <= 8; stages *= 2)
        for (int micros = 4; micros <= 16; micros *= 2)
            for (int chunks = 1; chunks <= 2 && stages * chunks <= LAYERS; chunks++) {
                struct trainer_stats stats[TRIES];
                struct taken found[TRIES];
                struct training run = sleeping_run(stages, chunks, micros);
                double best = INFINITY;
                run.steps = TRIES;
                run.stats = stats;
                run.context = found;
                run.visit = time_steps;
                for (int i = 0; i < RUNS * TRIES && !(fabs(best) <= 0.05); i++) {
                    if (i % TRIES == 0)
                        assert_int_equal(training_run(&run), 0);
                    const struct taken *one = &found[i % TRIES];
                    const double wanted = predicted(&run, one), apart = one->seconds / wanted - 1;
                    if (fabs(apart) < fabs(best))
                        printf("step, %d stages of %d parts, %d micro-batches: %.3f s, predicted %.3f s "
                               "(%+.1f%%)\n",
                               stages, chunks, micros, one->seconds, wanted, 100 * apart);
                    best = fabs(apart) < fabs(best) ? apart : best;
                }
                assert_true(fabs(best) <= 0.05);
            }
}

int main(int argc, char **argv)
{
    full = argc > 1 && !strcmp(argv[1], "--full");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_evaluation_has_the_order_of_the_schedule),
        cmocka_unit_test(all_stages_work_in_an_evaluation),
        cmocka_unit_test(steps_take_as_long_as_predicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
