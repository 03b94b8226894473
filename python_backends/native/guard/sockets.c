/* Stands before libc's socket calls, and follows the connections of the gRPC port. */
#include "guard.h"
#include "real.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { MOST_DESCRIPTORS = 1 << 16, MOST_PIECES = 16 };

/* By descriptor. A connection's memory is kept for the next one of that number. */
static _Atomic(struct connection *) connections[MOST_DESCRIPTORS];
static atomic_int end_of_connections;
static atomic_int owner; /* the process that accepts */

int connections_end(void) {
    return atomic_load_explicit(&end_of_connections, memory_order_acquire);
}

struct connection *connection_at(int descriptor) {
    return atomic_load_explicit(&connections[descriptor], memory_order_acquire);
}

static struct connection *followed(int descriptor) {
    if (descriptor < 0 || descriptor >= MOST_DESCRIPTORS) {
        return NULL;
    }
    struct connection *connection =
        atomic_load_explicit(&connections[descriptor], memory_order_acquire);
    return connection != NULL && atomic_load_explicit(&connection->followed, memory_order_acquire)
               ? connection
               : NULL;
}

static bool is_grpc(int descriptor) {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
        struct sockaddr_storage room;
    } name;
    memset(&name, 0, sizeof name);
    socklen_t length = sizeof name - 1; /* a path may come without its end */
    if (getsockname(descriptor, &name.any, &length) != 0) {
        return false;
    }
    switch (name.any.sa_family) {
    case AF_INET:
        return guard_settings.grpc_port != 0 && ntohs(name.v4.sin_port) == guard_settings.grpc_port;
    case AF_INET6:
        return guard_settings.grpc_port != 0 &&
               ntohs(name.v6.sin6_port) == guard_settings.grpc_port;
    case AF_UNIX:
        return guard_settings.grpc_socket != NULL &&
               strncmp(name.local.sun_path, guard_settings.grpc_socket,
                       sizeof name.local.sun_path) == 0;
    default:
        return false;
    }
}

static void forget(struct connection *connection) {
    streams_clear(&connection->streams);
    free(connection->out.queue);
    connection->in = (struct inbound){0};
    connection->out = (struct outbound){0};
    connection->broken = false;
    windows_begin(connection);
}

static struct connection *connection_for(int descriptor) {
    struct connection *connection = atomic_load(&connections[descriptor]);
    if (connection == NULL) {
        connection = calloc(1, sizeof *connection);
        if (connection != NULL) {
            pthread_mutex_init(&connection->lock, NULL);
            atomic_store_explicit(&connections[descriptor], connection, memory_order_release);
        }
    }
    int end = connections_end();
    while (descriptor >= end &&
           !atomic_compare_exchange_weak(&end_of_connections, &end, descriptor + 1)) {
    }
    return connection;
}

/* A server may send SETTINGS as often as it likes, and the first may come from the guard: grpc-core
   sets no bound on calls. Nothing was sent before, so there is room; a client that is gone shows in
   what grpc-core does next. */
static void announce(int descriptor) {
    enum { MAX_CONCURRENT_STREAMS = 3 };
    static const uint8_t frame[FRAME_HEAD_BYTES + SETTING_BYTES] = {
        0,
        0,
        SETTING_BYTES,
        FRAME_SETTINGS,
        0,
        0,
        0,
        0,
        0,
        0,
        MAX_CONCURRENT_STREAMS,
        0,
        0,
        ANNOUNCED_STREAMS >> 8,
        ANNOUNCED_STREAMS & 0xff,
    };
    const ssize_t sent = send(descriptor, frame, sizeof frame, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)sent;
}

/* Follow a connection that was accepted, if it is one of gRPC's. Gives what accept shall give. */
static int adopt(int descriptor) {
    if (descriptor < 0 || (guard_settings.grpc_port == 0 && guard_settings.grpc_socket == NULL) ||
        !is_grpc(descriptor)) {
        return descriptor;
    }
    struct connection *connection =
        descriptor < MOST_DESCRIPTORS ? connection_for(descriptor) : NULL;
    if (connection == NULL) {
        real_close(descriptor);
        errno = ECONNABORTED;
        return -1;
    }
    pthread_mutex_lock(&connection->lock);
    forget(connection);
    owner = getpid();
    atomic_store_explicit(&connection->followed, true, memory_order_release);
    pthread_mutex_unlock(&connection->lock);
    announce(descriptor);
    return descriptor;
}

EXPORTED int accept(int listener, struct sockaddr *address, socklen_t *length) {
    return adopt(real_accept(listener, address, length));
}

EXPORTED int accept4(int listener, struct sockaddr *address, socklen_t *length, int flags) {
    return adopt(real_accept4(listener, address, length, flags));
}

EXPORTED int close(int descriptor) {
    struct connection *connection = followed(descriptor);
    /* Before the real one: afterwards another thread may be given the same number, which unread.c
       must not end. A child between fork and exec may find the lock held for ever: it ends none. */
    if (connection != NULL && getpid() == owner) {
        pthread_mutex_lock(&connection->lock);
        atomic_store_explicit(&connection->followed, false, memory_order_release);
        forget(connection);
        pthread_mutex_unlock(&connection->lock);
    }
    return real_close(descriptor);
}

