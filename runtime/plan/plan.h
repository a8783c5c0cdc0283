/* plan.h - every buffer that a run will ever hold, with its live interval, and every operation of one
 * optimizer step, built by one pure function before the first allocation.
 *
 * plan_build is a function of its arguments alone. Schedules of all ranks differ in the rank's own
 * coordinates only; ranks compare the schedule's hash before step 0. The executor is a loop over schedule_op:
 * it resolves buffer indices to addresses, makes the op's stream wait for the ops named in wait[], and
 * launches.
 *
 * The schedule repeats: a step begins with the buffers that the step before has left. When a step begins, all
 * operations of the step before are finished, except the carried ones. Carried operations are gathers of
 * groups that the next step uses first. They begin as soon as their group is stepped, and may overlap the
 * next step's first calls. Operations that use the result of a carried gather wait for the gather. A wait for
 * a later operation of the array means that operation in the step before. Carried gathers into slots run
 * first, alone and in their order, where no step has run since the parameters were set or the slots had
 * another use.
 *
 * A comm belongs to one stream, so the executor makes one comm for each pair (axis, stream) that appears
 * in the ops. */
#ifndef MUSTER_RUNTIME_PLAN_PLAN_H
#define MUSTER_RUNTIME_PLAN_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/base/buffer.h"
#include "runtime/comm/comm.h"
#include "runtime/compress/compress.h"
#include "runtime/device/device.h"
#include "runtime/plan/mesh.h"
#include "runtime/plan/model.h"
#include "runtime/plan/pipe.h"

/* ---- options ---- */

#define PLAN_STRATEGIES(X)                                                                                   \
    X(STRATEGY_NO_SHARD, "NO_SHARD")       /* DDP: full parameters, gradients all-reduced by group */        \
    X(STRATEGY_SHARD_OPTIM, "SHARD_OPTIM") /* ZeRO-1 */                                                      \
    X(STRATEGY_SHARD_GRAD_OP,                                                                                \
      "SHARD_GRAD_OP")                   /* parameters kept gathered from forward to the end of backward */  \
    X(STRATEGY_FULL_SHARD, "FULL_SHARD") /* ZeRO-3 */                                                        \
    X(STRATEGY_HYBRID_SHARD,                                                                                 \
      "HYBRID_SHARD") /* FULL_SHARD inside a shard group, all-reduce between replicas */
enum strategy {
#define PLAN_STRATEGY_ENUM(symbol, name) symbol,
    PLAN_STRATEGIES(PLAN_STRATEGY_ENUM)
#undef PLAN_STRATEGY_ENUM
        STRATEGY_COUNT
};
const char *strategy_name(enum strategy strategy);

/* NO_SHARD is data-parallel over whichever of replicate and shard is above 1; only HYBRID_SHARD may have
 * both. */
/* The mesh that settings request. replicas: for HYBRID_SHARD, a divisor of a stage's ranks; 0: one replica a
 * node, where local_size ranks run on each of several nodes. HYBRID_SHARD on one node needs the number, since
 * with one replica it is FULL_SHARD. For other strategies replicas is 0 or 1. */
struct mesh_wish {
    enum strategy strategy;
    int64_t pipeline; /* stages, at least 1 */
    int64_t replicas;
    int world_size, local_size;
};
/* MUSTER_E_INVALID names the values and the values to use instead. */
int mesh_choose(const struct mesh_wish *wish, struct mesh *mesh, struct muster_error *err);

/* symbol, name. The plan has the values that an optimizer keeps for each parameter; its constants are in
 * kernels.h. */
#define OPTIMIZERS(X)                                                                                        \
    X(OPTIMIZER_ADAMW, "AdamW") /* decoupled decay; two moments */                                           \
    X(OPTIMIZER_ADAM, "Adam")   /* decay added to the gradient; two moments */                               \
    X(OPTIMIZER_SGD, "SGD")     /* one moment, none where momentum is 0 */
