/* wire_values.h - values that several messages have, packed into protobuf-c's structs and taken from them.
 * For wire_pack.c and wire_unpack.c only. */
#ifndef MUSTER_RENDEZVOUS_WIRE_WIRE_VALUES_H
#define MUSTER_RENDEZVOUS_WIRE_WIRE_VALUES_H

#include "proto/include/muster_error.h"
#include "rendezvous.pb-c.h"
#include "rendezvous/wire/wire.h"

struct wire_record_parts {
    Muster__Record record;
    Muster__Ballot ballot;
    Muster__Voter voter[RECORD_VOTERS], *voters[RECORD_VOTERS];
};

/* --- wire_pack_values.c: each fills `out`, which points into the value --- */

Muster__WorldId *wire_pack_id(Muster__WorldId *out, struct world_id id);
/* The number of entries. out: 2 * RANK_RANGES_LIMIT */
size_t wire_pack_ranges(uint32_t *out, const struct rank_ranges *ranges);
ProtobufCBinaryData wire_pack_bytes(const char *text);
Muster__Failure *wire_pack_failure(Muster__Failure *out, const struct worker_failure *failure);
void wire_pack_brief(Muster__Brief *out, const struct failure_brief *brief);
Muster__Ballot *wire_pack_ballot(Muster__Ballot *out, struct ballot ballot);
Muster__Voter *wire_pack_voter(Muster__Voter *out, const struct voter *voter);
Muster__Record *wire_pack_record(struct wire_record_parts *parts, const struct world_record *record);

/* --- wire_unpack_values.c: -1 and err where the value is not one that muster sends --- */

int wire_bad(struct muster_error *err, const char *what);
int wire_take_text(char *out, size_t size, const char *text, struct muster_error *err);
int wire_take_bytes(char *out, size_t size, ProtobufCBinaryData bytes, struct muster_error *err);
int wire_take_id(struct world_id *out, const Muster__WorldId *id, struct muster_error *err);
int wire_take_ranges(struct rank_ranges *out, const uint32_t *in, size_t count, struct muster_error *err);
int wire_take_port(uint16_t *out, uint32_t port, struct muster_error *err);
int wire_take_failure(struct worker_failure *out, const Muster__Failure *in, struct muster_error *err);
int wire_take_brief(struct failure_brief *out, const Muster__Brief *in, struct muster_error *err);
struct ballot wire_take_ballot(const Muster__Ballot *in);
int wire_take_voter(struct voter *out, const Muster__Voter *in, struct muster_error *err);
int wire_take_record(struct world_record *out, const Muster__Record *in, struct muster_error *err);

#endif
