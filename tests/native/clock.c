/* A clock that was set back by an hour after it was read: what waits until a time of that clock, waits
   an hour longer. Preloaded; CLOCK_MONOTONIC is as it is. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec* now) {
  const long error = syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_REALTIME) {
    now->tv_sec += 3600;
  }
  return (int)error;
}