enum optimizer {
#define OPTIMIZER_ENUM(symbol, name) symbol,
    OPTIMIZERS(OPTIMIZER_ENUM)
#undef OPTIMIZER_ENUM
        OPTIMIZER_COUNT
};
struct optimizer_options {
    enum optimizer kind;
    double momentum, dampening; /* for SGD, as in torch.optim.SGD */
    bool nesterov;              /* needs a momentum and no dampening */
};
int optimizer_moments(const struct optimizer_options *optimizer); /* 0 to 2: values kept for a parameter */

/* Which activations are formed again in backward instead of being kept. Layers with layer_desc.recompute
 * always form theirs again. symbol, name. */
#define RECOMPUTES(X)                                                                                        \
    X(RECOMPUTE_NONE, "none")                                                                                \
    X(RECOMPUTE_ALL, "all")                 /* activations of every layer that keeps something */            \
    X(RECOMPUTE_EVERY, "every")             /* activations of every n-th such layer: n, 2n, ... */           \
    X(RECOMPUTE_EXCEPT_LAST, "except_last") /* as all, but not in the step's last micro-batch */
enum recompute {
#define RECOMPUTE_ENUM(symbol, name) symbol,
    RECOMPUTES(RECOMPUTE_ENUM)
#undef RECOMPUTE_ENUM
        RECOMPUTE_COUNT
};
const char *recompute_name(enum recompute recompute);
struct recompute_options {
    enum recompute kind;
    int every; /* n of RECOMPUTE_EVERY, at least 1; else 0 */
};

/* How the gradient of looked-up rows (layer_desc.lookup) goes from rank to rank. symbol, name. */
#define EMBEDDING_GRADIENTS(X)                                                                               \
    X(EMBEDDING_AUTO, "auto")   /* rows, if at most half as many bytes as the tables' reduction */           \
    X(EMBEDDING_ROWS, "rows")   /* every rank gets all rows and adds the rows of its shard */                \
    X(EMBEDDING_DENSE, "dense") /* in the tables' gradient, which is reduced when it is complete */
enum embedding_gradient {
#define EMBEDDING_ENUM(symbol, name) symbol,
    EMBEDDING_GRADIENTS(EMBEDDING_ENUM)
#undef EMBEDDING_ENUM
        EMBEDDING_GRADIENT_COUNT
};
const char *embedding_gradient_name(enum embedding_gradient gradient);

/* The form of the gradients that replicas send (compress.h). symbol, name. */
#define COMPRESSIONS(X)                                                                                      \
    X(COMPRESSION_NONE, "none")                                                                              \
    X(COMPRESSION_TOPK, "topk")         /* a tensor's largest elements and their places */                   \
    X(COMPRESSION_POWERSGD, "powersgd") /* two factors of a matrix, of few columns */
enum compression {
#define COMPRESSION_ENUM(symbol, name) symbol,
    COMPRESSIONS(COMPRESSION_ENUM)
#undef COMPRESSION_ENUM
        COMPRESSION_COUNT
};
const char *compression_name(enum compression compression);
struct compression_options {
    enum compression kind;
    double ratio;  /* COMPRESSION_TOPK: the part of a tensor's elements that is sent, above 0 to 1 */
    int rank;      /* COMPRESSION_POWERSGD: columns of the factors, at least 1 */
    int64_t least; /* elements; smaller tensors are sent dense */
    int64_t start; /* steps before the first one that compresses */
    bool forgets;  /* the rest is not added to the next step's gradient */
};

