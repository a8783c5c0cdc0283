/* trace.c - see trace.h. */
#include "trainer/report/trace.h"

#include <stdio.h>

#include "trace.pb-c.h"

typedef Muster__Trace__Packet packet_message;

enum { CLOCK_WALL = 1, CLOCK_STEADY = 3, SLICE_BEGINS = 1, SLICE_ENDS = 2, ORDERED = 3, TEXT_SIZE = 256 };

/* Appends field 1 of a Trace: its length and the packet. */
static int put_packet(packet_message *packet, struct buffer *out)
{
    Muster__Trace__Trace trace = MUSTER__TRACE__TRACE__INIT;
    trace.packet = &packet;
    trace.n_packet = 1;
    const size_t bytes = muster__trace__trace__get_packed_size(&trace);
    char *at = buffer_reserve(out, bytes);
    if (!at)
        return -1;
    out->length += muster__trace__trace__pack(&trace, (uint8_t *)at);
    return 0;
}

/* The id of a track; track -1: of the process. Ids of different ranks differ, so their files can be
 * concatenated. */
static uint64_t uuid_of(const struct trace_process *process, int track)
{
    return ((uint64_t)process->rank + 1) * (TRACE_TRACKS + 1) + (uint64_t)(track + 1);
}

static packet_message packet_of(const struct trace_process *process)
{
    packet_message packet = MUSTER__TRACE__PACKET__INIT;
    packet.has_trusted_packet_sequence_id = true;
    packet.trusted_packet_sequence_id = (uint32_t)process->rank + 1; /* a sequence for each rank; 0 is none */
    return packet;
}

static int put_clocks(const struct trace_process *process, struct buffer *out)
{
    Muster__Trace__ClockSnapshot snapshot = MUSTER__TRACE__CLOCK_SNAPSHOT__INIT;
    Muster__Trace__ClockSnapshot__Clock clocks[2], *list[2] = {&clocks[0], &clocks[1]};
    const int64_t times[2] = {process->wall_ns, process->monotonic_ns};
    for (int i = 0; i < 2; i++) {
        muster__trace__clock_snapshot__clock__init(&clocks[i]);
        clocks[i].has_clock_id = clocks[i].has_timestamp = true;
        clocks[i].clock_id = i ? CLOCK_STEADY : CLOCK_WALL;
        clocks[i].timestamp = (uint64_t)times[i];
    }
    snapshot.clocks = list;
    snapshot.n_clocks = 2;
    snapshot.has_primary_trace_clock = true;
    snapshot.primary_trace_clock = CLOCK_WALL;
    packet_message packet = packet_of(process);
    packet.clock_snapshot = &snapshot;
    return put_packet(&packet, out);
}

int trace_begin(const struct trace_process *process, struct buffer *out)
{
    char name[TEXT_SIZE];
    (void)snprintf(name, sizeof name, "rank %d on %s", process->rank, process->host); /* cut if too long */
    Muster__Trace__Process of_system = MUSTER__TRACE__PROCESS__INIT;
    of_system.has_pid = true;
    /* Processes of several hosts may have the same id; Perfetto would merge them. */
    of_system.pid = process->rank + 1;
    of_system.process_name = name;
    Muster__Trace__Track track = MUSTER__TRACE__TRACK__INIT;
    track.has_uuid = true;
    track.uuid = uuid_of(process, -1);
    track.process = &of_system;
    track.has_child_ordering = true;
    track.child_ordering = ORDERED;
    packet_message packet = packet_of(process);
    packet.track_descriptor = &track;
    return put_clocks(process, out) < 0 ? -1 : put_packet(&packet, out);
}

int trace_track(const struct trace_process *process, int number, const char *name, struct buffer *out)
{
    char text[TEXT_SIZE];
    (void)snprintf(text, sizeof text, "%s", name);
    Muster__Trace__Track track = MUSTER__TRACE__TRACK__INIT;
    track.has_uuid = track.has_parent_uuid = track.has_sibling_order_rank = true;
    track.uuid = uuid_of(process, number);
    track.parent_uuid = uuid_of(process, -1);
    track.sibling_order_rank = number;
    track.name = text;
    packet_message packet = packet_of(process);
    packet.track_descriptor = &track;
    return put_packet(&packet, out);
}

static void note_of(const struct trace_note *note, Muster__Trace__Annotation *out)
{
    muster__trace__annotation__init(out);
    out->name = (char *)note->name; /* only read, as is the text */
    out->string_value = (char *)note->text;
    out->has_int_value = !note->text;
    out->int_value = note->number;
}

static int put_event(const struct trace_process *process, Muster__Trace__Event *event, int track,
                     int64_t monotonic_ns, struct buffer *out)
{
    event->has_type = event->has_track_uuid = true;
    event->track_uuid = uuid_of(process, track);
    packet_message packet = packet_of(process);
    packet.has_timestamp = packet.has_timestamp_clock_id = true;
    packet.timestamp = (uint64_t)monotonic_ns;
    packet.timestamp_clock_id = CLOCK_STEADY;
    packet.track_event = event;
    return put_packet(&packet, out);
}

int trace_slice(const struct trace_process *process, const struct trace_slice *slice, struct buffer *out)
{
    Muster__Trace__Annotation notes[TRACE_NOTES], *list[TRACE_NOTES];
    char *category = (char *)slice->category; /* only read */
    Muster__Trace__Event begin = MUSTER__TRACE__EVENT__INIT, end = begin;
    for (int i = 0; i < slice->note_count; i++) {
        note_of(&slice->notes[i], &notes[i]);
        list[i] = &notes[i];
    }
    begin.type = SLICE_BEGINS;
    begin.name = (char *)slice->name;
    begin.categories = &category;
    begin.n_categories = 1;
    begin.debug_annotations = list;
    begin.n_debug_annotations = (size_t)slice->note_count;
    end.type = SLICE_ENDS;
    if (put_event(process, &begin, slice->track, slice->begin_ns, out) < 0)
        return -1;
    return put_event(process, &end, slice->track, slice->end_ns, out);
}
