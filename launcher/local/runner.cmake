# muster local: the life of a job and its pods.
target_sources(muster_launcher PRIVATE
  local/cluster.c
  local/conditions.c
  local/gpu_division.c
  local/kubelet.c
  local/lifecycle.c
  local/network.c
  local/pod_env.c
  local/pod_isolation.c
  local/pod_process.c
  local/pod_table.c
  local/python_shim.c
  local/runner.c
  text_list.c)
