/* trainer_replicas.c - whether ranks that hold the same elements hold the same bits: a checksum a rank, and
 * where those differ one a parameter.
 *
 * Steps keep replicas equal without ever comparing them: sums are made in the order of the ranks, and every
 * replica steps alike. A core or a memory that errs shows as a difference here, and nowhere else before the
 * loss does. */
#include <string.h>

#include "proto/base/checksum.h"
#include "proto/base/error.h"
#include "proto/base/guard.h"
#include "proto/base/mem.h"
#include "runtime/train/trainer_state.h"

enum { CHUNK_BYTES = 4 << 20 };
/* What a rank gives of itself: of what all ranks hold, of what the replicas of its shard hold. */
enum { OF_ALL, OF_REPLICAS, CLASSES };

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

/* Adds to look->sum what of a parameter is of that class. */
static int add_param(struct look *look, int param, int class, struct muster_error *err)
{
    const int ranks = look->trainer->world_size;
    for (int tensor = 0; tensor < TRAINER_TENSOR_COUNT; tensor++) {
        struct trainer_part part;
        if (!trainer_part(look->trainer, param, (enum trainer_tensor)tensor, &part) || part.copies < 2 ||
            (part.copies == ranks ? OF_ALL : OF_REPLICAS) != class)
            continue;
        if (add_part(look, &part, err) < 0)
            return -1;
    }
    return 0;
}

/* Ranks that should have the same sum of a class. */
static bool are_replicas(const struct trainer *trainer, int class, int a, int b)
{
    const struct mesh mesh = trainer->plan.options.mesh;
    return class == OF_ALL || mesh_place_of(mesh, a).shard == mesh_place_of(mesh, b).shard;
}

/* sums: [ranks], `stride` apart. The first rank whose sum fewer of its replicas have than another sum, or as
 * many, and a rank with that other sum. false: all replicas agree. */
static bool find_odd(const struct trainer *trainer, const double *sums, int64_t stride, int class,
                     struct trainer_difference *out)
{
    const int ranks = trainer->world_size;
    for (int rank = ranks - 1; rank >= 0; rank--) { /* of two that differ the later one is named */
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

/* Every rank's own numbers at its place, those of the others 0: the sum has all. */
static int exchange(struct trainer *trainer, double *values, int64_t of_rank, const double *own,
                    struct muster_error *err)
{
    memset(values, 0, (size_t)(of_rank * trainer->world_size) * sizeof *values);
    memcpy(values + of_rank * trainer->rank, own, (size_t)of_rank * sizeof *own);
    return trainer_reduce(trainer, values, of_rank * trainer->world_size, err);
}

/* Where the sums of whole ranks differ: of each parameter. */
static int find_param(struct look *look, int class, struct trainer_difference *out, struct muster_error *err)
{
    struct trainer *trainer = look->trainer;
    const int params = trainer->model->param_count;
    scope_free double *own = mem_calloc((size_t)params, sizeof *own);
    scope_free double *all = mem_calloc((size_t)params * (size_t)trainer->world_size, sizeof *all);
    if (!own || !all) {
        (void)error_set(err, MUSTER_E_NOMEM, "no memory for the checksums of %d parameters", params);
        return trainer_break(trainer, err, "comparing replicas"); /* the others must not wait */
    }
    for (int param = 0; param < params; param++) {
        look->sum = 0;
        if (add_param(look, param, class, err) < 0)
            return -1;
        own[param] = look->sum;
    }
    if (exchange(trainer, all, params, own, err) < 0)
        return -1;
    for (int param = 0; param < params && out->param < 0; param++)
        if (find_odd(trainer, all + param, params, class, out))
            out->param = param;
    return 0;
}

static int compare(struct look *look, double *all, struct trainer_difference *out, struct muster_error *err)
{
    double own[CLASSES];
    for (int class = 0; class < CLASSES; class ++) {
        look->sum = 0;
        for (int param = 0; param < look->trainer->model->param_count; param++)
            if (add_param(look, param, class, err) < 0)
                return -1;
        own[class] = look->sum;
    }
    if (exchange(look->trainer, all, CLASSES, own, err) < 0)
        return -1;
    for (int class = 0; class < CLASSES; class ++)
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
    if (trainer_usable(trainer, e))
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
