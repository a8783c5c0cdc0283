/* kubelet.c - see kubelet.h. */
#include "launcher/local/run/kubelet.h"

/* --- events --- */

struct step {
    struct lifecycle *life;
    const struct local_pod *spec;
    struct lifecycle_pod *pod;
    enum local_restart_policy policy;
    enum pod_event event;
    int exit_code;
    struct instant now;
};

enum { FORGET_BACKOFF_S = 600 }; /* a container that ran for twice the longest pause starts afresh */

static int64_t scaled(const struct step *s, int64_t ns)
{
    return (int64_t)((double)ns * s->life->options.backoff_scale);
}

static void enter(struct step *s, enum pod_state state, struct instant deadline)
{
    s->pod->state = state;
    s->pod->deadline = deadline;
}

static void act(struct step *s, enum pod_action action)
{
    s->pod->actions |= 1u << action;
}

static void ignore(struct step *s)
{
    (void)s;
}

static void create(struct step *s)
{
    s->pod->restart_count = s->pod->failures_in_row = 0; /* the kubelet knows nothing of the one before */
    enter(s, POD_PENDING, s->now);
}

static void pod_start(struct step *s)
{
    if (s->pod->first_start.ns == INSTANT_NEVER.ns)
        s->pod->first_start = s->now;
    s->pod->container = s->now;
    enter(s, POD_RUNNING, INSTANT_NEVER);
    act(s, POD_START);
}

static void start_again(struct step *s)
{
    s->pod->restart_count++;
    s->pod->restarts++;
    log_info(s->life->log, "pod %s: container restarted (%d)", s->spec->name, s->pod->restart_count);
    pod_start(s);
}

static void note_end(struct step *s)
{
    s->pod->last_end = s->now;
    s->pod->has_code = s->event == POD_ENDED;
    s->pod->exit_code = s->pod->has_code ? s->exit_code : 0;
}

static void wait_to_restart(struct step *s)
{
    if (instant_diff_ns(s->now, s->pod->container) >= scaled(s, FORGET_BACKOFF_S * NS_PER_S))
        s->pod->failures_in_row = 0;
    int64_t pause = scaled(s, lifecycle_backoff_ns(++s->pod->failures_in_row));
    if (pause)
        log_info(s->life->log, "pod %s: exit code %d, its container restarts in %.1f s", s->spec->name,
                 s->exit_code, (double)pause / (double)NS_PER_S);
    else
        log_info(s->life->log, "pod %s: exit code %d, its container restarts", s->spec->name, s->exit_code);
    enter(s, POD_BACKOFF, instant_add(s->now, pause));
}

static void end(struct step *s)
{
    note_end(s);
    bool again =
        s->policy == LOCAL_RESTART_ALWAYS || (s->policy == LOCAL_RESTART_ON_FAILURE && s->exit_code != 0);
    if (again && !s->life->leaving) {
        wait_to_restart(s);
        return;
    }
    if (s->exit_code)
        log_warning(s->life->log, "pod %s failed with exit code %d", s->spec->name, s->exit_code);
    else
        log_info(s->life->log, "pod %s succeeded", s->spec->name);
    enter(s, s->exit_code ? POD_FAILED : POD_SUCCEEDED, INSTANT_NEVER);
}

static void lose(struct step *s)
{
    note_end(s);
    log_warning(s->life->log, "pod %s failed without an exit code", s->spec->name);
    enter(s, POD_FAILED, INSTANT_NEVER);
}

static void forget(struct step *s)
{
    enter(s, POD_ABSENT, INSTANT_NEVER);
}

static void end_deleted(struct step *s)
{
    note_end(s);
    forget(s);
}

static void terminate(struct step *s)
{
    if (s->pod->actions & 1u << POD_START) { /* it was about to be started: there is no process yet */
        s->pod->actions &= ~(1u << POD_START);
        forget(s);
        return;
    }
    double given = s->life->options.grace_s;
    double grace = given >= 0 ? given : s->spec->grace_s;
    log_info(s->life->log, "pod %s: deleted", s->spec->name);
    act(s, POD_TERMINATE);
    enter(s, POD_DELETING, instant_add(s->now, (int64_t)(grace * (double)NS_PER_S)));
}

static void kill_late(struct step *s)
{
    log_warning(s->life->log, "pod %s did not end within its grace period: killed", s->spec->name);
    enter(s, POD_KILLING, instant_add(s->now, s->life->options.kill_bound_ns));
    act(s, POD_KILL);
}

static void give_up(struct step *s)
{
    act(s, POD_NAME_STUCK);
    enter(s, POD_STUCK, INSTANT_NEVER);
}

/* Columns: CREATE, ENDED, LOST, DELETE, DEADLINE. NULL: cannot happen. */
static void (*const table[POD_STATE_COUNT][POD_EVENT_COUNT])(struct step *) = {
    [POD_ABSENT] = {create, NULL, NULL, ignore, NULL},
    [POD_PENDING] = {NULL, NULL, NULL, forget, pod_start},
    [POD_RUNNING] = {NULL, end, lose, terminate, NULL},
    [POD_BACKOFF] = {NULL, NULL, NULL, forget, start_again},
    [POD_SUCCEEDED] = {NULL, NULL, NULL, forget, NULL},
    [POD_FAILED] = {NULL, NULL, NULL, forget, NULL},
    [POD_DELETING] = {NULL, end_deleted, end_deleted, ignore, kill_late},
    [POD_KILLING] = {NULL, end_deleted, end_deleted, ignore, give_up},
    [POD_STUCK] = {NULL, end_deleted, end_deleted, ignore, NULL},
};

enum local_restart_policy kubelet_policy(const struct lifecycle *life, int pod)
{
    return local_job_policy(life->job, pod);
}

void kubelet_step(struct lifecycle *life, int pod, enum pod_event event, int exit_code, struct instant now)
{
    struct step s = {.life = life,
                     .spec = &life->job->pods[pod],
                     .pod = &life->pods[pod],
                     .policy = kubelet_policy(life, pod),
                     .event = event,
                     .exit_code = exit_code,
                     .now = now};
    enum pod_state before = s.pod->state;
    if (!table[before][event]) {
        log_error(life->log, "internal: pod %s, which is %s, cannot have %s", s.spec->name,
                  pod_state_name(before), pod_event_name(event));
        return;
    }
    table[before][event](&s);
    log_debug(life->log, "pod %s: %s: %s -> %s", s.spec->name, pod_event_name(event), pod_state_name(before),
              pod_state_name(s.pod->state));
}

bool kubelet_is_active(enum pod_state state)
{
    return state == POD_RUNNING || state == POD_BACKOFF;
}

bool kubelet_is_live(enum pod_state state)
{
    return kubelet_is_active(state) || state == POD_PENDING || state == POD_DELETING || state == POD_KILLING;
}
