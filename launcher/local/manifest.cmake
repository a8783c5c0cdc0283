# muster local: from a manifest to a job.
target_sources(muster_launcher PRIVATE
  local/container_env.c
  local/container_sources.c
  local/documents.c
  local/env_map.c
  local/job.c
  local/local_command.c
  local/local_print.c
  local/local_settings.c
  local/manifest.c
  local/operator.c
  local/pod_command.c
  local/problems.c
  local/pytorchjob.c
  local/pytorchjob_schema.c
  local/pytorchjob_validate.c
  local/quantity.c
  local/schema.c)
target_link_libraries(muster_launcher PUBLIC muster_tree)