static void wake_for(struct connection *connection) {
    if (atomic_load_explicit(&connection->suspect, memory_order_relaxed)) {
        const int error = errno;
        unread_wake();
        errno = error;
    }
}

static bool look_at(struct connection *connection, const struct msghdr *message, size_t length) {
    pthread_mutex_lock(&connection->lock);
    connection->in.flags_at = NULL;
    for (size_t piece = 0; piece < message->msg_iovlen && length > 0; piece++) {
        const struct iovec *place = &message->msg_iov[piece];
        const size_t part = place->iov_len < length ? place->iov_len : length;
        inbound_take(connection, place->iov_base, part);
        length -= part;
    }
    const bool broken = connection->broken;
    pthread_mutex_unlock(&connection->lock);
    wake_for(connection);
    return !broken;
}

EXPORTED ssize_t recvmsg(int descriptor, struct msghdr *message, int flags) {
    const ssize_t received = real_recvmsg(descriptor, message, flags);
    if (received <= 0 || (flags & (MSG_ERRQUEUE | MSG_PEEK)) != 0) {
        return received;
    }
    struct connection *connection = followed(descriptor);
    if (connection != NULL && !look_at(connection, message, (size_t)received)) {
        errno = ECONNRESET;
        return -1;
    }
    return received;
}

/* Send the guard's answers. False: not all could be, and errno says why. */
static bool send_queue(int descriptor, struct outbound *out) {
    const ssize_t sent =
        send(descriptor, out->queue, out->queue_length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
        return false;
    }
    out->queue_length -= (size_t)sent;
    memmove(out->queue, out->queue + sent, out->queue_length);
    errno = EAGAIN;
    return out->queue_length == 0;
}

/* Send `most` bytes of the message or fewer: a socket may always take less than it is given. */
static ssize_t send_start(int descriptor, const struct msghdr *message, int flags, size_t most) {
    struct iovec pieces[MOST_PIECES];
    size_t count = 0;
    for (; count < message->msg_iovlen && count < MOST_PIECES && most > 0; count++) {
        pieces[count] = message->msg_iov[count];
        if (pieces[count].iov_len > most) {
            pieces[count].iov_len = most;
        }
        most -= pieces[count].iov_len;
    }
    struct msghdr start = *message;
    start.msg_iov = pieces;
    start.msg_iovlen = count;
    return real_sendmsg(descriptor, &start, flags);
}

static size_t length_of(const struct msghdr *message) {
    size_t length = 0;
    for (size_t piece = 0; piece < message->msg_iovlen; piece++) {
        length += message->msg_iov[piece].iov_len;
    }
    return length;
}

/* Under the lock, or unread.c might take a mark away that it has not seen the reason for. */
static void note_stopped(struct connection *connection, bool stopped) {
    atomic_store_explicit(&connection->stopped, stopped, memory_order_relaxed);
    if (stopped) {
        atomic_store_explicit(&connection->suspect, true, memory_order_relaxed);
    }
}

static void note_sent(struct connection *connection, const struct msghdr *message, ssize_t sent) {
    size_t length = sent > 0 ? (size_t)sent : 0;
    pthread_mutex_lock(&connection->lock);
    note_stopped(connection, sent < 0 || length < length_of(message));
    for (size_t piece = 0; piece < message->msg_iovlen && length > 0; piece++) {
        const struct iovec *place = &message->msg_iov[piece];
        const size_t part = place->iov_len < length ? place->iov_len : length;
        outbound_sent(connection, place->iov_base, part);
        length -= part;
    }
    pthread_mutex_unlock(&connection->lock);
}

static void calm(struct connection *connection, const struct msghdr *message) {
    struct cursor cursor = connection->out.cursor;
    for (size_t piece = 0; piece < message->msg_iovlen; piece++) {
        outbound_calm(&connection->streams, &cursor, message->msg_iov[piece].iov_base,
                      message->msg_iov[piece].iov_len);
    }
}

/* Bring the guard's own answers on their way. Gives how much of the message may follow now, or 0:
   nothing, and errno says why. */
static size_t prepare(int descriptor, struct connection *connection, const struct msghdr *message) {
    size_t most = SIZE_MAX;
    pthread_mutex_lock(&connection->lock);
    if (connection->out.queue_length > 0 && connection->out.begun) {
        if (!cursor_between_frames(&connection->out.cursor)) {
            most = outbound_frame_rest(&connection->out);
        } else if (!send_queue(descriptor, &connection->out)) {
            most = 0;
        }
    }
    if (connection->streams.refused > 0 && connection->out.queue_length == 0) {
        calm(connection, message);
    }
    pthread_mutex_unlock(&connection->lock);
    return most;
}

static ssize_t send_followed(int descriptor, struct connection *connection,
                             const struct msghdr *message, int flags) {
    const size_t most = prepare(descriptor, connection, message);
    const ssize_t sent = most == 0          ? -1
                         : most == SIZE_MAX ? real_sendmsg(descriptor, message, flags)
                                            : send_start(descriptor, message, flags, most);
    note_sent(connection, message, sent);
    return sent;
}

EXPORTED ssize_t sendmsg(int descriptor, const struct msghdr *message, int flags) {
    struct connection *connection = followed(descriptor);
    if (connection == NULL) {
        return real_sendmsg(descriptor, message, flags);
    }
    const ssize_t sent = send_followed(descriptor, connection, message, flags);
    wake_for(connection);
    return sent;
}
