/* offers.c - see offers.h. */
#include "runtime/train/offers.h"

#include <stdio.h>
#include <string.h>

#include "proto/base/error.h"
#include "proto/base/text.h"

static const char *const comm_names[] = {"auto", "host", "nccl"};
enum { COMMS = sizeof comm_names / sizeof *comm_names };

/* ---- choosing ---- */

static const char *missing_of(const struct rank_offer *offer)
{
    if (*offer->missing)
        return offer->missing;
    return !strcmp(offer->device, "cpu") ? "libmuster_cuda.so is not installed" : "libnccl.so.2 is not there";
}

/* Reports two ranks with different devices; the error is about the rank without a GPU. */
static int refuse_devices(const struct rank_offer *offers, int rank, struct muster_error *err)
{
    const int poor = !strcmp(offers[rank].device, "cpu") ? rank : 0, rich = poor ? 0 : rank;
    return error_set(
        err, MUSTER_E_INVALID,
        "rank %d on %s computes on %s, but rank %d on %s on %s (%s); give rank %d what it lacks, or "
        "set training.device: %s",
        rich, offers[rich].host, offers[rich].device, poor, offers[poor].host, offers[poor].device,
        missing_of(&offers[poor]), poor, offers[poor].device);
}

static int check_same(const struct rank_offer *offers, int size, struct muster_error *err)
{
    for (int r = 1; r < size; r++) {
        if (strcmp(offers[r].device, offers[0].device) != 0)
            return refuse_devices(offers, r, err);
        if (offers[r].comm != offers[0].comm)
            return error_set(err, MUSTER_E_INVALID,
                             "rank 0 on %s has training.comm: %s, but rank %d on %s has %s: set the same",
                             offers[0].host, comm_names[offers[0].comm], r, offers[r].host,
                             comm_names[offers[r].comm]);
    }
    return 0;
}

/* Finds two ranks that share a GPU. Such ranks are neighbours, so only ranks of one host are compared, which
 * are few. */
static bool find_shared(const struct rank_offer *offers, int size, int pair[2])
{
    for (int r = 1; r < size; r++)
        for (int before = r - 1; *offers[r].gpu && before >= 0; before--) {
            if (strcmp(offers[before].host, offers[r].host) != 0)
                break;
            if (strcmp(offers[before].gpu, offers[r].gpu) != 0)
                continue;
            pair[0] = before;
            pair[1] = r;
            return true;
        }
    return false;
}

int offers_choose(const struct rank_offer *offers, int size, struct comm_chosen *chosen,
                  struct muster_error *err)
{
    int pair[2];
    *chosen = (struct comm_chosen){0};
    if (check_same(offers, size, err) < 0)
        return -1;
    if (size < 2 || offers[0].comm == OFFER_COMM_HOST || !strcmp(offers[0].device, "cpu"))
        return 0;
    const bool asked = offers[0].comm == OFFER_COMM_NCCL;
    for (int r = 0; r < size; r++) {
        if (offers[r].nccl)
            continue;
        (void)snprintf(chosen->why, sizeof chosen->why, "rank %d on %s has no NCCL: %.320s", r,
                       offers[r].host, missing_of(&offers[r])); /* cut if too long */
        return asked ? error_set(err, MUSTER_E_INVALID, "training.comm: nccl: %s", chosen->why) : 0;
    }
    if (find_shared(offers, size, pair)) {
        (void)snprintf(chosen->why, sizeof chosen->why,
                       "ranks %d and %d share a GPU of %s, which NCCL refuses", pair[0], pair[1],
                       offers[pair[0]].host); /* cut if too long */
        return asked ? error_set(err, MUSTER_E_INVALID,
                                 "training.comm: nccl: %s: use host, or as many ranks as GPUs", chosen->why)
                     : 0;
    }
    chosen->nccl = true;
    return 0;
}

/* ---- as text: a line each ---- */

int offer_print(const struct rank_offer *o, struct buffer *out)
{
    return buffer_printf(out, "%s\n%s\n%s\n%s\n%s\n%s", o->host, o->device, o->gpu, comm_names[o->comm],
                         o->nccl ? "nccl" : "", o->missing);
}

static const char *take_line(const char *text, char *out, size_t size)
{
    const size_t length = strcspn(text, "\n");
    if (length >= size)
        return NULL;
    memcpy(out, text, length);
    out[length] = '\0';
    return text + length + (text[length] == '\n');
}

int offer_read(const char *text, struct rank_offer *offer)
{
    char comm[8], nccl[8];
    *offer = (struct rank_offer){0};
    const struct {
        char *to;
        size_t size;
    } lines[] = {{offer->host, sizeof offer->host},
                 {offer->device, sizeof offer->device},
                 {offer->gpu, sizeof offer->gpu},
                 {comm, sizeof comm},
                 {nccl, sizeof nccl},
                 {offer->missing, sizeof offer->missing}};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!(text = take_line(text, lines[i].to, lines[i].size)))
            return -1;
    for (int i = 0; i < COMMS; i++)
        if (!strcmp(comm, comm_names[i])) {
            offer->comm = (enum offer_comm)i;
            offer->nccl = *nccl;
            return 0;
        }
    return -1;
}
