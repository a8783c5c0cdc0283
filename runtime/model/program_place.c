/* program_place.c - where the values of a layer and their gradients lie, decided once.
 *
 * Forward: what some backward reads is saved, the rest is placed in work memory by lifetime, as plan_memory.c
 * places buffers: largest first, each at the lowest offset that is free while it lives. An operation writes
 * over an input that is not needed any more where its row allows it.
 *
 * Backward is played through once, last step first. A gradient is formed by the value's users and lives until
 * the step that formed the value has run. It takes over the memory of the gradient it is made from where the
 * row allows it. Two gradients that are equal (both sides of an addition) share memory as long as neither is
 * written while the other one is still read. */
#include "runtime/model/program_internal.h"

/* ---- lifetimes in work memory ---- */

/* Homes with their lives in positions of a walk. */
struct lives {
    int first[PROGRAM_VALUES], last[PROGRAM_VALUES]; /* -1: not in work memory */
    int64_t at[PROGRAM_VALUES];                      /* in widths; -1: not placed */
};

static void lives_clear(struct lives *lives)
{
    for (int v = 0; v < PROGRAM_VALUES; v++)
        lives->first[v] = lives->last[v] = -1, lives->at[v] = -1;
}

static bool together(const struct lives *lives, int a, int b)
{
    return lives->first[a] <= lives->last[b] && lives->first[b] <= lives->last[a];
}

/* The lowest place for v: at 0, or at the end of a value that lives at the same time. */
static int64_t lowest(const struct program *p, const struct lives *lives, int v)
{
    int64_t best = -1;
    for (int end = -1; end < p->value_count; end++) {
        if (end >= 0 && (lives->at[end] < 0 || !together(lives, end, v)))
            continue;
        int64_t at = end < 0 ? 0 : lives->at[end] + p->values[end].width;
        bool is_free = best < 0 || at < best;
        for (int u = 0; is_free && u < p->value_count; u++)
            is_free = lives->at[u] < 0 || !together(lives, u, v) || lives->at[u] >= at + p->values[v].width ||
                      lives->at[u] + p->values[u].width <= at;
        if (is_free)
            best = at;
    }
    return best;
}

static int largest_left(const struct program *p, const struct lives *lives)
{
    int found = -1;
    for (int v = 0; v < p->value_count; v++) {
        if (lives->first[v] >= 0 && lives->at[v] < 0 &&
            (found < 0 || p->values[v].width > p->values[found].width))
            found = v;
    }
    return found;
}

/* Places all lives, and lists each home after the homes that it lies on. */
static void lives_place(const struct program *p, struct lives *lives, struct program_layout *layout)
{
    for (int v; (v = largest_left(p, lives)) >= 0;)
        lives->at[v] = lowest(p, lives, v);
    program_set listed = 0;
    for (;;) {
        int next = -1;
        for (int v = 0; v < p->value_count; v++) {
            if (lives->at[v] >= 0 && !(listed & program_bit(v)) &&
                (next < 0 || lives->at[v] < lives->at[next]))
                next = v;
        }
        if (next < 0)
            return;
        for (int u = 0; u < p->value_count; u++) {
            if ((listed & program_bit(u)) && together(lives, u, next) && lives->at[u] < lives->at[next])
                layout->below[next] |= program_bit(u);
        }
        listed |= program_bit(next);
        layout->order[layout->order_count++] = (uint8_t)next;
    }
}

static program_set alive_at(const struct program *p, const struct lives *lives, int position)
{
    program_set set = 0;
    for (int v = 0; v < p->value_count; v++) {
        if (lives->first[v] >= 0 && lives->first[v] <= position && lives->last[v] >= position)
            set |= program_bit(v);
    }
    return set;
}

/* ---- forward ---- */

/* Values that some backward reads. */
static program_set read_by_backward(const struct program *p)
{
    program_set read = 0;
    for (int s = 0; s < p->step_count; s++) {
        const struct program_step *step = &p->steps[s];
        for (int i = 0; i < step->in_count; i++) {
            if (step->op->reads & (unsigned)(OPERATION_IN0 << i))
                read |= program_bit(step->in[i]);
        }
        if (step->op->reads & OPERATION_OUT)
            read |= program_bit(step->out);
        for (int i = 0; i < step->statistic_count; i++)
            read |= program_bit(step->statistics[i]);
    }
    return read;
}

/* Marks the steps without which backward would miss something; the others lead to the result alone. */
static void mark_needed(struct program *p, program_set read)
{
    for (int s = p->step_count - 1; s >= 0; s--) {
        struct program_step *step = &p->steps[s];
        step->needed = step->out >= 0 && (read & program_bit(step->out));
        for (int i = 0; i < step->statistic_count; i++)
            step->needed |= (read & program_bit(step->statistics[i])) != 0;
        for (int i = 0; step->needed && i < step->in_count; i++)
            read |= program_bit(step->in[i]);
    }
}

/* Whether one may lie where the other does, in any shape. */
static bool same_size(const struct program *p, int a, int b)
{
    return p->values[a].width == p->values[b].width && p->values[a].sample == p->values[b].sample;
}

static int times_read(const struct program_step *step, int value)
{
    int times = 0;
    for (int i = 0; i < step->in_count; i++)
        times += step->in[i] == value;
    return times;
}

/* The input that a step's output is written over; -1: none. */
static int overwritten(const struct program *p, int s, program_set kept)
{
    const struct program_step *step = &p->steps[s];
    for (int i = 0; i < step->in_count; i++) {
        int v = step->in[i];
        if ((step->op->forward_over & (unsigned)(OPERATION_IN0 << i)) && p->values[v].source < 0 &&
            !(kept & program_bit(v)) && p->values[v].last_use == s && times_read(step, v) == 1 &&
            same_size(p, v, step->out))
            return v;
    }
    return -1;
}

