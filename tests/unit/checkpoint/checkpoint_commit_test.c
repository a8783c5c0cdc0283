/* checkpoint_commit_test.c - the commit of a checkpoint, crashed between and inside all of its steps on a
 * file system that loses unsynced data; and that bugs planted in the table and in the rule of retention
 * are found so. */
#include "tests/support/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/checksum.h"
#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/hook_queue.h"
#include "tests/support/walk.h"

enum { RANKS = 3, SAVES = 6, STEPS_PER_SAVE = 10, MOST = SAVES + 2 };

/* ---- a file system ---- */

/* A folder of checkpoint files. A file is whole on the disk when it was synced, a name when the folder was.
 */
struct sim_folder {
    bool there;
    int64_t step;
    bool file[RANKS], manifest;           /* were written */
    int64_t of[RANKS], manifest_of;       /* the steps whose bytes they have */
    int took;                             /* its files came from shown[took - 1]; 0: its own files */
    bool file_safe[RANKS], manifest_safe; /* their bytes are on the disk */
    bool names_safe;                      /* so are their names in it */
};

/* The view of memory, and the view after a crash: the disk may hold any of the changes since the last sync.
 */
struct sim_disk {
    struct sim_folder hidden[MOST], shown[MOST], spare;
    struct sim_folder old_shown[MOST]; /* the parent folder when it was last synced */
};

static void sync_parent(struct sim_disk *d)
{
    memcpy(d->old_shown, d->shown, sizeof d->shown);
}

/* Bytes and names that were not synced are lost or not, each by itself. */
static void lose(struct walk *walk, struct sim_folder *f)
{
    for (int rank = 0; rank < RANKS; rank++)
        f->file[rank] = f->file[rank] && (f->file_safe[rank] || walk_one_in(walk, 2)) &&
                        (f->names_safe || walk_one_in(walk, 2));
    f->manifest =
        f->manifest && (f->manifest_safe || walk_one_in(walk, 2)) && (f->names_safe || walk_one_in(walk, 2));
}

/* Changes of the parent folder reach the disk in any subset. */
static void crash(struct walk *walk, struct sim_disk *d)
{
    for (int i = 0; i < MOST; i++) {
        if (walk_one_in(walk, 2)) {
            /* A name that was removed comes back with its remaining files: a removal of files is as
             * likely on the disk. */
            bool removed = d->old_shown[i].there && !d->shown[i].there;
            d->shown[i] = d->old_shown[i];
            if (removed && walk_one_in(walk, 2))
                d->shown[i].manifest = false;
        }
        lose(walk, &d->shown[i]);
    }
    memset(d->hidden, 0, sizeof d->hidden);
    d->spare = (struct sim_folder){0};
    sync_parent(d);
}

/* The checkpoint that a loader takes. */
static bool whole(const struct sim_folder *f)
{
    bool all = f->there && f->manifest && f->manifest_of == f->step;
    for (int rank = 0; rank < RANKS; rank++)
        all &= f->file[rank] && f->of[rank] == f->step;
    return all;
}

/* ---- a writer ---- */

struct writer {
    const struct commit_row *table;
    struct retention retention;
    void (*choose)(const struct retention *retention, int64_t step, const int64_t *steps, int count,
                   bool *remove);
    bool cleans_all; /* a planted bug: the making of a hidden folder removes all others */
    bool takes_shown,
        keeps_manifest; /* others: files of a checkpoint that was not removed are taken, or its manifest */
    struct sim_disk disk;
    int64_t reported; /* step of the newest checkpoint reported as saved */
};

static void prune(struct writer *w, int64_t step)
{
    int64_t steps[MOST];
    bool remove[MOST];
    int at[MOST], count = 0;
    for (int i = 0; i < MOST; i++) {
        if (w->disk.shown[i].there) {
            at[count] = i;
            steps[count++] = w->disk.shown[i].step;
        }
    }
    w->choose(&w->retention, step, steps, count, remove);
    for (int i = 0; i < count; i++) {
        if (!remove[i] && !w->takes_shown)
            continue;
        if (!w->disk.spare.there) {
            w->disk.spare = w->disk.shown[at[i]];
            w->disk.spare.took = at[i] + 1;
        }
        if (remove[i])
            w->disk.shown[at[i]] = (struct sim_folder){0};
    }
}

