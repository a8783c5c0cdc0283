/* roster_internal.h - the roster's state and the steps over it, shared by its own files (roster*.c) only. */
#ifndef MUSTER_RENDEZVOUS_ROSTER_ROSTER_INTERNAL_H
#define MUSTER_RENDEZVOUS_ROSTER_ROSTER_INTERNAL_H

#include <assert.h>

#include "rendezvous/roster/roster.h"

/* A superseded agent that missed its refusal may come back with its old incarnation: it must not evict its
 * successor. */
enum { ROSTER_SUPERSEDED_KEPT = 8 };

/* A refused agent ends when it learns of it. A later JOIN of it that is under way must not make it a member.
 */
enum { ROSTER_REFUSED_KEPT = 8 };

/* At all times: if state is EMPTY or DONE_GONE the slot has no agent, and session is unset;
 * incarnation, name, sizes and ranks stay as the last agent left them, since a DONE_GONE node still counts
 * in its world and an agent may come back. session is also 0 while the agent's connection is down. */
struct roster_member {
    enum roster_member_state state;
    bool verdict_sent;    /* only used in LEAVING */
    bool proposed;        /* a member of the world that the voters decide about */
    bool draining;        /* leaves when its workers have ended */
    bool evicted;         /* was sent GO */
    bool was_done;        /* STOPPING: there was nothing left to stop */
    int ended;            /* RUNNING, KEEPS: 1 + the rank of a worker that has exited 0; 0: none is known */
    struct world_id held; /* the world of its workers, or of a STOPPED still due; 0,0: none */
    uint64_t session;
    uint64_t sequence; /* number of the last report received */
    uint64_t number;   /* of its newest JOIN; kept when it has gone */
    uint64_t arrival;  /* order of joining */
    struct agent_incarnation incarnation;
    struct agent_incarnation superseded[ROSTER_SUPERSEDED_KEPT]; /* a ring */
    unsigned superseded_count;
    struct instant last_received;
    struct instant lost_at; /* unless it comes back before: its connection broke; never: unknown */
    struct world_id last;   /* that it had when it joined */
    bool lapsed;            /* it may not know the job's last world */
    int wanted_rank;        /* -1: any */
    int group_rank;         /* in the last world that it or its name was in; -1: none */
    uint32_t round;         /* round of that world */
    int local_world_size;
    int rank_base, role_rank_base, role_world_size; /* in the current round */
    uint16_t store_port, vote_port;
    char vote_addr[RECORD_ADDRESS];
    char name[MEMBERSHIP_NAME_LIMIT]; /* name of the last agent in this slot; "" if there was none */
    char role[ROSTER_ROLE_LIMIT];
    uint64_t command, contents, endpoints;
    char program[MEMBERSHIP_PROGRAM_LIMIT];
    char store_addr[MEMBERSHIP_NAME_LIMIT];
    bool used;                       /* it has had an agent, or a place of one */
    int next_incarnation, next_name; /* roster_slots.c */
};

/* The leases of agents end so long before the last call of a new server. */
#define ROSTER_LEASE_BEFORE_LAST_CALL_NS (2 * NS_PER_S)

enum { ROSTER_CAUSES_KEPT = FAILURE_OTHERS_LIMIT + 1 };

/* One failure of the current round. */
struct roster_cause {
    struct failure_key key;
    struct worker_failure failure;
};

