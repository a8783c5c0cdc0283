/* plan_internal.h - shared by the parts of plan_build; included by plan_*.c and the tests' plan_check only.
 *
 * Order of work: plan_options.c checks the options. plan_build (plan.c) runs the phases of its table.
 * plan_group.c cuts parameters into groups. plan_steps.c lists the layer calls of this stage in order.
 * plan_gather.c decides which group is gathered into which slot, and when. plan_schedule.c walks the steps
 * and emits operations; plan_reduce.c and plan_edge.c emit the operations before and after a step.
 * plan_carry.c joins one step to the next. plan_memory.c places the buffers.
 *
 * A failure stays in the builder (`failed`), and plan_build looks at it after each phase: the functions below
 * return no status. Operations emitted after a failure, in the same phase, are dropped.
 *
 * Waits are derived, not listed: plan_emit takes the reads and writes of an operation and makes it wait
 * for the last conflicting access on the other streams. Callers request pacing (prefetch depth) only. */
#ifndef MUSTER_RUNTIME_PLAN_PLAN_INTERNAL_H
#define MUSTER_RUNTIME_PLAN_PLAN_INTERNAL_H

#include "runtime/plan/plan.h"

/* ---- options ---- */

/* Errors name the setting and the values that work. */
int plan_check_options(const struct model *model, const struct plan_options *options,
                       struct muster_error *err);
bool plan_is_narrow(enum dtype dtype);

/* ---- buffers that an operation touches ---- */

enum { PLAN_ACCESSES = 40 };
struct plan_access {
    int entry;
    bool write;
};
/* Fills out[PLAN_ACCESSES]; an entry that is read and written appears once, as written. */
int plan_op_accesses(const struct plan *plan, const struct schedule_op *op, struct plan_access *out);

/* Operations known to be finished when an operation begins: the last op of each stream, -1 none. */
struct plan_clock {
    int reached[STREAM_COUNT];
};

/* ---- the builder ---- */

enum step_phase { PHASE_FORWARD, PHASE_RECOMPUTE, PHASE_BACKWARD };
/* One call of a layer. */
struct plan_step {
    enum step_phase phase;
    int layer, micro;
    int call;                 /* index among the stage's calls in the table */
    int op;                   /* position in the schedule once emitted */
    int gather[LAYER_GROUPS]; /* index of the gather whose slot holds the layer's i-th group; -1: no gather */
};

/* Requirements of a layer, computed once. */
struct plan_layer {
    struct layer_sizes sizes; /* in mode LAYER_TRAIN, or LAYER_EVAL if the plan is not for training */
    int64_t forward_work, evaluation_work, recompute_work;
    int stage;       /* that has it */
    bool local;      /* on this rank's stage */
    bool loss;       /* ends in a loss: has no output */
    bool needs_grad; /* it or a layer before it has a trainable parameter: it has a backward */
    bool trainable;  /* it has a trainable parameter itself */
    bool used;       /* some layer reads its output */
    bool used_next;  /* a layer of the next part, which is on another stage, reads its output */
    bool recompute;  /* its saved memory is formed again in backward, */
    bool keeps_last; /* but not in the last micro-batch */
    int group[LAYER_GROUPS], group_count;
    int consumers;       /* sources on this stage that name it */
    int rows_from;       /* a lookup's first micro-batch whose gradient is exchanged as rows; INT_MAX: none */
    int rows, row_index; /* entries for these rows and their indices; -1: none yet */
};

struct plan_gather {
    int group, slot;  /* slot: an entry */
    int first_step;   /* step that uses it first */
    int enabled_step; /* pacing: it waits for this step; -1: for none */
    int after_step;   /* emitted after this step, which also frees its slot */
    int op;
};

/* Groups of similar size share slots. */
struct slot_class {
    int64_t elements;
    bool whole;                 /* a class of groups that need no gather slots */
    enum stored stored;         /* form of all its groups */
    int groups, reduced_groups; /* groups of this class on this rank; among them groups with full gradients */
    int gather_first, gather_count, grad_first, grad_count, reduce_first, reduce_count; /* entries */
};

/* The result of a 16-bit reduction, still to be widened into its group's gradient. */
struct plan_reduced {
    int entry;         /* -1: none */
    int64_t offset;    /* bytes */
    bool adds;         /* adds to the gradient of earlier micro-batches */
    bool exchanges;    /* the sum then goes to the replicas */
    enum op_when when; /* of the widening */
};

