/* shard_layout.h - where parameters lie: in their group, in this rank's part, in classes of slots. Pure.
 *
 * A group is one run of elements: its parameters one after the other, each at a multiple of
 * SHARD_ALIGN_ELEMENTS, then padding, so that it divides into `size` parts of equal length. Part r belongs to
 * rank r. */
#ifndef MUSTER_RUNTIME_SHARD_SHARD_LAYOUT_H
#define MUSTER_RUNTIME_SHARD_SHARD_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/include/muster_error.h"

enum {
    SHARD_ALIGN_ELEMENTS = 16, /* a cache line of fp32 */
    SHARD_GROUPS_MAX = 1 << 16,
    SHARD_PARAMS_MAX = 1 << 20,
};
#define SHARD_ELEMENTS_MAX (INT64_C(1) << 46) /* elements of one parameter */
#define SHARD_PAGE_BYTES   (INT64_C(2) << 20) /* slots are multiples of it: whole page tables move */

struct shard_param {
    char *name;
    int group, parameter_class;
    int64_t elements;
    int64_t offset;      /* in its group */
    int64_t first, part; /* this rank has `part` of its elements, from `first` on */
    int64_t part_offset; /* place of this part in this rank's part of the group */
};

struct shard_group {
    char *name;
    bool frozen;
    int first_param, param_count;
    int64_t elements, part; /* padded; of one rank */
    int64_t part_offset;    /* elements of earlier groups' parts */
    int64_t state_offset;   /* the same over trainable groups only */
    int slot_class;         /* class of groups that share slots */
};

struct shard_class {
    int groups, trainable;
    int64_t bytes,
        gradient_bytes; /* bytes of a slot for parameters, for gradients: multiples of SHARD_PAGE_BYTES */
};

struct shard_layout {
    int rank, size;
    int element_bytes,
        gradient_bytes; /* bytes of a gathered parameter's element; of a gradient's before it is reduced */
    struct shard_group *groups;
    int group_count, group_room;
    struct shard_param *params;
    int param_count, param_room;
    struct shard_class *classes;
    int class_count;
    int64_t part_elements, state_elements; /* this rank's elements: in all groups; in trainable groups */
};

/* The index of the new group or parameter, or -1. A parameter joins the last group. */
int shard_layout_group(struct shard_layout *layout, const char *name, bool frozen, struct muster_error *err);
int shard_layout_parameter(struct shard_layout *layout, const char *name, int64_t elements,
                           int parameter_class, struct muster_error *err);
/* Places everything. -1: no groups, a group without parameters, no memory. */
int shard_layout_finish(struct shard_layout *layout, struct muster_error *err);
/* The elements of a parameter that a rank has: *count of them from *first on. */
void shard_layout_piece(const struct shard_layout *layout, const struct shard_param *param, int rank,
                        int64_t *first, int64_t *count);
/* Hash of the properties of a group that must be equal on all ranks: names, sizes, classes. */
uint64_t shard_layout_hash(const struct shard_layout *layout, int group);
void shard_layout_free(struct shard_layout *layout);

#endif
