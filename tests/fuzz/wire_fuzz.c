/* wire_fuzz.c - arbitrary bytes as a frame between agents: refused, or decoded into something that encodes
 * again. */
#include <stdlib.h>

#include "rendezvous/wire/wire.h"
#include "tests/fuzz/random_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct wire_message message;
    struct muster_error err = {0};
    if (wire_decode(data, size, &message, &err) < 0) {
        if (!err.text[0])
            abort();
        return 0;
    }
    scope_buffer out = {0};
    (void)wire_encode(&message, &out,
                      &err); /* may refuse: a JOIN of another version decodes and is not ours to send */
    return 0;
}

#ifndef MUSTER_LIBFUZZER
int main(int argc, char **argv)
{
    static struct wire_message message = {
        .kind = WIRE_REPORT, .sequence = 5, .id = {7, 1}, .report = MEMBERSHIP_REPORT_FAILED};
    message.failure = (struct worker_failure){
        .rank = 1, .pid = 12, .exit_code = -1, .signal = 9, .host = "h", .tail = "last line"};
    struct wire_message beat = {.kind = WIRE_BEAT, .sequence = 9};
    struct wire_message world = {.kind = WIRE_EVENT};
    world.event = (struct membership_event){.kind = MEMBERSHIP_EVENT_WORLD};
    world.event.world = (struct membership_world){.id = {7, 0},
                                                  .group_world_size = 2,
                                                  .world_size = 4,
                                                  .role_world_size = 4,
                                                  .master_addr = "host",
                                                  .master_port = 29501};
    static struct world_record record = {.epoch = 7, .round = 3, .nodes = 2, .voter_count = 2};
    record.voters[0] = (struct voter){.incarnation = {1, 2}, .port = 7, .name = "a", .address = "10.0.0.1"};
    record.voters[1] = (struct voter){.incarnation = {3, 4}, .port = 7, .name = "b"};
    record.ballot = (struct ballot){2, {1, 2}};
    static struct wire_message vote = {.kind = WIRE_VOTE};
    vote.vote.job_id = "job";
    vote.vote.message = (struct takeover_message){.kind = TAKEOVER_PROMISE,
                                                  .from = &record.voters[1],
                                                  .known = &record,
                                                  .value = &record,
                                                  .server = &record.voters[0]};
    struct wire_message accept = {.kind = WIRE_ACCEPT, .record = &record, .server = &record.voters[0]};
    struct buffer frames[5] = {0};
    if (wire_encode(&message, &frames[0], NULL) < 0 || wire_encode(&beat, &frames[1], NULL) < 0 ||
        wire_encode(&world, &frames[2], NULL) < 0 || wire_encode(&vote, &frames[3], NULL) < 0 ||
        wire_encode(&accept, &frames[4], NULL) < 0)
        return 1;
    const struct fuzz_seed seeds[] = {{frames[0].data, frames[0].length},
                                      {frames[1].data, frames[1].length},
                                      {frames[2].data, frames[2].length},
                                      {frames[3].data, frames[3].length},
                                      {frames[4].data, frames[4].length}};
    int result = fuzz_main(argc, argv, seeds, 5);
    for (int i = 0; i < 5; i++)
        buffer_free(&frames[i]);
    return result;
}
#endif
