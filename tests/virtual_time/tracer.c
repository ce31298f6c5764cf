// A debugger that has a process for half a second: tracer PID FILE
// Says how large the file is when it has the process, half a second later, and whether it grows once the process goes on.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static long size(const char *path) {
  struct stat file;
  return stat(path, &file) == 0 ? (long)file.st_size : -1;
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  pid_t pid = atoi(argv[1]);
  if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) != 0) {
    perror("PTRACE_ATTACH");
    return 1;
  }
  waitpid(pid, NULL, __WALL);
  long first = size(argv[2]);
  usleep(500 * 1000);
  long second = size(argv[2]);
  ptrace(PTRACE_DETACH, pid, NULL, NULL);
  int grows = 0;
  for (int look = 0; look < 500 && !grows; look++) {
    usleep(20 * 1000);
    grows = size(argv[2]) > second;
  }
  printf("tracer %ld %ld %d\n", first, second, grows);
  return 0;
}
