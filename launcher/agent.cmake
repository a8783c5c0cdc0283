# The agent: loop, workers, guardian, logs.
target_sources(muster_launcher PRIVATE
  agent.c
  agent_actions.c
  agent_guardian.c
  agent_outcome.c
  agent_reap.c
  agent_signals.c
  agent_start.c
  agent_workers.c
  agent_world.c
  errand.c
  group.c
  guardian.c
  kin.c
  line.c
  logdir.c
  loop.c
  oom.c
  outlet.c
  postmortem.c
  pump.c
  resolver.c
  spawn.c
  tail.c)
target_link_libraries(muster_launcher PUBLIC muster_rendezvous muster_tcpstore Threads::Threads)
