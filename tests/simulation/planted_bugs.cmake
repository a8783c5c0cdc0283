# The bugs: bug(NAME MEANING), and the places that have it: place(FILE TEXT REPLACEMENT). TEXT stands in FILE exactly once;
# PLANTED(NAME) is true while the bug is chosen. What is between the brackets is C to the letter. See plant.cmake.
# The numbers are torchrun's issues in its own tracker, where it has or had the bug.

bug(OLD_ROUND "an agent acts on a world that is older than its last one")
place(rendezvous/client/client_worlds.c [=[return id.epoch == client->newest.epoch && id.round < client->newest.round;]=]
  [=[return !PLANTED(OLD_ROUND) && id.epoch == client->newest.epoch &&
           id.round < client->newest.round;]=])

bug(OLD_REPORT "a report about an old world counts for the present one")
place(rendezvous/roster/roster_report.c [=[bool current = member->held.epoch &&]=]
  [=[bool current = PLANTED(OLD_REPORT) ? member->held.epoch != 0 : member->held.epoch &&]=])

bug(TWO_COUNTS "a restart is counted twice")
place(rendezvous/roster/roster_job.c [=[int64_t wait = hold_back(w);
    roster->restart_count += roster_has_failed(roster);]=]
  [=[int64_t wait = hold_back(w);
    roster->restart_count += roster_has_failed(roster);
    if (roster_has_failed(roster) && PLANTED(TWO_COUNTS))
        roster->restart_count++;]=])

bug(TWO_SLOTS "an agent that joins again gets a second slot")
place(rendezvous/roster/roster_join.c [=[int slot = roster_slots_find(roster, join->incarnation, false);]=]
  [=[int slot = PLANTED(TWO_SLOTS) ? -1 : roster_slots_find(roster, join->incarnation, false);]=])

