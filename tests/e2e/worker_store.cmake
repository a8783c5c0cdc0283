# Rank 0 of the workers serves its own store.
muster_script_test(e2e_worker_store COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/worker_store_test.py)