/* State of one group while the schedule is emitted. */
struct plan_group_state {
    int slot_class;
    int backward_steps; /* backward calls of layers that write its gradient, over the stage's parts */
    int turns;          /* parts of the stage with such calls, times the micro-batches */
    int rows_layer;     /* the lookup whose gradient is exchanged as rows; -1 none */
    int backward_left;  /* backward steps left in the present part and micro-batch; 0 if no step has been
                           emitted */
    int turn,
        micro; /* the present part and micro-batch among those that write its gradient, from 0; its number */
    int grad;  /* entry that gradients go to now; -1 none */
    int reduced;                /* operations emitted when its gradient was complete, reductions included */
    int encoded, dense, right;  /* entries in transit under compression; -1: none, or not begun */
    int wide;                   /* entry with its widened parameters; -1 none */
    int wide_gather, wide_step; /* the gather that they came from, -1 none; the last call that used them */
    struct plan_reduced rounded;
};

/* Buffers for the output of a layer, or for its gradient, that crosses a stage boundary. Calls take them in
 * turn; a buffer is free after the backward call that reads it last. */
struct plan_edge_ring {
    int first, count;
};
struct plan_edge {
    struct plan_edge_ring in, out; /* activations received from the stage before and sent to the next */
    struct plan_edge_ring grad_in, grad_out; /* gradients received from the next stage and sent back */
};

struct plan_entry_state {
    struct plan_clock read, write; /* last op of each stream that used it */
    bool transient;                /* lives from its first to its last operation */
    bool busy;                     /* a gradient slot or a buffer of an edge in use */
    int holder;                    /* PLAN_REDUCE: the group whose reduction it holds; -1 none */
    int released;                  /* op that freed it: the oldest is taken first */
    int next;                      /* PLAN_EDGE: the next buffer of its ring */
};

struct plan_builder {
    const struct model *model;
    const struct plan_options *options;
    struct plan *plan;
    struct muster_error *err;
    int failed; /* 0, or -1 with err filled: no phase follows */

    struct mesh_place place;
    /* Bytes of an element: of masters and gradients; of parameters where gathers move them; of gradients
     * where reductions do; of activations. */
    int real, param, reduce, value;
    int shard_ranks; /* ranks that optimizer state is cut into */
    bool
        reshard; /* parameters live as shards and are gathered into slots; gradients are reduced from slots */
    bool keep;   /* one slot a group, gathered once */
    enum mesh_axis replica_axis;
    int replicas;            /* ranks with equal shards */
    enum mesh_axis row_axis; /* all ranks that share a step's gradients, and this rank's place among them */
    int row_ranks, row_place;

    struct plan_layer *layers;
    struct plan_group_state *groups;
    struct slot_class *classes;
    int class_count;
    const struct pipe_table *table;
    struct pipe_table made_table; /* made from the options; zeroed: the table is the caller's */
    struct plan_step *steps;
    int step_count;
    int *call_step; /* [calls of the stage + 1] first step of each */
    int sent[2];    /* calls of the neighbours whose activations, or gradients, have been received */
    int *call_end;  /* [calls of the table] when each ends (pipe_table_times); NULL: one stage */
    /* options.grouped: calls whose results this stage sends or receives, in the order of their ends; the next
     * of them; the end of those that are emitted now. */
    int *rounds, round_count, round_next, round_end;
    bool round_open; /* a transfer of the group is emitted */
    struct plan_gather *gathers;
    int gather_count, gathers_issued;
    int gathers_carried;     /* number of first gathers, emitted at the end of the step for the next step */
    struct plan_edge *edges; /* [layer_count] */
    int *out, *saved, *dout; /* entries, [layer * micro_batches + micro]; -1: none (yet) */
    int *consumers_left;     /* [layer * micro_batches + micro] calls whose backward is still to come */
    int *batch;              /* [micro_batches] */
    bool reads_batch;        /* a layer of this stage reads the batch */
    int *written;            /* [param] last call of a part that wrote its gradient, -1 */
    int *writers;            /* [group * parts + part] layers whose backward writes the group's gradient */
    int stall;               /* op that the next layer call waits for (no overlap asked for); -1 */
    enum op_when when;       /* of the operations that are emitted now */

