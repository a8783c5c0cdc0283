/* trainer_replicas.c - checks that ranks with the same elements have the same bits. Each rank makes a
 * checksum; if checksums differ, a checksum for each parameter.
 *
 * Steps keep replicas equal without ever comparing them: sums are made in the order of the ranks, and every
 * replica steps alike. A faulty core or memory shows as a difference here, and nowhere else before the loss
 * shows it. */
#include <string.h>

#include "proto/base/checksum.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/train/trainer_state.h"

enum { CHUNK_BYTES = 4 << 20 };
/* Classes of a rank's checksums: groups that a stage keeps uncut, groups that it cuts into shards, and each
 * set of stages that hold parameters together. */
enum { OF_STAGE, OF_SHARD, OF_TIES, CLASSES = OF_TIES + PLAN_TIES };

struct look {
    struct trainer *trainer;
    struct checksum crc;
    char *chunk; /* [CHUNK_BYTES] */
    uint32_t sum;
};

static int add_part(struct look *look, const struct trainer_part *part, struct muster_error *err)
{
    const int64_t size = dtype_size(part->dtype), most = CHUNK_BYTES / size;
    for (int64_t done = 0; done < part->count;) {
        const int64_t count = part->count - done < most ? part->count - done : most;
        if (trainer_read_part(look->trainer, part, part->first + done, count, look->chunk, err) < 0)
            return -1;
        look->sum = checksum_add(&look->crc, look->sum, look->chunk, count * size);
        done += count;
    }
    return 0;
}

/* Whether the class compares this group: other ranks of the class hold the same elements. */
static bool is_of_class(const struct trainer *trainer, const struct param_group *group, int class, bool cut)
{
    const struct mesh mesh = trainer->plan.options.mesh;
    if (!group->local)
        return false;
    if (class >= OF_TIES)
        return plan_is_tied(group) && plan_tie(&trainer->plan, group) == class - OF_TIES;
    return cut == (class == OF_SHARD) &&
           mesh_line(mesh, cut ? AXIS_REPLICATE : AXIS_DATA, trainer->rank).size > 1;
}

