/* offers.h - each rank's device and comms, and the choice of one comm for the world. Ranks that move data in
 * different ways would wait for each other for ever. Pure. */
#ifndef MUSTER_RUNTIME_TRAIN_OFFERS_H
#define MUSTER_RUNTIME_TRAIN_OFFERS_H

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum { OFFER_HOST = 80, OFFER_DEVICE = 16, OFFER_GPU = 80 };

/* The choices of training.comm, in its order. */
enum offer_comm { OFFER_COMM_AUTO, OFFER_COMM_HOST, OFFER_COMM_NCCL };

struct rank_offer {
    char host[OFFER_HOST];
    char device[OFFER_DEVICE]; /* device on which the rank computes: "cpu", "cuda" */
    char gpu[OFFER_GPU];       /* text that identifies the GPU; "": none, or not known */
    enum offer_comm comm;      /* the rank's setting of training.comm */
    bool nccl;                 /* the rank has NCCL */
    /* Reason of a lack: on device cpu why it is not cuda, on cuda why there is no NCCL; "": not known.
     */
    char missing[MUSTER_ERROR_TEXT];
};

struct comm_chosen {
    bool nccl;
    char why[MUSTER_ERROR_TEXT]; /* with auto on GPUs: why NCCL was not chosen; else "" */
};

/* Chooses from the offers, indexed by rank. MUSTER_E_INVALID names two ranks with their hosts that cannot
 * train together, or a rank that cannot use its setting, and the reason. Reasons: devices differ, settings
 * differ, or ranks that share a GPU are to use NCCL, which refuses that. */
int offers_choose(const struct rank_offer *offers, int size, struct comm_chosen *chosen,
                  struct muster_error *err);

/* Writes an offer as text and reads it back (decide.h). -1: the text is not an offer. */
int offer_print(const struct rank_offer *offer, struct buffer *out);
int offer_read(const char *text, struct rank_offer *offer);

#endif