/* A new one, or the spare one with its files. */
static struct sim_folder make(struct sim_disk *d, int64_t step)
{
    struct sim_folder made = d->spare;
    d->spare = (struct sim_folder){0};
    made.there = true;
    made.step = step;
    return made;
}

/* If its bytes belonged to a folder under another name, they are gone: that name may come
 * back after a crash. */
static void put_file(struct sim_disk *d, struct sim_folder *hidden, int rank)
{
    hidden->file[rank] = hidden->file_safe[rank] = true;
    hidden->of[rank] = hidden->step;
    if (hidden->took)
        d->shown[hidden->took - 1].file[rank] = d->old_shown[hidden->took - 1].file[rank] = false;
}

/* Does a state's work; fails: it does a part of it and reports a failure. */
static bool work(struct writer *w, enum commit_state state, int64_t step, struct walk *walk, bool fails)
{
    const int64_t at = step / STEPS_PER_SAVE;
    struct sim_folder *hidden = &w->disk.hidden[at], *shown = &w->disk.shown[at];
    switch (state) {
    case COMMIT_MAKE:
        if (w->cleans_all)
            memset(w->disk.hidden, 0, sizeof w->disk.hidden);
        *hidden = fails ? (struct sim_folder){0} : make(&w->disk, step);
        break;
    case COMMIT_WRITE:
        for (int rank = 0; rank < RANKS; rank++)
            if (!fails || walk_one_in(walk, 2))
                put_file(&w->disk, hidden, rank);
        if (fails)
            hidden->file[walk_below(walk, RANKS)] = false;
        break;
    case COMMIT_MANIFEST:
        hidden->manifest_of = w->keeps_manifest && hidden->manifest ? hidden->manifest_of : step;
        hidden->manifest = hidden->manifest_safe = !fails;
        break;
    case COMMIT_SYNC_INSIDE:
        hidden->names_safe = !fails;
        break;
    case COMMIT_RETIRE:
        if (!fails)
            *shown = (struct sim_folder){0};
        break;
    case COMMIT_PLACE:
        if (!fails) {
            *shown = *hidden;
            shown->took = 0;
            *hidden = (struct sim_folder){0};
        }
        break;
    case COMMIT_SYNC_OUTSIDE:
        if (!fails)
            sync_parent(&w->disk);
        break;
    case COMMIT_PRUNE:
        prune(w, step);
        break;
    case COMMIT_CLEAN:
        *hidden = (struct sim_folder){0};
        break;
    default:
        break;
    }
    return !fails;
}

/* Every checkpoint of a run is new; crash_at: after so many states the machine stops (-1: never); fails_at
 * likewise. */
static void save(struct writer *w, int64_t step, int *crash_at, int *fails_at, struct walk *walk)
{
    enum commit_state state = COMMIT_MAKE;
    for (int turns = 0; !commit_ended(state) && turns < 20; turns++) {
        if ((*crash_at)-- == 0)
            return;
        bool good = work(w, state, step, walk, (*fails_at)-- == 0);
        state = commit_next(w->table, state, good);
    }
    if (state == COMMIT_DONE)
        w->reported = step;
}

/* ---- during steps ---- */

/* Turns of steps: the ranks' files become whole one after the other, and rank 0 does one thing of the
 * commit's table a turn. Votes are taken between two steps, as the step has added them up before some of this
 * or, where the ranks meet, after all of it. After a checkpoint whose files are written the next begins. */
struct behind {
    const struct save_row *table;
    int64_t step;
    enum save_state state;
    enum commit_state commit;
    bool ended[RANKS], failed[RANKS];
    struct save_votes votes; /* added up */
};

