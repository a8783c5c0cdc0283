# Plants the bugs of a table (planted_bugs.cmake, votes_bugs.cmake) in copies of the sources, to see that the simulation finds them:
#     cmake -DSOURCE=<tree> -DTARGET=<folder of the copies> -DBUGS=<the table> -P plant.cmake
# A place that the sources no longer have fails the build, by the bug's name. Included (by CMakeLists.txt), it only collects
# planted_files.
cmake_minimum_required(VERSION 3.22)

set(planted_files)
set(rows)

macro(bug name meaning)
  set(bug_name ${name})
  string(APPEND rows "    X(BUG_${name}, \"${meaning}\") \\\n")
endmacro()

function(place file text replacement)
  list(APPEND planted_files ${file})
  list(REMOVE_DUPLICATES planted_files)
  set(planted_files "${planted_files}" PARENT_SCOPE)
  if(NOT CMAKE_SCRIPT_MODE_FILE)
    return()
  endif()
  if(NOT replacement MATCHES "PLANTED\\(${bug_name}\\)")
    message(FATAL_ERROR "planted bug ${bug_name}: what is planted in ${file} does not ask for PLANTED(${bug_name})")
  endif()
  string(MAKE_C_IDENTIFIER ${file} key)
  get_property(copy GLOBAL PROPERTY ${key})
  if("${copy}" STREQUAL "")
    file(READ ${SOURCE}/${file} copy)
    set(copy "#include \"tests/simulation/planted_bugs.h\"\n#line 1 \"${SOURCE}/${file}\"\n${copy}")
  endif()
  string(FIND "${copy}" "${text}" first)
  string(FIND "${copy}" "${text}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "planted bug ${bug_name}: its place is not there, or there more than once, in ${file}:\n${text}\n"
      "Find where the code does this now, and say so in ${BUGS}.")
  endif()
  string(REPLACE "${text}" "${replacement}" copy "${copy}")
  set_property(GLOBAL PROPERTY ${key} "${copy}")
endfunction()

include(${BUGS})

if(CMAKE_SCRIPT_MODE_FILE)
  foreach(file IN LISTS planted_files)
    string(MAKE_C_IDENTIFIER ${file} key)
    get_property(copy GLOBAL PROPERTY ${key})
    file(WRITE ${TARGET}/${file} "${copy}")
  endforeach()
  file(WRITE ${TARGET}/planted_bugs_list.h "/* made by tests/simulation/plant.cmake */\n#define PLANTED_BUGS(X) \\\n${rows}\n")
endif()
