/* wire.h - the messages between agents and the serving agent, packed into one frame and unpacked from it.
 *
 * Only wire_pack.c and wire_unpack.c know protobuf-c. Nothing from the network is used before wire_decode
 * has checked it: size first, then version, then lengths and ranges. Layout and rules of change:
 * proto/rendezvous.proto. */
#ifndef MUSTER_RENDEZVOUS_WIRE_WIRE_H
#define MUSTER_RENDEZVOUS_WIRE_WIRE_H

#include <stddef.h>

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"
#include "rendezvous/roster/roster.h"
#include "rendezvous/takeover/takeover.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ten times the largest honest message (a report with 4 KiB of stderr); protobuf-c may need 44 times this to
 * unpack a hostile one. */
enum { WIRE_FRAME_LIMIT = 64 * 1024 };

enum { WIRE_PROGRESS_LIMIT = 256, WIRE_NOTE_LIMIT = 48 * 1024 };

enum wire_kind {
    WIRE_JOIN,
    WIRE_LEAVE,
    WIRE_DRAIN,
    WIRE_REPORT,
    WIRE_BEAT,
    WIRE_ACCEPT,
    WIRE_AGAIN,
    WIRE_HANDOVER,
    WIRE_EVENT, /* World, Stop, Verdict, Refuse, Eviction or Go, by event.kind */
    WIRE_NOTE,
    WIRE_VOTE,
    WIRE_EVICT,
};
const char *wire_kind_name(enum wire_kind kind);

/* The texts that join and evict point to, after wire_decode. */
struct wire_texts {
    char job_id[MEMBERSHIP_NAME_LIMIT], agent_name[MEMBERSHIP_NAME_LIMIT], store_addr[MEMBERSHIP_NAME_LIMIT];
    char role[ROSTER_ROLE_LIMIT], program[MEMBERSHIP_PROGRAM_LIMIT], vote_addr[RECORD_ADDRESS];
    char node[MEMBERSHIP_NAME_LIMIT];
};

/* A vote and, after wire_decode, what it points to. */
struct wire_vote {
    const char *job_id;
    struct agent_incarnation to; /* 0,0: whichever agent listens there */
    struct takeover_message message;
    struct world_record known, value;
    struct voter from, server;
};

/* Only the members that belong to kind are valid. Not to be copied after wire_decode: join points into
 * texts, as evict does. */
struct wire_message {
    enum wire_kind kind;
    int exit_code;         /* LEAVE, DRAIN */
    int64_t grace_ns;      /* DRAIN */
    int member;            /* ACCEPT */
    uint64_t number;       /* JOIN, BEAT, ACCEPT */
    int64_t lease_ns;      /* ACCEPT */
    uint64_t epoch;        /* ACCEPT */
    uint64_t proof;        /* AGAIN */
    bool notes;            /* ACCEPT: the server wants notes */
    const char *note;      /* NOTE: not owned; after wire_decode it points into the frame */
    size_t note_length;    /* at most WIRE_NOTE_LIMIT */
    int64_t restart_count; /* HANDOVER: with the cost of the stop */
    uint64_t sequence;     /* REPORT: its own; ACCEPT, BEAT: the last one received */
    struct world_id id;    /* REPORT, HANDOVER */
    enum membership_report_kind report;
    int missing, ended;                 /* BEAT of an agent (roster.h) */
    char progress[WIRE_PROGRESS_LIMIT]; /* BEAT of the server; "" if no node waits for a world */
    struct world_id server_done;        /* BEAT of the server (roster.h); 0,0: none */
    struct rank_ranges done;            /* server_done: roster_done_ranks */
    bool server_works;                  /* BEAT of the server: roster_server_works */
    struct roster_join join;            /* JOIN; local is never sent */
    struct wire_texts texts;
    struct worker_failure failure; /* REPORT of FAILED */
    struct membership_event event; /* EVENT */
    struct membership_evict evict; /* EVICT */
    struct wire_vote vote;         /* VOTE; to be sent, job_id, to and message are read */
    /* JOIN, ACCEPT, EVENT of a world: the newest record that the sender knows, the world's own; NULL: none.
     * ACCEPT: the agent that serves, and the ballot under which it does; NULL: it does not vote. After
     * wire_decode they point into vote. */
    const struct world_record *record;
    const struct voter *server;
    struct ballot office;
};

/* Appends the frame to out. */
int wire_encode(const struct wire_message *message, struct buffer *out, struct muster_error *err);

/* MUSTER_E_LIMIT: above 64 KiB; MUSTER_E_PROTOCOL: not a message of ours, of another version (but a JOIN
 * of another version is decoded, so that it can be refused with the reason), or with a value that muster
 * never sends. */
int wire_decode(const void *data, size_t length, struct wire_message *message, struct muster_error *err);

#ifdef __cplusplus
}
#endif
#endif