/* One rank's work of a turn. A file that is written after its folder has got its name changes nothing there.
 */
static void write_some(struct writer *w, struct behind *b, int rank, bool fails, struct walk *walk)
{
    struct sim_folder *hidden = &w->disk.hidden[b->step / STEPS_PER_SAVE];
    if (b->ended[rank] || !walk_one_in(walk, 3))
        return;
    b->ended[rank] = true;
    b->failed[rank] = fails;
    if (hidden->there && !fails)
        put_file(&w->disk, hidden, rank);
}

static void lead(struct writer *w, struct behind *b, bool fails, struct walk *walk)
{
    if (b->ended[0])
        return;
    bool good = work(w, b->commit, b->step, walk, fails);
    b->commit = commit_next(w->table, b->commit, good);
    b->ended[0] = commit_ended(b->commit);
    b->failed[0] = b->commit == COMMIT_FAILED;
}

static void add_votes(struct behind *b)
{
    b->votes = (struct save_votes){0};
    for (int rank = 0; rank < RANKS; rank++)
        if (save_works(b->table, b->state, rank) && b->ended[rank]) {
            b->votes.ended++;
            b->votes.failed += b->failed[rank];
        }
}

static void take_votes(struct writer *w, struct behind *b, bool behind)
{
    enum save_state next = save_next(b->table, b->state, b->votes, RANKS, behind);
    if (next == b->state)
        return;
    if (next != SAVE_COPY)
        b->commit = commit_next(w->table, COMMIT_WRITE, next == SAVE_COMMIT);
    b->state = next;
    memset(b->ended, 0, sizeof b->ended);
    memset(b->failed, 0, sizeof b->failed);
}

/* Checkpoints on their way, the oldest first. */
struct flight {
    struct behind item[SAVES_AT_ONCE];
    int count, most; /* most: at once, so far */
    int64_t next;    /* step of the next one */
};

static bool may_begin(const struct flight *f)
{
    enum save_state states[SAVES_AT_ONCE];
    for (int i = 0; i < f->count; i++)
        states[i] = f->item[i].state;
    return f->next <= SAVES * STEPS_PER_SAVE && save_may_begin(states, f->count);
}

static void begin(struct writer *w, struct flight *f, const struct save_row *table, struct walk *walk)
{
    if (!may_begin(f) || !work(w, COMMIT_MAKE, f->next, walk, false))
        return;
    f->item[f->count++] = (struct behind){.table = table, .step = f->next, .state = SAVE_WRITE};
    f->next += STEPS_PER_SAVE;
    if (f->count > f->most)
        f->most = f->count;
}

/* What happens between two steps, and until the next ones. */
static void turn(struct writer *w, struct flight *f, bool fails, struct walk *walk)
{
    const bool meet = walk_one_in(walk, 2);
    const int last = walk_below(walk, RANKS + 1); /* rank whose vote is added up before its work */
    for (int i = 0; i < f->count; i++) {
        struct behind *b = &f->item[i];
        for (int rank = 0; rank < RANKS && b->state == SAVE_WRITE; rank++) {
            if (rank == last)
                add_votes(b);
            write_some(w, b, rank, fails && rank == 1, walk);
        }
        for (int rank = 0; rank < RANKS && b->state == SAVE_COPY; rank++)
            b->ended[rank] |= walk_one_in(walk, 3); /* a copy that fails is none: nothing hangs on it */
        if (b->state != SAVE_WRITE || last == RANKS)
            add_votes(b);
        if (b->state != SAVE_WRITE && b->state != SAVE_COPY)
            lead(w, b, fails, walk);
        if (meet)
            add_votes(b);
    }
    for (int i = 0; i < f->count; i++)
        take_votes(w, &f->item[i], i > 0 && !save_ended(f->item[i - 1].state));
    if (!f->count || !save_ended(f->item[0].state))
        return;
    if (f->item[0].state == SAVE_DONE)
        w->reported = f->item[0].step;
    f->item[0] = f->item[SAVES_AT_ONCE - 1];
    f->count--;
}

