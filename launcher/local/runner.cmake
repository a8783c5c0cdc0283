# muster local: the life of a job and its pods.
target_sources(muster_launcher PRIVATE
  local/conditions.c
  local/kubelet.c
  local/lifecycle.c)