struct plan_options {
    enum strategy strategy;
    struct mesh mesh;
    int rank, world_size; /* world_size 0: the product of the mesh's sides */
    struct shape shape;   /* shape of a micro-batch */
    int micro_batches;    /* accumulation: micro-batches of one step */
    enum dtype dtype;     /* type of masters, optimizer state, statistics and the gradients of layers */
    /* Types of parameters in gathers and of gradients in reductions: DTYPE_BF16 or DTYPE_F16, else as dtype
     * (plan.options has the choice). The optimizer sees widened copies. */
    enum dtype param_dtype, reduce_dtype;
    /* Type of activations, their gradients, and parameters as layers read them: that of the kernels' values.
     * DTYPE_BF16 or DTYPE_F16, which is param_dtype too: layers read what was gathered. Else as dtype: layers
     * see widened copies. */
    enum dtype value_dtype;
    int prefetch_forward; /* gathers in flight ahead of compute; 0: none, no overlap */
    int prefetch_backward;
    int64_t group_bytes; /* size that small units are merged up to; 0: clamp(total/8, 64 KB, 48 MB) */
    /* Parameters below these bytes (as gathers would move them) are kept whole by every rank, in groups of
     * their own. Such groups are never gathered, their gradients are all-reduced, and every rank steps them
     * equally; 0: none. */
    int64_t keep_whole_bytes;
    bool clip;  /* global-norm clipping */
    bool check; /* a gradient that is not finite, on any rank, skips the step; clip implies it */
    bool train; /* false: forward only */
    struct optimizer_options optimizer;
    enum memory_class optimizer_memory; /* memory of the moments and averages: MEMORY_DEVICE or MEMORY_HOST */
    double average_decay;               /* decay of the parameters' moving average; 0: no average is kept */
    struct recompute_options recompute;
    /* Where there are several stages. chunks: parts of the model on each of them, above 1 for
     * PIPE_INTERLEAVED alone; 0: 1. table: of PIPE_TABLE, as pipe_table_read gives it; the caller keeps it as
     * long as the plan. */
    enum pipe_schedule schedule;
    int chunks;
    const struct pipe_table *table;
    /* Transfers between stages run on one stream, in groups (plan_round.c): for a comm whose operations run
     * one after another (comm_ops.exchange). */
    bool grouped;
    bool adds_apart; /* sums that are added to a gradient go through plan.sums first (comm_ops.adds_apart) */
    int64_t chunk_bytes; /* chunk size of layers (layer_context); 0: each layer's choice */
    enum embedding_gradient embedding_gradient;
    struct compression_options compression;
    int64_t checkpoint_bytes;      /* host memory for checkpoints on their way to the disk; 0: none */
    int state_copies;              /* images of a rank's state in HOST memory (plan_state_entries); 0: none */
    int64_t scratch_bytes;         /* host memory for the device's products, of all its threads; 0: none */
    const struct kernels *kernels; /* for work sizes, and which operations there are */
};

/* ---- param groups ---- */

struct param_group {
    char name[MODEL_NAME_LIMIT];
    int first_param, param_count; /* indices into plan.group_params */
    bool trainable;
    enum stored stored; /* how its parameters are held and gathered; `param` and its slots are bytes then */
    bool whole;      /* kept whole by the ranks that shard the others: shard_size is 1 (keep_whole_bytes) */
    bool statistic;  /* running statistics: kept whole, without norm; the gradient is added without scaling */
    uint64_t stages; /* the pipeline stages that hold it, in bits; each of several stages has a copy */
    int64_t elements; /* elements of its parameters and their alignment gaps */
    int64_t padded; /* elements, a multiple of shard_size * alignment (whole: number of ranks * alignment) */
    int64_t shard;  /* padded / shard_size */
    int shard_size; /* number of ranks that share the optimizer state (1: not sharded) */
    /* On this rank. Entries are -1 where the group belongs to another stage or has none (frozen). */
    bool local;
    bool resident;        /* `param` holds all `padded` elements, else this rank's shard */
    int64_t shard_start;  /* elements: where this rank's shard begins in the flat buffer */
    int param;            /* PLAN_PARAM_SHARD, of options.param_dtype; DTYPE_U8 of stored units */
    int master;           /* PLAN_MASTER: `shard` elements; -1: the optimizer works on `param` */
    int grad;             /* the optimizer's input: `shard` elements, from 0 (shard_size 1: all) */
    int moment1, moment2; /* `shard` elements; -1: the optimizer keeps none */
    int average;          /* `shard` elements: average of the master or of the shard's parameters; -1: none */
    int first_segment, segment_count; /* in plan.segments: runs of this rank's shard, by offset */
    bool compressed;                  /* between replicas */
    int first_piece, piece_count;     /* in plan.pieces, of this rank's shard */
    int feedback, factor;             /* state of the compression; -1: none */
};
/* A parameter's place in its group's flat buffer. */
struct param_place {
    int group;
    int64_t offset; /* elements */
};

