# The agent: loop, workers, guardian, logs.
set(http_calls http_calls.c)
if(MUSTER_BUNDLE)
  set(http_calls http_calls_bundle.c)
endif()
target_sources(muster_launcher PRIVATE
  agent.c
  agent_actions.c
  agent_beats.c
  agent_clean.c
  agent_errors.c
  agent_events.c
  agent_facts.c
  agent_guardian.c
  agent_logs.c
  agent_notices.c
  agent_outcome.c
  agent_reap.c
  agent_secret.c
  agent_serve.c
  agent_signals.c
  agent_start.c
  agent_state.c
  agent_status.c
  agent_store.c
  agent_tune.c
  agent_workers.c
  agent_world.c
  cleanup.c
  errand.c
  errand_watch.c
  event_line.c
  group.c
  guardian.c
  ${http_calls}
  http_server.c
  hang.c
  heartbeat.c
  inquiry.c
  job_state.c
  kin.c
  line.c
  log_files.c
  log_filter.c
  log_record.c
  logdir.c
  loop.c
  notice.c
  outlet.c
  outlet_threads.c
  pump.c
  pump_format.c
  pump_stream.c
  resolver.c
  secret_command.c
  secret_file.c
  server_choice.c
  spawn.c
  spool.c
  succession.c
  sweeper.c
  status.c
  status_board.c
  status_client.c
  status_command.c
  status_http.c
  status_metrics.c
  status_socket.c
  tail.c
  target.c)
target_link_libraries(muster_launcher PUBLIC muster_rendezvous muster_tcpstore Threads::Threads)
# microhttpd.h alone: the library is loaded where a metrics port is asked for (http_calls.h)
target_include_directories(muster_launcher SYSTEM PRIVATE ${MICROHTTPD_INCLUDE_DIRS})
set_source_files_properties(agent_status.c PROPERTIES COMPILE_DEFINITIONS MUSTER_VERSION="${PROJECT_VERSION}")
