# Bugs in the rules of the vote, for simulate_votes_mutated. The form is that of planted_bugs.cmake.

bug(VOTE_ALONE "a server forms the next round without the voters")
place(rendezvous/takeover/takeover.c [=[        t->proposal.revision = 0;
        ask_to_accept(&w);
        if (has_majority(t))]=]
  [=[        t->proposal.revision = 0;
        if (PLANTED(VOTE_ALONE))
            t->proposing = true;
        else
            ask_to_accept(&w);
        if (PLANTED(VOTE_ALONE) || has_majority(t))]=])

bug(VOTE_HALF "half of the voters counts as a majority")
place(rendezvous/takeover/record.c [=[return record->voter_count / 2 + 1;]=]
  [=[return record->voter_count / 2 + !(PLANTED(VOTE_HALF) && record->voter_count > 1);]=])

bug(VOTE_AMNESIA "an agent that was started again votes as the one before")
place(rendezvous/takeover/record.c [=[if (agent_incarnation_equal(record->voters[i].incarnation, agent))]=]
  [=[if (agent_incarnation_equal(record->voters[i].incarnation, agent) ||
            (PLANTED(VOTE_AMNESIA) && record->voters[i].incarnation.high == agent.high))]=])

bug(VOTE_IGNORES "a new server ignores what the voters have accepted")
place(rendezvous/takeover/takeover.c [=[    if (t->has_best)
        ask_to_accept(w);]=]
  [=[    if (t->has_best && !PLANTED(VOTE_IGNORES))
        ask_to_accept(w);]=])

bug(VOTE_EARLY "a world is sent out before a majority has accepted its record")
place(rendezvous/takeover/takeover.c [=[    w->t->votes |= 1u << voter;
    if (has_majority(w->t))]=]
  [=[    w->t->votes |= 1u << voter;
    if (PLANTED(VOTE_EARLY) || has_majority(w->t))]=])

bug(VOTE_DECIDED "a voter votes about a round that is decided")
place(rendezvous/takeover/takeover_messages.c [=[return t->known.epoch && (!m->known->epoch || record_compare(m->known, &t->known) < 0);]=]
  [=[return !PLANTED(VOTE_DECIDED) && t->known.epoch && (!m->known->epoch || record_compare(m->known, &t->known) < 0);]=])