/* ---- buffers ---- */

#define PLAN_KINDS(X)                                                                                        \
    X(PLAN_PARAM_SHARD, "param_shard") /* parameters of this rank; the send side of gathers */               \
    X(PLAN_MASTER, "master")           /* the optimizer's copy of 16-bit parameters */                       \
    X(PLAN_MOMENT1, "moment1")                                                                               \
    X(PLAN_MOMENT2, "moment2")                                                                               \
    X(PLAN_AVERAGE, "average")         /* moving average of master or parameters */                          \
    X(PLAN_GATHER_SLOT, "gather_slot") /* full parameters of one group while it is gathered */               \
    X(PLAN_WIDE, "wide_param")         /* full parameters of one group in value_dtype */                     \
    X(PLAN_GRAD_FULL, "grad_full")     /* full gradient of one group until it is reduced */                  \
    X(PLAN_REDUCE, "reduce_slot")      /* a gradient rounded to reduce_dtype, then its reduction */          \
    X(PLAN_GRAD_SHARD, "grad_shard")   /* reduced gradient, accumulated over micro-batches */                \
    X(PLAN_SUMS, "sums")               /* a reduction that the comm then adds to its buffer */               \
    X(PLAN_ROWS, "rows")               /* gradients of rows that all ranks have looked up */                 \
    X(PLAN_ROW_INDEX, "row_index")     /* indices of the rows in PLAN_ROWS */                                \
    X(PLAN_OUT, "out")                 /* a layer's output */                                                \
    X(PLAN_DOUT, "dout")               /* gradient of a layer's output */                                    \
    X(PLAN_SAVED, "saved")             /* kept by a layer from forward to backward */                        \
    X(PLAN_WORK, "work")                                                                                     \
    X(PLAN_BATCH, "batch")     /* the arrays of a micro-batch */                                             \
    X(PLAN_SCALARS, "scalars") /* plan.scalars: struct step_scalars; plan.loss: struct plan_loss */          \
    X(PLAN_ERROR_FEEDBACK, "error_feedback") /* the rest that a replica has not sent */                      \
    X(PLAN_FACTOR, "factor")                 /* of PowerSGD, of all matrices of a group */                   \
    X(PLAN_ENCODED, "encoded")               /* compressed gradient in transit */                            \
    X(PLAN_EDGE, "edge")                     /* activation or gradient that crosses a pipeline stage */      \
    X(PLAN_STAGING, "staging")               /* pinned: the host's inputs and results */                     \
    X(PLAN_SCRATCH, "scratch")               /* blocks of products, rounded to bf16 on CPUs */               \
    X(PLAN_CHECKPOINT, "checkpoint")         /* blocks of checkpoints on their way to the disk */            \
    X(PLAN_COPIES, "copies")                 /* of the state of this rank and of a neighbour */
enum plan_kind {
#define PLAN_KIND_ENUM(symbol, name) symbol,
    PLAN_KINDS(PLAN_KIND_ENUM)
#undef PLAN_KIND_ENUM
        PLAN_KIND_COUNT
};
const char *plan_kind_name(enum plan_kind kind);

enum { PLAN_VOTES = 6 };
/* Values of this rank that a step's all_reduce sums over all ranks; count alone stays local. total, count:
 * the loss over this rank's micro-batches, and the targets that count. stops: 1 if this rank requests a stop,
 * more for a checkpoint. next_targets: targets that count in the next step; NaN: unknown. correct: rows whose
 * class was found. votes: the host's reports on work outside of the step; the host fills them in right before
 * the sum. */
