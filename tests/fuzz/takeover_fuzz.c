/* takeover_fuzz.c - arbitrary messages and records reach the rules of the vote: an impossible message
 * changes nothing, and knowledge never goes back. */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/takeover/takeover.h"
#include "tests/fuzz/random_main.h"
#include "tests/fuzz/reader.h"

static void read_voter(struct reader *in, struct voter *voter)
{
    *voter = (struct voter){.incarnation = {reader_below(in, 8), 0}, .port = (uint16_t)reader_byte(in)};
    memset(voter->name, 'n', reader_byte(in) == 255 ? sizeof voter->name : 1 + reader_below(in, 250));
    memset(voter->address, '1', reader_byte(in) == 255 ? sizeof voter->address : reader_below(in, 60));
}

static void read_record(struct reader *in, struct world_record *record)
{
    *record = (struct world_record){.epoch = reader_below(in, 3)};
    record->round = reader_below(in, 4);
    record->revision = reader_below(in, 3);
    record->nodes = (int)reader_number(in);
    record->restart_count = reader_number(in);
    record->voter_count = (int)reader_number(in);
    for (int i = 0; i < RECORD_VOTERS; i++)
        read_voter(in, &record->voters[i]);
    record->ballot = (struct ballot){reader_byte(in), record->voters[reader_flag(in)].incarnation};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct reader in = {data, size};
    struct takeover t;
    struct takeover_actions actions;
    struct world_record known, value;
    struct voter self, from, server;
    struct instant now = {NS_PER_S};
    read_voter(&in, &self);
    self.name[1] = self.address[0] = '\0';
    self.incarnation.low = 1;
    takeover_init(&t, &self, 1, now);
    if (reader_flag(&in))
        takeover_begin(&t, now, &actions);
    while (in.left) {
        const struct world_record before = t.known;
        now = instant_add(now, reader_below(&in, 30) * 100 * NS_PER_MS);
        read_record(&in, &known);
        read_record(&in, &value);
        read_voter(&in, &from);
        read_voter(&in, &server);
        const struct takeover_message message = {
            .kind = (enum takeover_message_kind)reader_below(&in, TAKEOVER_MESSAGE_COUNT),
            .from = &from,
            .known = &known,
            .value = reader_flag(&in) ? &value : NULL,
            .server = reader_flag(&in) ? &server : NULL,
            .ballot = {reader_byte(&in), reader_flag(&in) ? from.incarnation : known.ballot.agent},
            .at = {reader_byte(&in), known.ballot.agent}};
        switch (reader_below(&in, 5)) {
        case 0:
            (void)takeover_learn(&t, &known, now, &actions, NULL);
            break;
        case 1:
            takeover_tick(&t, now, &actions);
            break;
        case 2:
            value.voters[0] = self; /* its own proposals are sound */
            value.ballot.agent = self.incarnation;
            if (record_check(&value, NULL) == 0)
                (void)takeover_propose(&t, &value, now, &actions);
            break;
        default:
            takeover_receive(&t, &message, now, &actions);
        }
        if (before.epoch && (t.known.epoch != before.epoch || record_compare(&t.known, &before) < 0))
            abort();
        if (t.known.epoch && t.known.voter_count > RECORD_VOTERS)
            abort();
    }
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static const uint8_t bytes[600] = {1, 2, 3, 4, 5, 6, 7};
    const struct fuzz_seed seeds[] = {{bytes, sizeof bytes}};
    return fuzz_main(argc, argv, seeds, 1);
}
#endif
