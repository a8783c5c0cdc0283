# What an agent tells of itself: the renderings, the local socket, HTTP.
muster_test(launcher_status_test SOURCES launcher_status_test.c LINK muster_launcher)
muster_test(launcher_status_serve_test SOURCES launcher_status_serve_test.c LINK muster_launcher)
