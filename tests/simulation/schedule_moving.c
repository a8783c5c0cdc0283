/* schedule_moving.c - jobs whose serving agent ends again and again, for a while or for good: another one
 * takes over each time. See schedule_maker.h. */
#include "tests/simulation/schedule_maker.h"

enum { ENDS_MS = 40000, CALM_RUN_MS = 2000, SAFE_NODES = 7 };

static void add_other_fault(struct maker *m, int64_t at)
{
    const int node = (int)maker_below(m, m->nodes);
    const int64_t lasts = 1 + maker_below(m, 1500);
    switch (maker_below(m, 6)) {
    case 0:
        maker_step(m, at, STEP_KILL, node, 0);
        break;
    case 1:
        maker_step(m, at, STEP_FOLLOW, node, 0);
        break;
    case 2:
        maker_step(m, at, STEP_RESET, node, 0);
        break;
    case 3:
        maker_step(m, at, STEP_LAG, node, lasts);
        break;
    case 4:
        maker_step(m, at, STEP_CUT, node, 0);
        maker_step(m, at + lasts, STEP_HEAL, node, 0);
        break;
    default:
        maker_step(m, at, STEP_FREEZE, node, lasts);
        break;
    }
}

/* The serving agent stands still for a moment or for long, is cut off, or is asked to end. */
static void disturb(struct maker *m, int64_t at, bool for_good)
{
    enum { MOMENT_MS = 2200, LOST_MS = 4500 };
    const int64_t lasts = LOST_MS + maker_below(m, 4000), away = for_good ? 0 : 1 + maker_below(m, 5000);
    switch (maker_below(m, 4)) {
    case 0:
        maker_step(m, at, STEP_FREEZE_SERVER, 0, 1 + maker_below(m, MOMENT_MS));
        if (maker_one_in(m, 2)) /* beats that are late, and then wait for the server as well */
            maker_step(m, at - 1000 + maker_below(m, 2000), STEP_LAG, (int)maker_below(m, m->nodes),
                       1 + maker_below(m, 1500));
        break;
    case 1:
        maker_step(m, at, STEP_FREEZE_SERVER, 0, lasts);
        break;
    case 2:
        maker_step(m, at, STEP_CUT_SERVER, 0, lasts);
        break;
    default: /* a static job would end */
        maker_step(m, at, m->schedule->options.elastic ? STEP_TERM_SERVER : STEP_END_SERVER, 0, away);
        break;
    }
}

/* A majority of the voters stays: the next one is lost when a world has formed since. An elastic job of
 * enough nodes also goes on when agents are gone for good. */
void schedule_move(struct maker *m)
{
    const bool elastic = m->schedule->options.elastic;
    const int ends = 1 + (int)maker_below(m, 3);
    int left = m->nodes;
    for (int i = 0; i < ends; i++) {
        const int64_t at = 12000 + i * (ENDS_MS / 3) + maker_below(m, 3000);
        const bool for_good = elastic && left - 1 >= m->schedule->options.min_nodes && maker_one_in(m, 2);
        left -= for_good;
        if (maker_one_in(m, 2))
            disturb(m, at, for_good);
        else
            maker_step(m, at, STEP_END_SERVER, 0, for_good ? 0 : 1 + maker_below(m, 5000));
        if (maker_one_in(m, 2))
            add_other_fault(m, at - 500 + maker_below(m, 6000));
        if (maker_one_in(m, 3) &&
            m->nodes >= SAFE_NODES) /* its successor, too: three of five voters are left */
            maker_step(m, at + 500 + maker_below(m, 5000), STEP_END_SERVER, 0, 1 + maker_below(m, 5000));
    }
    maker_step(m, 12000 + ENDS_MS + 12000, STEP_CALM, 0, CALM_RUN_MS);
}