static int64_t newest_whole(const struct sim_disk *d)
{
    int64_t newest = -1;
    for (int i = 0; i < MOST; i++)
        if (whole(&d->shown[i]) && d->shown[i].step > newest)
            newest = d->shown[i].step;
    return newest;
}

/* A run that is crashed there; false: a checkpoint reported as saved is lost, or a part of a checkpoint is
 * taken for whole. */
static bool survives(const struct writer *plan, int crash_at, int fails_at, uint64_t seed)
{
    struct writer w = *plan;
    struct walk walk = walk_begin(seed);
    w.reported = -1;
    for (int64_t step = STEPS_PER_SAVE; step <= SAVES * STEPS_PER_SAVE && crash_at >= 0;
         step += STEPS_PER_SAVE)
        save(&w, step, &crash_at, &fails_at, &walk);
    crash(&walk, &w.disk);
    return newest_whole(&w.disk) >= w.reported;
}

/* How a run with checkpoints during steps is planned. */
struct behind_plan {
    const struct save_row *table;
    bool cleans_all;
    int most; /* filled: checkpoints at once */
};

static bool survives_behind(struct behind_plan *plan, int crash_at, int fails_at, uint64_t seed)
{
    struct writer w = {.table = commit_table,
                       .retention = {1, 0},
                       .choose = retention_choose,
                       .cleans_all = plan->cleans_all,
                       .reported = -1};
    struct flight flight = {.next = STEPS_PER_SAVE};
    struct walk walk = walk_begin(seed);
    for (int turns = 0; turns < crash_at && (flight.count || may_begin(&flight)); turns++) {
        begin(&w, &flight, plan->table, &walk);
        turn(&w, &flight, turns == fails_at, &walk);
    }
    plan->most = flight.most > plan->most ? flight.most : plan->most;
    crash(&walk, &w.disk);
    return newest_whole(&w.disk) >= w.reported;
}

static bool all_survive_behind(struct behind_plan *plan)
{
    for (int crash_at = 1; crash_at < 100; crash_at += 1)
        for (int fails_at = -1; fails_at < crash_at; fails_at += 3)
            for (uint64_t seed = 0; seed < 12; seed++)
                if (!survives_behind(plan, crash_at, fails_at, seed * 7919 + (uint64_t)crash_at))
                    return false;
    return true;
}

/* All places of a crash, with and without a failure before it. */
static bool all_survive(const struct writer *plan)
{
    const int states = SAVES * COMMIT_STATE_COUNT;
    for (int crash_at = 1; crash_at < states; crash_at++)
        for (int fails_at = -1; fails_at < crash_at; fails_at++)
            for (uint64_t seed = 0; seed < 12; seed++)
                if (!survives(plan, crash_at, fails_at, seed * 7919 + (uint64_t)crash_at))
                    return false;
    return true;
}

static struct writer right(int64_t last, int64_t every)
{
    return (struct writer){
        .table = commit_table, .retention = {.last = last, .every = every}, .choose = retention_choose};
}

static void a_crash_anywhere_leaves_what_was_reported(void **state)
{
    (void)state;
    for (int64_t last = 1; last <= 3; last++)
        for (int64_t every = 0; every <= 20; every += 20) {
            struct writer plan = right(last, every);
            assert_true(all_survive(&plan));
        }
}

/* ---- planted bugs ---- */

static bool found(enum commit_state from, bool good, enum commit_state to)
{
    struct commit_row table[COMMIT_STATE_COUNT];
    memcpy(table, commit_table, sizeof table);
    *(good ? &table[from].good : &table[from].bad) = to;
    struct writer plan = right(1, 0);
    plan.table = table;
    return !all_survive(&plan);
}