    int entry_capacity, op_capacity;
    struct plan_entry_state *entry_states;
    struct plan_clock *clocks; /* [op]: finished operations when the op is finished */
    struct plan_clock stream_clock[STREAM_COUNT];
};

/* Whether no later part and micro-batch writes the group's gradient. Turn 0 begins a sum of gradients, the
 * last turn ends it. */
static inline bool plan_is_last_turn(const struct plan_builder *b, int group)
{
    return b->groups[group].turn == b->groups[group].turns - 1;
}

/* Whether a group is gathered into slots, and its gradient reduced from one. */
static inline bool plan_reshards(const struct plan_builder *b, int group)
{
    return b->reshard && !b->plan->groups[group].whole;
}

static inline int64_t plan_round_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* plan_emit.c. Each of these functions returns the index of the added entry or operation; in a failed builder
 * 0, which is also a valid index. */
void plan_reserve(struct plan_builder *b);
int plan_add_entry(struct plan_builder *b, const struct plan_entry *entry);
/* A plain entry of whole-run life: group, layer, micro and slot -1. */
int plan_add_buffer(struct plan_builder *b, enum plan_kind kind, enum memory_class memory, int64_t bytes);
/* A buffer of device memory for one micro-batch of a layer that lives from its first to its last use. Only
 * the compute stream may touch it (see plan_memory.c). -1 where bytes is 0. */
int plan_add_transient(struct plan_builder *b, enum plan_kind kind, int layer, int micro, int64_t bytes);
struct schedule_op plan_op(enum op_kind kind, enum stream_id stream);
static inline bool plan_narrow_params(const struct plan_builder *b)
{
    return b->options->param_dtype != b->options->dtype;
}
/* Whether layers read a copy of a group's parameters in the type of values. */
static inline bool plan_opens(const struct plan_builder *b, int group)
{
    return b->options->param_dtype != b->options->value_dtype ||
           b->plan->groups[group].stored != STORED_PLAIN;
}
static inline bool plan_narrow_gradients(const struct plan_builder *b)
{
    return b->options->reduce_dtype != b->options->dtype;
}
/* after: another op to wait for, in addition to the ops that the accesses require; -1: none. */
int plan_emit(struct plan_builder *b, const struct schedule_op *op, int after);
/* like: stream, axis, group, micro, from, to and offsets; kind, dtype and count are filled in. */
void plan_emit_comm(struct plan_builder *b, const struct schedule_op *like, enum comm_kind kind,
                    enum dtype dtype, int64_t count);

/* plan_group.c */
void plan_cut_groups(struct plan_builder *b);
void plan_cut_segments(struct plan_builder *b);
/* Calls visit for every run of the group's flat buffer that no backward of this stage writes. */
void plan_group_gaps(struct plan_builder *b, int group,
                     void (*visit)(struct plan_builder *b, int group, int64_t offset, int64_t count));

/* plan_steps.c */
/* The calls of this rank's stage, or of another one. */
static inline const struct pipe_call *plan_calls(const struct plan_builder *b, int stage)
{
    return b->table->calls + b->table->first[stage];
}
static inline int plan_call_count(const struct plan_builder *b, int stage)
{
    return b->table->first[stage + 1] - b->table->first[stage];
}
void plan_describe_layers(struct plan_builder *b);
void plan_list_steps(struct plan_builder *b);

/* plan_gather.c */
void plan_slot_classes(struct plan_builder *b);
void plan_assign_gathers(struct plan_builder *b);
/* Emits gather number `index`; after: another op to wait for, in addition to the ops that the buffers
 * require; -1: none. */
void plan_emit_gather(struct plan_builder *b, int index, int after, bool carried);
void plan_issue_gathers(struct plan_builder *b, int step);
void plan_count_in_flight(struct plan_builder *b);

/* plan_reduce.c, plan_update.c */
void plan_make_grad_buffers(struct plan_builder *b);
/* Operations before and after the backward call of a step. */
void plan_open_gradients(struct plan_builder *b, int step);
void plan_close_gradients(struct plan_builder *b, int step);
void plan_reduce_tied(struct plan_builder *b);

