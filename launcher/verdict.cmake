# The verdict: what is found out about the dead, and how it is told.
target_sources(muster_launcher PRIVATE
  agent_failures.c
  end.c
  error_directory.c
  error_file.c
  exit_mode.c
  oom.c
  outcome_files.c
  postmortem.c
  refusal.c
  report.c
  report_json.c
  witness.c
  witness_rules.c)
# jansson as an archive: a library more to load would be paid at every start
target_link_libraries(muster_launcher PRIVATE ${JANSSON_ARCHIVE})
target_include_directories(muster_launcher SYSTEM PRIVATE ${JANSSON_INCLUDE_DIRS})