static void bugs_in_the_table_are_found(void **state)
{
    (void)state;
    assert_true(found(COMMIT_MAKE, true, COMMIT_MANIFEST));         /* ranks' files are left out */
    assert_true(found(COMMIT_WRITE, true, COMMIT_SYNC_INSIDE));     /* so is the manifest */
    assert_true(found(COMMIT_WRITE, false, COMMIT_MANIFEST));       /* a rank's failure is not looked at */
    assert_true(found(COMMIT_MANIFEST, false, COMMIT_SYNC_INSIDE)); /* nor the manifest's */
    assert_true(found(COMMIT_MANIFEST, true, COMMIT_RETIRE));       /* names are not synced */
    assert_true(found(COMMIT_SYNC_INSIDE, false, COMMIT_RETIRE));   /* or could not be */
    assert_true(found(COMMIT_RETIRE, true, COMMIT_SYNC_OUTSIDE));   /* it is never put in place */
    assert_true(found(COMMIT_PLACE, true, COMMIT_PRUNE));         /* old ones go before the new one is safe */
    assert_true(found(COMMIT_PLACE, false, COMMIT_SYNC_OUTSIDE)); /* the rename failed */
    assert_true(found(COMMIT_SYNC_OUTSIDE, false, COMMIT_PRUNE)); /* its sync failed */
    assert_true(found(COMMIT_SYNC_INSIDE, true, COMMIT_PRUNE));   /* old ones go first */
    assert_true(found(COMMIT_WRITE, false, COMMIT_DONE));         /* a failure is reported as success */
}

static void bugs_in_what_is_taken_are_found(void **state)
{
    (void)state;
    struct writer shown = right(1, 0), manifest = right(1, 0);
    shown.takes_shown = true; /* the newest one's own files */
    manifest.keeps_manifest = true;
    assert_false(all_survive(&shown));
    assert_false(all_survive(&manifest));
}

static void a_crash_behind_steps_leaves_what_was_reported(void **state)
{
    (void)state;
    struct behind_plan plan = {.table = save_table};
    assert_true(all_survive_behind(&plan));
    assert_int_equal(plan.most, 2); /* one is committed while the next one is written */
}

static bool found_behind(enum save_state from, bool good, enum save_state to)
{
    struct save_row table[SAVE_STATE_COUNT];
    memcpy(table, save_table, sizeof table);
    *(good ? &table[from].good : &table[from].bad) = to;
    return !all_survive_behind(&(struct behind_plan){.table = table});
}

static void bugs_in_the_agreement_are_found(void **state)
{
    (void)state;
    struct save_row table[SAVE_STATE_COUNT];
    memcpy(table, save_table, sizeof table);
    table[SAVE_WRITE].by = SAVE_LEAD; /* rank 0 does not wait for the others */
    assert_false(all_survive_behind(&(struct behind_plan){.table = table}));
    /* the second one's folder is made, and the first one's, which is committed, removed as a left-over */
    assert_false(all_survive_behind(&(struct behind_plan){.table = save_table, .cleans_all = true}));
    assert_true(found_behind(SAVE_WRITE, false, SAVE_COMMIT)); /* a rank's failure is not looked at */
    assert_true(found_behind(SAVE_WRITE, true, SAVE_DONE));    /* nothing is committed */
    assert_true(found_behind(SAVE_COMMIT, false, SAVE_DONE));  /* or could not be */
    assert_true(found_behind(SAVE_UNDO, false, SAVE_DONE));
}