static void place_forward(const struct program *p, program_set kept, struct program_layout *layout)
{
    struct lives lives;
    lives_clear(&lives);
    for (int v = 0; v < p->value_count; v++)
        layout->home[v] = (uint8_t)v;
    /* Backwards, so that a chain of steps in place finds its last home at once. */
    for (int s = p->step_count - 1; s >= 0; s--) {
        int v = p->steps[s].out >= 0 ? overwritten(p, s, kept) : -1;
        if (v >= 0)
            layout->home[v] = layout->home[p->steps[s].out];
    }
    program_set below = 0;
    for (int v = 0; v < p->value_count; v++) {
        int home = layout->home[v];
        const struct program_value *value = &p->values[v];
        layout->memory[home] = p->values[home].source >= 0       ? PROGRAM_INPUT
                               : home == p->result               ? PROGRAM_OUTPUT
                               : (kept & program_bit(home)) != 0 ? PROGRAM_SAVED
                                                                 : PROGRAM_WORK;
        if (layout->memory[home] == PROGRAM_WORK) {
            int last = value->last_use > value->step ? value->last_use : value->step;
            if (lives.first[home] < 0 || value->step < lives.first[home])
                lives.first[home] = value->step;
            lives.last[home] = last > lives.last[home] ? last : lives.last[home];
        } else if (layout->memory[home] == PROGRAM_SAVED && home == v) {
            layout->below[v] = below;
            below |= program_bit(v);
            layout->order[layout->order_count++] = (uint8_t)v;
        }
    }
    lives_place(p, &lives, layout);
    for (int s = 0; s < p->step_count; s++)
        layout->alive[s] = alive_at(p, &lives, s);
}

/* ---- backward ---- */

struct play {
    const struct program *program;
    struct program_layout *layout;
    program_set born, holders[PROGRAM_VALUES]; /* index: a home; the gradients in it that will be read */
    struct lives lives;                        /* index: a home; positions count from the last step */
};

/* The last step before s that has v as an input: the next to add to its gradient. -1: none. */
static int next_write(const struct program *p, int v, int s)
{
    for (int t = s - 1; t >= 0; t--) {
        if (times_read(&p->steps[t], v))
            return t;
    }
    return -1;
}

/* Whether v's gradient, now equal to the gradient of step s's output, can share the memory of the gradients
 * of `others`. */
static bool may_share(const struct program *p, int v, int s, program_set others)
{
    for (int u = 0; u < p->value_count; u++) {
        if ((others & program_bit(u)) &&
            (next_write(p, v, s) >= p->values[u].step || next_write(p, u, s) >= p->values[v].step))
            return false;
    }
    return true;
}

static bool takes_over(const struct play *play, int s, int i, program_set bound)
{
    const struct program *p = play->program;
    const struct program_step *step = &p->steps[s];
    int v = step->in[i], out = step->out;
    if (out < 0 || !same_size(p, v, out) || times_read(step, v) > 1)
        return false;
    program_set others = (play->holders[play->layout->home[out]] & ~program_bit(out)) | bound;
    return step->op->shares ? may_share(p, v, s, others)
                            : (step->op->backward_over & (unsigned)(OPERATION_IN0 << i)) && !others;
}

static void play_step(struct play *play, struct program_step *step, int s)
{
    const struct program *p = play->program;
    struct program_layout *layout = play->layout;
    int position = p->step_count - 1 - s, home = step->out >= 0 ? layout->home[step->out] : -1;
    program_set bound = 0;
    for (int i = 0; i < step->in_count; i++) {
        int v = step->in[i];
        step->add[i] = (play->born & program_bit(v)) != 0;
        if (step->add[i])
            continue;
        play->born |= program_bit(v);
        layout->home[v] = (uint8_t)v;
        if (p->values[v].source >= 0) {
            layout->memory[v] = PROGRAM_INPUT;
        } else if (takes_over(play, s, i, bound)) {
            layout->home[v] = (uint8_t)home;
            bound |= program_bit(v);
        } else {
            layout->memory[v] = PROGRAM_WORK;
            play->lives.first[v] = position;
            play->holders[v] = program_bit(v);
        }
    }
    if (home >= 0)
        play->holders[home] = (play->holders[home] & ~program_bit(step->out)) | bound;
    if (home >= 0 && layout->memory[home] == PROGRAM_WORK && play->lives.last[home] < position)
        play->lives.last[home] = position;
}

static void place_backward(struct program *p)
{
    struct play play = {.program = p, .layout = &p->backward};
    program_set written = 0; /* parameters, by their index in the layer */
    lives_clear(&play.lives);
    if (p->result >= 0) {
        p->backward.home[p->result] = (uint8_t)p->result;
        p->backward.memory[p->result] = PROGRAM_OUTPUT;
        play.holders[p->result] = program_bit(p->result);
        play.born = program_bit(p->result);
    }
    for (int s = p->step_count - 1; s >= 0; s--) {
        struct program_step *step = &p->steps[s];
        play_step(&play, step, s);
        for (int i = 0; i < OPERATION_PARAMS; i++) {
            if (step->param[i] < 0)
                continue;
            step->weight_add[i] = (written & program_bit(step->param[i])) != 0;
            written |= program_bit(step->param[i]);
        }
    }
    lives_place(p, &play.lives, &p->backward);
    for (int s = 0; s < p->step_count; s++)
        p->backward.alive[s] = alive_at(p, &play.lives, p->step_count - 1 - s);
}

void program_place(struct program *p)
{
    program_set read = read_by_backward(p);
    mark_needed(p, read);
    place_forward(p, read, &p->train);
    place_forward(p, 0, &p->eval);
    place_backward(p);
}