struct plan_loss {
    double total, stops, next_targets, correct, votes[PLAN_VOTES];
    int64_t count;
};
/* Where replicas compress gradients, summed over all ranks too: squares of the rests, and of the gradients.
 */
struct plan_figures {
    double left_out, compressed;
};
/* Content of plan.staging_input before a step: of the loss total, correct, votes and count are 0. The votes
 * that the host fills in while the step runs lie apart: the copy of the loss may still be read then. */
struct plan_input {
    struct step_scalars scalars;
    struct plan_loss loss;
    double votes[PLAN_VOTES];
    struct plan_figures figures; /* 0 */
};
/* Content of plan.staging_result after a step. */
struct plan_result {
    struct step_scalars scalars;
    struct plan_loss loss;
    struct plan_figures figures;
};
/* A PLAN_BATCH buffer holds the batch's arrays at their batch_offset(); plan.staging_batch holds such a
 * buffer for each micro-batch, batch_bytes() apart. */

struct plan_entry {
    enum plan_kind kind;
    enum memory_class memory;
    enum dtype dtype;
    int group, layer, micro, slot; /* -1 where it has none */
    int64_t bytes;                 /* a multiple of 256 */
    int64_t offset;                /* in the arena of its memory class, a multiple of 256 */
    int first_op, last_op;         /* live interval in schedule positions, inclusive; -1, -1: the whole run */
    bool checkpointed;             /* belongs to the training state */
};

/* ---- operations ---- */

#define PLAN_OPS(X)                                                                                          \
    X(OP_FORWARD, "forward")                                                                                 \
    X(OP_BACKWARD, "backward")                                                                               \
    X(OP_COMM, "comm")                                                                                       \
    X(OP_ENCODE, "encode")                                                                                   \
    X(OP_DECODE, "decode")                                                                                   \
    X(OP_COPY, "copy")                                                                                       \
    X(OP_FILL, "fill")                                                                                       \
    X(OP_NORM, "norm")       /* scalars.norm_squared (+)= of a group's gradient shard */                     \
    X(OP_CLIP, "clip")       /* scalars.clip from the norm */                                                \
    X(OP_STEP, "step")       /* the optimizer on a group's shard, by segment */                              \
    X(OP_CAST, "cast")       /* to another dtype */                                                          \
    X(OP_AVERAGE, "average") /* the moving average of a group's shard takes in the step */                   \
    X(OP_ROWS, "rows")       /* a group's gradient += the rows of all ranks that fall into it */
enum op_kind {
#define PLAN_OP_ENUM(symbol, name) symbol,
    PLAN_OPS(PLAN_OP_ENUM)
#undef PLAN_OP_ENUM
        OP_KIND_COUNT
};
const char *op_kind_name(enum op_kind kind);

/* Transfers between pipeline stages have streams of their own, by direction and by the pair of neighbours: a
 * stage's transfers with the stage before and with the next one never share a stream. So a transfer waits
 * neither for a transfer with another stage or direction nor for a gather. Pairs that begin with an even
 * stage have the first stream of a direction, pairs with an odd one the second. The pair of the last stage
 * and the first one, for several parts a stage, has the third. With options.grouped all of them have
 * STREAM_TRANSFERS. A plan of one stage does not use them. */
enum stream_id {
    STREAM_COMPUTE,
    STREAM_GATHER,
    STREAM_REDUCE,
    STREAM_ACTIVATIONS,
    STREAM_GRADIENTS,
    STREAM_ACTIVATIONS_ODD,
    STREAM_GRADIENTS_ODD,
    STREAM_ACTIVATIONS_LAST,
    STREAM_GRADIENTS_LAST,
    STREAM_TRANSFERS,
    STREAM_COUNT
};
const char *stream_name(enum stream_id stream);

/* The steps in which an operation is done; in the others it only keeps its place in the order. A plan with
 * compression.start has operations of both kinds. */