static void ranks_are_waited_for(void **state)
{
    (void)state;
    const struct {
        enum save_state state, next;
        struct save_votes votes;
    } rows[] = {
        {SAVE_WRITE, SAVE_WRITE, {0, 0}},   {SAVE_WRITE, SAVE_WRITE, {2, 0}},
        {SAVE_WRITE, SAVE_WRITE, {2, 2}}, /* a rank still writes in the folder */
        {SAVE_WRITE, SAVE_COMMIT, {3, 0}},  {SAVE_WRITE, SAVE_UNDO, {3, 1}},
        {SAVE_COMMIT, SAVE_COMMIT, {0, 0}}, {SAVE_COMMIT, SAVE_COPY, {1, 0}},
        {SAVE_COPY, SAVE_COPY, {2, 0}},     {SAVE_COPY, SAVE_DONE, {3, 0}},
        {SAVE_COMMIT, SAVE_FAILED, {1, 1}}, {SAVE_UNDO, SAVE_UNDO, {0, 0}},
        {SAVE_UNDO, SAVE_FAILED, {1, 0}},   {SAVE_UNDO, SAVE_FAILED, {1, 1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(save_next(save_table, rows[i].state, rows[i].votes, 3, false), rows[i].next);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) /* the older one's commit comes first */
        assert_int_equal(save_next(save_table, rows[i].state, rows[i].votes, 3, true), rows[i].state);
    for (int rank = 0; rank < 3; rank++) {
        assert_true(save_works(save_table, SAVE_WRITE, rank));
        assert_int_equal(save_works(save_table, SAVE_COMMIT, rank), rank == 0);
        assert_false(save_works(save_table, SAVE_DONE, rank));
    }
}

static void the_next_one_begins_behind_written_files(void **state)
{
    (void)state;
    const enum save_state committing[] = {SAVE_COMMIT, SAVE_COMMIT}, writing[] = {SAVE_COMMIT, SAVE_WRITE};
    assert_true(save_may_begin(committing, 0));
    assert_true(save_may_begin(committing, 1));
    assert_false(save_may_begin(committing, 2));
    assert_false(save_may_begin(writing, 2));
    assert_false(save_may_begin(writing + 1, 1)); /* it needs the same memory */
}

static void keeps_none(const struct retention *retention, int64_t step, const int64_t *steps, int count,
                       bool *remove)
{
    (void)retention;
    (void)step;
    (void)steps;
    memset(remove, 1, (size_t)count * sizeof *remove);
}

static void keeps_the_oldest(const struct retention *retention, int64_t step, const int64_t *steps, int count,
                             bool *remove)
{
    retention_choose(retention, step, steps, count, remove);
    for (int i = 0; i < count; i++)
        remove[i] = steps[i] != STEPS_PER_SAVE;
}

static void bugs_in_retention_are_found(void **state)
{
    (void)state;
    struct writer plan = right(1, 0);
    plan.choose = keeps_none;
    assert_false(all_survive(&plan));
    plan.choose = keeps_the_oldest;
    assert_false(all_survive(&plan));
}

/* ---- checksums ---- */

static void checksums_are_castagnolis(void **state)
{
    (void)state;
    struct checksum fast, table;
    unsigned char bytes[300];
    struct walk walk = walk_begin(3);
    checksum_make(&fast, true);
    checksum_make(&table, false);
    assert_false(table.by_instruction);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)walk_below(&walk, 256);
    assert_int_equal(checksum_add(&fast, 0, "123456789", 9), 0xe3069283); /* RFC 3720's */
    for (int64_t begin = 0; begin < 9; begin++)
        for (int64_t length = 0; length + begin <= (int64_t)sizeof bytes; length++) {
            uint32_t whole = checksum_add(&table, 0, bytes + begin, length);
            uint32_t first = checksum_add(&fast, 0, bytes + begin, length / 3);
            assert_int_equal(checksum_add(&fast, first, bytes + begin + length / 3, length - length / 3),
                             whole);
        }
}

/* Lanes in parallel give the sum of lanes in sequence, with anything before and after them. */
static void lanes_are_the_whole(void **state)
{
    (void)state;
    enum { BYTES = 7 * CHECKSUM_LANE + 13 };
    static unsigned char bytes[BYTES];
    struct checksum fast, table;
    struct walk walk = walk_begin(5);
    checksum_make(&fast, true);
    checksum_make(&table, false);
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)walk_below(&walk, 256);
    for (int64_t lanes = 2; lanes <= 6; lanes++)
        for (int64_t more = -9; more <= 9; more++) {
            const int64_t length = lanes * CHECKSUM_LANE + more;
            uint32_t first = checksum_add(&fast, 0, bytes, 11);
            assert_int_equal(checksum_add(&fast, first, bytes + 11, length),
                             checksum_add(&table, 0, bytes, 11 + length));
        }
}

