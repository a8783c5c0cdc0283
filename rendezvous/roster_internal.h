/* roster_internal.h - the roster's state, shared by its own files (roster*.c) and nobody else. */
#ifndef MUSTER_RENDEZVOUS_ROSTER_INTERNAL_H
#define MUSTER_RENDEZVOUS_ROSTER_INTERNAL_H

#include "rendezvous/roster.h"

/* A superseded agent that missed its refusal may come back with its old incarnation: it must not evict its
 * successor. */
enum { ROSTER_SUPERSEDED_KEPT = 8 };

/* At all times: where state is EMPTY or DONE_GONE nobody sits here, and session and local are unset;
 * incarnation, name, sizes and ranks stay as the last agent left them, since a DONE_GONE node still counts in
 * its world and an agent may come back. session is also 0 while the agent's connection is down. */
struct roster_member {
    enum roster_member_state state;
    bool local;
    bool holds_world;  /* round is the world whose workers it has, or must still say STOPPED for */
    bool verdict_sent; /* only looked at in LEAVING */
    uint32_t round;    /* where holds_world */
    uint64_t session;
    uint64_t sequence; /* of the last report seen */
    struct roster_incarnation incarnation;
    struct roster_incarnation superseded[ROSTER_SUPERSEDED_KEPT]; /* a ring */
    unsigned superseded_count;
    struct instant last_heard;
    int local_world_size;
    int rank_base, role_rank_base, role_world_size; /* in the current round */
    uint16_t store_port;
    char name[MEMBERSHIP_NAME_LIMIT]; /* of the last agent that sat here; "" where none ever did */
    char role[ROSTER_ROLE_LIMIT];
    char store_addr[MEMBERSHIP_NAME_LIMIT];
};

/* One failure of the current round. */
struct roster_cause {
    struct failure_key key;
    struct failure_brief brief;
};

struct roster {
    /* options */
    char job_id[MEMBERSHIP_NAME_LIMIT];
    int slot_count;
    int local_slot; /* of the hosting agent, -1: it is not in */
    int64_t max_restarts, join_timeout_ns, lost_after_ns, stop_timeout_ns, exit_barrier_ns;
    /* the job */
    enum roster_job_state state;
    struct world_id id; /* of the world that is out, or is being formed */
    bool world_out;     /* id was given to somebody */
    int64_t restart_count;
    int64_t backoff_ns, backoff_cap_ns;
    uint64_t jitter;
    int64_t streak;                /* restarts in a row without a round that lasted */
    struct instant formed_at;      /* the world that is or was out */
    struct instant hold_until;     /* FORMING: no world goes out before; never: none is held back */
    int world_size;                /* of the world that is out */
    struct instant state_deadline; /* FORMING: join; STOPPING: stop; FINISHING: exit barrier; else never */
    struct instant loss_check;     /* no member can be lost before */
    /* the causes of the current round */
    bool failed;
    struct worker_failure cause; /* the best so far */
    struct instant cause_at;
    struct roster_cause seen[FAILURE_OTHERS_LIMIT + 1]; /* the best, in order; the first is cause */
    int seen_count, seen_total;
    int leave_code; /* of an agent that left while the world was stopping; 0: none */
    /* what the next STOP and the VERDICT say */
    char stop_reason[MUSTER_ERROR_TEXT];
    int verdict_code;
    bool verdict_failed;
    char verdict_reason[MUSTER_ERROR_TEXT];
    /* texts of this step's refusals: of the sender, and of an agent that the sender supersedes */
    char refusal[MUSTER_ERROR_TEXT], superseded[MUSTER_ERROR_TEXT];
    /* members by slot, and how many are in each state */
    int count[MEMBER_STATE_COUNT];
    struct roster_member members[];
};

/* roster_world.c: gives every member its ranks in the world that is about to go out. */
void roster_assign_ranks(struct roster *roster);
/* roster_join.c: whether the join's fingerprint and claims can be taken; the refusal's text where not. */
bool roster_join_fits(const struct roster *roster, const struct roster_join *join, char *refusal,
                      size_t size);
/* roster_join.c: the slot that the join claims, or -1 and the refusal's text. */
int roster_join_slot(const struct roster *roster, const struct roster_join *join, char *refusal, size_t size);
/* roster_world.c: "node ranks 1-3, 7 (last held by \"b\")": who is not there. */
void roster_describe_missing(const struct roster *roster, char *out, size_t size);

static inline bool roster_incarnation_equal(struct roster_incarnation a, struct roster_incarnation b)
{
    return a.high == b.high && a.low == b.low;
}

static inline bool roster_seat_taken(const struct roster_member *member)
{
    return member->state != MEMBER_EMPTY && member->state != MEMBER_DONE_GONE;
}

#endif