enum op_when { WHEN_ALWAYS, WHEN_DENSE, WHEN_COMPRESSED };
enum compress_mode { COMPRESS_TOPK, COMPRESS_LEFT, COMPRESS_RIGHT };
enum { OP_WAITS = STREAM_COUNT - 1, PLAN_TIES = 8, PLAN_STAGES = PIPE_PARTS };

/* clang-format off */
/* Buffers are indices into plan.entries, -1 for none; offsets are in bytes from the buffer's start.
 *   forward, backward  from: plan.scalars; to: plan.loss for a loss layer, else -1. Either the forward or the
 *                      backward of a loss layer adds to plan.loss, see model.h. A parameter is at
 *                      places[].offset of its group's weight and grad. A backward may overwrite saved,
 *                      dout.
 *   comm               from -> to, `comm` holds the rest (send: from only; recv: to only)
 *   copy               from -> to, bytes; both are on this rank
 *   fill               zeroes bytes of to
 *   norm               to (scalars) norm_squared = beta*norm_squared + squares of bytes of from; in a group
 *                      that is kept whole each rank counts its part; groups of statistics have no norm
 *   clip               to: scalars
 *   step               group; from: gradient of the shard; to, to_offset: where the shard's parameters begin
 *                      (written only, where the group has a master)
 *   average            group; from, from_offset: the shard's master, or its parameters; to: their average, of
 *                      bytes
 *   cast               group; bytes of to, in its buffer's dtype, from as many elements of from; beta: added;
 *                      for a group that is stored in few bits: decoded from its units
 *   rows               layer (a lookup), group; from: rows of all ranks (ranks, B, T, C); batch: their indices
 *                      (ranks, B, T); to: the gradient of the shard; bytes: size of the rows that fall into
 *                      an average shard
 *   encode             mode of compress_mode. from: gradient, to which the feedback is added -> to: the
 *                      part that is sent; dense: the group's dense tensors; factor: multiplies the sum
 *   decode             from: the parts of all replicas -> to: gradient, their sum; dense, factor, right, feedback
 *                      as compress_power_decode */
/* clang-format on */
struct schedule_op {
    enum op_kind kind;
    enum stream_id stream;
    int layer, micro, group;
    /* OP_FORWARD, OP_BACKWARD */
    enum layer_mode mode;
    unsigned parts;
    int group_count;
    int used_group[LAYER_GROUPS];    /* the groups that the layer's parameters lie in */
    int weight[LAYER_GROUPS];        /* buffer with the full parameters of used_group[i] */
    int grad[LAYER_GROUPS];          /* buffer of its full gradient */
    uint8_t grad_beta[LAYER_PARAMS]; /* in the order of layer_desc.param; 0: write, 1: add */
    int in[LAYER_SOURCES], din[LAYER_SOURCES];
    uint8_t din_beta[LAYER_SOURCES];
    int out, dout, saved, work, batch;
    /* OP_COMM, OP_COPY, OP_FILL, OP_NORM, OP_STEP, OP_ENCODE, OP_DECODE, OP_CAST, OP_AVERAGE, OP_ROWS: from
     * -> to */
    enum mesh_axis axis;
    struct comm_op comm;
    bool back;  /* a transfer of a gradient */
    bool joins; /* a transfer that begins and ends together with the operation before it */
    int from, to;
    int64_t from_offset, to_offset, bytes;
    uint8_t beta; /* OP_NORM: 0 starts the sum; OP_CAST: 1 adds */
    bool votes;   /* OP_COPY: of plan_input.votes, which the host fills in first (step_guard) */
    /* OP_ENCODE, OP_DECODE */
    enum compress_mode compress;
    int feedback, dense, factor, right;
    enum op_when when;
    /* order */
    /* Indices of operations on other streams that must be finished. An index after this operation's own means
     * a carried operation of the step before. */
    int wait[OP_WAITS], wait_count;
    bool signal;       /* another operation waits for this one */
    int forward_micro; /* the first micro-batch whose forward alone needs this operation; -1: none does */
    bool carried;      /* a gather for the next step, which may begin before it is finished */
};