/* Wherever it begins and ends, with its lanes or without; nothing around it is touched. */
static void a_copy_is_exact_and_summed(void **state)
{
    (void)state;
    enum { MOST_BYTES = 7 * CHECKSUM_LANE, ROOM = MOST_BYTES + 200 };
    static unsigned char from[ROOM], to[ROOM];
    struct checksum sums[2];
    struct walk walk = walk_begin(7);
    for (int table = 0; table < 2; table++)
        checksum_make(&sums[table], !table);
    for (size_t i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(1 + walk_below(&walk, 255));
    for (int turn = 0; turn < 3000; turn++) {
        const struct checksum *sum = &sums[turn % 16 == 0];
        const int64_t at = 1 + walk_below(&walk, 70), source = walk_below(&walk, 70);
        const int64_t bytes = walk_below(&walk, turn % 2 ? 200 : MOST_BYTES);
        memset(to, 0, sizeof to);
        assert_int_equal(checksum_copy(sum, 5, to + at, from + source, bytes),
                         checksum_add(sum, 5, from + source, bytes));
        assert_memory_equal(to + at, from + source, (size_t)bytes);
        assert_true(!to[at - 1] && !to[at + bytes]);
    }
}

/* ---- what makes room ---- */

static void the_oldest_is_given_up_and_never_the_newest_that_is_whole(void **state)
{
    (void)state;
    const struct {
        struct retention retention;
        const char *steps; /* "h" after a held step */
        int64_t given_up;  /* -1: none */
    } rows[] = {
        {{3, 0, 0, 0, 30}, "30 20 10", 10},     {{3, 0, 0, 0, 30}, "30", -1}, /* the only one */
        {{3, 0, 0, 0, 20}, "30 20", 30},        /* 30 is damaged: it was refused */
        {{3, 0, 0, 0, -1}, "30 20 10", -1},     /* no checkpoint is known to be whole */
        {{3, 0, 0, 0, 40}, "30 20 10", -1},     /* nor here: it was removed by another program */
        {{3, 0, 10, 0, 30}, "30 20 10", 20},    /* the best stays */
        {{3, 0, 40, 10, 30}, "30 20 10", 20},   /* so does the best checkpoint if step 40 is not saved */
        {{3, 0, 10, 0, 30}, "30 10", 10},       /* unless there is nothing else */
        {{3, 10, 0, 0, 35}, "35 33 30 20", 33}, /* multiples of checkpoint_keep_every come later */
        {{3, 10, 0, 0, 35}, "35 30 20", 20},    {{3, 10, 20, 0, 35}, "35 30 20", 30},
        {{3, 0, 0, 0, 30}, "30 20 10h", 20}, /* a command reads it */
        {{3, 0, 0, 0, 30}, "30 20h", -1},       {{3, 0, 0, 0, 30}, "", -1},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        int64_t steps[8];
        bool held[8];
        int count = 0;
        char *end;
        for (const char *at = rows[r].steps; *at; at = end + (*end == 'h')) {
            steps[count] = strtoll(at, &end, 10);
            held[count++] = *end == 'h';
        }
        const int chosen = retention_give_up(&rows[r].retention, steps, held, count);
        if ((chosen < 0 ? -1 : steps[chosen]) != rows[r].given_up)
            fail_msg("row %zu: step %lld", r, chosen < 0 ? -1LL : (long long)steps[chosen]);
    }
}

static void a_newer_one_waits_and_takes_the_place_of_one_that_waits(void **state)
{
    (void)state;
    struct hook_queue queue = HOOK_QUEUE_EMPTY;
    assert_true(hook_queue_is_empty(&queue));
    assert_int_equal(hook_queue_begin(&queue), -1);
    assert_int_equal(hook_queue_add(&queue, 10), -1);
    assert_int_equal(hook_queue_begin(&queue), 10);
    assert_int_equal(hook_queue_begin(&queue), -1); /* one at a time */
    assert_int_equal(hook_queue_add(&queue, 20), -1);
    assert_int_equal(hook_queue_add(&queue, 30), 20); /* skipped */
    assert_int_equal(hook_queue_add(&queue, 30), -1);
    assert_true(hook_queue_holds(&queue, 10) && hook_queue_holds(&queue, 30));
    assert_false(hook_queue_holds(&queue, 20) || hook_queue_holds(&queue, -1));
    hook_queue_end(&queue);
    assert_false(hook_queue_holds(&queue, 10));
    assert_int_equal(hook_queue_begin(&queue), 30);
    hook_queue_end(&queue);
    assert_true(hook_queue_is_empty(&queue));
}

/* ---- retention, names ---- */

static void retention_is_as_it_says(void **state)
{
    (void)state;
    const int64_t steps[] = {70, 10, 60, 20, 50, 30, 40, 90};
    const struct {
        struct retention retention;
        int64_t step;
        const char *kept;
    } rows[] = {
        {{1, 0, 0, 0, -1}, 70, "70 90"},
        {{2, 0, 0, 0, -1}, 70, "70 60 90"},
        {{3, 20, 0, 0, -1}, 70, "70 60 20 50 40 90"},
        {{99, 0, 0, 0, -1}, 70, "70 10 60 20 50 30 40 90"},
        {{1, 30, 0, 0, -1}, 70, "70 60 30 90"},
        {{1, 0, 30, 0, -1}, 70, "70 30 90"}, /* the best is one more */
        {{1, 0, 10, 0, -1}, 70, "70 10 90"},
        {{2, 0, 60, 0, -1}, 70, "70 60 90"},
        {{1, 0, 70, 0, -1}, 70, "70 90"},
        {{1, 40, 30, 0, -1}, 70, "70 30 40 90"},
        {{1, 0, 35, 0, -1}, 70, "70 90"}, /* it is not there */
        {{1, 0, 0, 0, -1}, 10, "70 10 60 20 50 30 40 90"},
    };
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        bool remove[8];
        char kept[64] = "";
        retention_choose(&rows[r].retention, rows[r].step, steps, 8, remove);
        for (int i = 0; i < 8; i++) {
            size_t length = strlen(kept);
            if (!remove[i])
                (void)snprintf(kept + length, sizeof kept - length, "%s%lld", length ? " " : "",
                               (long long)steps[i]);
        }
        assert_string_equal(kept, rows[r].kept);
    }
}