bug(TWO_HOLDERS "a rank that is held is given to whoever claims it")
place(rendezvous/roster/roster_join.c [=[if (roster_slot_taken(member) && !same &&]=]
  [=[if (roster_slot_taken(member) && !same && !PLANTED(TWO_HOLDERS) &&]=])

bug(NO_LEASE "workers run on when the lease has ended")
place(rendezvous/client/client_lease.c [=[if (!bound)]=]
  [=[if (!bound || PLANTED(NO_LEASE))]=])

bug(NO_FENCE "the next world does not wait for the leases of those who were lost")
place(rendezvous/roster/roster_elastic.c [=[if (!roster->dead && !accounted && !instant_reached(w->now, roster->fence)) {]=]
  [=[if (!roster->dead && !accounted && !PLANTED(NO_FENCE) &&
        !instant_reached(w->now, roster->fence)) {]=])

bug(NO_LOSS "the others are not stopped when a node is lost")
place(rendezvous/roster/roster.c [=[must_stop |= roster_lose(w, member, NULL);]=]
  [=[must_stop |= roster_lose(w, member, NULL) && !PLANTED(NO_LOSS);]=])

bug(DRAIN_COSTS "an agent that drains costs a restart")
place(rendezvous/roster/roster_elastic.c [=[        stop_for_leaver(w, member);
    roster_settle(w);]=]
  [=[    {
        if (PLANTED(DRAIN_COSTS))
            roster_record_lost(w, member, NULL);
        stop_for_leaver(w, member);
    }
    roster_settle(w);]=])

bug(LOST_STOP "a STOP that was sent to a broken connection is not sent again")
place(rendezvous/roster/roster_enter.c [=[else if (member->state == MEMBER_STOPPING || member->state == MEMBER_ORPHANED)]=]
  [=[else if ((member->state == MEMBER_STOPPING && !PLANTED(LOST_STOP)) ||
             member->state == MEMBER_ORPHANED)]=])

bug(EMPTY_SERVER "a server that has just been started forms a world at once")
place(rendezvous/roster/roster_elastic.c [=[}
    if (roster->last_call.ns == INT64_MAX)]=]
  [=[}
    if (PLANTED(EMPTY_SERVER))
        return true;
    if (roster->last_call.ns == INT64_MAX)]=])

bug(LATE_WORLD "a world or an ACCEPT that crossed on the way, or waited there, is not checked with the server")
place(rendezvous/client/client.c [=[if (message->number > client->accepted)]=]
  [=[if (message->number > client->accepted && !PLANTED(LATE_WORLD))]=])
place(rendezvous/client/client.c [=[if (client->held.epoch && message->number <= client->held_at)]=]
  [=[if (client->held.epoch && message->number <= client->held_at && !PLANTED(LATE_WORLD))]=])
place(rendezvous/client/client_worlds.c [=[if (client->answered <= client->doubted)]=]
  [=[if (client->answered <= client->doubted && !PLANTED(LATE_WORLD))]=])
place(rendezvous/client/client_worlds.c [=[if (!client->withheld || client->held.epoch || !leased)]=]
  [=[if (!client->withheld || (client->held.epoch && !PLANTED(LATE_WORLD)) || !leased)]=])
place(rendezvous/client/client_worlds.c [=[if (client->held.epoch && !client->held_stops &&]=]
  [=[if (client->held.epoch && !client->held_stops && !PLANTED(LATE_WORLD) &&]=])

bug(LOST_WORLD "a WORLD that was sent to a broken connection is not sent again")
place(rendezvous/roster/roster_enter.c [=[if (member->state == MEMBER_ASSIGNED)]=]
  [=[if (member->state == MEMBER_ASSIGNED && !PLANTED(LOST_WORLD))]=])

bug(LOST_VERDICT "an agent that missed the verdict is not told again (#67616)")
place(rendezvous/roster/roster_enter.c [=[else if (member->state == MEMBER_LEAVING && member->verdict_sent)]=]
  [=[else if (member->state == MEMBER_LEAVING && member->verdict_sent && !PLANTED(LOST_VERDICT))]=])

bug(NO_BUDGET "a node that comes and goes restarts the job without limit (#147064)")
place(rendezvous/roster/roster_job.c [=[if (roster_is_spent(roster))]=]
  [=[if (roster_is_spent(roster) && !PLANTED(NO_BUDGET))]=])

bug(COUNT_EACH "a restart is counted for each agent that failed (#108158)")
place(rendezvous/roster/roster_job.c [=[roster->id = (struct world_id){roster->epoch, roster->id.round + 1};]=]
  [=[if (roster_has_failed(roster) && PLANTED(COUNT_EACH))
        roster->restart_count += roster->seen_total - 1;
    roster->id = (struct world_id){roster->epoch, roster->id.round + 1};]=])

bug(REPEATED_REPORT "a report that comes twice counts twice")
place(rendezvous/roster/roster_report.c [=[if (w->event->report.sequence <= member->sequence)]=]
  [=[if (w->event->report.sequence <= member->sequence && !PLANTED(REPEATED_REPORT))]=])

bug(NO_GIVING_UP "a job whose nodes do not come waits for ever (#76287)")
place(rendezvous/roster/roster.c [=[return 0;
    give_up_forming(w);]=]
  [=[return 0;
    if (PLANTED(NO_GIVING_UP)) {
        roster->state_deadline = INSTANT_NEVER;
        return 0;
    }
    give_up_forming(w);]=])

bug(CLOSED "an agent that leaves while the world forms closes it for all (#67742)")
place(rendezvous/roster/roster_leave.c [=[roster->world_out = true;
        roster_depart(w);
    }]=]
  [=[roster->world_out = true;
        roster_depart(w);
    }
    if (PLANTED(CLOSED))
        roster_give_verdict(w, leave_code(w), false, "closed");]=])

bug(REOPENS "a late joiner opens a job that is over again (#116974)")
place(rendezvous/roster/roster_enter.c [=[rejoin(w, &roster->members[slot]);
    } else {]=]
  [=[rejoin(w, &roster->members[slot]);
    } else if (PLANTED(REOPENS)) {
        roster->state = JOB_FORMING;
        return roster_on_join(w);
    } else {]=])

bug(LATE_ADMISSION "a node that comes after the last call is let into the world that is out")
place(rendezvous/roster/roster_enter.c [=[take_slot(w, member);]=]
  [=[take_slot(w, member);
    if (PLANTED(LATE_ADMISSION) && roster->elastic && roster->state == JOB_STARTING) {
        member->held = roster->id;
        member->group_rank = roster->world_nodes;
        roster_set_state(roster, member, MEMBER_ASSIGNED);
        roster_act(w, ROSTER_SEND_WORLD, member->session, slot, NULL);
    }]=])

bug(NO_SPARES "a node that waits is not taken in for one that was lost")
place(rendezvous/roster/roster_elastic.c [=[if (roster->members[i].state == MEMBER_JOINED)
            roster->scratch]=]
  [=[if (roster->members[i].state == MEMBER_JOINED &&
            !(PLANTED(NO_SPARES) && roster->id.round && !was_in_last_world(roster, &roster->members[i])))
            roster->scratch]=])

bug(NOT_RANK_ZERO "the serving agent is not rank 0, and workers look elsewhere (#182221)")
place(rendezvous/roster/roster_elastic.c [=[return a == roster->local_slot;]=]
  [=[return (PLANTED(NOT_RANK_ZERO) ? b : a) == roster->local_slot;]=])
place(rendezvous/roster/roster_elastic.c [=[if (nodes && chosen[0] == roster->local_slot &&]=]
  [=[if (nodes && !PLANTED(NOT_RANK_ZERO) && chosen[0] == roster->local_slot &&]=])

bug(ALL_SERVE "every node takes the endpoint's address for its own (#73380)")
place(launcher/policy/server_choice.c [=[const char *own = question->local_addr;]=]
  [=[if (PLANTED(ALL_SERVE))
        return true;
    const char *own = question->local_addr;]=])

bug(NONE_SERVES "no node knows the endpoint's address for its own (#73380)")
place(launcher/policy/server_choice.c [=[const char *own = question->local_addr;]=]
  [=[if (PLANTED(NONE_SERVES))
        return false;
    const char *own = question->local_addr;]=])

bug(CLOCKS "a time of one host is compared with another's clock")
place(rendezvous/client/client_lease.c [=[{
    return instant_add(client->lease_from, client->lease_ns);]=]
  [=[{
    if (PLANTED(CLOCKS))
        return (struct instant){client->lease_ns}; /* the server's time, plus the lease */
    return instant_add(client->lease_from, client->lease_ns);]=])
place(tests/simulation/cluster_server.c [=[message.lease_ns = roster_lease_ns(server->roster);]=]
  [=[message.lease_ns = roster_lease_ns(server->roster);
        if (message.lease_ns && PLANTED(CLOCKS))
            message.lease_ns += node_time(cluster, &cluster->nodes[cluster->endpoint]).ns;]=])

bug(ANY_SESSION "messages of an old connection count for the agent that has the slot now")
place(rendezvous/roster/roster.c [=[roster->members[event->member].session == event->session;]=]
  [=[(roster->members[event->member].session == event->session || PLANTED(ANY_SESSION));]=])

bug(SUPERSEDED "an agent whose successor is here takes its rank back")
place(rendezvous/roster/roster_join.c [=[if (agent_incarnation_equal(member->superseded[i], incarnation))]=]
  [=[if (agent_incarnation_equal(member->superseded[i], incarnation) && !PLANTED(SUPERSEDED))]=])

bug(NO_BARRIER "the job is over before its agents have left")
place(rendezvous/roster/roster_job.c [=[if (!roster_has_remote(roster))]=]
  [=[if (!roster_has_remote(roster) || PLANTED(NO_BARRIER))]=])

bug(HANDOVER_COSTS "a server that left on purpose is counted as lost when it comes back")
place(rendezvous/roster/roster_return.c [=[bool left = join->server_left;]=]
  [=[bool left = join->server_left && !PLANTED(HANDOVER_COSTS);]=])

bug(NO_NOTICE "a static job that is asked to end gives no time to save")
place(rendezvous/roster/roster_leave.c [=[roster_begin_planned_stop(w, MEMBERSHIP_CHANGE_END, 0, w->event->grace_ns,]=]
  [=[roster_begin_planned_stop(w, MEMBERSHIP_CHANGE_END, 0,
                                  PLANTED(NO_NOTICE) ? 0 : w->event->grace_ns,]=])

bug(TERM_FORGOTTEN "a node that is asked to end while the world stops is waited for")
place(rendezvous/roster/roster_leave.c [=[if (!roster->leave_code)
            roster->leave_code]=]
  [=[if (!roster->leave_code && !PLANTED(TERM_FORGOTTEN))
            roster->leave_code]=])

bug(DRAIN_UNANSWERED "a static node that asks for time to save is not heard")
place(rendezvous/roster/roster_leave.c [=[if (!(runs && roster_has_workers(member)) && roster->state != JOB_STOPPING)]=]
  [=[if ((!(runs && roster_has_workers(member)) && roster->state != JOB_STOPPING) ||
        PLANTED(DRAIN_UNANSWERED))]=])

bug(NO_WISHES "a node rank that an agent of an elastic job wants is not honoured")
place(rendezvous/roster/roster_elastic.c [=[if (chosen[i] != NONE && take_rank(roster, roster->members[chosen[i]].wanted_rank, nodes, chosen[i]))]=]
  [=[if (chosen[i] != NONE && !PLANTED(NO_WISHES) &&
            take_rank(roster, roster->members[chosen[i]].wanted_rank, nodes, chosen[i]))]=])

bug(OTHER_JOB "an agent of another job is let in")
place(rendezvous/roster/roster_join.c [=[bool same_job =
        text_fits(join->job_id, MEMBERSHIP_NAME_LIMIT) && strcmp(join->job_id, roster->job_id) == 0;]=]
  [=[bool same_job = text_fits(join->job_id, MEMBERSHIP_NAME_LIMIT) &&
                    (strcmp(join->job_id, roster->job_id) == 0 || PLANTED(OTHER_JOB));]=])

bug(COMPLETED_TWICE "what completes the report of a failure counts as another failure")
place(rendezvous/roster/roster_causes.c [=[i < roster->seen_count && failure->completes;]=]
  [=[i < roster->seen_count && failure->completes && !PLANTED(COMPLETED_TWICE);]=])

bug(STALE_JOIN "a JOIN of a connection that was closed is believed")
place(rendezvous/roster/roster.c [=[return slot >= 0 && event->number && event->number < roster->members[slot].number;]=]
  [=[return slot >= 0 && event->number && event->number < roster->members[slot].number && !PLANTED(STALE_JOIN);]=])

bug(FREE_LOSS "the loss of a server costs no restart")
place(rendezvous/roster/roster_return.c [=[    count_at_least(roster, used + 1);]=]
  [=[    count_at_least(roster, used + !PLANTED(FREE_LOSS));]=])

bug(LATE_FIRST_JOIN "the first JOIN of an agent that has ended takes the rank of its successor")
place(rendezvous/roster/roster_enter.c [=[return false;
    roster_act(w, ROSTER_AGAIN, w->event->session, -1, NULL);]=]
  [=[return false;
    if (PLANTED(LATE_FIRST_JOIN))
        return false;
    roster_act(w, ROSTER_AGAIN, w->event->session, -1, NULL);]=])

bug(COSTLY_HANDOVER "the server's leave in order costs a restart")
place(rendezvous/roster/roster_return.c [=[    roster->before_counted = left;]=]
  [=[    roster->before_counted = left && !PLANTED(COSTLY_HANDOVER);]=])
place(rendezvous/roster/roster_return.c [=[    if (left)
        return; /* it was stopped on purpose */]=]
  [=[    if (left && !PLANTED(COSTLY_HANDOVER))
        return;]=])

bug(REFUSED_ENDS "a refused agent becomes a member by a JOIN that crosses the refusal, and ends the job when it leaves")
place(rendezvous/roster/roster_leave.c [=[} else if (leaves_no_world(roster, member)) { /* its]=]
  [=[} else if (leaves_no_world(roster, member) && !PLANTED(REFUSED_ENDS)) { /* its]=])
place(rendezvous/roster/roster_join.c [=[if (slot < 0 || !was_refused(roster, join->incarnation))]=]
  [=[if (slot < 0 || !was_refused(roster, join->incarnation) || PLANTED(REFUSED_ENDS))]=])

bug(OUT_OF_TOUCH "a world is formed with a node whose connection is down")
place(rendezvous/roster/roster_job.c [=[return slot >= 0 && roster->members[slot].state == MEMBER_JOINED && !roster->members[slot].session;]=]
  [=[return slot >= 0 && !PLANTED(OUT_OF_TOUCH) && roster->members[slot].state == MEMBER_JOINED &&
           !roster->members[slot].session;]=])

bug(FEW_VOTERS "a node that was no voter for a moment stays none, and no spare takes its place")
place(rendezvous/roster/roster_vote.c [=[(roster_most_voters(roster) <= known->voter_count &&]=]
  [=[((PLANTED(FEW_VOTERS) || roster_most_voters(roster) <= known->voter_count) &&]=])
place(rendezvous/roster/roster_vote.c [=[const struct roster_member *spare = electors == 2 ? first_spare(roster) : NULL;]=]
  [=[const struct roster_member *spare =
        electors == 2 && (!PLANTED(FEW_VOTERS) || roster->world_nodes == 2) ? first_spare(roster) : NULL;]=])
