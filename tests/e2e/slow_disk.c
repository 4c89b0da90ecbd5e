/* Disks for the end-to-end tests, as a library for LD_PRELOAD: files whose path has $SLOW_DISK_FILE in it
 * take $SLOW_DISK_MS milliseconds per call, or never answer where that is not set. With
 * $SLOW_DISK_RANK only in the process of that rank of an MPI job. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static void answer_late(int file) {
  const char *part = getenv("SLOW_DISK_FILE");
  const char *only = getenv("SLOW_DISK_RANK");
  const char *rank = getenv("OMPI_COMM_WORLD_RANK");
  if (part == NULL || (only != NULL && (rank == NULL || strcmp(only, rank) != 0))) {
    return;
  }
  char link[64];
  char path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) {
    return;
  }
  path[length] = '\0';
  if (strstr(path, part) == NULL) {
    return;
  }
  const char *late = getenv("SLOW_DISK_MS");
  if (late != NULL) {
    usleep(1000 * (useconds_t)atoi(late));
    return;
  }
  for (;;) {
    sleep(1000);
  }
}

#define FORWARD(result, name, parameters, arguments)                \
  result name parameters {                                          \
    static result(*next) parameters;                                \
    if (next == NULL) {                                             \
      *(void **)&next = dlsym(RTLD_NEXT, #name);                    \
    }                                                               \
    answer_late(file);                                              \
    return next arguments;                                          \
  }

FORWARD(ssize_t, read, (int file, void *to, size_t size), (file, to, size))
FORWARD(ssize_t, pread, (int file, void *to, size_t size, off_t at), (file, to, size, at))
FORWARD(ssize_t, pread64, (int file, void *to, size_t size, off_t at), (file, to, size, at))
FORWARD(ssize_t, write, (int file, const void *from, size_t size), (file, from, size))
FORWARD(ssize_t, pwrite, (int file, const void *from, size_t size, off_t at), (file, from, size, at))
FORWARD(ssize_t, pwrite64, (int file, const void *from, size_t size, off_t at), (file, from, size, at))
FORWARD(int, fsync, (int file), (file))
FORWARD(int, fdatasync, (int file), (file))
