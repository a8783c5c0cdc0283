/* offers.h - what each rank could compute and communicate with, and what all of them do: one choice for the
 * world, since ranks that move data in different ways wait for each other for ever. Pure. */
#ifndef MUSTER_RUNTIME_TRAIN_OFFERS_H
#define MUSTER_RUNTIME_TRAIN_OFFERS_H

#include "proto/base/buffer.h"
#include "proto/include/muster_error.h"

enum { OFFER_HOST = 80, OFFER_DEVICE = 16, OFFER_GPU = 80 };

/* The choices of training.comm, in its order. */
enum offer_comm { OFFER_COMM_AUTO, OFFER_COMM_HOST, OFFER_COMM_NCCL };

struct rank_offer {
    char host[OFFER_HOST];
    char device[OFFER_DEVICE]; /* "cpu", "cuda": what the rank computes on */
    char gpu[OFFER_GPU];       /* the same text for the same GPU; "": none, or not known */
    enum offer_comm comm;      /* what the rank was asked to communicate with */
    bool nccl;                 /* it has NCCL */
    /* What is missing: of device cpu why it is not cuda, of cuda why there is no NCCL; "": nothing is known.
     */
    char missing[MUSTER_ERROR_TEXT];
};

struct comm_chosen {
    bool nccl;
    char why[MUSTER_ERROR_TEXT]; /* of auto on GPUs, why it is not NCCL; else "" */
};

/* By rank. MUSTER_E_INVALID names two ranks with their hosts that cannot train together, or one that cannot
 * have what it was asked for, and what is missing: devices differ, settings differ, or ranks that share a GPU
 * are to use NCCL, which refuses that. */
int offers_choose(const struct rank_offer *offers, int size, struct comm_chosen *chosen,
                  struct muster_error *err);

/* As text and back (decide.h). -1: it is no such text. */
int offer_print(const struct rank_offer *offer, struct buffer *out);
int offer_read(const char *text, struct rank_offer *offer);

#endif