/* Bytes that this rank sends to other replicas in a step, for gradients. */
struct plan_wire {
    int64_t compressed, dense; /* as the plan sends them, and without compression */
};

struct plan {
    struct plan_options options;
    struct param_group *groups;
    int group_count;
    struct param_place *places;         /* [model.param_count] */
    int *group_params;                  /* parameter indices in group order */
    struct optimizer_segment *segments; /* by group */
    int segment_count;
    struct compress_piece *pieces; /* by group: of groups that replicas compress */
    int piece_count;
    struct plan_entry *entries;
    int entry_count;
    struct schedule_op *ops; /* one optimizer step */
    int op_count;
    /* Index of the first backward op after all forwards of the first micro-batch; op_count in a plan that
     * only evaluates. */
    int first_backward;
    /* The most micro-batches of a run of forwards alone: all of a step if the model has several parts, so
     * that all stages have work, else 1. A run of n has the ops with forward_micro from 0 to n - 1, in their
     * order. With the loss layer in mode LAYER_EVAL it evaluates losses; the loss layer's work is large
     * enough. Among several stages the last one has the loss. */
    int forward_micros;
    /* Entries by their role; loss and scalars are COMM memory, staging is PINNED. */
    int scalars, loss;
    int figures;        /* struct plan_figures; -1: gradients are not compressed */
    int staging_input;  /* struct plan_input of the next step, written by the host before the step */
    int staging_batch;  /* the arrays of all micro-batches, written by the host before the step */
    int staging_result; /* struct plan_result, to be read by the host after the step */
    int checkpoint;     /* checkpoint_bytes of HOST memory, which no operation uses; -1: none */
    int copies;         /* state_copies of HOST memory, which no operation uses; -1: none */
    int scratch;        /* the same of scratch_bytes */
    int sums;           /* PLAN_SUMS, of adds_apart; -1: none */
    /* The sets of stages that hold trained parameters together, as group.stages: a comm of AXIS_TIED each. */
    uint64_t ties[PLAN_TIES];
    int tie_count;
    int64_t arena_bytes[MEMORY_CLASS_COUNT]; /* memory to allocate, to the byte */
    int64_t kind_bytes[PLAN_KIND_COUNT];     /* sum of all buffers of a kind, without sharing */
    int gathers_in_flight;                   /* most gathers issued and not yet used at any point */
    uint64_t hash;  /* hash of the schedule without this rank's coordinates; equal on a stage's ranks */
    uint64_t asked; /* hash of options, parameters and the layers' stages; equal on all ranks */
};

/* Builds the whole plan; the caller owns it (plan_free). Errors name the value and how to fix it. */
int plan_build(const struct model *model, const struct plan_options *options, struct plan *plan,
               struct muster_error *err);
void plan_free(struct plan *plan); /* accepts NULL and a zeroed plan */

/* The stage that has a part of the model. */
static inline int plan_stage_of(struct mesh mesh, int part)
{
    return part % mesh.side[SIDE_PIPELINE];
}
/* The group's first stage, which counts it where others only hold a copy. */
int plan_first_stage(const struct param_group *group);
bool plan_is_tied(const struct param_group *group);                     /* several stages hold it */
int plan_tie(const struct plan *plan, const struct param_group *group); /* its index in plan.ties; -1: none */
/* The ranks that differ in their stage alone, within a set of stages, as mesh_line; size 0: the rank is in no
 * such stage. */
struct mesh_line plan_tie_line(struct mesh mesh, uint64_t stages, int rank);
/* The ranks that a collective or a transfer of the plan is between. */
struct mesh_line plan_comm_line(const struct plan *plan, const struct schedule_op *op);

/* The sizes of a layer in a plan of these options. */
void plan_layer_sizes(const struct plan_options *options, const struct layer_desc *layer,
                      enum layer_mode mode, struct layer_sizes *sizes);

