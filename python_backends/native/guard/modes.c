/* What the server and its stubs make belongs to their user alone. Boost, in Triton's Python
   backend, makes its regions of shared memory mode 0644 whatever the umask is. */
#include "real.h"

#include <sys/mman.h>
#include <sys/stat.h>

EXPORTED int fchmod(int descriptor, mode_t mode) {
    return real_fchmod(descriptor, mode & ~(mode_t)(S_IRWXG | S_IRWXO));
}

EXPORTED int shm_open(const char *name, int flags, mode_t mode) {
    return real_shm_open(name, flags, mode & ~(mode_t)(S_IRWXG | S_IRWXO));
}
