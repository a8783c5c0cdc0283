# One folder = one library = one row of the table of layers that tests/lint holds the code against.
#
# muster_layer(SOURCES a.c b.c [USES folder ...] [LINK library ...])
# Makes the library of the current folder: launcher/loop becomes muster_launcher_loop (an interface where there are no sources).
# USES: the folders whose headers it may include and whose functions it may call, proto/base aside; written down for
# tests/lint/layers.py, which compares them with the includes and with the undefined symbols of the archive.
# LINK: libraries from outside.
function(muster_layer)
  cmake_parse_arguments(L "" "" "SOURCES;USES;LINK" ${ARGN})
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REPLACE "/" "_" name "muster_${folder}")
  set(used muster_base)
  foreach(other IN LISTS L_USES)
    string(REPLACE "/" "_" library "muster_${other}")
    list(APPEND used ${library})
  endforeach()
  set(archive -)
  if(L_SOURCES)
    set(archive lib${name}.a)
    add_library(${name} STATIC ${L_SOURCES})
    target_link_libraries(${name} PRIVATE muster_flags ${L_LINK} PUBLIC ${used})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE ${used})
  endif()
  set(layer ${name} PARENT_SCOPE)
  list(JOIN L_USES " " uses)
  set_property(GLOBAL APPEND PROPERTY MUSTER_LAYERS "${folder} ${archive}: ${uses}")
  set_property(GLOBAL APPEND PROPERTY MUSTER_LAYER_TARGETS ${name})
endfunction()

# The objects of a program are held against the row of the folder that makes it.
function(muster_program target)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  set_property(GLOBAL APPEND PROPERTY MUSTER_PROGRAMS "${folder}|$<JOIN:$<TARGET_OBJECTS:${target}>,|>")
  set_property(GLOBAL APPEND PROPERTY MUSTER_LAYER_TARGETS ${target})
endfunction()

# An installed program or library has the same search path in the build folder: where CMake writes another one at
# installation it fills the first with colons, and between two colons the loader reads the working directory.
function(muster_same_rpath)
  set_target_properties(${ARGN} PROPERTIES BUILD_WITH_INSTALL_RPATH ON)
endfunction()

# The program finds modules (libmuster_*.so) by dlopen: in lib/ of the build folder, or beside its installed folder.
function(muster_finds_modules target)
  include(GNUInstallDirs)
  set_property(TARGET ${target} APPEND PROPERTY BUILD_RPATH ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
  set_property(TARGET ${target} APPEND PROPERTY INSTALL_RPATH $ORIGIN/../lib $ORIGIN/../${CMAKE_INSTALL_LIBDIR} $ORIGIN/../${CMAKE_INSTALL_LIBDIR}/muster)
endfunction()

# Writes the table of layers and the list of programs' objects, and has the build fail on a call or an include against it (where there is a Python; ./dev test
# installs one and checks again).
function(muster_layers_check)
  get_property(rows GLOBAL PROPERTY MUSTER_LAYERS)
  get_property(targets GLOBAL PROPERTY MUSTER_LAYER_TARGETS)
  list(JOIN rows "\n" table)
  file(WRITE ${CMAKE_BINARY_DIR}/layers.txt "${table}\n")
  get_property(programs GLOBAL PROPERTY MUSTER_PROGRAMS)
  list(JOIN programs "\n" objects)
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/layers_programs.txt CONTENT "${objects}\n")
  find_program(PYTHON3 python3)
  if(NOT PYTHON3)
    return()
  endif()
  set(check ${CMAKE_SOURCE_DIR}/tests/lint/layers.py)
  add_custom_command(
    OUTPUT ${CMAKE_BINARY_DIR}/layers.checked
    COMMAND ${PYTHON3} ${check} --quiet --source ${CMAKE_SOURCE_DIR} --build ${CMAKE_BINARY_DIR}
    COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/layers.checked
    DEPENDS ${targets} ${check} ${CMAKE_BINARY_DIR}/layers.txt
    COMMENT "Holding the code against the table of layers"
    VERBATIM)
  add_custom_target(readmes COMMAND ${PYTHON3} ${check} --readmes --source ${CMAKE_SOURCE_DIR} --build ${CMAKE_BINARY_DIR} VERBATIM)
  add_custom_target(layers ALL DEPENDS ${CMAKE_BINARY_DIR}/layers.checked)
endfunction()