place(rendezvous/takeover/takeover_messages.c [=[if (voter < 0 || record_compare(m->known, &t->known) != 0 ||]=]
  [=[if (voter < 0 || (!PLANTED(VOTE_DECIDED) && record_compare(m->known, &t->known) != 0) ||]=])

bug(VOTE_OTHERS "votes of agents that are no voters of the round count")
place(rendezvous/takeover/takeover_messages.c [=[    if (takeover_own_vote(t) < 0)
        return;
    if (ballot_compare(m->ballot, t->promised) > 0)
        give_way(w, m);
    t->has_accepted = true;]=]
  [=[    if (takeover_own_vote(t) < 0 && !PLANTED(VOTE_OTHERS))
        return;
    if (ballot_compare(m->ballot, t->promised) > 0)
        give_way(w, m);
    t->has_accepted = true;]=])
place(rendezvous/takeover/takeover_messages.c [=[const int voter = record_find_voter(&t->known, m->from->incarnation);]=]
  [=[int voter = record_find_voter(&t->known, m->from->incarnation);
    if (PLANTED(VOTE_OTHERS) && voter < 0)
        voter = RECORD_VOTERS + m->from->port;]=])
place(rendezvous/takeover/takeover_messages.c [=[if (votes && (!known->epoch || record_find_voter(known, m->from->incarnation) < 0))]=]
  [=[if (votes && !PLANTED(VOTE_OTHERS) &&
        (!known->epoch || record_find_voter(known, m->from->incarnation) < 0))]=])

bug(VOTE_BELOW "a voter accepts below its promise")
place(rendezvous/takeover/takeover_messages.c [=[static void on_accept(struct takeover_work *w, const struct takeover_message *m)
{
    struct takeover *t = w->t;
    if (is_behind(t, m) || ballot_compare(m->ballot, t->promised) < 0) {]=]
  [=[static void on_accept(struct takeover_work *w, const struct takeover_message *m)
{
    struct takeover *t = w->t;
    if (is_behind(t, m) || (ballot_compare(m->ballot, t->promised) < 0 && !PLANTED(VOTE_BELOW))) {]=])

bug(VOTE_TWO "a server makes two proposals under one ballot")
place(rendezvous/takeover/takeover_time.c [=[takeover_stand(w, TAKEOVER_NO_ANSWER); /* another proposal needs another ballot */]=]
  [=[if (PLANTED(VOTE_TWO))
            t->proposing = false;
        else
            takeover_stand(w, TAKEOVER_NO_ANSWER);]=])

bug(VOTE_KEEPS "a candidate keeps its promises when it learns of a newer round")
place(rendezvous/takeover/takeover.c [=[    end_candidacy(t);
    if (own)]=]
  [=[    if (!PLANTED(VOTE_KEEPS))
        end_candidacy(t);
    if (own)]=])
place(rendezvous/takeover/takeover.c [=[else if (t->state == TAKEOVER_SEEK)
        plan_candidacy(w, TAKEOVER_LOST_MS * NS_PER_MS);]=]
  [=[else if (t->state == TAKEOVER_SEEK || (PLANTED(VOTE_KEEPS) && t->state == TAKEOVER_STAND))
        plan_candidacy(w, TAKEOVER_LOST_MS * NS_PER_MS);]=])

bug(VOTE_SPARE "a spare that votes also stands")
place(rendezvous/takeover/takeover.c [=[return place < t->known.nodes && !t->leaves ? place : -1;]=]
  [=[return (place < t->known.nodes || PLANTED(VOTE_SPARE)) && !t->leaves ? place : -1;]=])

bug(VOTE_STALE "an agent believes its server's answer from before the election")
place(rendezvous/takeover/takeover_messages.c [=[if (!serves && from_server(t, m) && ballot_compare(m->ballot, t->office) > 0)]=]
  [=[if (!serves && from_server(t, m) && (ballot_compare(m->ballot, t->office) > 0 || PLANTED(VOTE_STALE)))]=])

bug(VOTE_LEAVER "an agent that leaves does not vote until the next round is decided")
place(rendezvous/takeover/takeover_leave.c [=[    if (is_decided(t))
        return true;]=]
  [=[    if (is_decided(t))
        return true;
    if (PLANTED(VOTE_LEAVER))
        return false;]=])

bug(VOTE_SPREAD "an agent that leaves goes before the voters of the next round know it")
place(rendezvous/takeover/takeover_leave.c [=[    t->send_at = w->now;
    t->stay_until = instant_min(t->stay_until, instant_add(w->now, TAKEOVER_SPREAD_MS * NS_PER_MS));]=]
  [=[    t->send_at = PLANTED(VOTE_SPREAD) ? INSTANT_NEVER : w->now;
    t->stay_until =
        instant_min(t->stay_until, instant_add(w->now, PLANTED(VOTE_SPREAD) ? 0 : TAKEOVER_SPREAD_MS * NS_PER_MS));]=])

bug(VOTE_LATE_ANSWER "an agent follows a server that has left, for an answer from before")
place(rendezvous/takeover/takeover_messages.c [=[if (none || agent_incarnation_equal(m->server->incarnation, t->gone))]=]
  [=[if (none || (agent_incarnation_equal(m->server->incarnation, t->gone) && !PLANTED(VOTE_LATE_ANSWER)))]=])

bug(VOTE_WAITS "agents of a world with all ranks wait for lost voters")
place(rendezvous/takeover/takeover_again.c [=[    if (!may_begin_again(t, w->now))]=]
  [=[    if (PLANTED(VOTE_WAITS) || !may_begin_again(t, w->now))]=])

bug(VOTE_HEARSAY "an agent that begins again gives way to agents that only look for the server")
place(rendezvous/takeover/takeover_again.c [=[    return shows_office || !t->all_ranks || t->known.epoch;]=]
  [=[    return shows_office || !t->all_ranks || t->known.epoch || PLANTED(VOTE_HEARSAY);]=])
