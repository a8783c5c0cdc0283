/* plan_access.c - reads and writes of each operation: the only place that defines them, for the builder's
 * waits and for the checker. */
#include "runtime/plan/plan_internal.h"

static int access_add(struct plan_access *out, int count, int entry, bool write)
{
    if (entry < 0)
        return count;
    for (int i = 0; i < count; i++) {
        if (out[i].entry == entry) {
            out[i].write |= write;
            return count;
        }
    }
    out[count] = (struct plan_access){entry, write};
    return count + 1;
}

static int layer_accesses(const struct schedule_op *op, struct plan_access *out)
{
    bool backward = op->kind == OP_BACKWARD;
    int n = 0;
    for (int i = 0; i < op->group_count; i++) {
        n = access_add(out, n, op->weight[i], false);
        n = access_add(out, n, op->grad[i], true);
    }
    for (int i = 0; i < LAYER_SOURCES; i++) {
        n = access_add(out, n, op->in[i], false);
        n = access_add(out, n, op->din[i], true);
    }
    n = access_add(out, n, op->out, !backward);
    n = access_add(out, n, op->dout, true);
    n = access_add(out, n, op->saved, true);
    n = access_add(out, n, op->work, true);
    n = access_add(out, n, op->batch, false);
    n = access_add(out, n, op->from, false);
    return access_add(out, n, op->to, true);
}

int plan_op_accesses(const struct plan *plan, const struct schedule_op *op, struct plan_access *out)
{
    if (op->kind == OP_FORWARD || op->kind == OP_BACKWARD)
        return layer_accesses(op, out);
    const bool compresses = op->kind == OP_ENCODE || op->kind == OP_DECODE;
    int n = access_add(out, 0, op->from, op->kind == OP_ENCODE);
    n = access_add(out, n, op->to, true);
    if (compresses) {
        n = access_add(out, n, op->feedback, true);
        n = access_add(out, n, op->dense, op->kind == OP_ENCODE);
        n = access_add(out, n, op->factor, true);
        n = access_add(out, n, op->right, true);
        n = access_add(out, n, op->work, true);
        n = access_add(out, n, plan->scalars, false);
        n = access_add(out, n, plan->figures, true);
    }
    if (op->kind == OP_STEP) {
        n = access_add(out, n, plan->groups[op->group].master, true);
        n = access_add(out, n, plan->groups[op->group].moment1, true);
        n = access_add(out, n, plan->groups[op->group].moment2, true);
        n = access_add(out, n, plan->scalars, false);
    }
    if (op->kind == OP_ROWS)
        n = access_add(out, n, op->batch, false);
    if (op->kind == OP_AVERAGE)
        n = access_add(out, n, plan->scalars, false);
    return n;
}