/* Adds a parameter's elements in this class to look->sum. */
static int add_param(struct look *look, int param, int class, struct muster_error *err)
{
    const struct plan *plan = &look->trainer->plan;
    const struct param_group *group = &plan->groups[plan->places[param].group];
    if (!is_of_class(look->trainer, group, class, group->shard_size > 1))
        return 0;
    for (int tensor = 0; tensor < TRAINER_TENSOR_COUNT; tensor++) {
        struct trainer_part part;
        if (tensor != TRAINER_FEEDBACK && /* of which each replica has another one */
            trainer_part(look->trainer, param, (enum trainer_tensor)tensor, &part) &&
            add_part(look, &part, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- groups in few bits: their elements have no address ---- */

static bool units_are_of_class(const struct trainer *trainer, const struct param_group *group, int class)
{
    return group->stored != STORED_PLAIN && is_of_class(trainer, group, class, !group->resident);
}

/* Adds this rank's units of a group to look->sum, if the group is in this class. */
static int add_units(struct look *look, const struct param_group *group, int class, struct muster_error *err)
{
    struct trainer *trainer = look->trainer;
    if (!units_are_of_class(trainer, group, class))
        return 0;
    const int64_t held =
        plan_held_bytes(&trainer->plan, group, group->resident ? group->padded : group->shard);
    for (int64_t done = 0, count; done < held; done += count) {
        count = held - done < CHUNK_BYTES ? held - done : CHUNK_BYTES;
        if (trainer_read_units(trainer, group, done, count, look->chunk, err) < 0)
            return -1;
        look->sum = checksum_add(&look->crc, look->sum, look->chunk, count);
    }
    return 0;
}

/* Adds a parameter's opened values to look->sum, unit by unit, as units do not end with the parameter. */
static int add_opened(struct look *look, int param, int class, struct muster_error *err)
{
    enum { UNIT_LIMIT = 1 << 14 };
    struct trainer *trainer = look->trainer;
    const struct param_group *group = &trainer->plan.groups[trainer->plan.places[param].group];
    const struct piece piece = trainer_held_piece(trainer, param);
    const int64_t unit = stored_unit(group->stored), end = piece.at + piece.count;
    float values[UNIT_LIMIT];
    if (!units_are_of_class(trainer, group, class) || piece.count == 0)
        return 0;
    for (int64_t u = piece.at / unit; u * unit < end; u++) {
        const int64_t from = piece.at > u * unit ? piece.at - u * unit : 0,
                      to = end < (u + 1) * unit ? end - u * unit : unit;
        const int64_t bytes = stored_bytes(group->stored, unit);
        if (trainer_read_units(trainer, group, u * bytes, bytes, look->chunk, err) < 0)
            return -1;
        stored_open(group->stored, (const uint8_t *)look->chunk, unit, values, DTYPE_F32);
        look->sum = checksum_add(&look->crc, look->sum, values + from, (to - from) * (int64_t)sizeof *values);
    }
    return 0;
}

/* ---- comparison ---- */

/* Whether two ranks should have the same sum of a class. */
static bool are_replicas(const struct trainer *trainer, int class, int a, int b)
{
    const struct mesh mesh = trainer->plan.options.mesh;
    const struct mesh_place one = mesh_place_of(mesh, a), other = mesh_place_of(mesh, b);
    const bool stage = one.at[SIDE_PIPELINE] == other.at[SIDE_PIPELINE],
               shard = one.at[SIDE_SHARD] == other.at[SIDE_SHARD],
               replica = one.at[SIDE_REPLICATE] == other.at[SIDE_REPLICATE];
    if (class < OF_TIES)
        return stage && (class == OF_STAGE || shard);
    const uint64_t stages = trainer->plan.ties[class - OF_TIES];
    return shard && replica && stages >> one.at[SIDE_PIPELINE] & 1 && stages >> other.at[SIDE_PIPELINE] & 1;
}

/* Finds the last rank with a sum that at most half of its replicas have, and a rank with another sum. sums:
 * [ranks], `stride` apart. false: all replicas agree. */
static bool find_odd(const struct trainer *trainer, const double *sums, int64_t stride, int class,
                     struct trainer_difference *out)
{
    const int ranks = trainer->world_size;
    for (int rank = ranks - 1; rank >= 0; rank--) { /* the later of two is named */
        int same = 0, differ = 0, other = -1;
        for (int i = 0; i < ranks; i++) {
            if (!are_replicas(trainer, class, rank, i))
                continue;
            const bool equal = sums[i * stride] == sums[rank * stride];
            same += equal;
            differ += !equal;
            if (!equal && other < 0)
                other = i;
        }
        if (!differ || same > differ)
            continue;
        out->rank = rank;
        out->other = other;
        return true;
    }
    return false;
}

/* Gives every rank all ranks' numbers: a rank puts its own at its place and 0 elsewhere, and the sum has all.
 */
static int exchange(struct trainer *trainer, double *values, int64_t of_rank, const double *own,
                    struct muster_error *err)
{
    memset(values, 0, (size_t)(of_rank * trainer->world_size) * sizeof *values);
    memcpy(values + of_rank * trainer->rank, own, (size_t)of_rank * sizeof *own);
    return trainer_reduce(trainer, values, of_rank * trainer->world_size, err);
}

/* [param_count + group_count] sums: for every parameter, then for the units of every group, which may differ
 * although they open to equal values. */
static int sum_each(struct look *look, int class, double *sums, struct muster_error *err)
{
    const struct plan *plan = &look->trainer->plan;
    const int params = look->trainer->model->param_count;
    for (int i = 0; i < params + plan->group_count; i++) {
        look->sum = 0;
        const int failed = i < params
                               ? add_param(look, i, class, err) < 0 || add_opened(look, i, class, err) < 0
                               : add_units(look, &plan->groups[i - params], class, err) < 0;
        if (failed)
            return -1;
        sums[i] = look->sum;
    }
    return 0;
}

/* After the sums of whole ranks differ: finds the first parameter with different sums, or the first parameter
 * of such a group. */
static int find_param(struct look *look, int class, struct trainer_difference *out, struct muster_error *err)
{
    struct trainer *trainer = look->trainer;
    const struct plan *plan = &trainer->plan;
    const int params = trainer->model->param_count, count = params + plan->group_count;
    scope_free double *own = mem_calloc((size_t)count, sizeof *own);
    scope_free double *all = mem_calloc((size_t)count * (size_t)trainer->world_size, sizeof *all);
    if (!own || !all) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the checksums of %d parameters", params);
        return trainer_break(trainer, err, "comparing replicas"); /* other ranks must not wait */
    }
    if (sum_each(look, class, own, err) < 0 || exchange(trainer, all, count, own, err) < 0)
        return -1;
    for (int i = 0; i < count && out->param < 0; i++)
        if (find_odd(trainer, all + i, count, class, out))
            out->param = i < params ? i : plan->group_params[plan->groups[i - params].first_param];
    return 0;
}

static int compare(struct look *look, double *all, struct trainer_difference *out, struct muster_error *err)
{
    double own[CLASSES] = {0};
    const int classes = OF_TIES + look->trainer->plan.tie_count;
    for (int class = 0; class < classes; class ++) {
        look->sum = 0;
        for (int param = 0; param < look->trainer->model->param_count; param++)
            if (add_param(look, param, class, err) < 0)
                return -1;
        for (int g = 0; g < look->trainer->plan.group_count; g++)
            if (add_units(look, &look->trainer->plan.groups[g], class, err) < 0)
                return -1;
        own[class] = look->sum;
    }
    if (exchange(look->trainer, all, CLASSES, own, err) < 0)
        return -1;
    for (int class = 0; class < classes; class ++)
        if (find_odd(look->trainer, all + class, CLASSES, class, out))
            return find_param(look, class, out, err);
    return 0;
}

int trainer_compare_replicas(struct trainer *trainer, struct trainer_difference *out,
                             struct muster_error *err)
{
    struct muster_error local = {0};
    struct muster_error *e = err ? err : &local;
    *out = (struct trainer_difference){.param = -1, .rank = -1, .other = -1};
    if (trainer_usable(trainer, e) || trainer_draw(trainer, e))
        return -1;
    if (trainer->world_size == 1)
        return 0;
    scope_free char *chunk = mem_calloc(CHUNK_BYTES, 1);
    scope_free double *all = mem_calloc((size_t)trainer->world_size * CLASSES, sizeof *all);
    if (!chunk || !all) {
        (void)error_set(e, MUSTER_E_NOMEM, "no memory to compare the replicas");
        return trainer_break(trainer, e, "comparing replicas");
    }
    struct look look = {.trainer = trainer, .chunk = chunk};
    checksum_make(&look.crc, true);
    return compare(&look, all, out, e);
}