/* plan_compress.c */
/* Lists the pieces of compressed groups. */
void plan_list_pieces(struct plan_builder *b);
static inline bool plan_compresses(const struct plan_builder *b, int group)
{
    return b->plan->groups[group].compressed;
}
void plan_add_feedback(struct plan_builder *b, int group);
/* Whether replicas exchange the group's dense gradient, in some steps at least. */
static inline bool plan_goes_dense(const struct plan_builder *b, int group)
{
    return !plan_compresses(b, group) || b->options->compression.start > 0;
}
/* Whether 16-bit reductions take the group's gradient, in some steps at least. */
static inline bool plan_rounds(const struct plan_builder *b, int group)
{
    return b->plan->groups[group].shard_size > 1 || plan_goes_dense(b, group);
}
/* plan_begin_exchange, unless the group is compressed after the sum over its stages, or after the norm. */
void plan_begin_early(struct plan_builder *b, int group);
/* Emits the encoding of a group's complete gradient, if it is not begun, and its transfer. */
void plan_begin_exchange(struct plan_builder *b, int group);
/* The same for all groups, in this order, and their decoding. */
void plan_exchange(struct plan_builder *b, const int *order, int count);

/* plan_narrow.c */
void plan_make_reduce_slots(struct plan_builder *b);
/* Emits the reduction of a group whose gradient is complete in this micro-batch, if it has one now. */
void plan_reduce_narrow(struct plan_builder *b, int group, int micro);
/* After the last micro-batch: begins the remaining reductions of all groups. */
void plan_flush_gradients(struct plan_builder *b);
/* Before the first use of a group's whole gradient: emits the rest of its reduction. */
void plan_finish_gradient(struct plan_builder *b, int group);
void plan_emit_update(struct plan_builder *b);

/* plan_rows.c */
void plan_choose_rows(struct plan_builder *b);
/* Whether the layer's gradients of this micro-batch are exchanged as rows. */
static inline bool plan_sends_rows(const struct plan_builder *b, int layer, int micro)
{
    return micro >= b->layers[layer].rows_from;
}
/* Backward calls that write the group's full gradient in a part and micro-batch. */
int plan_writers(const struct plan_builder *b, int group, int part, int micro);
/* Whether any micro-batch forms a full gradient of the group. */
bool plan_has_full_gradient(const struct plan_builder *b, int group);
/* Zeroes the parameters of a gradient that only rows will be added to, where nothing has been written. */
void plan_fill_rows(struct plan_builder *b, int group, int micro);
/* The operations in the place of a lookup's backward call. */
void plan_exchange_rows(struct plan_builder *b, int step);

/* plan_carry.c: gathers that one step makes for the next. */
void plan_choose_carried(struct plan_builder *b);
/* Emits the carried gathers of a group, after its step. */
void plan_carry(struct plan_builder *b, int group);
/* Makes the operations that use a carried gather's result wait for it across the edge. */
void plan_wait_for_carried(struct plan_builder *b);

/* plan_edge.c */
void plan_make_edges(struct plan_builder *b);
void plan_receive(struct plan_builder *b, int call); /* before the first step of a call */
void plan_send(struct plan_builder *b, int step);    /* after a step */
/* Emits the transfers of all results of another stage's call, which sends to this one. */
void plan_receive_results(struct plan_builder *b, const struct pipe_call *call);
/* Emits the transfers of all results of a call of this stage. */
void plan_send_results(struct plan_builder *b, const struct pipe_call *call);
/* Whether the results of a call go to another stage, and to which. */
bool plan_sends_to(const struct plan_builder *b, const struct pipe_call *call, int *stage);
/* A free buffer of a ring, for a layer's output or gradient in a micro-batch. */
int plan_take_edge(struct plan_builder *b, struct plan_edge_ring *ring, int layer);
void plan_leave_call(struct plan_builder *b, int call); /* frees buffers that no later call reads */

/* plan_round.c: transfers under options.grouped. */
void plan_list_rounds(struct plan_builder *b);
void plan_rounds_before(struct plan_builder *b, int call); /* before the first step of a call */
void plan_rounds_after(struct plan_builder *b, int call);  /* after its last step */
void plan_last_rounds(struct plan_builder *b);             /* after the last call */

/* plan_schedule.c */
void plan_start_schedule(struct plan_builder *b);
void plan_emit_calls(struct plan_builder *b);
void plan_finish_schedule(struct plan_builder *b);

/* plan_memory.c */
void plan_live_intervals(struct plan_builder *b);
void plan_place_entries(struct plan_builder *b);

#endif