/* Bytes of so many elements of a group's parameters as they are held; the elements are whole units. */
int64_t plan_held_bytes(const struct plan *plan, const struct param_group *group, int64_t elements);

/* How a compressed group arrives: from how many replicas, and under top-k how many bytes apart. */
struct plan_wire_shape {
    int replicas;
    int64_t stride;
};
struct plan_wire_shape plan_wire_shape(const struct plan *plan, int group);
/* The bytes of a step that compresses. */
struct plan_wire plan_wire_bytes(const struct plan *plan);
/* The type of the values that top-k sends. */
enum dtype plan_topk_wire(const struct plan *plan);
/* Replicas from which on top-k of this ratio sends as much as a dense sum, or more. */
int plan_topk_border(const struct plan *plan);

/* Text of how gradients of lookups go from rank to rank: "dense", or "rows of" and the names of the layers
 * with rows. options.embedding_gradient has the request. Cut at size. */
void plan_embedding_text(const struct model *model, const struct plan *plan, char *text, size_t size);

/* The whole plan as text, for golden files and `--plan --verbose`: groups, entries, schedule. Stable. */
int plan_dump(const struct model *model, const struct plan *plan, struct buffer *out);
/* Summary table: bytes per rank by kind and memory class, the total, group count, gathers in flight. */
int plan_summary(const struct model *model, const struct plan *plan, struct buffer *out);
/* The members of a JSON object, without its braces; its schema is in README.md. more: the caller's own
 * members, at the end, each with a comma before it; "": none. */
int plan_json(const struct model *model, const struct plan *plan, const char *more, struct buffer *out);

/* ---- plan_advice.c: whether a plan fits into memory, and the changes of settings that would make it fit
 * ---- */

/* The buffers of a group that hold state from step to step, on this rank; how many. */
enum { PLAN_STATE_ENTRIES = 7 };
int plan_state_entries(const struct param_group *group, int entries[PLAN_STATE_ENTRIES]);

/* Number of ranks that hold this rank's part of the group; *copy: this rank's number among them. First come
 * the ranks of a stage that keep equal shards, then the ranks of the next stage that shares the group. */
int plan_holders(const struct plan *plan, const struct param_group *group, int *copy);
/* Bytes of the state that this rank writes into a checkpoint: its share of what several ranks hold. */
int64_t plan_saved_bytes(const struct model *model, const struct plan *plan);

/* Memory that the bytes of a plan are counted in. A CPU's has them all; a GPU has its own. */
enum plan_memory {
    PLAN_MEMORY_ALL,
    PLAN_MEMORY_DEVICE, /* MEMORY_DEVICE and MEMORY_COMM */
    PLAN_MEMORY_HOST,   /* MEMORY_PINNED and MEMORY_HOST: the machine's, next to a GPU */
};
int64_t plan_bytes(const struct plan *plan); /* bytes that a rank allocates in all memory classes */
int64_t plan_bytes_of(const struct plan *plan, enum plan_memory memory);

struct plan_rates;
/* Room for a plan. */
struct plan_room {
    enum plan_memory memory;
    int64_t bytes;
    const char *is; /* "is the memory limit" */
    /* With PLAN_MEMORY_DEVICE bytes of PLAN_MEMORY_HOST, with PLAN_MEMORY_HOST of PLAN_MEMORY_DEVICE; 0: not
     * known. */
    int64_t other;
    bool another; /* the plan may be for another machine: changes that need more than `other` are offered,
                     with its bytes */
    const struct plan_rates *rates; /* for the times of changes; NULL: ordinary cores */
};
/* 0 if the plan needs at most room->bytes of room->memory, else MUSTER_E_LIMIT with both sizes, room->is
 * and three changes of settings. Each change was planned and makes the plan fit; the three cost the least
 * time, by prediction at room->rates, which the text names. Moments in the host's memory, whose time is not
 * predicted, come last. */
int plan_fits(const struct model *model, const struct plan *plan, const struct plan_room *room,
              struct muster_error *err);

#endif
