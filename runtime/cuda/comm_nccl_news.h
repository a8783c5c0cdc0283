/* comm_nccl_news.h - notes that the watching threads of a family send each other, over TCP connections
 * between rank 0 and every other rank.
 *
 * Notes pass only after a fault or a stall. A stalled rank posts the progress of each
 * comm. A waiting rank asks rank 0 which ranks are late. Rank 0 compares the posts: comms that
 * ran the same number of collectives must have run the same collectives. A failure, a rank's end (its
 * connection closed) and its leaving go to all. If rank 0 ends, all ranks see it and the family is over. */
#ifndef MUSTER_RUNTIME_CUDA_COMM_NCCL_NEWS_H
#define MUSTER_RUNTIME_CUDA_COMM_NCCL_NEWS_H

#include "runtime/comm/comm.h"

enum { NEWS_MISSING = 8, NEWS_COMMS = 32 };

enum nccl_note_kind {
    NOTE_POST,    /* to rank 0: rank has issued so many collectives of comm, and op is number `at` of them */
    NOTE_ASK,     /* to rank 0: which ranks have not issued collective `issued` of comm? */
    NOTE_ANSWER,  /* rank 0's answer: missing */
    NOTE_FAILURE, /* rank failed with error */
    NOTE_GONE,    /* rank's process has ended */
    NOTE_LEFT,    /* rank destroyed comm after `issued` collectives */
    NOTE_KIND_COUNT
};

struct nccl_note {
    uint32_t magic, kind;
    int32_t rank; /* whom it is about, in the family's first comm */
    int32_t pid;
    int32_t comm, color;        /* the comm's number in the family, -1: all comms */
    char name[64];              /* the comm's name, cut */
    uint64_t issued, at, chain; /* chain: a hash of all collectives up to `at` */
    struct comm_op op;
    int32_t missing_count, missing[NEWS_MISSING];
    struct muster_error error;
};

struct nccl_news;
struct pollfd;

struct nccl_news_events {
    void *context;
    void (*hear)(void *context, const struct nccl_note *note); /* gets each note that concerns this rank */
};

/* Collective: connects rank 0 with all. */
struct nccl_news *nccl_news_open(const struct comm_options *options, struct muster_error *err);
void nccl_news_close(struct nccl_news *news); /* accepts NULL */
/* Entries for poll: at most one a rank. */
int nccl_news_polls(struct nccl_news *news, struct pollfd *entries);
/* Reads and passes on received notes, and sends queued notes. */
void nccl_news_serve(struct nccl_news *news, const struct nccl_news_events *events);
/* Sends a note of this rank: to all where it is a failure or a leaving, else to rank 0. The note that rank 0
 * sends to itself is handled at once. */
void nccl_news_tell(struct nccl_news *news, struct nccl_note *note, const struct nccl_news_events *events);

#endif