struct roster {
    /* options */
    char job_id[MEMBERSHIP_NAME_LIMIT];
    uint64_t epoch; /* epoch of this server; id has another epoch while a former server's world continues */
    bool elastic;
    int min_nodes, max_nodes;
    int slot_count;
    int local_slot; /* slot of the hosting agent, -1: it has not joined */
    int64_t max_restarts, join_timeout_ns, lost_after_ns, waiting_lost_ns, stop_timeout_ns, exit_barrier_ns;
    int64_t last_call_ns, regroup_ns, notice_ns, lease_ns;
    /* the job */
    enum roster_job_state state;
    struct world_id id; /* the current world, or the world being formed */
    bool world_out;     /* id was given to a member */
    bool world_seen;    /* this server has formed a world */
    int64_t restart_count;
    int64_t backoff_ns, backoff_cap_ns;
    uint64_t jitter;
    int64_t streak;            /* restarts in a row without a round that lasted */
    struct instant formed_at;  /* the current or last world */
    struct instant hold_until; /* FORMING: no world is formed before; never: no wait */
    uint64_t arrivals;
    struct instant created;
    struct world_id before; /* the last world of a former server, as far as it is known */
    int before_nodes;
    bool before_counted;         /* the loss of its server with its workers has cost its restart */
    struct instant absent_until; /* done nodes are waited for; never: no longer, or none is absent */
    int before_done_count; /* in before_done: nodes of that world that its server has known to be done */
    int world_nodes, world_size;   /* sizes of the current world: its nodes are by_rank[0..world_nodes-1] */
    struct instant state_deadline; /* FORMING: join; STOPPING: stop; FINISHING: exit barrier; else never */
    struct instant loss_check;     /* no member can be lost before */
    struct instant missed_at;      /* RUNNING: when a rank first missed a peer; never: none does */
    struct instant judge_at;       /* after that: no node is blamed before */
    struct instant last_loss;      /* of a member; never: none was lost */
    struct instant awake; /* broken connections have time until then, at least: the server was suspended */
    int apart; /* FORMING: a slot without a connection, for which the world that is ready waits; -1: none */
    /* an elastic world's changes */
    bool votes, continues;    /* options */
    struct voter lost_server; /* roster_options.before; its name is "": none */
    struct instant
        gathering;   /* continues: how long members of the world before are waited for; never: no longer */
    bool proposed;   /* FORMING: the voters decide about the world of by_rank */
    bool regrouping; /* FORMING: after a stop, so without a last call if min_nodes are left */
    struct instant last_call;      /* FORMING: when it ends; never if min_nodes have not joined */
    struct instant regroup;        /* RUNNING: when new nodes change the world; never without new nodes */
    bool dead;                     /* the current or last world: a rank of it stopped before it was done */
    struct instant fence;          /* unless it is dead: when the workers of its lost members are stopped */
    int64_t regroup_wait_ns;       /* from formed_at; regroup_ns or a multiple */
    enum membership_change change; /* STOPPING: planned, for this change of members; NONE: it is not */
    int64_t stop_grace_ns;         /* grace of a planned stop */
    int next_nodes;                /* the same */
    bool departs;                  /* STOPPING: the hosting agent goes on SIGTERM, and the server with it */
    bool host_left;                /* the hosting agent has gone: no world forms that would lose its server */
    /* The causes of the current round. Whole records of all that a verdict names: what completes one may make
     * another the first. */
    struct instant failed_at;                     /* after a failure: when the server knew of the first */
    struct roster_cause seen[ROSTER_CAUSES_KEPT]; /* the best, in order */
    int seen_count, seen_total;                   /* seen_total: also those without room */
    int leave_code; /* static: of an agent that left, or is to, while the world was stopping; 0: none */
    /* the text of the next STOP, WORLD and VERDICT */
    char stop_reason[MUSTER_ERROR_TEXT];
    char restart_reason[MUSTER_ERROR_TEXT]; /* the next WORLD: the first cause of the round before; "" */
    int restart_class; /* the next WORLD: 1 + enum failure_class of that; 0: the round before did not fail */
    int verdict_code;
    bool verdict_failed;
    char verdict_reason[MUSTER_ERROR_TEXT];
    /* texts of this step's refusals: of the sender, and of an agent that the sender supersedes */
    char refusal[MUSTER_ERROR_TEXT], superseded[MUSTER_ERROR_TEXT];
    /* this step's answer to EVICT */
    struct {
        uint64_t number;
        enum membership_eviction state;
        struct agent_incarnation agent;
        char text[MUSTER_ERROR_TEXT];
    } eviction;
    struct agent_incarnation refused[ROSTER_REFUSED_KEPT]; /* a ring */
    unsigned refused_total;
    /* agents refused since the last world was formed */
    unsigned refused_count;
    char refused_name[MEMBERSHIP_NAME_LIMIT], refused_why[MUSTER_ERROR_TEXT]; /* the last of them */
    int *by_rank;                                                             /* slots; room for slot_count */
    int *scratch;            /* the same room, for one call */
    int *before_done;        /* the same room: 1: the node of that rank was done */
    struct rank_ranges done; /* roster_done_ranks, for this world and so many nodes */
    struct world_id done_id;
    int done_known;
    /* roster_slots.c: first slots of chains; the first slot never used; number of slots used */
    int *by_incarnation, *by_name;
    int blank, held_once;
    int free_from; /* no slot before it is free */
    /* members by slot, and how many are in each state */
    int count[MEMBER_STATE_COUNT];
    struct roster_member members[];
};