static void names_are_strict(void **state)
{
    (void)state;
    assert_int_equal(folder_parse_step("step-0"), 0);
    assert_int_equal(folder_parse_step("step-120"), 120);
    const char *const wrong[] = {"step-",   "step-01",     "step-1x",
                                 "step--1", ".step-1.new", "step-1.old",
                                 "Step-1",  "step 1",      "step-99999999999999999999",
                                 ""};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(folder_parse_step(wrong[i]), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_crash_anywhere_leaves_what_was_reported),
        cmocka_unit_test(bugs_in_the_table_are_found),
        cmocka_unit_test(bugs_in_what_is_taken_are_found),
        cmocka_unit_test(a_crash_behind_steps_leaves_what_was_reported),
        cmocka_unit_test(bugs_in_the_agreement_are_found),
        cmocka_unit_test(ranks_are_waited_for),
        cmocka_unit_test(the_next_one_begins_behind_written_files),
        cmocka_unit_test(bugs_in_retention_are_found),
        cmocka_unit_test(checksums_are_castagnolis),
        cmocka_unit_test(lanes_are_the_whole),
        cmocka_unit_test(a_copy_is_exact_and_summed),
        cmocka_unit_test(the_oldest_is_given_up_and_never_the_newest_that_is_whole),
        cmocka_unit_test(a_newer_one_waits_and_takes_the_place_of_one_that_waits),
        cmocka_unit_test(retention_is_as_it_says),
        cmocka_unit_test(names_are_strict),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