/* What one step works on. */
struct roster_work {
    struct roster *roster;
    const struct roster_event *event;
    struct instant now;
    struct roster_actions *out;
    struct muster_error *err;
};

/* --- roster_enter.c --- */

/* The agent has sent something. */
void roster_note_received(struct roster_work *w, struct roster_member *member);
/* JOIN; after the verdict; when the server leaves. */
int roster_on_join(struct roster_work *w);
int roster_on_join_late(struct roster_work *w);
int roster_on_join_departed(struct roster_work *w);

/* --- roster_causes.c --- */

/* Whether the present round has failed; its first cause. */
bool roster_has_failed(const struct roster *roster);
const struct worker_failure *roster_cause(const struct roster *roster);
/* After a failure: whether the job ends with it. */
bool roster_is_spent(const struct roster *roster);

/* Adds a cause of the present round's end, or more details of a known cause (failure->completes). */
void roster_record(struct roster_work *w, const struct worker_failure *failure, int group_rank,
                   struct instant at);
/* All workers of its node, or one, have exited 0, and this rank, which has lost a peer, cannot go on without
 * them. */
void roster_record_needed(struct roster_work *w, const struct roster_member *done, int missing);
/* The node held workers of the world whose fate will never be reported. why: how its agent left, if known,
 * else NULL. */
void roster_record_lost(struct roster_work *w, const struct roster_member *member, const char *why);

/* --- roster_leave.c: by the job's state; finishing: also when it is over, or the server leaves --- */

int roster_on_leave_forming(struct roster_work *w);
int roster_on_leave_running(struct roster_work *w);
int roster_on_leave_stopping(struct roster_work *w);
int roster_on_leave_finishing(struct roster_work *w);
int roster_on_drain(struct roster_work *w);

/* --- roster_stop.c: states, stops and verdicts --- */

void roster_act(struct roster_work *w, enum roster_action_kind kind, uint64_t session, int member,
                const char *reason);
void roster_set_state(struct roster *roster, struct roster_member *member, enum roster_member_state state);
/* The timers of the old state end. timeout_ns: until state_deadline; 0: never. */
void roster_set_job_state(struct roster_work *w, enum roster_job_state state, int64_t timeout_ns);
/* The agent is gone; state is EMPTY or DONE_GONE. */
void roster_vacate(struct roster *roster, struct roster_member *member, enum roster_member_state state);
/* The world stops: for its recorded cause or, planned, because its members change. */
void roster_begin_stop(struct roster_work *w);
/* nodes: of the next world; fewer than it needs are none. */
void roster_begin_planned_stop(struct roster_work *w, enum membership_change change, int nodes,
                               int64_t grace_ns, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void roster_give_verdict(struct roster_work *w, int code, bool failed, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void roster_give_failure_verdict(struct roster_work *w);
void roster_end_job(struct roster_work *w);

/* --- roster_job.c --- */

/* FORMING: roster->id is the world of all KEEP members, by_rank and world_nodes list them, and the hosting
 * agent's part of it is done. */
void roster_adopt_world(struct roster_work *w);
/* The agent in a slot died silently. Returns whether the world must stop for it. */
bool roster_lose(struct roster_work *w, struct roster_member *member, const char *why);
/* All have stopped, and the server leaves them. */
void roster_depart(struct roster_work *w);
/* All due transitions of the job. Every handler that changed a member ends in it. */
void roster_settle(struct roster_work *w);
/* Sends out the world of by_rank. */
void roster_form_world(struct roster_work *w);

/* --- roster_vote.c --- */

int roster_on_chosen(struct roster_work *w);
/* There is no proposal any more. */
int roster_on_chosen_late(struct roster_work *w);

/* --- roster_evict.c --- */

int roster_on_evict(struct roster_work *w);
/* The job is over. */
int roster_on_evict_late(struct roster_work *w);

/* --- roster_report.c --- */

int roster_on_report(struct roster_work *w);
/* A BEAT in a round that runs, or may go on. */
int roster_on_beat(struct roster_work *w);

/* --- roster_elastic.c: rules of elastic worlds --- */

/* The next world waits for the end of a lease that was renewed at this time, or before, unless the last
 * world is dead. */
void roster_fence_from(struct roster *roster, struct instant renewed);

/* Whether all members of the former server's world are here and have stopped, except the member that was
 * lost with it. */
bool roster_is_accounted_for(const struct roster *roster);
/* FORMING: whether the world is to form now; keeps the last call. */
bool roster_elastic_is_ready(struct roster_work *w);
/* Chooses among the JOINED, and puts their slots into by_rank; how many. */
int roster_elastic_choose(struct roster *roster);
/* Computes when, if ever, the new nodes change the running world. */
void roster_elastic_plan_regroup(struct roster_work *w);
/* The time for it has come. */
void roster_elastic_regroup(struct roster_work *w);
int roster_elastic_on_drain(struct roster_work *w);
/* Whether the other members of the world can elect another server. */
bool roster_elastic_is_replaced(const struct roster *roster);
/* The agent of a member that is not done leaves. */
void roster_elastic_on_leave(struct roster_work *w, struct roster_member *member, int code);
/* FORMING: whether the others are to look for the next server when this member leaves. */
bool roster_elastic_departs(const struct roster *roster, const struct roster_member *member, int code);
/* STOPPING has taken too long: members that do not stop are removed. */
void roster_elastic_evict_stuck(struct roster_work *w);

/* --- roster_return.c: a restarted server --- */

/* Learns from a JOIN about the world of the former server. */
void roster_on_return(struct roster_work *w, const struct roster_join *join);
/* FORMING, and no member keeps the former world: counts the loss of its server unless that was done. Whether
 * it counted. */
bool roster_return_counts(struct roster_work *w);
/* The first world of this server begins: if the loss of the server before this one was counted, the reason of
 * the restart names it, with its rank, which only the members that are here by now show. */
void roster_return_describe(struct roster *roster);
/* FORMING: whether the loss of the server before this one was one too many; then the verdict comes when the
 * members of its world are here, or have been waited for. */
bool roster_return_ends(struct roster_work *w);
/* Whether the agent's workers may continue: for the JOIN of an agent that still has some. Next to a proposed
 * world they may not. */
bool roster_return_keeps(const struct roster *roster, const struct roster_join *join);
/* The slot of a member of the world that was taken over, as done, before its agent was here. -1: the JOIN is
 * of no such agent. */
int roster_return_slot(const struct roster *roster, const struct roster_join *join);
/* FORMING with KEEP members: takes their world over or stops it, if that can be decided. Whether it did. */
bool roster_return_settle(struct roster_work *w);

/* --- roster_world.c --- */

/* Gives every member of by_rank its ranks in the world that is being formed. */
void roster_assign_ranks(struct roster *roster);
/* How many voters the running world can have now. */
int roster_possible_voters(const struct roster *roster);

/* --- roster_text.c --- */

/* "missing ranks 1-3, 7 (last held by \"b\")": the missing members of a static world. */
void roster_describe_missing(const struct roster *roster, char *out, size_t size);
/* "node rank 3 (agent \"b\")", without the rank if it has none in the present world. */
void roster_describe_member(const struct roster *roster, const struct roster_member *member, char *out,
                            size_t size);

/* --- roster_slots.c: all give a slot, the lowest of several, or -1 --- */

void roster_slots_init(struct roster *roster);
/* Around every change of a slot's incarnation and name. */
void roster_slots_forget(struct roster *roster, struct roster_member *member);
void roster_slots_remember(struct roster *roster, struct roster_member *member);
/* After every change of a slot's state. */
void roster_slots_note_state(struct roster *roster, const struct roster_member *member);
/* The slot of the incarnation, present or last. */
int roster_slots_find(const struct roster *roster, struct agent_incarnation incarnation, bool taken);
/* A free slot whose last holder had the name. */
int roster_slots_left_by(const struct roster *roster, const char *name);
/* The first slot whose present or last holder has the name, and the next one after a slot; the order is any.
 */
int roster_slots_named(const struct roster *roster, const char *name);
int roster_slots_named_after(const struct roster *roster, int slot);
/* A slot never used. */
int roster_slots_blank(const struct roster *roster);
/* A free slot; kept_too: also one reserved for a node that is done. */
int roster_slots_free(const struct roster *roster, bool kept_too);

/* --- roster_join.c --- */

/* Whether the join's fingerprint and claims are acceptable; the refusal's text if not. */
bool roster_join_fits(const struct roster *roster, const struct roster_join *join, char *refusal,
                      size_t size);
/* The slot that the join claims, or -1 and the refusal's text. */
int roster_join_slot(const struct roster *roster, const struct roster_join *join, char *refusal, size_t size);
/* The agent is refused for good. */
void roster_join_bar_agent(struct roster *roster, struct agent_incarnation incarnation);
/* Records that a join was refused, with roster->refusal; that an agent of this name has a slot now. */
void roster_join_note_refused(struct roster *roster, const struct roster_join *join);
void roster_join_note_joined(struct roster *roster, const char *name);
/* Adds "; refused: agent "node4" (nnodes: ...)" if there was one; NUL-terminated, truncated to size. */
void roster_join_describe_refused(const struct roster *roster, char *out, size_t size);

/* Of the event's session, which holds a slot. */
static inline struct roster_member *roster_sender(struct roster_work *w)
{
    return &w->roster->members[w->event->member];
}

static inline bool roster_slot_taken(const struct roster_member *member)
{
    return member->state != MEMBER_EMPTY && member->state != MEMBER_DONE_GONE;
}

static inline int roster_slot_of(const struct roster *roster, const struct roster_member *member)
{
    return (int)(member - roster->members);
}

/* Whether it is the hosting agent. */
static inline bool roster_is_local(const struct roster *roster, const struct roster_member *member)
{
    return roster_slot_of(roster, member) == roster->local_slot;
}

/* Without a port for votes no candidate reaches an agent, and it could not serve. */
static inline bool roster_may_vote(const struct roster *roster, int slot)
{
    const struct roster_member *member = &roster->members[slot];
    return slot == roster->local_slot || (roster_slot_taken(member) && member->vote_port);
}

/* Not less than roster_possible_voters, in O(1): as if all agents had a port for votes. */
static inline int roster_most_voters(const struct roster *roster)
{
    return record_voter_count(roster->world_nodes - roster->count[MEMBER_DONE_GONE],
                              roster->count[MEMBER_JOINED]);
}

/* Whether the agent has, or may have, living workers of the present world. */
static inline bool roster_has_workers(const struct roster_member *member)
{
    return member->state == MEMBER_ASSIGNED || member->state == MEMBER_RUNNING;
}

#endif
